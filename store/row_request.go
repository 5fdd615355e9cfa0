package store

import (
	"encoding/json"

	"example.com/piworkflows/engine/request"
)

// requestRow is a row of workflow_requests: one question that was asked outward.
type requestRow struct{ request.Request }

var requestTable = &Table{
	Name: "workflow_requests", Key: 1, Cached: true,
	Columns: []Column{
		{"request_id", "TEXT NOT NULL"},
		{"run_id", "TEXT NOT NULL"},
		{"node", "TEXT NOT NULL"},
		{"visit", "INTEGER NOT NULL"},
		{"attempt", "INTEGER NOT NULL"},
		{"session_id", "TEXT"},
		{"kind", "INTEGER NOT NULL CHECK (kind BETWEEN 3 AND 6)"},
		{"contract", "BLOB NOT NULL"},
		{"digest", "BLOB NOT NULL CHECK (length(digest) = 32)"},
		{"revision", "INTEGER NOT NULL"},
		{"state", "INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5)"},
		{"candidate", "BLOB CHECK ((candidate IS NOT NULL) = (state = 2))"},
		{"candidate_by", "TEXT CHECK ((candidate_by IS NOT NULL) = (state = 2))"},
		{"tries", "INTEGER NOT NULL"},
		{"rejection", "TEXT"},
		{"answer", "BLOB CHECK (answer IS NULL OR state = 3)"}, // until the run has taken it over
		{"answer_digest", "BLOB CHECK ((answer_digest IS NOT NULL) = (state = 3))"},
		{"answered_by", "TEXT CHECK ((answered_by IS NOT NULL) = (state = 3))"},
		{"answered_with", "INTEGER"},
		{"expired_code", "TEXT CHECK ((expired_code IS NOT NULL) = (state = 4))"},
		{"subject_digest", "BLOB"},
		{"deadline_at", "INTEGER"},
		{"used_by", "BLOB"},
		{"progress", "BLOB"},
		{"progress_at", "INTEGER"},
		{"progress_from", "TEXT"},
		{"progress_since", "INTEGER"},
		{"prompts", "INTEGER NOT NULL"},
		{"resumed", "INTEGER NOT NULL"},
		{"reminders", "INTEGER NOT NULL"},
		{"turn_end", "INTEGER"},
		{"prompt_entry", "TEXT"},
		{"response_entry", "TEXT"},
		{"opened_at", "INTEGER NOT NULL"},
		{"settled_at", "INTEGER CHECK ((settled_at IS NOT NULL) = (state >= 3))"},
	},
	Indexes: []*Index{requestsDeadline, requestsDecisions},
}

// requestsDecisions visits the open decisions, the oldest first.
var requestsDecisions = &Index{
	Name: "workflow_requests_decisions", Columns: []string{"opened_at", "request_id"},
	Where: "kind = 6 AND settled_at IS NULL",
	Has:   func(col func(string) Value) bool { return col("kind").Int == 6 && col("settled_at").Kind == Null },
}

// requestsDeadline visits the open requests that have a deadline, the earliest
// first.
var requestsDeadline = &Index{
	Name: "workflow_requests_deadline", Columns: []string{"deadline_at", "request_id"},
	Where: "deadline_at IS NOT NULL AND settled_at IS NULL",
	Has: func(col func(string) Value) bool {
		return col("deadline_at").Kind != Null && col("settled_at").Kind == Null
	},
}

// Table implements Row.
func (*requestRow) Table() *Table { return requestTable }

// Fields implements Row.
func (r *requestRow) Fields(f *Fields) {
	q := &r.Request
	text(f, &q.ID)
	if f.enough() {
		return
	}
	text(f, &q.Run)
	text(f, &q.Node)
	num(f, &q.Visit)
	num(f, &q.Attempt)
	optText(f, &q.Session)
	num(f, &q.Kind)
	blob(f, &q.Contract)
	digest(f, &q.Digest)
	num(f, &q.Revision)
	num(f, &q.State)
	blob(f, &q.Candidate)
	provenance(f, &q.CandidateBy)
	num(f, &q.Tries)
	optText(f, &q.Rejection)
	blob(f, &q.Answer)
	digest(f, &q.Print)
	provenance(f, &q.By)
	opt(f, &q.ByAction)
	optText(f, &q.Why)
	digest(f, &q.Subject)
	opt(f, &q.Deadline)
	digest(f, &q.UsedBy)
	blob(f, &q.Progress)
	opt(f, &q.ProgressAt)
	decimal(f, &q.ProgressFrom)
	opt(f, &q.ProgressSince)
	num(f, &q.Prompts)
	num(f, &q.Resumed)
	num(f, &q.Reminders)
	opt(f, &q.Latest)
	optText(f, &q.PromptEntry)
	optText(f, &q.ResponseEntry)
	num(f, &q.Opened)
	opt(f, &q.Settled)
}

// provenance visits a column that says who answered, as JSON; nobody is NULL.
func provenance(f *Fields, p *request.Provenance) {
	s := ""
	if !f.Reading() && *p != (request.Provenance{}) {
		s = string(encode(*p))
	}
	optText(f, &s)
	if f.Reading() {
		*p = request.Provenance{}
		if s != "" && json.Unmarshal([]byte(s), p) != nil {
			f.Fail("who answered")
		}
	}
}

// receiptRow is a row of workflow_receipts: what one action on a request came
// to. The session is that of the model that acted, and empty for others.
type receiptRow struct{ request.Receipt }

var receiptTable = &Table{
	Name: "workflow_receipts", Key: 3,
	Columns: []Column{
		{"session_id", "TEXT NOT NULL"},
		{"request_id", "TEXT NOT NULL"}, // as the caller wrote it
		{"action_key", "TEXT NOT NULL"},
		{"action", "INTEGER NOT NULL"},
		{"actor", "INTEGER NOT NULL"},
		{"fingerprint", "BLOB"},
		{"outcome", "INTEGER NOT NULL"},
		{"refused", "INTEGER"},
		{"reason", "TEXT"},
		{"revision", "INTEGER NOT NULL"},
		{"at", "INTEGER NOT NULL"},
	},
}

// Table implements Row.
func (*receiptRow) Table() *Table { return receiptTable }

// Fields implements Row.
func (r *receiptRow) Fields(f *Fields) {
	text(f, &r.Session)
	text(f, &r.Request)
	text(f, &r.Key)
	num(f, &r.Action)
	num(f, &r.Actor)
	digest(f, &r.Print)
	num(f, &r.Outcome)
	opt(f, &r.Kind)
	optText(f, &r.Reason)
	num(f, &r.Revision)
	num(f, &r.At)
}
