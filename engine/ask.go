package engine

import (
	"context"
	"reflect"

	"example.com/piworkflows/engine/run"
)

// Agent defines a step for the session's model: what prompt returns is put to it
// as a turn, and it answers by submitting an O. Give O first; the rest is
// inferred. The prompt is 1 to 32 KiB, names nothing of the protocol, and may be
// made again after a crash. Fields that the model leaves out have their zero
// value.
func Agent[O, In, D any](w *Builder[In], name string, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts ...Option) Node[O] {
	return ask[O](w, name, run.Agent, from, prompt, opts)
}

// Choose defines an [Agent] that picks one of a closed set, fit for [Switch].
func Choose[O Choice[O], In, D any](w *Builder[In], name string, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts ...Option) Node[O] {
	return ask[O](w, name, run.Agent, from, prompt, opts)
}

// Respond defines a step that the session's model answers with visible text: the
// final text of its turn is the output.
func Respond[In, D any](w *Builder[In], name string, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts ...Option) Node[string] {
	return ask[string](w, name, run.Assistant, from, prompt, opts)
}

// Checkpoint defines a question that the session's model or a person answers with
// an O, in the same run.
func Checkpoint[O, In, D any](w *Builder[In], name string, from Source[D], question func(ctx context.Context, in D) (string, error), opts ...Option) Node[O] {
	return ask[O](w, name, run.Checkpoint, from, question, opts)
}

func ask[O, In, D any](w *Builder[In], name string, kind run.Kind, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts []Option) Node[O] {
	h := define[D, O](w, name, kind, from)
	h.n.needs(prompt == nil)
	h.n.plan.Ask = &run.Ask{Form: h.n.schema}
	h.n.call = func(ctx context.Context, _ Attempt, in any) (any, error) {
		task, err := prompt(ctx, in.(D))
		return &Ask{Task: task}, err
	}
	h.n.options(opts)
	return h
}

// Presentation is what channels show to the person who decides. They never see
// the subject itself, so it has to say all that matters.
type Presentation struct {
	Title string // one line, at most 200 bytes
	Text  string // 1 to 32 KiB
}

// Decided is the output of a decision.
type Decided[C ~string] struct {
	Choice C      `json:"choice"`
	Text   string `json:"text,omitempty"`   // what the person wrote; see [TextFor]
	By     string `json:"by"`               // "person" or "timeout"
	Person string `json:"person,omitempty"` // who, as the channel verified
}

// DecisionNode is the handle of a decision. It is a [Node] of [Decided], and fit
// for [Switch] and [Approved].
type DecisionNode[C Choice[C]] struct{ Node[Decided[C]] }

func (DecisionNode[C]) choice() (none C) { return none }

// Decide defines a decision about a subject that only a verified person takes,
// or the [Default] when it [Expires]. The decision binds exactly the subject's
// value; a changed one needs a new visit.
func Decide[C Choice[C], In, D any](w *Builder[In], name string, subject Source[D], present func(ctx context.Context, in D) (Presentation, error), opts ...Option) DecisionNode[C] {
	h := define[D, Decided[C]](w, name, run.Decision, subject)
	h.n.needs(present == nil)
	form, _, err := schemaOf[C]()
	if err == nil {
		h.n.plan.Choices, err = choicesOf[C]()
	}
	if err != nil {
		h.n.fail("choice: %v", err)
	}
	h.n.answer = reflect.TypeFor[C]()
	h.n.plan.Ask = &run.Ask{Form: form}
	h.n.call = func(ctx context.Context, _ Attempt, in any) (any, error) {
		p, err := present(ctx, in.(D))
		if err != nil {
			return nil, err
		}
		subject, err := digestOf(in)
		return &Ask{Title: p.Title, Task: p.Text, Subject: subject}, err
	}
	h.n.options(opts)
	return DecisionNode[C]{h}
}

// Notify defines a node that gives the session one message, without a turn. The
// message is 1 to 64 KiB, is delivered also when the run has ended meanwhile, and
// is the output.
func Notify[In, D any](w *Builder[In], name string, from Source[D], text func(ctx context.Context, in D) (string, error), opts ...Option) Node[string] {
	h := define[D, string](w, name, run.Notify, from)
	h.n.needs(text == nil)
	h.n.call = func(ctx context.Context, _ Attempt, in any) (any, error) { return text(ctx, in.(D)) }
	h.n.options(opts)
	return h
}
