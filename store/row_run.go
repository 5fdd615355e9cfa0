package store

import (
	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
)

// runRow is a row of workflow_runs: where a run stands.
type runRow struct{ run.Run }

var runTable = &Table{
	Name: "workflow_runs", Key: 1, Cached: true,
	Columns: []Column{
		{"run_id", "BLOB NOT NULL CHECK (length(run_id) = 16)"},
		{"revision", "INTEGER NOT NULL"},
		{"status", "INTEGER NOT NULL CHECK (status BETWEEN 1 AND 7)"},
		{"node", "TEXT NOT NULL"},
		{"visit", "INTEGER NOT NULL"},
		{"attempt", "INTEGER NOT NULL"},
		{"retry", "INTEGER NOT NULL"},
		{"asked", "INTEGER NOT NULL CHECK (asked IN (0, 1))"},
		{"due_at", "INTEGER CHECK (due_at IS NULL OR status = 2)"},
		{"began_at", "INTEGER NOT NULL"},
		{"budget_ns", "INTEGER"},
		{"spent_ns", "INTEGER"},
		{"intervals", "INTEGER"},
		{"interval_at", "INTEGER"},
		{"interval_from_ns", "INTEGER"},
		{"sampled_ns", "INTEGER"}, // on the clock that is named next
		{"clock", "TEXT CHECK ((clock IS NOT NULL) = (interval_at IS NOT NULL))"},
		{"settings", "INTEGER"},
		{"settings_seen", "INTEGER"},
		{"steps", "INTEGER NOT NULL"},
		{"progress", "INTEGER NOT NULL"},
		{"input", "BLOB"},
		{"error_code", "TEXT"},
		{"error_message", "TEXT CHECK ((error_message IS NOT NULL) = (error_code IS NOT NULL))"},
		{"started_at", "INTEGER NOT NULL"},
		{"ended_at", "INTEGER CHECK ((ended_at IS NOT NULL) = (status >= 4))"},
	},
	Indexes: []*Index{runsDue},
}

// runsDue visits the runs that wait for a declared retry, the earliest first.
var runsDue = &Index{
	Name: "workflow_runs_due", Columns: []string{"due_at", "run_id"},
	Where: "due_at IS NOT NULL",
	Has:   func(col func(string) Value) bool { return col("due_at").Kind != Null },
}

// Table implements Row.
func (*runRow) Table() *Table { return runTable }

// Fields implements Row.
func (r *runRow) Fields(f *Fields) {
	runKey(f, &r.ID)
	if f.enough() {
		return
	}
	num(f, &r.Revision)
	num(f, &r.Status)
	text(f, &r.Node)
	num(f, &r.Visit)
	num(f, &r.Attempt)
	num(f, &r.Retry)
	flag(f, &r.Asked)
	opt(f, &r.Due)
	num(f, &r.Began)
	opt(f, &r.Budget)
	opt(f, &r.Active.Spent)
	opt(f, &r.Active.N)
	opt(f, &r.Active.Opened)
	opt(f, &r.Active.From)
	opt(f, &r.Active.At)
	optText(f, &r.Active.Clock)
	opt(f, &r.Settings)
	opt(f, &r.Seen)
	num(f, &r.Steps)
	num(f, &r.Progress)
	blob(f, &r.Input)
	optText(f, &r.Failure.Code)
	optText(f, &r.Failure.Message)
	num(f, &r.Started)
	opt(f, &r.Ended)
}

// stepRow is a row of workflow_steps: one settled execution of a node.
type stepRow struct{ run.Step }

