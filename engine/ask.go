package engine

import (
	"context"

	"example.com/piworkflows/engine/run"
)

// Presentation is what a node asks: the text for whoever answers, and for a
// decision a title of 1 to 200 bytes. The bridge adds how to answer and the form
// of the answer.
type Presentation struct {
	Title string
	Text  string
}

// Agent defines a step that the session's model does: the prompt says what, and
// the model submits an output of type O for exactly this request. O is given:
//
//	draft := engine.Agent[Draft](w, "draft", w.Input(), prompt)
//
// A type O with a closed set of choices makes it a choice; see [Choose].
func Agent[O, In, D any](w *Builder[In], name string, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts ...Option) Node[O] {
	h := define[D, O](w, name, from)
	h.n.asks(run.Agent, textOf(prompt))
	h.n.options(opts)
	return h
}

// Choose is an [Agent] step over a closed set: the model submits one of its
// members.
func Choose[O Choice[O], In, D any](w *Builder[In], name string, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts ...Option) Node[O] {
	return Agent[O](w, name, from, prompt, opts...)
}

// Respond defines a step that the session's model answers with visible text: the
// final text of its turn is the output.
func Respond[In, D any](w *Builder[In], name string, from Source[D], prompt func(ctx context.Context, in D) (string, error), opts ...Option) Node[string] {
	h := define[D, string](w, name, from)
	h.n.asks(run.Assistant, textOf(prompt))
	h.n.options(opts)
	return h
}

// Checkpoint defines a question that the model or a person answers with an O.
// The run waits, in the same run, for as long as it takes, or until [Expires].
func Checkpoint[O, In, D any](w *Builder[In], name string, from Source[D], question func(ctx context.Context, in D) (string, error), opts ...Option) Node[O] {
	h := define[D, O](w, name, from)
	h.n.asks(run.Checkpoint, textOf(question))
	h.n.options(opts)
	return h
}

// Decided is the output of a decision.
type Decided[C ~string] struct {
	Choice C      `json:"choice"`
	Text   string `json:"text,omitempty"`   // see [TextFor]
	By     string `json:"by"`               // "person" or "timeout"
	Person string `json:"person,omitempty"` // as the channel verified
}

// DecisionNode is the handle of a decision. It is a source of [Decided], and
// [Switch] takes it for its choice.
type DecisionNode[C ~string] struct{ Node[Decided[C]] }

func (DecisionNode[C]) chooses(C) {}

// Decide defines a decision that only a verified person makes, over the closed
// set C. What is decided about is the value that the node reads: its digest is
// bound, and an action that is [Approved] has to read an equal one. People see
// only what present writes.
func Decide[C Choice[C], In, D any](w *Builder[In], name string, subject Source[D], present func(ctx context.Context, in D) (Presentation, error), opts ...Option) DecisionNode[C] {
	h := define[D, Decided[C]](w, name, subject)
	var err error
	if h.n.choices, err = choicesOf[C](); err != nil {
		h.n.g.failNode(name, "choices: %v", err)
	}
	var call func(context.Context, any) (Presentation, error)
	if present != nil {
		call = func(ctx context.Context, in any) (Presentation, error) { return present(ctx, in.(D)) }
	}
	h.n.asks(run.Decision, call)
	h.n.options(opts)
	return DecisionNode[C]{h}
}

// Notify defines one durable message to the session, which starts no turn and
// survives the end of its run. Its output is the text. In a headless run it goes
// nowhere.
func Notify[In, D any](w *Builder[In], name string, from Source[D], text func(ctx context.Context, in D) (string, error), opts ...Option) Node[string] {
	h := define[D, string](w, name, from)
	h.n.kind = run.Notify
	if text == nil {
		h.n.g.failNode(name, "needs a function")
	}
	h.n.call = func(ctx context.Context, _ Attempt, in any) (any, error) { return text(ctx, in.(D)) }
	h.n.options(opts)
	return h
}

func textOf[D any](prompt func(ctx context.Context, in D) (string, error)) func(context.Context, any) (Presentation, error) {
	if prompt == nil {
		return nil
	}
	return func(ctx context.Context, in any) (Presentation, error) {
		text, err := prompt(ctx, in.(D))
		return Presentation{Text: text}, err
	}
}

// asks makes n a node that opens a request.
func (n *node) asks(kind run.Kind, prompt func(context.Context, any) (Presentation, error)) {
	if prompt == nil {
		n.g.failNode(n.name, "needs a function")
	}
	n.kind, n.prompt, n.ask = kind, prompt, &run.Ask{Form: n.schema}
}
