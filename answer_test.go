package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

type voice struct {
	Tone string `json:"tone"`
	Sign string `json:"sign"`
}

// panel asks a question and then a person, about a subject that nobody is shown.
func panel() *engine.Workflow {
	w := engine.New[topic]("panel", "1")
	engine.Settings(w, voice{Tone: "plain", Sign: "us"}, "tone")
	ask := engine.Checkpoint[paper](w, "ask", w.Input(), func(context.Context, topic) (string, error) { return "What is missing?", nil })
	decide := engine.Decide[verdict](w, "decide", engine.Both(w.Input(), ask), func(context.Context, engine.Pair[topic, paper]) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish?", Text: "It is about rafts."}, nil
	}, engine.TextFor(verdict("redo"), 100, true), engine.Audience("an editor"))
	engine.Then(ask, decide)
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// asked waits until a run waits for a request of that kind.
func asked(t *testing.T, rt *piworkflows.Runtime, id launch.RunID, kind string) view.Request {
	t.Helper()
	var v view.View
	until(t, "a "+kind+" is asked for", func() (ok bool) {
		var err error
		v, err = rt.Status(bg, id)
		return err == nil && v.Request != nil && v.Request.Kind == kind && v.Request.State == "pending"
	})
	return *v.Request
}

// startPanel starts a headless panel about what is private.
func startPanel(t *testing.T, rt *piworkflows.Runtime) launch.RunID {
	t.Helper()
	s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "panel", Input: json.RawMessage(`{"title":"` + marker + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return s.Run
}

// ada is a person's answer to a request at its first revision.
func ada(request, event string) piworkflows.PersonAnswer {
	return piworkflows.PersonAnswer{Request: request, Revision: 1, Person: "ada", Channel: "chat", Event: event}
}

func TestAnswersOfPersons(t *testing.T) {
	rt := host(t, piworkflows.Options{}, panel())
	run := startPanel(t, rt)
	id := asked(t, rt, run, "checkpoint").ID
	answer := func(a piworkflows.PersonAnswer, output string) (piworkflows.Answered, error) {
		return rt.Answer(bg, a, json.RawMessage(output))
	}
	refuses := func(why string, err error, kind launch.Kind, words string) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%s:", why)
		}
		wantKind(t, err, kind, words)
	}
	unnamed, stale, nowhere := ada(id, "e1"), ada(id, "e2"), ada(id, "e3")
	unnamed.Person, stale.Revision, nowhere.Channel = "", 7, "a\nb"
	_, err := answer(unnamed, `{"text":"a"}`)
	refuses("nobody", err, launch.ErrInvalid, "person")
	_, err = answer(stale, `{"text":"a"}`)
	refuses("another revision", err, launch.ErrStale, "is at revision 1")
	_, err = answer(nowhere, `{"text":"a"}`)
	refuses("a channel that is no key", err, launch.ErrInvalid, "channel")
	_, err = answer(ada(id, ""), `{"text":"a"}`)
	refuses("no event", err, launch.ErrInvalid, "channel event id")
	_, err = answer(ada("", "e"), `{"text":"a"}`)
	refuses("no request", err, launch.ErrInvalid, "request id")
	_, err = answer(ada("req-none", "e"), `{"text":"a"}`)
	refuses("an invented request", err, launch.ErrNotFound, "no such request")
	_, err = answer(ada(id, "e4"), `{"text":7}`)
	refuses("another form", err, launch.ErrInvalid, "text")
	_, err = answer(ada(id, "e5"), marker)
	refuses("no JSON", err, launch.ErrInvalid, "output")
	_, err = rt.Answer(bg, ada(id, "e6"), nil)
	refuses("nothing", err, launch.ErrInvalid, "output")
	_, err = rt.Decide(bg, ada(id, "e7"), "approve", "")
	refuses("a decision", err, launch.ErrWrongKind, "answers it")

	got, err := answer(ada(id, "click"), `{"text":"a"}`)
	if want := (piworkflows.Answered{Outcome: "accepted", Run: run, Node: "ask"}); err != nil || got != want {
		t.Fatalf("the answer: %+v, %v", got, err)
	}
	got, err = answer(ada(id, "click"), ` {"text": "a"} `)
	if want := (piworkflows.Answered{Outcome: "adopted", Run: run, Node: "ask"}); err != nil || got != want {
		t.Errorf("the same event again: %+v, %v", got, err)
	}
	_, err = answer(ada(id, "click"), `{"text":"b"}`)
	refuses("the same event with another content", err, launch.ErrConflict, "the action key was used")
	if got, err = answer(ada(id, "other"), `{"text":"a"}`); err != nil || got.Outcome != "adopted" {
		t.Errorf("the same answer again: %+v, %v", got, err)
	}
	_, err = answer(ada(id, "third"), `{"text":"b"}`)
	refuses("another answer", err, launch.ErrAlreadyDecided, "by the person; that stands")

	id = asked(t, rt, run, "decision").ID
	unseen := ada(id, "d0")
	unseen.Revision = 0
	_, err = rt.Decide(bg, unseen, "approve", "")
	refuses("a decision that nobody saw", err, launch.ErrStale, "is at revision 1")
	_, err = rt.Decide(bg, ada(id, "d1"), "burn", "")
	refuses("no choice", err, launch.ErrInvalid, "must be one of")
	_, err = rt.Decide(bg, ada(id, "d2"), "redo", " ")
	refuses("a text is needed", err, launch.ErrInvalid, "redo needs a text")
	_, err = rt.Decide(bg, ada(id, "d3"), "redo", strings.Repeat("x", 101))
	refuses("a text that is too long", err, launch.ErrInvalid, "this one has 101")
	_, err = rt.Decide(bg, ada(id, "d4"), "approve", "because")
	refuses("a text that nobody asked for", err, launch.ErrInvalid, "at most 0 characters")
	_, err = answer(ada(id, "d5"), `{"choice":"approve"}`)
	refuses("an answer", err, launch.ErrWrongKind, "only a person decides it (an editor)")
	if got, err = rt.Decide(bg, ada(id, "click"), "redo", "shorter"); err != nil || got.Outcome != "accepted" || got.Node != "decide" {
		t.Fatalf("the decision: %+v, %v", got, err)
	}
	if _, err := rt.Wait(bg, run); err != nil {
		t.Fatal(err)
	}
	_, err = rt.Decide(bg, ada(id, "late"), "approve", "")
	refuses("late, after the run's end", err, launch.ErrAlreadyDecided, "by the person; that stands")
	output, ok, err := rt.Output(bg, run, "decide")
	if err != nil || !ok || string(output) != `{"choice":"redo","text":"shorter","by":"person","person":"ada"}` {
		t.Errorf("the node's output is %s, %v, %v", output, ok, err)
	}
}

