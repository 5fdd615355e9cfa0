package store

import (
	"encoding"

	"example.com/piworkflows/intents"
)

// intentRow is a row of workflow_turn_intents: one successor turn that is owed.
type intentRow struct{ intents.Intent }

var intentTable = &Table{
	Name: "workflow_turn_intents", Key: 1,
	Columns: []Column{
		{"intent_id", "TEXT NOT NULL"},
		{"source_event_id", "TEXT NOT NULL"},
		{"run_id", "TEXT NOT NULL"},
		{"workflow_ref", "TEXT NOT NULL"},
		{"target_session_id", "TEXT NOT NULL"},
		{"cause", "TEXT NOT NULL"},
		{"node_id", "TEXT"},
		{"attempt_id", "TEXT"},
		{"chain_run_id", "TEXT NOT NULL"},
		{"fallback_facts_json", "TEXT NOT NULL"},
		{"requested_at", "INTEGER NOT NULL"},
		{"eligible_at", "INTEGER"},
		{"resolved_at", "INTEGER"},
		{"resolution", "TEXT CHECK ((resolution IS NOT NULL) = (resolved_at IS NOT NULL))"},
		{"resolution_message_id", "TEXT CHECK ((resolution_message_id IS NOT NULL) = (resolved_at IS NOT NULL))"},
		{"withdrawn_at", "INTEGER CHECK (withdrawn_at IS NULL OR resolved_at IS NULL)"},
		{"withdrawn_reason", "TEXT CHECK ((withdrawn_reason IS NOT NULL) = (withdrawn_at IS NOT NULL))"},
		{"delivery_claim_token", "BLOB"},
		{"delivery_claim_expires_at", "INTEGER CHECK ((delivery_claim_expires_at IS NOT NULL) = (delivery_claim_token IS NOT NULL))"},
	},
	Indexes: []*Index{intentsPending},
}

// intentsPending visits the pending intents of a session.
var intentsPending = &Index{
	Name: "workflow_turn_intents_pending", Columns: []string{"target_session_id", "requested_at", "intent_id"},
	Where: "resolved_at IS NULL AND withdrawn_at IS NULL",
	Has: func(col func(string) Value) bool {
		return col("resolved_at").Kind == Null && col("withdrawn_at").Kind == Null
	},
}

// Table implements Row.
func (*intentRow) Table() *Table { return intentTable }

// Fields implements Row.
func (r *intentRow) Fields(f *Fields) {
	i := &r.Intent
	text(f, &i.ID)
	text(f, &i.SourceEvent)
	text(f, &i.Run)
	text(f, &i.Workflow)
	text(f, &i.Session)
	name(f, &i.Cause, i.Cause != 0)
	optText(f, &i.Node)
	optText(f, &i.Attempt)
	text(f, &i.Chain)
	facts := ""
	if !f.reading {
		b, err := i.Facts.Encode()
		if err != nil {
			f.bad("encodable facts")
		}
		facts = string(b)
	}
	text(f, &facts)
	if f.reading {
		decoded, err := intents.DecodeFacts([]byte(facts))
		if err != nil {
			f.bad("readable facts")
		}
		i.Facts = decoded
	}
	num(f, &i.RequestedAt)
	opt(f, &i.EligibleAt)
	opt(f, &i.ResolvedAt)
	name(f, &i.Resolution, i.Resolution != 0)
	optText(f, &i.ResolutionMessage)
	opt(f, &i.WithdrawnAt)
	name(f, &i.WithdrawnReason, i.WithdrawnReason != 0)
	digest(f, &i.DeliveryClaimToken)
	opt(f, &i.DeliveryClaimExpiresAt)
}

// named is an enum that is stored under its wire name.
type named[T any] interface {
	*T
	encoding.TextUnmarshaler
	String() string
}

// name visits a column that holds an enum's wire name, or NULL when not set.
func name[T ~uint8, P named[T]](f *Fields, p P, set bool) {
	s := ""
	if !f.reading && set {
		s = p.String()
	}
	optText(f, &s)
	if !f.reading {
		return
	}
	*p = 0
	if s != "" && p.UnmarshalText([]byte(s)) != nil {
		f.bad("a known name")
	}
}

// sourceRow is a row of workflow_turn_sources: a further event of a run that
// was added to an intent, so that repeating it finds the same one.
type sourceRow struct{ Source, Intent string }

var sourceTable = &Table{
	Name: "workflow_turn_sources", Key: 1,
	Columns: []Column{
		{"source_event_id", "TEXT NOT NULL"},
		{"intent_id", "TEXT NOT NULL"},
	},
}

// Table implements Row.
func (*sourceRow) Table() *Table { return sourceTable }

// Fields implements Row.
func (r *sourceRow) Fields(f *Fields) {
	text(f, &r.Source)
	text(f, &r.Intent)
}
