package store

import (
	"example.com/piworkflows/engine/session"
)

// sessionRow is a row of workflow_sessions.
type sessionRow struct{ session.Session }

var sessionTable = &Table{
	Name: "workflow_sessions", Key: 1, Cached: true,
	Columns: []Column{
		{"session_id", "TEXT NOT NULL"},
		{"epoch", "INTEGER NOT NULL"},
		{"host", "TEXT"},
		{"process", "TEXT"},
		{"can_tell_durable", "INTEGER NOT NULL"},
		{"reported", "INTEGER NOT NULL"},
		{"fresh", "INTEGER NOT NULL"},
		{"idle", "INTEGER NOT NULL"},
		{"pending", "INTEGER NOT NULL"},
		{"pending_since", "INTEGER"},
		{"input", "INTEGER NOT NULL"},
		{"active_turn", "TEXT"},
		{"active_message", "TEXT"},
		{"active_input", "INTEGER NOT NULL"},
		{"open_message", "TEXT"},
		{"held", "INTEGER NOT NULL"},
		{"abort_message", "TEXT"},
		{"held_epoch", "INTEGER"},
		{"held_run_id", "TEXT"},
		{"display_run_id", "TEXT"},
		{"quiet_until", "INTEGER"},
		{"created_at", "INTEGER NOT NULL"},
		{"updated_at", "INTEGER NOT NULL"},
		{"events", "INTEGER NOT NULL"},
	},
}

// Table implements Row.
func (*sessionRow) Table() *Table { return sessionTable }

// Fields implements Row.
func (r *sessionRow) Fields(f *Fields) {
	s := &r.Session
	text(f, &s.Key)
	if f.enough() {
		return
	}
	num(f, &s.Epoch)
	optText(f, &s.Host)
	optText(f, &s.Process)
	flag(f, &s.Durable)
	flag(f, &s.Reported)
	flag(f, &s.Fresh)
	flag(f, &s.Idle)
	flag(f, &s.Pending)
	opt(f, &s.PendingSince)
	flag(f, &s.Input)
	optText(f, &s.Active.Turn)
	optText(f, &s.Active.Message)
	flag(f, &s.Active.UserInput)
	optText(f, &s.Open)
	flag(f, &s.Held)
	optText(f, &s.Abort)
	opt(f, &s.HeldEpoch)
	optText(f, &s.HeldRun)
	optText(f, &s.Display)
	opt(f, &s.Quiet)
	num(f, &s.Created)
	num(f, &s.Updated)
	num(f, &s.Events)
}

// messageRow is a row of workflow_messages: one issue of a subject, and the
// turn that it opened.
type messageRow struct{ session.Message }

var messageTable = &Table{
	Name: "workflow_messages", Key: 1,
	Columns: []Column{
		{"message_id", "TEXT NOT NULL"},
		{"session_id", "TEXT NOT NULL"},
		{"kind", "INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 8)"},
		{"subject", "TEXT NOT NULL"},
		{"issue", "INTEGER NOT NULL"},
		{"run_id", "TEXT"},
		{"intent_id", "TEXT"},
		{"request_id", "TEXT"},
		{"state", "INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4)"},
		{"body", "BLOB"},
		{"eligible_at", "INTEGER"},
		{"attempts", "INTEGER NOT NULL"},
		{"refusals", "INTEGER NOT NULL"},
		{"attempt_token", "BLOB"},
		{"attempt_first", "BLOB CHECK ((attempt_first IS NOT NULL) = (attempt_token IS NOT NULL))"},
		{"attempt_epoch", "INTEGER CHECK ((attempt_epoch IS NOT NULL) = (attempt_token IS NOT NULL))"},
		{"attempt_deadline", "INTEGER"},
		{"attempt_taken", "INTEGER NOT NULL"},
		{"seen", "INTEGER NOT NULL"},
		{"durable", "INTEGER NOT NULL"},
		{"watched", "INTEGER NOT NULL"},
		{"turn_id", "TEXT"},
		{"turn_opened_at", "INTEGER"},
		{"turn_closed_at", "INTEGER"},
		{"turn_end", "INTEGER CHECK ((turn_end IS NOT NULL) = (turn_closed_at IS NOT NULL))"},
		{"turn_input", "INTEGER NOT NULL"},
		{"turn_starts", "INTEGER NOT NULL"},
		{"created_at", "INTEGER NOT NULL"},
		{"updated_at", "INTEGER NOT NULL"},
	},
	Indexes: []*Index{messagesWatched, messagesUnsent},
}

// messagesWatched visits the messages that reports are asked about.
var messagesWatched = &Index{
	Name: "workflow_messages_watched", Columns: []string{"session_id", "created_at", "message_id"},
	Where: "watched = 1",
	Has:   func(col func(string) Value) bool { return col("watched").Int == 1 },
}

// messagesUnsent allows one unsent issue a subject.
var messagesUnsent = &Index{
	Name: "workflow_messages_unsent", Columns: []string{"subject"}, Unique: true,
	Where: "state = 1",
	Has:   func(col func(string) Value) bool { return col("state").Int == 1 },
}

// Table implements Row.
func (*messageRow) Table() *Table { return messageTable }

// Fields implements Row.
func (r *messageRow) Fields(f *Fields) {
	m := &r.Message
	text(f, &m.ID)
	text(f, &m.Session)
	num(f, &m.Kind)
	text(f, &m.Subject)
	num(f, &m.Issue)
	optText(f, &m.Run)
	optText(f, &m.Intent)
	optText(f, &m.Request)
	num(f, &m.State)
	blob(f, &m.Body)
	opt(f, &m.Eligible)
	num(f, &m.Attempts)
	num(f, &m.Refusals)
	digest(f, &m.Attempt.Token)
	digest(f, &m.Attempt.First)
	opt(f, &m.Attempt.Epoch)
	opt(f, &m.Attempt.Deadline)
	flag(f, &m.Attempt.Taken)
	flag(f, &m.Seen)
	flag(f, &m.Durable)
	flag(f, &m.Watched)
	optText(f, &m.Turn.ID)
	opt(f, &m.Turn.Opened)
	opt(f, &m.Turn.Closed)
	opt(f, &m.Turn.End)
	flag(f, &m.Turn.UserInput)
	num(f, &m.Turn.Starts)
	num(f, &m.Created)
	num(f, &m.Updated)
}

// chainRow is a row of workflow_chains: what is left of a chain's automatic
// future. A chain without a row has used nothing.
type chainRow struct{ session.Chain }

var chainTable = &Table{
	Name: "workflow_chains", Key: 1,
	Columns: []Column{
		{"chain_run_id", "TEXT NOT NULL"},
		{"stopped", "INTEGER NOT NULL"},
		{"recoveries", "INTEGER NOT NULL"},
		{"failures", "INTEGER NOT NULL"},
	},
}

// Table implements Row.
func (*chainRow) Table() *Table { return chainTable }

// Fields implements Row.
func (r *chainRow) Fields(f *Fields) {
	text(f, &r.ID)
	flag(f, &r.Stopped)
	num(f, &r.Recoveries)
	num(f, &r.Failures)
}