// Of two persons who decide at once one wins, and the other is told.
func TestPersonsRace(t *testing.T) {
	rt := host(t, piworkflows.Options{}, panel())
	run := startPanel(t, rt)
	if _, err := rt.Answer(bg, ada(asked(t, rt, run, "checkpoint").ID, "e"), json.RawMessage(`{"text":"a"}`)); err != nil {
		t.Fatal(err)
	}
	id := asked(t, rt, run, "decision").ID
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for n := range errs {
		wg.Go(func() {
			a := ada(id, "e")
			a.Person, a.Channel = "p"+string(rune('0'+n)), "c"+string(rune('0'+n))
			choice, text := "approve", ""
			if n%2 == 1 {
				choice, text = "redo", a.Person // so that no two are equal
			}
			_, errs[n] = rt.Decide(bg, a, choice, text)
		})
	}
	wg.Wait()
	redone, approved := 0, 0
	for n, err := range errs {
		switch {
		case err != nil:
			if !errors.Is(err, launch.ErrAlreadyDecided) {
				t.Errorf("person %d: %v", n, err)
			}
		case n%2 == 1:
			redone++
		default:
			approved++ // one accepted, and the others equal to it
		}
	}
	if redone+min(approved, 1) != 1 {
		t.Errorf("%d persons sent it back and %d approved", redone, approved)
	}
}

// board is a channel that keeps what it is told.
type board struct {
	mu     sync.Mutex
	shown  map[string]delivery.Presentation
	over   map[string]delivery.Presentation
	calls  int
	answer func(delivery.Presentation) // called in Deliver
}

func newBoard() *board {
	return &board{shown: map[string]delivery.Presentation{}, over: map[string]delivery.Presentation{}}
}

func (b *board) Deliver(_ context.Context, p delivery.Presentation) error {
	b.mu.Lock()
	b.calls++
	b.shown[p.Request] = p
	b.mu.Unlock()
	if b.answer != nil {
		b.answer(p)
	}
	return nil
}

func (b *board) Settle(_ context.Context, p delivery.Presentation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.over[p.Request] = p
	return nil
}

