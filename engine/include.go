package engine

import (
	"context"
	"strings"

	"example.com/piworkflows/engine/run"
)

// ExitOf is a named exit of a workflow that others include; see [Exit].
type ExitOf[T any] struct {
	g    *graph
	name string
	n    *node
}

// Exit names a node that has no way on as an exit of its workflow, so that a
// workflow that includes it can go on from there and read its output. It changes
// nothing when the workflow runs by itself.
func Exit[T, In any](w *Builder[In], name string, node Node[T]) ExitOf[T] {
	switch {
	case !validSegment(name):
		w.g.fail("exit %s: name must match [a-z0-9_-]{1,64}", cut(name))
	case node.n == nil || node.n.g != w.g:
		w.g.fail("exit %s names a zero handle or a node of another workflow's builder", cut(name))
	case w.g.exits[name] != nil:
		w.g.fail("exit %s is named twice", cut(name))
	default:
		w.g.exits[name] = node.n
	}
	return ExitOf[T]{w.g, name, node.n}
}

// Mount is an included workflow. As a [Target] it is its start.
type Mount struct {
	g     *graph
	sub   *graph
	name  string
	start *node
	nodes map[*node]*node // of sub, to the copies
}

func (m Mount) node() *node { return m.start }

// Include runs another workflow inside this one, in the same run, under the path
// name. The source is its input. Every node of it that can end the run with
// outcome ok has to be an exit, from which this workflow goes on; what fails in it
// without a way on fails the run. A workflow may be included more than once,
// under different names.
func Include[SubIn, In any](w *Builder[In], name string, sub *Builder[SubIn], from Source[SubIn]) Mount {
	g := w.g
	m := Mount{g: g, name: name, nodes: map[*node]*node{}}
	if sub == nil {
		g.failNode(name, "includes no workflow")
		return m
	}
	m.sub = sub.g
	built, err := sub.Build()
	switch {
	case err != nil:
		g.failNode(name, "the included workflow %s is not valid by itself", cut(sub.g.name))
		g.keep(err)
		return m
	case !validSegment(name):
		g.failNode(name, "name must match [a-z0-9_-]{1,64}")
	case sub.g == g:
		g.failNode(name, "a workflow cannot include itself")
		return m
	case sub.activate != nil:
		g.failNode(name, "the included workflow %s has an activation check; move it to this workflow", sub.g.name)
	case sub.g.settings != nil:
		g.failNode(name, "the included workflow %s has settings; pass what it needs as its input", sub.g.name)
	}
	g.included[name] = built.Digest()
	m.checkExits(built.plan)
	var above []part
	for _, p := range partsOf(from) {
		switch {
		case p.g == nil:
			g.failNode(name, "reads nothing: a source is nil or a zero handle")
		case p.g != g:
			g.failNode(name, "reads from another workflow's builder")
		default:
			above = append(above, p)
		}
	}
	m.copy(above, func(ctx context.Context, x *execution) (any, error) {
		in, err := from.read(ctx, x)
		if err != nil || sub.validate == nil {
			return in, err
		}
		if err := guard(func() error { return sub.validate(in) }); err != nil {
			return nil, Explain("its included workflow "+sub.g.name+" refuses the input: "+explained(err, "its own check does not explain why"), err)
		}
		return in, nil
	})
	return m
}

// At is the node of an exit in an included workflow, as a source and to draw
// edges from.
func At[T any](m Mount, exit ExitOf[T]) Node[T] {
	n := m.nodes[exit.n]
	if n == nil || m.sub != exit.g {
		if m.g != nil {
			m.g.failNode(m.name, "exit %s is not one of the included workflow", cut(exit.name))
		}
		return Node[T]{}
	}
	return Node[T]{n}
}

// checkExits refuses a node that ends the included workflow and is no exit, and
// an exit that does not.
func (m *Mount) checkExits(p run.Plan) {
	exit := map[string]bool{}
	for _, n := range m.sub.exits {
		exit[n.name] = true
	}
	for i := range p.Nodes {
		path := p.Nodes[i].Path
		ends := true
		if e := p.Edge(path); e != nil {
			ends = false
			if e.On == run.OnOutcome {
				ends = true
				for _, c := range e.Cases {
					ends = ends && c.Value != OK.String()
				}
			}
		}
		switch {
		case ends && !exit[path]:
			m.g.failNode(m.name, "node %s ends the included workflow %s and is no exit; name it with Exit", path, m.sub.name)
		case !ends && exit[path]:
			m.g.failNode(m.name, "exit node %s of the included workflow %s goes on inside it", path, m.sub.name)
		}
	}
}

// copy puts the nodes and edges of the included workflow into this one.
func (m *Mount) copy(above []part, read func(ctx context.Context, x *execution) (any, error)) {
	g, prefix := m.g, m.name+"/"
	for _, orig := range m.sub.nodes {
		n := *orig
		n.g, n.name = g, prefix+orig.name
		n.reads, n.maybe, n.input = nil, nil, false
		for _, r := range orig.reads {
			n.reads = insert(n.reads, prefix+r)
		}
		for _, r := range orig.maybe {
			n.maybe = insert(n.maybe, prefix+r)
		}
		if orig.input {
			for _, p := range above {
				switch {
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
		}
		if n.approval != "" {
			n.approval = prefix + n.approval
		}
		n.read = func(ctx context.Context, x *execution) (any, error) { return orig.read(ctx, x.under(prefix, read)) }
		if _, dup := g.byName[n.name]; dup {
			g.failNode(n.name, "name is used twice; give each mount its own")
			continue
		}
		g.byName[n.name] = &n
		g.nodes = append(g.nodes, &n)
		m.nodes[orig] = &n
		if orig == m.sub.nodes[0] {
			m.start = &n
		}
	}
	for _, e := range m.sub.edges {
		e.From = prefix + e.From
		if e.To != "" {
			e.To = prefix + e.To
		}
		cases := make([]run.Case, len(e.Cases))
		for i, c := range e.Cases {
			cases[i] = run.Case{Value: c.Value, To: prefix + c.To}
		}
		if e.Cases = cases; len(cases) == 0 {
			e.Cases = nil
		}
		g.edges = append(g.edges, e)
	}
}

// under is x as the nodes of an included workflow see it.
func (x *execution) under(prefix string, read func(ctx context.Context, x *execution) (any, error)) *execution {
	inner := *x
	inner.prefix = x.prefix + prefix
	inner.mounted = func(ctx context.Context) (any, error) { return read(ctx, x) }
	return &inner
}

// validSegment reports whether a name may be a segment of a path, as far as the
// plan's own check does not tell.
func validSegment(name string) bool { return name != "" && !strings.Contains(name, "/") }
