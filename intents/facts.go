package intents

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// FactsSchema names the form of encoded facts.
const FactsSchema = "pi-workflows.deferred-turn-facts.v1"

// Bounds of facts (rule intents/facts).
const (
	MaxReason = 8192     // characters of a reason
	MaxFacts  = 64 << 10 // bytes of the encoded object
)

// Facts are what a message may tell about the event that owes a turn.
type Facts struct {
	Workflow string       `json:"workflowName"`
	Run      launch.RunID `json:"runId"`
	Observed Observed     `json:"observedState"`
	Cause    Cause        `json:"cause"`
	Node     string       `json:"nodeId,omitempty"`
	Attempt  string       `json:"attemptId,omitempty"`
	Reason   string       `json:"reason,omitempty"` // one safe line, at most MaxReason characters
	Code     launch.Code  `json:"code,omitempty"`   // of the failure, if any
	Handoff  bool         `json:"handoff"`          // the run waits for a person; never with a terminal state
}

type wireFacts struct {
	Schema string `json:"schema"`
	Facts
}

// Safe returns the facts with their reason redacted and shortened to the
// bound, so that what is owed is never refused for its text.
func (f Facts) Safe() Facts {
	if f.Reason != "" {
		f.Reason = launch.SafeText(f.Reason, MaxReason)
	}
	return f
}

// Check refuses facts out of bounds (rule intents/facts).
func (f Facts) Check() error {
	if err := f.checkBounds(); err != nil {
		return err
	}
	if f.Reason != "" && launch.SafeText(f.Reason, MaxReason*utf8.UTFMax) != f.Reason {
		return invalid("reason", "reason is not safe text: it must be one line without secrets")
	}
	return nil
}

// checkBounds is Check for a reason that Safe has made.
func (f Facts) checkBounds() error {
	if err := launch.CheckWorkflowName(f.Workflow); err != nil {
		return err
	}
	if err := checkRun(f.Run); err != nil {
		return err
	}
	if err := checkPlace(f.Node, f.Attempt); err != nil {
		return err
	}
	switch {
	case !valid(observedNames, uint8(f.Observed)):
		return invalid("observedState", "observedState is not set")
	case !valid(causeNames, uint8(f.Cause)):
		return invalid("cause", "cause is not set")
	case f.Handoff && f.Observed.Terminal():
		return invalid("handoff", "handoff is set although observedState is terminal; a run that ended is not handed over")
	case f.Code != "" && !f.Code.Valid():
		return invalid("code", "code is not one of the safe error codes")
	case utf8.RuneCountInString(f.Reason) > MaxReason:
		return invalid("reason", "reason has %d characters; the bound is %d", utf8.RuneCountInString(f.Reason), MaxReason)
	}
	return nil
}

// Encode returns the facts as canonical JSON of at most [MaxFacts] bytes.
func (f Facts) Encode() ([]byte, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(wireFacts{FactsSchema, f})
	if err != nil {
		return nil, launch.Refuse(launch.ErrInternal, "facts cannot be encoded")
	}
	if b, err = canon.Canonical(b); err != nil {
		return nil, err
	}
	return b, launch.CheckSize("facts", len(b), MaxFacts)
}

// DecodeFacts reads encoded facts. Unknown fields, a foreign schema and
// anything out of bounds are refused with kind [launch.ErrInvalid].
func DecodeFacts(b []byte) (Facts, error) {
	var w wireFacts
	if err := canon.Decode(b, MaxFacts, "facts", &w); err != nil {
		return Facts{}, err
	}
	if w.Schema != FactsSchema {
		return Facts{}, invalid("schema", "schema of facts must be %s", FactsSchema)
	}
	if err := w.Facts.Check(); err != nil {
		return Facts{}, err
	}
	return w.Facts, nil
}

// add returns the facts of an intent after a further event: what was seen last
// counts, and reasons are kept side by side, the last one first.
func (f Facts) add(last Facts) Facts {
	out := last.Safe()
	out.Workflow, out.Run, out.Cause = f.Workflow, f.Run, f.Cause
	if out.Node == "" && out.Attempt == "" {
		out.Node, out.Attempt = f.Node, f.Attempt
	}
	if out.Reason == "" && out.Code == "" {
		out.Code = f.Code
	}
	switch {
	case out.Reason == "" || strings.Contains(f.Reason, out.Reason):
		out.Reason = f.Reason
	case f.Reason != "" && !strings.Contains(out.Reason, f.Reason):
		out.Reason += "; before that: " + f.Reason
	}
	return out.Safe()
}
