package store

import (
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// intervalRow is a row of workflow_intervals: one closed active interval of an
// attempt that has a budget.
type intervalRow struct{ run.Interval }

var intervalTable = &Table{
	Name: "workflow_intervals", Key: 5,
	Columns: []Column{
		{"run_id", "BLOB NOT NULL CHECK (length(run_id) = 16)"},
		{"node", "TEXT NOT NULL"},
		{"visit", "INTEGER NOT NULL"},
		{"attempt", "INTEGER NOT NULL"},
		{"n", "INTEGER NOT NULL"},
		{"opened_at", "INTEGER NOT NULL"},
		{"closed_at", "INTEGER NOT NULL"},
		{"spent_ns", "INTEGER NOT NULL CHECK (spent_ns >= 0)"},
	},
}

// Table implements Row.
func (*intervalRow) Table() *Table { return intervalTable }

// Fields implements Row.
func (r *intervalRow) Fields(f *Fields) {
	runKey(f, &r.Run)
	text(f, &r.Node)
	num(f, &r.Visit)
	num(f, &r.Attempt)
	num(f, &r.N)
	num(f, &r.Opened)
	num(f, &r.Closed)
	num(f, &r.Spent)
}

// settingsRow is a row of workflow_settings: one revision of a run's settings.
type settingsRow struct {
	Run      launch.RunID
	Revision uint32 // from 1, the defaults
	Value    []byte
	By       launch.Actor
	At       launch.Time
}

var settingsTable = &Table{
	Name: "workflow_settings", Key: 2,
	Columns: []Column{
		{"run_id", "BLOB NOT NULL CHECK (length(run_id) = 16)"},
		{"revision", "INTEGER NOT NULL"},
		{"value", "BLOB NOT NULL"},
		{"actor", "INTEGER NOT NULL"},
		{"at", "INTEGER NOT NULL"},
	},
}

// Table implements Row.
func (*settingsRow) Table() *Table { return settingsTable }

// Fields implements Row.
func (r *settingsRow) Fields(f *Fields) {
	runKey(f, &r.Run)
	num(f, &r.Revision)
	blob(f, &r.Value)
	num(f, &r.By)
	num(f, &r.At)
}
