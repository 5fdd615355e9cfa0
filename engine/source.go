package engine

import (
	"context"
	"encoding/json"

	"example.com/piworkflows/launch"
)

// Source is a typed value that a node reads: the workflow's input or settings, a
// node, or what [Both] and [Maybe] make of them.
type Source[T any] interface {
	parts() []part
	read(ctx context.Context, x *execution) (T, error)
}

// part is one thing that a source reads: the input, a node's output, or else the
// settings.
type part struct {
	g            *graph
	n            *node
	input, maybe bool
}

type input[In any] struct{ g *graph }

func (s input[In]) parts() []part { return []part{{g: s.g, input: true}} }

func (s input[In]) read(ctx context.Context, x *execution) (v In, err error) {
	if x.input != nil {
		in, err := x.input(ctx)
		v, _ = in.(In)
		return v, err
	}
	if json.Unmarshal(x.job.Input, &v) != nil {
		return v, launch.Refuse(launch.ErrInternal, "the stored input does not decode as the input of workflow %s", x.wf.name)
	}
	return v, nil
}

// Node is the handle of a node with outputs of type T. As a [Source] it is the
// latest accepted output. The zero value is refused by Build wherever it is used.
type Node[T any] struct{ n *node }

func (h Node[T]) node() *node { return h.n }

func (h Node[T]) parts() []part {
	if h.n == nil {
		return []part{{}}
	}
	return []part{{g: h.n.g, n: h.n}}
}

func (h Node[T]) read(ctx context.Context, x *execution) (T, error) {
	v, ok, err := h.latest(ctx, x)
	if err == nil && !ok {
		err = launch.Refuse(launch.ErrInternal, "the host has no accepted output of node %s, which the plan promises", x.prefix+h.n.plan.Path)
	}
	return v, err
}

func (h Node[T]) latest(ctx context.Context, x *execution) (v T, ok bool, err error) {
	raw, ok, err := x.host.Output(ctx, x.prefix+h.n.plan.Path)
	if err != nil || !ok {
		return v, false, err
	}
	if json.Unmarshal(raw, &v) != nil {
		return v, false, launch.Refuse(launch.ErrInternal, "the stored output of node %s does not decode as its declared type", x.prefix+h.n.plan.Path)
	}
	return v, true, nil
}

// Pair is what a node reads from [Both].
type Pair[A, B any] struct {
	A A
	B B
}

type both[A, B any] struct {
	a Source[A]
	b Source[B]
}

// Both reads two sources. Nest it to read more.
func Both[A, B any](a Source[A], b Source[B]) Source[Pair[A, B]] { return both[A, B]{a, b} }

func (s both[A, B]) parts() []part {
	return append(partsOf(s.a), partsOf(s.b)...)
}

func (s both[A, B]) read(ctx context.Context, x *execution) (p Pair[A, B], err error) {
	if p.A, err = s.a.read(ctx, x); err == nil {
		p.B, err = s.b.read(ctx, x)
	}
	return p, err
}

type maybe[T any] struct{ h Node[T] }

// Maybe reads a node that need not have run, as in a loop: nil until it has an
// accepted output, then the latest (rule engine/reads).
func Maybe[T any](node Node[T]) Source[*T] { return maybe[T]{node} }

func (s maybe[T]) parts() []part {
	p := s.h.parts()
	p[0].maybe = true
	return p
}

func (s maybe[T]) read(ctx context.Context, x *execution) (*T, error) {
	v, ok, err := s.h.latest(ctx, x)
	if err != nil || !ok {
		return nil, err
	}
	return &v, nil
}

// partsOf is the parts of a source that the author may have left nil.
func partsOf[T any](s Source[T]) []part {
	if s == nil {
		return []part{{}}
	}
	return s.parts()
}