var stepTable = &Table{
	Name: "workflow_steps", Key: 4,
	Columns: []Column{
		{"run_id", "BLOB NOT NULL CHECK (length(run_id) = 16)"},
		{"node", "TEXT NOT NULL"},
		{"visit", "INTEGER NOT NULL"},
		{"attempt", "INTEGER NOT NULL"},
		{"outcome", "INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 4)"},
		{"output", "BLOB CHECK ((output IS NOT NULL) = (outcome = 1))"},
		{"error_code", "TEXT"},
		{"error_message", "TEXT CHECK ((error_message IS NOT NULL) = (error_code IS NOT NULL))"},
		{"began_at", "INTEGER NOT NULL"},
		{"spent_ns", "INTEGER"},
		{"happened", "INTEGER NOT NULL CHECK (happened = 0 OR outcome <> 1)"},
		{"at", "INTEGER NOT NULL"},
	},
	Indexes: []*Index{stepsLatest},
}

// stepsLatest visits the executions of one node, the latest first.
var stepsLatest = &Index{Name: "workflow_steps_latest", Primary: true, Desc: true, Columns: []string{"run_id", "node", "visit", "attempt"}}

// Table implements Row.
func (*stepRow) Table() *Table { return stepTable }

// Fields implements Row.
func (r *stepRow) Fields(f *Fields) {
	runKey(f, &r.Run)
	text(f, &r.Node)
	num(f, &r.Visit)
	num(f, &r.Attempt)
	num(f, &r.Outcome)
	blob(f, &r.Output)
	optText(f, &r.Failure.Code)
	optText(f, &r.Failure.Message)
	num(f, &r.Began)
	opt(f, &r.Spent)
	flag(f, &r.Happened)
	num(f, &r.At)
}

// effectRow is a row of workflow_effects: one intended external side effect.
type effectRow struct {
	effect.Effect
	Evidence string // of the person who settled it
	Output   []byte // that the person found, as JSON
}

var effectTable = &Table{
	Name: "workflow_effects", Key: 6,
	Columns: []Column{
		{"run_id", "BLOB NOT NULL CHECK (length(run_id) = 16)"},
		{"node", "TEXT NOT NULL"},
		{"visit", "INTEGER NOT NULL"},
		{"retry", "INTEGER NOT NULL"},
		{"type", "TEXT NOT NULL"},
		{"name", "TEXT NOT NULL"},
		{"fingerprint", "BLOB NOT NULL CHECK (length(fingerprint) = 32)"},
		{"state", "INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4)"},
		{"policy", "INTEGER NOT NULL CHECK (policy BETWEEN 1 AND 3)"},
		{"token_hash", "BLOB NOT NULL"},
		{"attempt", "INTEGER NOT NULL"},
		{"reserved_at", "INTEGER NOT NULL"},
		{"settled_at", "INTEGER CHECK ((settled_at IS NOT NULL) = (state IN (2, 3)))"},
		{"evidence", "TEXT CHECK (evidence IS NULL OR settled_at IS NOT NULL)"},
		{"output", "BLOB CHECK (output IS NULL OR evidence IS NOT NULL)"},
	},
	Indexes: []*Index{effectsUnsettled},
}

// effectsUnsettled visits the effects of a run that are not settled.
var effectsUnsettled = &Index{
	Name: "workflow_effects_unsettled", Columns: []string{"run_id", "node", "visit", "retry"},
	Where: "settled_at IS NULL",
	Has:   func(col func(string) Value) bool { return col("settled_at").Kind == Null },
}

// Table implements Row.
func (*effectRow) Table() *Table { return effectTable }

// Fields implements Row.
func (r *effectRow) Fields(f *Fields) {
	k := &r.Key
	runKey(f, &k.Run)
	text(f, &k.Path)
	num(f, &k.Visit)
	num(f, &k.Retry)
	text(f, &k.Type)
	text(f, &k.Name)
	digest(f, &r.Fingerprint)
	num(f, &r.State)
	num(f, &r.Policy)
	digest(f, &r.Token)
	num(f, &r.Attempt)
	num(f, &r.Reserved)
	opt(f, &r.Settled)
	optText(f, &r.Evidence)
	blob(f, &r.Output)
}
