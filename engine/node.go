package engine

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// node is one node of a graph: its plan and its code behind untyped doors.
type node struct {
	g       *graph
	name    string
	kind    run.Kind
	policy  run.Policy
	choices []string
	reads   []string
	maybe   []string
	input   bool   // reads the workflow's input
	reading string // what it reads, for [Approved]
	schema  json.RawMessage
	out     reflect.Type
	budget  time.Duration
	retry   *run.Retry
	ask     *run.Ask // of a kind that asks
	final   bool     // of a notify
	shell   *shell   // of a shell command
	// Of an action that needs an approval.
	approval  string
	approving []string
	read      func(ctx context.Context, x *execution) (any, error)
	call      func(ctx context.Context, a Attempt, in any) (any, error)
	observe   func(ctx context.Context, a Attempt, in any) (out any, found bool, err error)
	prompt    func(ctx context.Context, in any) (Presentation, error) // of a kind that asks
	check     func(ctx context.Context, raw []byte) ([]byte, error)   // an answer, with code of its own
}

// Attempt tells an action which execution it is.
type Attempt struct {
	Run     launch.RunID
	Node    string // path of the node
	Visit   uint32 // the n-th time the run is at the node, from 1
	Attempt uint32 // the n-th execution of that visit, from 1
	// Key is the idempotency key to give to the outside world: 64 hex digits,
	// the same for every attempt of one visit and for no other.
	Key string
}

// Compute defines a pure node: a function of what it reads, which may run again
// at any time. name matches [a-z0-9_-]{1,64} and is unique in the workflow. A
// returned error is outcome failed (rule engine/error).
func Compute[In, D, O any](w *Builder[In], name string, from Source[D], f func(ctx context.Context, in D) (O, error), opts ...Option) Node[O] {
	h := define[D, O](w, name, from)
	h.n.kind = run.Compute
	if f == nil {
		h.n.g.failNode(name, "needs a function")
	}
	h.n.call = func(ctx context.Context, _ Attempt, in any) (any, error) { return f(ctx, in.(D)) }
	h.n.options(opts)
	return h
}

// Action defines a node with an effect on the outside world (rule
// engine/action). The function should give a.Key to the outside world.
func Action[In, D, O any](w *Builder[In], name string, from Source[D], f func(ctx context.Context, a Attempt, in D) (O, error), policy Policy, opts ...Option) Node[O] {
	h := define[D, O](w, name, from)
	h.n.kind = run.Action
	if f == nil {
		h.n.g.failNode(name, "needs a function")
	}
	h.n.call = func(ctx context.Context, a Attempt, in any) (any, error) { return f(ctx, a, in.(D)) }
	switch p := policy.(type) {
	case plainPolicy:
		h.n.policy = run.Policy(p)
	case observed[D, O]:
		h.n.policy = run.Observed
		if p == nil {
			h.n.g.failNode(name, "Observed needs a function")
		}
		h.n.observe = func(ctx context.Context, a Attempt, in any) (any, bool, error) { return p(ctx, a, in.(D)) }
	case nil:
		h.n.policy = run.Unrepeatable
		h.n.g.failNode(name, "needs a policy: Repeatable, Observed or Unrepeatable")
	default:
		h.n.policy = run.Observed
		h.n.g.failNode(name, "its observer reads or returns other types than the action")
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
func define[D, O any, In any](w *Builder[In], name string, from Source[D]) Node[O] {
	if w == nil {
		return Node[O]{&node{g: &graph{}}} // belongs to nothing that can be built
	}
	g := w.g
	n := &node{g: g, name: name, out: reflect.TypeFor[O]()}
	n.reading = reflect.TypeFor[D]().String()
	for _, p := range partsOf(from) {
		if p.n != nil {
			n.reading += " " + p.n.name
		}
		switch {
		case p.g == nil:
			g.failNode(name, "reads nothing: a source is nil or a zero handle")
		case p.g != g:
			g.failNode(name, "reads from another workflow's builder")
		case p.settings:
		case p.later != nil:
			n.maybe = insert(n.maybe, p.later.name)
		case p.n == nil:
			n.input = true
		case p.maybe:
			n.maybe = insert(n.maybe, p.n.name)
		default:
			n.reads = insert(n.reads, p.n.name)
		}
	}
	n.read = func(ctx context.Context, x *execution) (any, error) { return from.read(ctx, x) }
	var err error
	if n.schema, err = schemaOf[O](); err != nil {
		g.failNode(name, "output: %v", err)
	}
	if n.choices, err = choicesOf[O](); err != nil {
		g.failNode(name, "output: %v", err)
	}
	if strings.Contains(name, "/") {
		g.failNode(name, "a name has no '/'; that joins the parts of a path")
	}
	if _, dup := g.byName[name]; dup {
		g.failNode(name, "name is used twice; give each node its own")
		return Node[O]{n}
	}
	g.byName[name] = n
	g.nodes = append(g.nodes, n)
	return Node[O]{n}
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