func (b *board) get(over bool, id string) (delivery.Presentation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.shown
	if over {
		all = b.over
	}
	p, ok := all[id]
	return p, ok
}

// Two hosts share a file and have a channel each: both show the decision, the one
// where it was not made is told who made it, and neither is told twice, also by
// hosts that open later. What it is about is told to nobody.
func TestPresentOnTwoHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	var events collector
	one := host(t, piworkflows.Options{Path: path}, panel())
	two := host(t, piworkflows.Options{Path: path, Observe: func(e store.Event) { _, _ = events.Write([]byte(e.Kind + e.Why + "\n")) }}, panel())
	a, b := newBoard(), newBoard()
	if err := one.Present("a", a); err != nil {
		t.Fatal(err)
	}
	if err := two.Present("b", b); err != nil {
		t.Fatal(err)
	}
	run := startPanel(t, one)
	if _, err := one.Answer(bg, ada(asked(t, one, run, "checkpoint").ID, "e"), json.RawMessage(`{"text":"`+marker+`"}`)); err != nil {
		t.Fatal(err)
	}
	id := asked(t, one, run, "decision").ID
	for _, c := range []*board{a, b} {
		until(t, "it is shown", func() bool { _, ok := c.get(false, id); return ok })
	}
	p, _ := b.get(false, id)
	if _, err := two.Decide(bg, piworkflows.PersonAnswer{Request: p.Request, Revision: p.Revision, Person: "bob", Channel: "b", Event: "click"}, "approve", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*board{a, b} {
		until(t, "it is taken back", func() bool { _, ok := c.get(true, id); return ok })
		p, _ := c.get(true, id)
		if !p.Over || p.State != "accepted" || p.Choice != "approve" || p.By.Person != "bob" || p.By.Channel != "b" || p.By.Event != "click" {
			t.Errorf("it was told %+v", p)
		}
		raw, err := json.Marshal([]delivery.Presentation{p, c.shown[id]})
		if err != nil || strings.Contains(string(raw), marker) {
			t.Errorf("the channel sees the subject: %s, %v", raw, err)
		}
	}
	if _, err := two.Wait(bg, run); err != nil {
		t.Fatal(err)
	}
	again := newBoard()
	if err := one.Close(bg); err != nil {
		t.Fatal(err)
	}
	three := host(t, piworkflows.Options{Path: path}, panel())
	if err := three.Present("a", again); err != nil {
		t.Fatal(err)
	}
	if err := three.Close(bg); err != nil {
		t.Fatal(err)
	}
	if a.calls != 2 || b.calls != 2 || again.calls != 0 {
		t.Errorf("the channels were called %d, %d and %d times", a.calls, b.calls, again.calls)
	}
	events.check(t, "events")
}

// A channel may answer while it shows, as one does that applies a rule.
func TestPresentAnswersAtOnce(t *testing.T) {
	rt := host(t, piworkflows.Options{}, panel())
	b := newBoard()
	b.answer = func(p delivery.Presentation) {
		if _, err := rt.Decide(bg, piworkflows.PersonAnswer{Request: p.Request, Revision: p.Revision, Person: "ada", Channel: "rule", Event: p.Request}, "approve", ""); err != nil {
			t.Error(err)
		}
	}
	if err := rt.Present("rule", b); err != nil {
		t.Fatal(err)
	}
	run := startPanel(t, rt)
	if _, err := rt.Answer(bg, ada(asked(t, rt, run, "checkpoint").ID, "e"), json.RawMessage(`{"text":"a"}`)); err != nil {
		t.Fatal(err)
	}
	if v, err := rt.Wait(bg, run); err != nil || v.Status != view.Completed {
		t.Errorf("the run is %s, %v", v.Status, err)
	}
	until(t, "it is taken back", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.over) == 1 })
}

func TestPresentRefuses(t *testing.T) {
	rt := host(t, piworkflows.Options{}, panel())
	wantKind(t, rt.Present("", newBoard()), launch.ErrInvalid, "channel name")
	wantKind(t, rt.Present("a", nil), launch.ErrInvalid, "a channel needs")
	if err := rt.Close(bg); err != nil {
		t.Fatal(err)
	}
	wantKind(t, rt.Present("a", newBoard()), launch.ErrClosed, "open a new one")
	_, err := rt.Decide(bg, ada("req-none", "e"), "approve", "")
	wantKind(t, err, launch.ErrClosed, "")
}
