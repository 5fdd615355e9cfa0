CREATE TABLE workflow_store (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  schema_id TEXT NOT NULL
) STRICT;

CREATE TABLE workflow_run_queue (
  run_id BLOB NOT NULL CHECK (length(run_id) = 16),
  workflow TEXT NOT NULL,
  source TEXT NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  mode INTEGER NOT NULL CHECK (mode IN (1, 2)),
  session_id TEXT CHECK ((session_id IS NOT NULL) = (mode = 1)),
  origin_group TEXT,
  input BLOB CHECK (input IS NULL OR state IN (1, 2)),
  options BLOB,
  scope TEXT,
  request_key TEXT CHECK (request_key IS NULL OR scope IS NOT NULL),
  content BLOB NOT NULL CHECK (length(content) = 32),
  initiating_turn TEXT,
  parent_run_id TEXT,
  chain_run_id TEXT,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),
  park INTEGER NOT NULL CHECK (park BETWEEN 0 AND 4 AND (park > 0) = (state = 4)),
  attention INTEGER NOT NULL CHECK ((attention > 0) = (park = 4)),
  paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
  host_pause INTEGER NOT NULL CHECK (host_pause IN (0, paused)),
  runner TEXT CHECK ((runner IS NOT NULL) = (state IN (2, 3))),
  token_hash BLOB CHECK ((token_hash IS NOT NULL) = (state IN (2, 3))),
  generation INTEGER NOT NULL,
  claimed INTEGER NOT NULL CHECK (claimed = (state IN (2, 3))),
  due_at INTEGER CHECK (due_at IS NOT NULL OR claimed = 0),
  ready_at INTEGER,
  lease_ns INTEGER NOT NULL,
  activations INTEGER NOT NULL,
  expiries INTEGER NOT NULL,
  strikes INTEGER NOT NULL,
  progress INTEGER NOT NULL,
  error_code TEXT CHECK ((error_code IS NOT NULL) = (state = 6)),
  error_message TEXT CHECK ((error_message IS NOT NULL) = (state = 6)),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER CHECK ((finished_at IS NOT NULL) = (state >= 5)),
  events INTEGER NOT NULL,
  PRIMARY KEY (run_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX workflow_run_queue_reservation
ON workflow_run_queue (session_id)
WHERE session_id IS NOT NULL AND finished_at IS NULL;

CREATE UNIQUE INDEX workflow_run_queue_request_key
ON workflow_run_queue (scope, request_key)
WHERE request_key IS NOT NULL;

CREATE INDEX workflow_run_queue_due
ON workflow_run_queue (claimed, due_at, run_id)
WHERE due_at IS NOT NULL;

CREATE TABLE workflow_runs (
  run_id BLOB NOT NULL CHECK (length(run_id) = 16),
  revision INTEGER NOT NULL,
  status INTEGER NOT NULL CHECK (status BETWEEN 1 AND 7),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  retry INTEGER NOT NULL,
  asked INTEGER NOT NULL CHECK (asked IN (0, 1)),
  due_at INTEGER CHECK (due_at IS NULL OR status = 2),
  began_at INTEGER NOT NULL,
  budget_ns INTEGER,
  spent_ns INTEGER,
  intervals INTEGER,
  interval_at INTEGER,
  interval_from_ns INTEGER,
  sampled_ns INTEGER,
  clock TEXT CHECK ((clock IS NOT NULL) = (interval_at IS NOT NULL)),
  settings INTEGER,
  settings_seen INTEGER,
  steps INTEGER NOT NULL,
  progress INTEGER NOT NULL,
  input BLOB,
  error_code TEXT,
  error_message TEXT CHECK ((error_message IS NOT NULL) = (error_code IS NOT NULL)),
  started_at INTEGER NOT NULL,
  ended_at INTEGER CHECK ((ended_at IS NOT NULL) = (status >= 4)),
  PRIMARY KEY (run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_runs_due
ON workflow_runs (due_at, run_id)
WHERE due_at IS NOT NULL;

CREATE TABLE workflow_steps (
  run_id BLOB NOT NULL CHECK (length(run_id) = 16),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  outcome INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 4),
  output BLOB CHECK ((output IS NOT NULL) = (outcome = 1)),
  error_code TEXT,
  error_message TEXT CHECK ((error_message IS NOT NULL) = (error_code IS NOT NULL)),
  began_at INTEGER NOT NULL,
  spent_ns INTEGER,
  happened INTEGER NOT NULL CHECK (happened = 0 OR outcome <> 1),
  at INTEGER NOT NULL,
  PRIMARY KEY (run_id, node, visit, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_effects (
  run_id BLOB NOT NULL CHECK (length(run_id) = 16),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  retry INTEGER NOT NULL,
  type TEXT NOT NULL,
  name TEXT NOT NULL,
  fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
  policy INTEGER NOT NULL CHECK (policy BETWEEN 1 AND 3),
  token_hash BLOB NOT NULL,
  attempt INTEGER NOT NULL,
  reserved_at INTEGER NOT NULL,
  settled_at INTEGER CHECK ((settled_at IS NOT NULL) = (state IN (2, 3))),
  evidence TEXT CHECK (evidence IS NULL OR settled_at IS NOT NULL),
  output BLOB CHECK (output IS NULL OR evidence IS NOT NULL),
  PRIMARY KEY (run_id, node, visit, retry, type, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_effects_unsettled
ON workflow_effects (run_id, node, visit, retry)
WHERE settled_at IS NULL;

CREATE TABLE workflow_events (
  stream BLOB NOT NULL CHECK (length(stream) = 16),
  n INTEGER NOT NULL,
  at INTEGER NOT NULL,
  facts TEXT NOT NULL,
  PRIMARY KEY (stream, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_turn_intents (
  intent_id TEXT NOT NULL,
  source_event_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  workflow_ref TEXT NOT NULL,
  target_session_id TEXT NOT NULL,
  cause TEXT NOT NULL,
  node_id TEXT,
  attempt_id TEXT,
  chain_run_id TEXT NOT NULL,
  fallback_facts_json TEXT NOT NULL,
  requested_at INTEGER NOT NULL,
  eligible_at INTEGER,
  resolved_at INTEGER,
  resolution TEXT CHECK ((resolution IS NOT NULL) = (resolved_at IS NOT NULL)),
  resolution_message_id TEXT CHECK ((resolution_message_id IS NOT NULL) = (resolved_at IS NOT NULL)),
  withdrawn_at INTEGER CHECK (withdrawn_at IS NULL OR resolved_at IS NULL),
  withdrawn_reason TEXT CHECK ((withdrawn_reason IS NOT NULL) = (withdrawn_at IS NOT NULL)),
  delivery_claim_token BLOB,
  delivery_claim_expires_at INTEGER CHECK ((delivery_claim_expires_at IS NOT NULL) = (delivery_claim_token IS NOT NULL)),
  PRIMARY KEY (intent_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_turn_intents_pending
ON workflow_turn_intents (target_session_id, requested_at, intent_id)
WHERE resolved_at IS NULL AND withdrawn_at IS NULL;

CREATE TABLE workflow_turn_sources (
  source_event_id TEXT NOT NULL,
  intent_id TEXT NOT NULL,
  PRIMARY KEY (source_event_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_sessions (
  session_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  host TEXT,
  process TEXT,
  can_tell_durable INTEGER NOT NULL,
  reported INTEGER NOT NULL,
  fresh INTEGER NOT NULL,
  idle INTEGER NOT NULL,
  pending INTEGER NOT NULL,
  pending_since INTEGER,
  input INTEGER NOT NULL,
  active_turn TEXT,
  active_message TEXT,
  active_input INTEGER NOT NULL,
  open_message TEXT,
  held INTEGER NOT NULL,
  abort_message TEXT,
  held_epoch INTEGER,
  held_run_id TEXT,
  display_run_id TEXT,
  quiet_until INTEGER,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  events INTEGER NOT NULL,
  PRIMARY KEY (session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_messages (
  message_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 8),
  subject TEXT NOT NULL,
  issue INTEGER NOT NULL,
  run_id TEXT,
  intent_id TEXT,
  request_id TEXT,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
  body BLOB,
  eligible_at INTEGER,
  attempts INTEGER NOT NULL,
  refusals INTEGER NOT NULL,
  attempt_token BLOB,
  attempt_first BLOB CHECK ((attempt_first IS NOT NULL) = (attempt_token IS NOT NULL)),
  attempt_epoch INTEGER CHECK ((attempt_epoch IS NOT NULL) = (attempt_token IS NOT NULL)),
  attempt_deadline INTEGER,
  attempt_taken INTEGER NOT NULL,
  seen INTEGER NOT NULL,
  durable INTEGER NOT NULL,
  watched INTEGER NOT NULL,
  turn_id TEXT,
  turn_opened_at INTEGER,
  turn_closed_at INTEGER,
  turn_end INTEGER CHECK ((turn_end IS NOT NULL) = (turn_closed_at IS NOT NULL)),
  turn_input INTEGER NOT NULL,
  turn_starts INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_messages_watched
ON workflow_messages (session_id, created_at, message_id)
WHERE watched = 1;

CREATE UNIQUE INDEX workflow_messages_unsent
ON workflow_messages (subject)
WHERE state = 1;

CREATE TABLE workflow_chains (
  chain_run_id TEXT NOT NULL,
  stopped INTEGER NOT NULL,
  recoveries INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  PRIMARY KEY (chain_run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_requests (
  request_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  session_id TEXT,
  kind INTEGER NOT NULL CHECK (kind BETWEEN 3 AND 6),
  contract BLOB NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  revision INTEGER NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
  candidate BLOB CHECK ((candidate IS NOT NULL) = (state = 2)),
  candidate_by TEXT CHECK ((candidate_by IS NOT NULL) = (state = 2)),
  tries INTEGER NOT NULL,
  rejection TEXT,
  answer BLOB CHECK (answer IS NULL OR state = 3),
  answer_digest BLOB CHECK ((answer_digest IS NOT NULL) = (state = 3)),
  answered_by TEXT CHECK ((answered_by IS NOT NULL) = (state = 3)),
  answered_with INTEGER,
  expired_code TEXT CHECK ((expired_code IS NOT NULL) = (state = 4)),
  subject_digest BLOB,
  deadline_at INTEGER,
  used_by BLOB,
  progress BLOB,
  progress_at INTEGER,
  progress_from TEXT,
  progress_since INTEGER,
  prompts INTEGER NOT NULL,
  resumed INTEGER NOT NULL,
  reminders INTEGER NOT NULL,
  turn_end INTEGER,
  prompt_entry TEXT,
  response_entry TEXT,
  opened_at INTEGER NOT NULL,
  settled_at INTEGER CHECK ((settled_at IS NOT NULL) = (state >= 3)),
  PRIMARY KEY (request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_requests_deadline
ON workflow_requests (deadline_at, request_id)
WHERE deadline_at IS NOT NULL AND settled_at IS NULL;

CREATE INDEX workflow_requests_decisions
ON workflow_requests (opened_at, request_id)
WHERE kind = 6 AND settled_at IS NULL;

CREATE TABLE workflow_receipts (
  session_id TEXT NOT NULL,
  request_id TEXT NOT NULL,
  action_key TEXT NOT NULL,
  action INTEGER NOT NULL,
  actor INTEGER NOT NULL,
  fingerprint BLOB,
  outcome INTEGER NOT NULL,
  refused INTEGER,
  reason TEXT,
  revision INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, request_id, action_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_intervals (
  run_id BLOB NOT NULL CHECK (length(run_id) = 16),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  n INTEGER NOT NULL,
  opened_at INTEGER NOT NULL,
  closed_at INTEGER NOT NULL,
  spent_ns INTEGER NOT NULL CHECK (spent_ns >= 0),
  PRIMARY KEY (run_id, node, visit, attempt, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_settings (
  run_id BLOB NOT NULL CHECK (length(run_id) = 16),
  revision INTEGER NOT NULL,
  value BLOB NOT NULL,
  actor INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (run_id, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_presentations (
  channel TEXT NOT NULL,
  request_id TEXT NOT NULL,
  shown_at INTEGER,
  told_at INTEGER,
  PRIMARY KEY (channel, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_presentations_open
ON workflow_presentations (channel, request_id)
WHERE told_at IS NULL;
