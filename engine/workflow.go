package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Workflow is a validated definition. It never changes and is safe for
// concurrent use.
type Workflow struct {
	name, version string
	input         json.RawMessage
	plan          run.Plan
	digest        launch.Digest
	nodes         map[string]*node
	included      map[string]launch.Digest
	check         func([]byte) ([]byte, error)
	activate      func(context.Context, []byte) error
}

// Name returns the workflow's name.
func (wf *Workflow) Name() string { return wf.name }

// Version returns the version that the author gave.
func (wf *Workflow) Version() string { return wf.version }

// Digest identifies the definition (rule engine/digest).
func (wf *Workflow) Digest() launch.Digest { return wf.digest }

// Plan returns the graph. The caller must not change what its slices hold.
func (wf *Workflow) Plan() run.Plan { return wf.plan }

// InputSchema returns a JSON Schema of the input.
func (wf *Workflow) InputSchema() json.RawMessage { return bytes.Clone(wf.input) }

// HasActivation reports whether activation needs user code; see
// [Builder.OnActivate].
func (wf *Workflow) HasActivation() bool { return wf.activate != nil }

// CheckInput checks outside JSON of at most [launch.MaxInput] bytes strictly
// against the input's type and the author's own check, and returns its
// normalized form: the same bytes however the same input is written, except for
// the order of keys inside a json.RawMessage. A field that is left out has its
// zero value. Errors are of kind
// [launch.ErrInvalid], name field and bound, and never repeat what they read.
func (wf *Workflow) CheckInput(raw []byte) (normalized []byte, err error) { return wf.check(raw) }

// Activate runs the author's activation check, if there is one, on normalized
// input. Its error text is fit to be stored and shown. When ctx has ended, its
// cause is returned instead.
func (wf *Workflow) Activate(ctx context.Context, input []byte) error {
	if wf.activate == nil {
		return nil
	}
	err := guard(func() error { return wf.activate(ctx, input) })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return nil
	}
	why := explained(err, "it returned an error that does not explain why")
	if _, ok := errors.AsType[*panicked](err); ok {
		why = "it panicked"
	}
	return Explain(launch.SafeText("activation check of workflow "+wf.name+" failed: "+why, launch.MaxErrorMessage), err)
}

// sum is the digest: SHA-256 of the canonical JSON of an object with name,
// version, plan, input schema, the output schema of each node by its path, and,
// if there are any, the digest of each included workflow by its mount.
func (wf *Workflow) sum() (launch.Digest, error) {
	outputs := make(map[string]json.RawMessage, len(wf.nodes))
	for name, n := range wf.nodes {
		outputs[name] = n.schema
	}
	facts := map[string]any{"name": wf.name, "version": wf.version, "plan": wf.plan, "input": wf.input, "outputs": outputs}
	if len(wf.included) > 0 {
		facts["included"] = wf.included
	}
	raw, err := json.Marshal(facts)
	if err != nil {
		return launch.Digest{}, launch.Refuse(launch.ErrInternal, "workflow %s cannot be digested", wf.name)
	}
	if raw, err = canon.Canonical(raw); err != nil {
		return launch.Digest{}, err
	}
	return launch.DigestOf(raw), nil
}

// Describe prints the graph, one line for each node in the order of definition.
func (wf *Workflow) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "workflow %s version %s, at most %d steps\n", wf.name, wf.version, wf.plan.MaxSteps)
	for i := range wf.plan.Nodes {
		n := &wf.plan.Nodes[i]
		fmt.Fprintf(&b, "  %s: %s", n.Path, n.Kind)
		if details := about(n); details != "" {
			b.WriteString(" (" + details + ")")
		}
		sep := " reads "
		for _, r := range n.Reads {
			b.WriteString(sep + r)
			sep = ", "
		}
		for _, r := range n.Maybe {
			b.WriteString(sep + r + "?")
			sep = ", "
		}
		b.WriteString(wayOn(wf.plan.Edge(n.Path)) + "\n")
	}
	return b.String()
}

// about is what a node declares beyond its kind, as words.
func about(n *run.Node) string {
	var all []string
	add := func(set bool, format string, args ...any) {
		if set {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(n.Policy != 0, "%s", n.Policy)
	add(n.Final, "final")
	add(n.Kind.Asks() && len(n.Choices) > 0, "one of %s", strings.Join(n.Choices, ", "))
	add(n.Approval != "", "needs %s of %s", strings.Join(n.Approving, " or "), n.Approval)
	add(n.Budget > 0, "within %v", n.Budget)
	if r := n.Retry; r != nil {
		on := make([]string, len(r.On))
		for i, o := range r.On {
			on[i] = o.String()
		}
		add(true, "%d retries on %s", r.Max, strings.Join(on, ", "))
	}
	if a := n.Ask; a != nil {
		add(a.Validates, "validated")
		add(a.Updates, "reports progress")
		add(a.Expires > 0 && a.Default == nil, "for %v", a.Expires)
		add(a.Expires > 0 && a.Default != nil, "for %v, then %s", a.Expires, a.Default)
	}
	return strings.Join(all, "; ")
}

func wayOn(e *run.Edge) string {
	switch {
	case e == nil:
		return "; then ends"
	case e.On == run.Plain:
		return "; then " + e.To
	}
	var cases []string
	for _, c := range e.Cases {
		cases = append(cases, c.Value+" -> "+c.To)
	}
	return "; on " + e.On.String() + ": " + strings.Join(cases, ", ")
}
