package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Mount is an included workflow in the graph that includes it. As a [Target] it
// is its start node.
type Mount struct{ m *mount }

type mount struct {
	path  string
	g     *graph
	nodes map[*node]*node // of the included graph, to its copies
	start *node
	build func() (*Workflow, error)
}

func (m Mount) node() *node {
	if m.m == nil {
		return nil
	}
	return m.m.start
}

// ExitOf is a node at which an included workflow ends with an output of type T.
type ExitOf[T any] struct{ n *node }

type exit struct {
	name string
	n    *node
}

// Exit declares a node without a way on as an exit of its workflow, so that a
// workflow that includes it can go on from there; see [At]. name is 1 to 512
// printable bytes and unique in the workflow. For a workflow that runs by itself
// an exit is an end.
func Exit[T, In any](w *Builder[In], name string, node Node[T]) ExitOf[T] {
	g := w.graph()
	g.keep(launch.CheckKey("exit name", name))
	switch {
	case g.sealed():
	case node.n == nil || node.n.g != g || !slices.Contains(g.nodes, node.n):
		g.fail("exit %s is a zero handle, a node of another workflow's builder or one that is not defined yet", cut(name))
	case slices.ContainsFunc(g.exits, func(e exit) bool { return e.name == name || e.n == node.n }):
		node.n.fail("exit %s, or another one at the same node, is declared already", cut(name))
	default:
		g.exits = append(g.exits, exit{name, node.n})
	}
	return ExitOf[T](node)
}

// Include puts a complete workflow into this one, at a path of its own: its nodes
// run in the same run, under the names name + "/" + theirs. It gets its input
// from a source of this workflow, checked by its own Validate each time that it
// is read. Each of its nodes that can end it on outcome ok is an [Exit]; other
// outcomes without a way on end the whole run. It has no activation check and no
// settings of its own, and nothing can be added to it afterwards. The bound of
// steps is that of the outermost workflow.
func Include[SubIn, In any](w *Builder[In], name string, sub *Builder[SubIn], from Source[SubIn]) Mount {
	g, s := w.graph(), sub.graph()
	bad := func(format string, args ...any) { g.failNode(name, format, args...) }
	switch parts := partsOf(from); {
	case g.sealed():
		return Mount{}
	case s == g || len(s.nodes) == 0:
		bad("includes itself, or a workflow without nodes")
		return Mount{}
	case len(g.nodes)+len(s.nodes) > run.MaxNodes:
		bad("the workflow that it includes has %d nodes, too many here; all together may have %d", len(s.nodes), run.MaxNodes)
		return Mount{}
	case slices.ContainsFunc(parts, func(p part) bool { return p.g != g }):
		bad("reads nothing, or from another workflow's builder")
	case !g.take(name):
		return Mount{}
	}
	if sub.activate != nil || s.settings != nil {
		bad("the workflow that it includes has an activation check or settings; declare them here and pass what it needs as input")
	}
	s.includedBy = g.name
	m := &mount{path: name, g: g, nodes: make(map[*node]*node, len(s.nodes)), build: sub.Build}
	g.mounts = append(g.mounts, m)
	for _, n := range s.nodes {
		c := n.mount(g, name+"/", partsOf(from), func(ctx context.Context, x *execution) (any, error) {
			in, err := from.read(ctx, x)
			if err == nil && sub.validate != nil {
				err = refusedInput(guard(func() error { return sub.validate(in) }))
			}
			return in, err
		})
		m.nodes[n] = c
		g.nodes = append(g.nodes, c)
	}
	m.start = m.nodes[s.nodes[0]]
	for _, e := range s.edges {
		g.edges = append(g.edges, mountEdge(e, name+"/"))
	}
	for _, n := range s.nodes {
		if !s.goesOn(n) && !slices.ContainsFunc(s.exits, func(e exit) bool { return e.n == n }) {
			m.nodes[n].fail("the included workflow can end here on outcome ok, but the node is no Exit")
		}
	}
	return Mount{m}
}

// At returns the node at which an included workflow takes one of its exits, to
// draw edges from it and to read its output. With an exit at a decision,
// DecisionNode[C]{Node: At(m, e)} is the decision.
func At[T any](m Mount, e ExitOf[T]) Node[T] {
	if m.m == nil {
		return Node[T]{}
	}
	n := m.m.nodes[e.n]
	if n == nil {
		m.m.g.failNode(m.m.path, "At needs an exit of the workflow that is included there")
	}
	return Node[T]{n}
}

// mount returns a copy of the node for the graph that includes its own. parts is
// what input reads there.
func (n *node) mount(g *graph, prefix string, parts []part, input func(context.Context, *execution) (any, error)) *node {
	c := *n
	c.g, c.plan, c.input = g, mountPlan(n.plan, prefix), false
	if n.input {
		for _, p := range parts {
			c.reads(p)
		}
	}
	c.read = func(ctx context.Context, outer *execution) (any, error) {
		x := *outer
		x.prefix += prefix
		x.input = func(ctx context.Context) (any, error) { return input(ctx, outer) }
		return n.read(ctx, &x)
	}
	return &c
}

func mountPlan(n run.Node, prefix string) run.Node {
	n.Path = prefix + n.Path
	n.Reads, n.Maybe = mountAll(n.Reads, prefix), mountAll(n.Maybe, prefix)
	if n.Approval != "" {
		n.Approval = prefix + n.Approval
	}
	return n
}

func mountAll(paths []string, prefix string) []string {
	paths = slices.Clone(paths)
	for i := range paths {
		paths[i] = prefix + paths[i]
	}
	return paths
}

func mountEdge(e run.Edge, prefix string) run.Edge {
	e.From = prefix + e.From
	if e.To != "" {
		e.To = prefix + e.To
	}
	e.Cases = slices.Clone(e.Cases)
	for i := range e.Cases {
		e.Cases[i].To = prefix + e.Cases[i].To
	}
	return e
}

// goesOn reports whether a node has a way on after outcome ok.
func (g *graph) goesOn(n *node) bool {
	return slices.ContainsFunc(g.edges, func(e run.Edge) bool {
		return e.From == n.plan.Path && (e.On != run.OnOutcome || slices.ContainsFunc(e.Cases, func(c run.Case) bool { return c.Value == OK.String() }))
	})
}

// take makes a name of a node or mount unique.
func (g *graph) take(name string) bool {
	if strings.Contains(name, "/") {
		g.failNode(name, "a name has no '/'; that joins the parts of a path")
	}
	if g.names[name] {
		g.failNode(name, "name is used twice; give each node its own")
		return false
	}
	g.names[name] = true
	return true
}

// sealed reports, as a mistake, that the graph can take no change any more.
func (g *graph) sealed() bool {
	if g.includedBy == "" {
		return false
	}
	g.fail("workflow %s is changed after workflow %s included it; complete it first", cut(g.name), cut(g.includedBy))
	return true
}

// misfit is why the code of an execution may not run: the input of its included
// workflow, or the approval of its effect, was refused.
type misfit struct{ why string }

func (e *misfit) Error() string { return e.why }

func refusedInput(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*panicked](err); ok {
		return &misfit{"the check of its workflow's input panicked"}
	}
	return &misfit{"the input of its workflow is refused: " + explained(err, "its own check does not explain why")}
}
