package pitest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// TestVisibleText: the final text of a step's turn is its output, and not one
// that a person has typed into; then the step is asked for again.
func TestVisibleText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	hold := make(chan struct{})
	w.on("asked text", func(_ context.Context, r pitest.Request) pitest.Reply {
		switch {
		case !strings.Contains(r.Opener, "Reminder 1 of 2"):
			return pitest.Reply{Text: "Too early.", Hold: hold}
		case r.Step == 1: // what comes before the final text is none of it
			return pitest.Reply{Text: "I look first.", Calls: []pitest.Call{{Tool: "workflow", Args: `{"action":"status"}`}}}
		}
		return pitest.Reply{Text: "It is a letter."}
	})
	w.on("and be kind", does(pitest.Reply{Text: "Kindly."}))
	run := w.start("say")
	w.asked("the step", func(r pitest.Request) bool { return asked(r) != "" })
	w.ok(w.agent.Prompt(w.ctx, "and be kind", "steer"))
	close(hold)
	w.over(run)
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if got := w.messages("pi-workflows-notification"); len(got) != 1 || !strings.HasSuffix(got[0], "heard: It is a letter.") {
		t.Errorf("the output: %q", got)
	}
	if n := w.provider.Opened(asks.MatchString); n != 2 {
		t.Errorf("the step was asked for %d times, want 2", n)
	}
	w.passive(0, 1)
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestCancelsItself: the model cancels the run in the run's own turn: that turn
// is aborted, and exactly one successor tells it.
func TestCancelsItself(t *testing.T) {
	t.Parallel()
	w, _ := newReview(t)
	var run string
	ready := make(chan struct{})
	w.on("asked draft 1", func(ctx context.Context, _ pitest.Request) pitest.Reply {
		select {
		case <-ready:
		case <-ctx.Done():
		}
		return call("cancel", `"runId":%q`, run)
	})
	run = w.start("review")
	w.asked("the draft", func(r pitest.Request) bool { return asked(r) != "" })
	close(ready)
	_, err := w.agent.Wait(w.ctx, 0, "aborted turn", func(e pitest.Event) bool { return e.Type == "agent_settled" && e.Aborted })
	w.ok(err)
	w.runEvent(0, "launch.cancelled", run)
	w.over(run)
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if n := w.provider.Opened(func(o string) bool { return strings.Contains(o, "was cancelled by the model") }); n != 1 {
		t.Errorf("%d successor turns, want 1", n)
	}
	for _, r := range w.provider.Requests() {
		if asked(r) != "" && r.Step > 1 {
			t.Error("the aborted turn went on")
		}
	}
	r := w.asked("the successor", func(r pitest.Request) bool { return strings.Contains(r.Opener, "was cancelled by the model") })
	if !slices.ContainsFunc(r.Messages, func(l pitest.Line) bool { return l.Role == "tool" && strings.Contains(l.Text, run+" is cancelled") }) {
		t.Error("the successor does not see what the call came to")
	}
	if n := w.host.count("session.held"); n != 0 {
		t.Error("the host's own abort held the session")
	}
	w.turns(2)
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestNoSubmission: a step whose turns end without a submission is reminded of
// twice, then the run fails, and the model is told once.
func TestNoSubmission(t *testing.T) {
	t.Parallel()
	w, _ := newReview(t)
	w.on("asked draft 1", does(pitest.Reply{Text: "Here is the draft: rafts float."}))
	run := w.start("review")
	l := w.runEvent(0, "launch.failed", run)
	if !strings.Contains(l.Why, "submission_missing") {
		t.Errorf("the run failed with %q", l.Why)
	}
	w.over(run)
	w.turns(4) // the three of the step, and the successor
	var forms []string
	for _, r := range w.provider.Requests() {
		switch id := asked(r); {
		case id == "" || r.Step > 1:
		case strings.Contains(r.Opener, "Reminder 1 of 2"):
			forms = append(forms, "first "+id)
		case strings.Contains(r.Opener, "Reminder 2 of 2"):
			forms = append(forms, "second "+id)
		default:
			forms = append(forms, "initial "+id)
		}
	}
	id := w.open(0, "draft")
	if want := []string{"initial " + id, "first " + id, "second " + id}; !slices.Equal(forms, want) {
		t.Errorf("the step was asked for with %q, want %q", forms, want)
	}
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestBudgetInTurn: the active time of an attempt runs out in its turn: that is
// recorded, then the turn is aborted, and one successor follows.
func TestBudgetInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.hold("asked hurry")
	mark := w.agent.Mark()
	run := w.start("brief")
	l := w.runEvent(0, "launch.failed", run)
	if !strings.Contains(l.Why, "timed_out") {
		t.Errorf("the run failed with %q", l.Why)
	}
	aborted := func(e pitest.Event) bool { return e.Type == "agent_settled" && e.Aborted }
	_, err := w.agent.Wait(w.ctx, mark, "aborted turn", aborted)
	w.ok(err)
	w.over(run)
	w.turns(2) // the step's, and the successor
	expired, late := -1, -1
	w.host.mu.Lock()
	for i, l := range w.host.lines {
		switch {
		case l.Kind == "request.expired" && expired < 0:
			expired = i
		case (l.Kind == "session.lateEnd" || l.Kind == "session.turnClosed") && l.Why == "aborted" && late < 0:
			late = i
		}
	}
	w.host.mu.Unlock()
	if expired < 0 || late < expired {
		t.Errorf("the timeout was recorded at %d and the abort reported at %d\n%s", expired, late, w.host.story())
	}
	if n := w.host.count("session.held"); n != 0 {
		t.Error("the host's own abort held the session")
	}
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}
