package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	settings      *run.Settings
	names         map[string]bool // of nodes and mounts
	nodes         []*node
	later         []*node // promised by Later
	edges         []run.Edge
	exits         []exit
	mounts        []*mount
	includedBy    string // name of a workflow that includes this one
	errs          []error
}

func newGraph(name, version string) *graph {
	return &graph{name: name, version: version, maxSteps: run.DefaultMaxSteps, names: map[string]bool{}}
}

// New begins a workflow. The name matches [a-z0-9-]{1,64}; the version is 1 to
// 512 printable bytes and part of the digest. In is made of what JSON can say:
// structs, maps with string keys, slices, pointers, strings, numbers, bools,
// time.Time and json.RawMessage, without recursion.
func New[In any](name, version string) *Builder[In] {
	g := newGraph(name, version)
	g.keep(launch.CheckWorkflowName(name))
	g.keep(launch.CheckKey("workflow version", version))
	schema, _, err := schemaOf[In]()
	if err != nil {
		g.fail("workflow input: %v", err)
	}
	g.input = schema
	return &Builder[In]{g: g}
}

// graph is never nil, so that what is given no builder, or one that is not from
// New, comes to nothing that can be built.
func (w *Builder[In]) graph() *graph {
	if w == nil || w.g == nil {
		return newGraph("", "")
	}
	return w.g
}

// Input is the workflow's input as a source.
func (w *Builder[In]) Input() Source[In] { return input[In]{w.graph()} }

// Validate sets a check of the input beyond its type. It runs before a start is
// acknowledged, and must be quick and pure. What it says is shown only where it
// uses [Explain].
func (w *Builder[In]) Validate(check func(In) error) {
	if g := w.graph(); g.sealed() || check == nil || w.validate != nil {
		g.fail("Validate needs one function, set once")
		return
	}
	w.validate = check
}

// OnActivate sets a check of local conditions, such as a tool that must be
// installed, that runs when the launch activates. An error fails the launch
// with activation_failed; its text is shown only where it uses [Explain].
func (w *Builder[In]) OnActivate(check func(ctx context.Context, in In) error) {
	if g := w.graph(); g.sealed() || check == nil || w.activate != nil {
		g.fail("OnActivate needs one function, set once")
		return
	}
	w.activate = check
}

// MaxSteps bounds how many node executions a run may settle, 1 to
// [run.MaxMaxSteps]; the default is [run.DefaultMaxSteps].
func (w *Builder[In]) MaxSteps(n int) {
	g := w.graph()
	if n < 1 || n > run.MaxMaxSteps {
		g.fail("max steps is %d; it must be 1 to %d", n, run.MaxMaxSteps)
	} else if !g.sealed() {
		g.maxSteps = uint32(n)
	}
}

// Build validates the workflow and returns it as a value that never changes.
// The error joins everything that is wrong, each a [launch.Refusal] of kind
// [launch.ErrInvalid].
func (w *Builder[In]) Build() (*Workflow, error) {
	g := w.graph()
	errs := slices.Clone(g.errs)
	if len(g.nodes) == 0 {
		return nil, errors.Join(append(errs, launch.Refuse(launch.ErrInvalid, "workflow %s has no node", cut(g.name)))...)
	}
	wf := &Workflow{name: g.name, version: g.version, input: g.input, plan: g.plan(), nodes: make(map[string]*node, len(g.nodes))}
	for _, m := range g.mounts {
		sub, err := m.build()
		if err != nil {
			errs = append(errs, launch.Refuse(launch.ErrInvalid, "the workflow that node %s includes: %v", cut(m.path), err))
			continue
		}
		wf.included = append(wf.included, included{m.path, sub})
	}
	if len(wf.included) == len(g.mounts) { // else the same is said twice
		errs = append(errs, wf.plan.Validate())
	}
	errs = append(errs, g.defined()...)
	for _, e := range g.exits {
		if wf.plan.Edge(e.n.plan.Path) != nil {
			errs = append(errs, launch.Refuse(launch.ErrInvalid, "node %s: is exit %s and has a way on; an exit ends its workflow", cut(e.n.plan.Path), cut(e.name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, n := range g.nodes {
		wf.nodes[n.plan.Path] = n
	}
	wf.exits = slices.Clone(g.exits)
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
	if wf.digest, err = wf.sum(); err != nil {
		return nil, err
	}
	return wf, nil
}

func (g *graph) plan() run.Plan {
	p := run.Plan{MaxSteps: g.maxSteps, Start: g.nodes[0].plan.Path, Edges: slices.Clone(g.edges), Settings: g.settings}
	for _, n := range g.nodes {
		p.Nodes = append(p.Nodes, n.plan)
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
