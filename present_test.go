package piworkflows_test

import (
	"context"
	"errors"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

// board is a channel that fails the first time it is asked to do something.
type board struct {
	failed map[string]bool
	calls  chan delivery.Presentation
}

func (b *board) do(what string, p delivery.Presentation) error {
	if !b.failed[what] {
		b.failed[what] = true
		return errors.New("not now")
	}
	b.calls <- p
	return nil
}

func (b *board) Deliver(_ context.Context, p delivery.Presentation) error { return b.do("deliver", p) }
func (b *board) Settle(_ context.Context, p delivery.Presentation) error  { return b.do("settle", p) }

// A decision is shown on a channel, also when that fails at first, a person's
// answer comes back with who gave it, and the channel is told how it ended.
func TestPresent(t *testing.T) {
	w := engine.New[topic]("ask", "1")
	engine.Decide[verdict](w, "decide", w.Input(), func(_ context.Context, in topic) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish?", Text: "A text for people."}, nil
	})
	wf, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	rt := host(t, piworkflows.Options{}, wf)
	b := &board{failed: map[string]bool{}, calls: make(chan delivery.Presentation, 10)}
	if err := rt.Present("", b); !errors.Is(err, launch.ErrInvalid) {
		t.Errorf("a channel without a name: %v", err)
	}
	if err := rt.Present("board", b); err != nil {
		t.Fatal(err)
	}
	started, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "ask", Input: []byte(`{"title":"SECRET"}`)})
	if err != nil {
		t.Fatal(err)
	}
	p := <-b.calls
	if p.Run != started.Run || p.Over || p.Choice != "" || p.Contract.Title != "Publish?" || len(p.Contract.Choices) != 2 {
		t.Errorf("%+v", p)
	}
	click := piworkflows.PersonAnswer{Request: p.Request, Revision: p.Revision, Person: "ada", Channel: "board", Event: "click 1"}
	stale := click
	stale.Revision, stale.Event = 9, "click 0"
	if _, err := rt.Decide(bg, stale, "approve", ""); !errors.Is(err, launch.ErrStale) {
		t.Errorf("another revision: %v", err)
	}
	for _, want := range []string{"accepted", "adopted"} { // the channel repeats its event
		if a, err := rt.Decide(bg, click, "approve", ""); err != nil || a.Outcome != want || a.Run != started.Run {
			t.Errorf("%+v, %v; want %s", a, err, want)
		}
	}
	late := click
	late.Event = "click 2"
	if _, err := rt.Decide(bg, late, "redo", ""); !errors.Is(err, launch.ErrAlreadyDecided) {
		t.Errorf("another decision: %v", err)
	}
	p = <-b.calls
	if !p.Over || p.State != "accepted" || p.Choice != "approve" || p.By.Person != "ada" || p.By.Channel != "board" {
		t.Errorf("%+v", p)
	}
	if v, err := rt.Wait(bg, started.Run); err != nil || v.Status != "completed" {
		t.Errorf("%+v, %v", v, err)
	}
	if out, ok, err := rt.Output(bg, started.Run, "decide"); err != nil || !ok || string(out) != `{"choice":"approve","by":"person","person":"ada"}` {
		t.Errorf("%s, %v, %v", out, ok, err)
	}
}
