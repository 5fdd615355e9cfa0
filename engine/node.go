package engine

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// node is one node of a graph: its plan and its code behind untyped doors.
type node struct {
	g       *graph
	plan    run.Node
	input   bool            // it reads the workflow's input
	schema  json.RawMessage // of the output
	in      reflect.Type    // what its code reads
	out     reflect.Type    // its output
	answer  reflect.Type    // what answers it; mostly its output
	loose   reflect.Type    // a part of the answer that its schema does not check
	given   []string        // options
	read    func(ctx context.Context, x *execution) (any, error)
	call    func(ctx context.Context, a Attempt, in any) (any, error) // of a kind that asks: returns an *Ask
	observe func(ctx context.Context, a Attempt, in any) (out any, found bool, err error)
	judge   func(ctx context.Context, candidate []byte) error
}

// Attempt tells an action which execution it is.
type Attempt struct {
	Run     launch.RunID
	Node    string // path of the node
	Visit   uint32 // the n-th time the run is at the node, from 1
	Attempt uint32 // the n-th execution of that visit, from 1
	Retry   uint32 // declared retries of that visit so far
	// Key is the idempotency key to give to the outside world: 64 hex digits,
	// the same for every attempt of one visit up to a declared retry, and for no
	// other.
	Key string
}

// Compute defines a pure node: a function of what it reads, which may run again
// at any time. name matches [a-z0-9_-]{1,64} and is unique in the workflow. A
// returned error is outcome failed (rule engine/error).
func Compute[In, D, O any](w *Builder[In], name string, from Source[D], f func(ctx context.Context, in D) (O, error), opts ...Option) Node[O] {
	h := define[D, O](w, name, run.Compute, from)
	h.n.needs(f == nil)
	h.n.call = func(ctx context.Context, _ Attempt, in any) (any, error) { return f(ctx, in.(D)) }
	h.n.options(opts)
	return h
}

// Action defines a node with an effect on the outside world (rule
// engine/action). The function should give a.Key to the outside world.
func Action[In, D, O any](w *Builder[In], name string, from Source[D], f func(ctx context.Context, a Attempt, in D) (O, error), policy Policy, opts ...Option) Node[O] {
	h := define[D, O](w, name, run.Action, from)
	h.n.needs(f == nil)
	h.n.call = func(ctx context.Context, a Attempt, in any) (any, error) { return f(ctx, a, in.(D)) }
	switch p := policy.(type) {
	case plainPolicy:
		h.n.plan.Policy = run.Policy(p)
	case observed[D, O]:
		h.n.plan.Policy = run.Observed
		if p == nil {
			h.n.fail("Observed needs a function")
		}
		h.n.observe = func(ctx context.Context, a Attempt, in any) (any, bool, error) { return p(ctx, a, in.(D)) }
	case nil:
		h.n.plan.Policy = run.Unrepeatable
		h.n.fail("needs a policy: Repeatable, Observed or Unrepeatable")
	default:
		h.n.plan.Policy = run.Observed
		h.n.fail("its observer reads or returns other types than the action")
	}
	h.n.options(opts)
	return h
}

// Policy says what happens to an action that a crash left unsettled. Make one
// with [Repeatable], [Observed] or [Unrepeatable].
type Policy interface{ policy() }

type plainPolicy run.Policy

type observed[D, O any] func(ctx context.Context, a Attempt, in D) (out O, found bool, err error)

func (plainPolicy) policy()    {}
func (observed[D, O]) policy() {}

// Repeatable is for actions whose repeats with the same key count as one: they
// are run again.
func Repeatable() Policy { return plainPolicy(run.Repeatable) }

// Unrepeatable is for actions that must not be repeated blindly: a person has
// to find out whether they happened.
func Unrepeatable() Policy { return plainPolicy(run.Unrepeatable) }

