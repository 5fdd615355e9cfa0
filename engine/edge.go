package engine

import (
	"slices"
	"strings"

	"example.com/piworkflows/engine/run"
)

// Outcome is how an execution of a node ended; see [OnOutcome].
type Outcome = run.Outcome

// The outcomes.
const (
	OK        = run.OK        // an output was accepted
	Failed    = run.Failed    // the function failed
	TimedOut  = run.TimedOut  // its time was used up
	Cancelled = run.Cancelled // someone ended it
)

// Target is a node handle of any output type.
type Target interface{ node() *node }

// Then draws a plain edge: after from is ok, the run goes to to.
func Then(from, to Target) {
	g := graphOf(from, to)
	if g == nil {
		return
	}
	a, b := g.end(from), g.end(to)
	if a != "" && b != "" {
		g.draw(run.Edge{From: a, On: run.Plain, To: b})
	}
}

// Choice is a string type with a closed set of values: its zero value lists
// them.
type Choice[T any] interface {
	~string
	Choices() []T
}

// Branch is one case of a [Switch].
type Branch[T any] struct {
	value T
	to    Target
}

// Case is the branch that is taken when the output is value.
func Case[T ~string](value T, to Target) Branch[T] { return Branch[T]{value, to} }

// Chooser is a node handle whose outputs pick one of a closed set: a [Node] of a
// [Choice], or a [DecisionNode].
type Chooser[T any] interface {
	Target
	choice() T
}

func (Node[T]) choice() (none T) { return none }

// Switch goes on by what the node's output picks. Each member of the closed set
// needs exactly one case.
func Switch[T Choice[T]](node Chooser[T], cases ...Branch[T]) {
	branches := make([]branch, len(cases))
	for i, c := range cases {
		branches[i] = branch{string(c.value), c.to}
	}
	fork(node, run.OnOutput, branches)
}

// OutcomeBranch is one case of [OnOutcome].
type OutcomeBranch struct {
	outcome Outcome
	to      Target
}

// When is the branch that is taken on that outcome.
func When(o Outcome, to Target) OutcomeBranch { return OutcomeBranch{o, to} }

// OnOutcome goes on by how the node ended. An outcome without a branch ends the
// run as it would without an edge.
func OnOutcome(node Target, branches ...OutcomeBranch) {
	list := make([]branch, len(branches))
	for i, b := range branches {
		list[i] = branch{b.outcome.String(), b.to}
	}
	fork(node, run.OnOutcome, list)
}

type branch struct {
	value string
	to    Target
}

func fork(from Target, on run.On, branches []branch) {
	targets := []Target{from}
	for _, b := range branches {
		targets = append(targets, b.to)
	}
	g := graphOf(targets...)
	if g == nil {
		return
	}
	e := run.Edge{From: g.end(from), On: on}
	for _, b := range branches {
		if to := g.end(b.to); to != "" {
			e.Cases = append(e.Cases, run.Case{Value: b.value, To: to})
		}
	}
	slices.SortStableFunc(e.Cases, func(a, b run.Case) int { return strings.Compare(a.Value, b.Value) })
	if e.From != "" {
		g.draw(e)
	}
}

func (g *graph) draw(e run.Edge) {
	if !g.sealed() {
		g.edges = append(g.edges, e)
	}
}

// graphOf is the graph to which an edge, and a mistake in it, belongs.
func graphOf(targets ...Target) *graph {
	for _, t := range targets {
		if t != nil && t.node() != nil {
			return t.node().g
		}
	}
	return nil
}

// end is the name of an end of an edge, or "" after recording why it is none.
func (g *graph) end(t Target) string {
	switch {
	case t == nil || t.node() == nil:
		g.fail("an edge has a nil target or a zero handle")
	case t.node().g != g:
		g.failNode(t.node().plan.Path, "an edge joins it to another workflow's builder")
		t.node().g.failNode(t.node().plan.Path, "an edge joins it to another workflow's builder")
	default:
		return t.node().plan.Path
	}
	return ""
}
