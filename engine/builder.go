package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Builder collects a workflow whose input is an In. It is for one goroutine.
// Every mistake is kept for [Builder.Build].
type Builder[In any] struct {
	g        *graph
	validate func(In) error
	activate func(context.Context, In) error
}

// graph is the part of a builder that does not depend on the input's type.
type graph struct {
	name, version string
	maxSteps      uint32
	input         json.RawMessage
	nodes         []*node
	byName        map[string]*node
	edges         []run.Edge
	settings      *run.Settings
	later         []later                  // nodes that were named before they were defined
	exits         map[string]*node         // of an included workflow, by name
	included      map[string]launch.Digest // by mount
	errs          []error
}

// New begins a workflow. The name matches [a-z0-9-]{1,64}; the version is 1 to
// 512 printable bytes and part of the digest. In is made of what JSON can say:
// structs, maps with string keys, slices, pointers, strings, numbers, bools,
// time.Time and json.RawMessage, without recursion.
func New[In any](name, version string) *Builder[In] {
	g := &graph{name: name, version: version, maxSteps: run.DefaultMaxSteps, byName: map[string]*node{},
		exits: map[string]*node{}, included: map[string]launch.Digest{}}
	g.keep(launch.CheckWorkflowName(name))
	g.keep(launch.CheckKey("workflow version", version))
	schema, err := schemaOf[In]()
	if err != nil {
		g.fail("workflow input: %v", err)
	}
	g.input = schema
	return &Builder[In]{g: g}
}

// Input is the workflow's input as a source.
func (w *Builder[In]) Input() Source[In] { return input[In]{w.g} }

// Validate sets a check of the input beyond its type. It runs before a start is
// acknowledged, and must be quick and pure. What it says is shown only where it
// uses [Explain].
func (w *Builder[In]) Validate(check func(In) error) {
	if check == nil || w.validate != nil {
		w.g.fail("Validate needs one function, set once")
		return
	}
	w.validate = check
}

// OnActivate sets a check of local conditions, such as a tool that must be
// installed, that runs when the launch activates. An error fails the launch
// with activation_failed; its text is shown only where it uses [Explain].
func (w *Builder[In]) OnActivate(check func(ctx context.Context, in In) error) {
	if check == nil || w.activate != nil {
		w.g.fail("OnActivate needs one function, set once")
		return
	}
	w.activate = check
}

// MaxSteps bounds how many node executions a run may settle, 1 to
// [run.MaxMaxSteps]; the default is [run.DefaultMaxSteps].
func (w *Builder[In]) MaxSteps(n int) {
	if n < 1 || n > run.MaxMaxSteps {
		w.g.fail("max steps is %d; it must be 1 to %d", n, run.MaxMaxSteps)
		return
	}
	w.g.maxSteps = uint32(n)
}

// Build validates the workflow and returns it as a value that never changes.
// The error joins everything that is wrong, each a [launch.Refusal] of kind
// [launch.ErrInvalid].
func (w *Builder[In]) Build() (*Workflow, error) {
	g := w.g
	if len(g.nodes) == 0 {
		return nil, errors.Join(append(slices.Clone(g.errs), launch.Refuse(launch.ErrInvalid, "workflow %s has no node", cut(g.name)))...)
	}
	for _, l := range g.later {
		switch n := g.byName[l.name]; {
		case n == nil:
			g.failNode(l.name, "is read as feedback and not defined")
		case n.out != l.out:
			g.failNode(l.name, "is read as feedback of type %s, but its output is %s", l.out, n.out)
		}
	}
	g.later = nil
	wf := &Workflow{name: g.name, version: g.version, input: g.input, plan: g.plan(), nodes: make(map[string]*node, len(g.nodes)), included: maps.Clone(g.included)}
	if err := errors.Join(append(slices.Clone(g.errs), wf.plan.Validate())...); err != nil {
		return nil, err
	}
	for _, n := range g.nodes {
		wf.nodes[n.name] = n
	}
	validate, activate := w.validate, w.activate
	wf.check = func(raw []byte) ([]byte, error) { return checkInput(raw, validate) }
	if activate != nil {
		wf.activate = func(ctx context.Context, raw []byte) error {
			var in In
			if json.Unmarshal(raw, &in) != nil {
				return Explain("its stored input does not decode", nil)
			}
			return activate(ctx, in)
		}
	}
	var err error
	wf.digest, err = wf.sum()
	return wf, err
}

func (g *graph) plan() run.Plan {
	p := run.Plan{MaxSteps: g.maxSteps, Start: g.nodes[0].name, Edges: slices.Clone(g.edges), Settings: g.settings}
	for _, n := range g.nodes {
		p.Nodes = append(p.Nodes, run.Node{Path: n.name, Kind: n.kind, Policy: n.policy,
			Choices: slices.Clone(n.choices), Reads: slices.Clone(n.reads), Maybe: slices.Clone(n.maybe),
			Budget: n.budget, Retry: n.retry, Ask: n.ask, Final: n.final, Approval: n.approval, Approving: n.approving})
	}
	// Edges may be drawn in any order and mean the same.
	slices.SortStableFunc(p.Edges, func(a, b run.Edge) int { return strings.Compare(a.From, b.From) })
	return p
}

func (g *graph) keep(err error) {
	if err != nil {
		g.errs = append(g.errs, err)
	}
}

func (g *graph) fail(format string, args ...any) {
	g.keep(launch.Refuse(launch.ErrInvalid, format, args...))
}

// failNode records a mistake at a node.
func (g *graph) failNode(name, format string, args ...any) {
	r := launch.Refuse(launch.ErrInvalid, "node %s: "+format, append([]any{cut(name)}, args...)...)
	r.Field = name
	g.keep(r)
}

// cut makes a name that may be anything fit for a message.
func cut(name string) string {
	if len(name) <= 80 && launch.CheckKey("name", name) == nil {
		return name
	}
	return fmt.Sprintf("%.80q", name)
}

// checkInput decodes and normalizes raw.
func checkInput[In any](raw []byte, validate func(In) error) (normalized []byte, err error) {
	var in In
	err = guard(func() error {
		if err := canon.Decode(raw, launch.MaxInput, "input", &in); err != nil {
			return err
		}
		if validate != nil {
			if err := validate(in); err != nil {
				return launch.Refuse(launch.ErrInvalid, "input: %s", explained(err, "refused by the workflow's own check, which does not explain why"))
			}
		}
		if normalized, err = encode(in); err != nil {
			return launch.Refuse(launch.ErrInvalid, "input %s", err)
		}
		return nil
	})
	if _, ok := errors.AsType[*panicked](err); ok {
		return nil, launch.Refuse(launch.ErrInvalid, "input: the workflow's own check panicked")
	}
	if err == nil {
		err = launch.CheckSize("normalized input", len(normalized), launch.MaxInput)
	}
	if err != nil {
		return nil, err
	}
	return normalized, nil
}