// Observed is for actions that can be looked up: the observer returns the
// output and true when the action happened, false when it surely did not (then
// it is run again), and an error when it cannot tell (then a person has to). It
// reads and returns the same types as its action.
func Observed[D, O any](observer func(ctx context.Context, a Attempt, in D) (out O, found bool, err error)) Policy {
	return observed[D, O](observer)
}

// define adds a node without code. The handle is usable also after a mistake,
// so that only the mistake is reported.
func define[D, O any, In any](w *Builder[In], name string, kind run.Kind, from Source[D]) Node[O] {
	g := w.graph()
	n := &node{g: g, plan: run.Node{Path: name, Kind: kind}, in: reflect.TypeFor[D](), out: reflect.TypeFor[O]()}
	n.answer = n.out
	if g.sealed() {
		return Node[O]{n}
	}
	for _, p := range partsOf(from) {
		switch {
		case p.g == nil:
			n.fail("reads nothing: a source is nil or a zero handle")
		case p.g != g:
			n.fail("reads from another workflow's builder")
		default:
			n.reads(p)
		}
	}
	n.read = func(ctx context.Context, x *execution) (any, error) { return from.read(ctx, x) }
	var err error
	if n.schema, n.loose, err = schemaOf[O](); err != nil {
		n.fail("output: %v", err)
	}
	if n.plan.Choices, err = choicesOf[O](); err != nil {
		n.fail("output: %v", err)
	}
	if g.take(name) {
		g.nodes = append(g.nodes, n)
	}
	return Node[O]{n}
}

// Later returns the handle of a node that is defined afterwards, so that the head
// of a loop can read, by [Maybe], what comes around. Build refuses it unless a
// node of that name with outputs of type T is defined.
func Later[T, In any](w *Builder[In], name string) Node[T] {
	g := w.graph()
	n := &node{g: g, plan: run.Node{Path: name}, out: reflect.TypeFor[T]()}
	if !g.sealed() {
		g.later = append(g.later, n)
	}
	return Node[T]{n}
}

// defined checks what was to be defined later.
func (g *graph) defined() (errs []error) {
	for _, l := range g.later {
		i := slices.IndexFunc(g.nodes, func(n *node) bool { return n.plan.Path == l.plan.Path })
		if i < 0 || strings.Contains(l.plan.Path, "/") {
			errs = append(errs, launch.Refuse(launch.ErrInvalid, "node %s: Later promises it, but it is not defined", cut(l.plan.Path)))
		} else if out := g.nodes[i].out; out != l.out {
			errs = append(errs, launch.Refuse(launch.ErrInvalid, "node %s: Later promises outputs of type %s, but they are of type %s", cut(l.plan.Path), l.out, out))
		}
	}
	return errs
}

// reads adds a part to what the node reads.
func (n *node) reads(p part) {
	switch {
	case p.n == nil:
		n.input = n.input || p.input
	case p.maybe:
		n.plan.Maybe = insert(n.plan.Maybe, p.n.plan.Path)
	default:
		n.plan.Reads = insert(n.plan.Reads, p.n.plan.Path)
	}
}

// fail records a mistake at the node.
func (n *node) fail(format string, args ...any) { n.g.failNode(n.plan.Path, format, args...) }

func (n *node) needs(missing bool) {
	if missing {
		n.fail("needs a function")
	}
}

// insert adds name to a sorted list without repeats.
func insert(list []string, name string) []string {
	i, ok := slices.BinarySearch(list, name)
	if ok {
		return list
	}
	return slices.Insert(list, i, name)
}

// choicesOf returns the closed set of a string type that declares one.
func choicesOf[O any]() (set []string, err error) {
	var zero O
	c, ok := any(zero).(interface{ Choices() []O })
	if !ok || reflect.TypeFor[O]().Kind() != reflect.String {
		return nil, nil
	}
	set = []string{}
	err = guard(func() error {
		for _, v := range c.Choices() {
			set = append(set, reflect.ValueOf(v).String())
		}
		return nil
	})
	return set, err
}
