package run

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"example.com/piworkflows/launch"
)

// Bounds of a plan, each enforced by [Plan.Validate].
const (
	MaxNodes        = 1000    // nodes of one plan
	MaxChoices      = 32      // members of one closed set
	DefaultMaxSteps = 100     // what an author gets who declares nothing
	MaxMaxSteps     = 1000000 // the most that an author can declare
	MaxRetries      = 100     // declared retries of one visit
	MaxText         = 8192    // characters that a person writes to one choice
	maxSegment      = 64      // bytes of one path segment and of one choice

	MaxBackoff = 24 * time.Hour
	MaxBudget  = 365 * 24 * time.Hour // of active time, and until a deadline
)

// Plan is the graph of a workflow as plain data. It is pinned by digest for a
// run's whole life, holds no code, and encodes to the same JSON every time.
type Plan struct {
	MaxSteps uint32    `json:"maxSteps"` // 1 to MaxMaxSteps
	Start    string    `json:"start"`    // path of the first node
	Nodes    []Node    `json:"nodes"`
	Edges    []Edge    `json:"edges,omitempty"` // at most one from each node
	Settings *Settings `json:"settings,omitempty"`
}

// Node is one node of a plan.
type Node struct {
	// Path is unique: segments of [a-z0-9_-]{1,64} joined by '/', one segment
	// for each mount above the node and one for its name; at most
	// launch.MaxKey bytes.
	Path   string `json:"path"`
	Kind   Kind   `json:"kind"`
	Policy Policy `json:"policy,omitempty"` // of an action
	Shell  bool   `json:"shell,omitempty"`  // of an action: it runs a command
	// Choices is the closed set of outputs, in the author's order; nil means
	// any output.
	Choices []string `json:"choices,omitempty"`
	// Reads names nodes whose latest accepted output the node needs; Maybe
	// those that it takes when there is one (rule run/reads).
	Reads []string `json:"reads,omitempty"`
	Maybe []string `json:"maybe,omitempty"`
	// Budget is the active time of one attempt; 0 means unlimited (rule
	// run/active).
	Budget time.Duration `json:"budget,omitempty"`
	Retry  *Retry        `json:"retry,omitempty"` // nil: none
	Ask    *Ask          `json:"ask,omitempty"`   // of a kind that asks
	Final  bool          `json:"final,omitempty"` // of a notify: its last word, not progress
	// Approval names the decision whose accepted choice, one of Approving, lets
	// this action take effect once (rule effect/approval).
	Approval  string   `json:"approval,omitempty"`
	Approving []string `json:"approving,omitempty"`
}

// Retry declares that an execution which ended with one of On is tried again in
// the same visit (rule run/retry).
type Retry struct {
	Max     uint32        `json:"max"`               // 1 to MaxRetries
	Backoff time.Duration `json:"backoff,omitempty"` // before the first; doubles, at most MaxBackoff
	On      []Outcome     `json:"on"`                // Failed, TimedOut or both
}

// Ask is what a node that asks declares beyond its prompt.
type Ask struct {
	Form      json.RawMessage `json:"form"`                // JSON Schema of the answer
	Validates bool            `json:"validates,omitempty"` // has validation code of its own
	Updates   bool            `json:"updates,omitempty"`   // of an agent: takes progress updates
	// Expires is after how long on the wall clock a checkpoint or decision is
	// over; 0 means never. Default is its answer then; nil means outcome
	// timed_out.
	Expires  time.Duration   `json:"expires,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
	Audience string          `json:"audience,omitempty"` // of a decision: who is asked
	Texts    []TextInput     `json:"texts,omitempty"`    // of a decision, by choice
}

// TextInput lets a person write to a choice of a decision.
type TextInput struct {
	Choice   string `json:"choice"`
	Max      int    `json:"max"` // characters, 1 to MaxText
	Required bool   `json:"required,omitempty"`
}

// Edge is the way on from a node (rule run/graph).
type Edge struct {
	From  string `json:"from"`
	On    On     `json:"on"`
	To    string `json:"to,omitempty"`    // with Plain
	Cases []Case `json:"cases,omitempty"` // with OnOutput and OnOutcome
}

// Case is one branch of a switch: an output of the closed set, or the wire
// name of an outcome. An outcome without a case ends the run as without an edge.
type Case struct {
	Value string `json:"value"`
	To    string `json:"to"`
}

// Node returns the node at path, or nil.
func (p *Plan) Node(path string) *Node {
	for i := range p.Nodes {
		if p.Nodes[i].Path == path {
			return &p.Nodes[i]
		}
	}
	return nil
}

// Edge returns the edge that leaves the node at path, or nil.
func (p *Plan) Edge(path string) *Edge {
	for i := range p.Edges {
		if p.Edges[i].From == path {
			return &p.Edges[i]
		}
	}
	return nil
}

// Route returns the node that follows from with that outcome and output, or ""
// when the run ends there (rule run/route).
func (p *Plan) Route(from string, o Outcome, output []byte) string {
	e := p.Edge(from)
	switch {
	case e == nil:
	case e.On == Plain:
		if o == OK {
			return e.To
		}
	case e.On == OnOutcome:
		return e.find([]byte(o.String()))
	case e.On == OnOutput && o == OK:
		if s, ok := choiceOf(output); ok {
			return e.find(s)
		}
	}
	return ""
}

func (e *Edge) find(value []byte) string {
	for i := range e.Cases {
		if e.Cases[i].Value == string(value) {
			return e.Cases[i].To
		}
	}
	return ""
}

// choiceOf returns the text of a JSON string, or of the member "choice" of an
// object as decisions have it. Choices need no escapes, so the short way takes
// nearly every call.
func choiceOf(output []byte) ([]byte, bool) {
	if len(output) > 0 && output[0] == '{' {
		var o struct {
			Choice string `json:"choice"`
		}
		err := json.Unmarshal(output, &o)
		return []byte(o.Choice), err == nil && o.Choice != ""
	}
	if n := len(output); n >= 2 && output[0] == '"' && output[n-1] == '"' && bytes.IndexByte(output, '\\') < 0 {
		return output[1 : n-1], true
	}
	var s *string
	if json.Unmarshal(output, &s) != nil || s == nil {
		return nil, false
	}
	return []byte(*s), true
}

// Approves reports whether a decision's output holds a choice that lets this
// action take effect.
func (n *Node) Approves(decision []byte) bool {
	choice, ok := choiceOf(decision)
	return ok && slices.Contains(n.Approving, string(choice))
}

// CheckOutput refuses an output of this node that may not be stored (rule
// run/output). It never repeats the output.
func (n *Node) CheckOutput(output []byte) error {
	if len(output) > launch.MaxOutput {
		return n.refuse("output has %d bytes; the bound is %d", len(output), launch.MaxOutput)
	}
	if !validJSON(output) {
		return n.refuse("output is not one valid JSON value in UTF-8")
	}
	if n.Choices == nil {
		return nil
	}
	if s, ok := choiceOf(output); ok {
		for _, c := range n.Choices {
			if c == string(s) {
				return nil
			}
		}
	}
	return n.refuse("output must be one of %q", n.Choices)
}

func (n *Node) refuse(format string, args ...any) *launch.Refusal {
	return refuseAt(n.Path, format, args...)
}

// refuseAt refuses input that concerns the node at path, a checked path or one
// that the author wrote.
func refuseAt(path, format string, args ...any) *launch.Refusal {
	r := launch.Refuse(launch.ErrInvalid, "node %s: "+format, append([]any{path}, args...)...)
	r.Field = path
	return r
}
