package store

import "example.com/piworkflows/launch"

// launchRow is a row of workflow_run_queue: one launch.
type launchRow struct{ launch.Launch }

var launchTable = &Table{
	Name: "workflow_run_queue", Key: 1, Cached: true,
	Columns: []Column{
		{"run_id", "BLOB NOT NULL CHECK (length(run_id) = 16)"},
		{"workflow", "TEXT NOT NULL"},
		{"source", "TEXT NOT NULL"},
		{"digest", "BLOB NOT NULL CHECK (length(digest) = 32)"},
		{"mode", "INTEGER NOT NULL CHECK (mode IN (1, 2))"},
		{"session_id", "TEXT CHECK ((session_id IS NOT NULL) = (mode = 1))"},
		{"origin_group", "TEXT"},
		{"input", "BLOB CHECK (input IS NULL OR state IN (1, 2))"},
		{"options", "BLOB"},
		{"scope", "TEXT"},
		{"request_key", "TEXT CHECK (request_key IS NULL OR scope IS NOT NULL)"},
		{"content", "BLOB NOT NULL CHECK (length(content) = 32)"},
		{"initiating_turn", "TEXT"},
		{"parent_run_id", "TEXT"},
		{"chain_run_id", "TEXT"}, // NULL: the run began its chain
		{"state", "INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7)"},
		{"park", "INTEGER NOT NULL CHECK (park BETWEEN 0 AND 4 AND (park > 0) = (state = 4))"},
		{"attention", "INTEGER NOT NULL CHECK ((attention > 0) = (park = 4))"},
		{"paused", "INTEGER NOT NULL CHECK (paused IN (0, 1))"},
		{"host_pause", "INTEGER NOT NULL CHECK (host_pause IN (0, paused))"},
		{"runner", "TEXT CHECK ((runner IS NOT NULL) = (state IN (2, 3)))"},
		{"token_hash", "BLOB CHECK ((token_hash IS NOT NULL) = (state IN (2, 3)))"},
		{"generation", "INTEGER NOT NULL"},
		{"claimed", "INTEGER NOT NULL CHECK (claimed = (state IN (2, 3)))"},
		{"due_at", "INTEGER CHECK (due_at IS NOT NULL OR claimed = 0)"}, // claimed: lease expiry; headless: since when it waits for a claim
		{"ready_at", "INTEGER"},                                         // interactive: since when it waits for its boundary or a claim
		{"lease_ns", "INTEGER NOT NULL"},
		{"activations", "INTEGER NOT NULL"},
		{"expiries", "INTEGER NOT NULL"},
		{"strikes", "INTEGER NOT NULL"},
		{"progress", "INTEGER NOT NULL"},
		{"error_code", "TEXT CHECK ((error_code IS NOT NULL) = (state = 6))"},
		{"error_message", "TEXT CHECK ((error_message IS NOT NULL) = (state = 6))"},
		{"created_at", "INTEGER NOT NULL"},
		{"updated_at", "INTEGER NOT NULL"},
		{"started_at", "INTEGER"},
		{"finished_at", "INTEGER CHECK ((finished_at IS NOT NULL) = (state >= 5))"},
		{"events", "INTEGER NOT NULL"},
	},
	Indexes: []*Index{launchesBySession, launchesByKey, launchesDue},
}

// launchesBySession is the reservation: one live interactive launch a session.
var launchesBySession = &Index{
	Name: "workflow_run_queue_reservation", Columns: []string{"session_id"}, Unique: true,
	Where: "session_id IS NOT NULL AND finished_at IS NULL", // which changes less often than the state
	Has: func(col func(string) Value) bool {
		return col("session_id").Kind == Text && col("finished_at").Kind == Null
	},
}

// launchesByKey finds the launch of a request key.
var launchesByKey = &Index{
	Name: "workflow_run_queue_request_key", Columns: []string{"scope", "request_key"}, Unique: true,
	Where: "request_key IS NOT NULL",
	Has:   func(col func(string) Value) bool { return col("request_key").Kind == Text },
}

// launchesDue holds what the scheduler looks at: claims by expiry, and headless
// launches that wait for a claim, oldest first.
var launchesDue = &Index{
	Name: "workflow_run_queue_due", Columns: []string{"claimed", "due_at", "run_id"},
	Where: "due_at IS NOT NULL",
	Has:   func(col func(string) Value) bool { return col("due_at").Kind == Int },
}

// Table implements Row.
func (*launchRow) Table() *Table { return launchTable }

// Fields implements Row.
func (r *launchRow) Fields(f *Fields) {
	l := &r.Launch
	launchKey(f, &l.ID, &l.Workflow)
	if f.enough() {
		return
	}
	text(f, &l.Source)
	digest(f, &l.Digest)
	num(f, &l.Mode)
	optText(f, &l.Session)
	optText(f, &l.Group)
	blob(f, &l.Input)
	blob(f, &l.Options)
	optText(f, &l.Scope)
	optText(f, &l.RequestKey)
	digest(f, &l.Content)
	optText(f, &l.InitiatingTurn)
	optText(f, &l.Parent)
	chain := l.Chain
	if chain == l.ID {
		chain = ""
	}
	optText(f, &chain)
	if l.Chain = chain; chain == "" {
		l.Chain = l.ID
	}
	num(f, &l.State)
	num(f, &l.Park)
	num(f, &l.Attention)
	flag(f, &l.Paused)
	flag(f, &l.HostPause)
	optText(f, &l.Claim.Runner)
	digest(f, &l.Claim.Token)
	num(f, &l.Generation)
	claimed := l.State.Claimed()
	flag(f, &claimed)
	var due, ready launch.Time
	if !f.reading {
		switch {
		case l.State.Claimed():
			due = l.Claim.Expiry
		case l.Mode == launch.Headless:
			due = l.Ready
		default:
			ready = l.Ready
		}
	}
	opt(f, &due)
	opt(f, &ready)
	if f.reading {
		l.Claim.Expiry, l.Ready = 0, ready
		switch {
		case l.State.Claimed():
			l.Claim.Expiry = due
		case l.Mode == launch.Headless:
			l.Ready = due
		}
	}
	num(f, &l.Claim.Lease)
	num(f, &l.Activations)
	num(f, &l.Expiries)
	num(f, &l.Strikes)
	num(f, &l.Progress)
	optText(f, &l.Error.Code)
	optText(f, &l.Error.Message)
	num(f, &l.Created)
	num(f, &l.Updated)
	opt(f, &l.Started)
	opt(f, &l.Finished)
	num(f, &l.Events)
}
