package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

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
	exits         []exit
	included      []included
	check         func([]byte) ([]byte, error)
	activate      func(context.Context, []byte) error
}

// included is a workflow that is part of another one, at a path.
type included struct {
	path string
	wf   *Workflow
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
// version, plan, input schema, the output schema of each node by its path, and
// the digest of each included workflow by its path.
func (wf *Workflow) sum() (launch.Digest, error) {
	outputs := make(map[string]json.RawMessage, len(wf.nodes))
	for path, n := range wf.nodes {
		outputs[path] = n.schema
	}
	all := map[string]any{"name": wf.name, "version": wf.version, "plan": wf.plan, "input": wf.input, "outputs": outputs}
	if len(wf.included) > 0 {
		digests := make(map[string]string, len(wf.included))
		for _, i := range wf.included {
			digests[i.path] = i.wf.digest.String()
		}
		all["included"] = digests
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return launch.Digest{}, launch.Refuse(launch.ErrInternal, "workflow %s cannot be digested", wf.name)
	}
	if raw, err = canon.Canonical(raw); err != nil {
		return launch.Digest{}, err
	}
	return launch.DigestOf(raw), nil
}
