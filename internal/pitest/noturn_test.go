package pitest_test

import (
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// turns checks how many turns workflow messages have opened, after a chat of
// the person that comes after everything that could have been sent.
func (w *world) turns(want int) {
	w.t.Helper()
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if n := w.provider.Opened(about.MatchString); n != want {
		w.t.Errorf("%d turns were opened by workflow messages, want %d", n, want)
	}
}

// TestEscapeBeforeActivation: Escape in the turn that made a start holds the
// session; cancelled then, the run never began and owes nothing.
func TestEscapeBeforeActivation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.hold("start slow 2")
	mark := w.agent.Mark()
	w.ok(w.agent.Prompt(w.ctx, "start slow", "followUp"))
	run := w.started("slow")
	_, err := w.agent.Do(w.ctx, "abort", nil)
	w.ok(err)
	settled, err := w.agent.Settled(w.ctx, mark)
	w.ok(err)
	if !settled.Aborted {
		t.Error("the turn was not aborted")
	}
	w.event(0, "session.held")
	w.ok(w.agent.Prompt(w.ctx, "/workflow cancel "+run, "followUp"))
	w.runEvent(0, "launch.cancelled", run)
	w.over(run)
	w.turns(0)
	w.event(0, "session.confirmed") // the notice, once the person's turn has lifted the hold
	if n := w.host.count("launch.claimed"); n != 0 {
		t.Errorf("the run was activated %d times", n)
	}
	if got := w.end(1); len(got) > 0 {
		t.Errorf("the intents are %q, want none", got)
	}
}

// TestEscapeInSuccessor: Escape in the turn that a run's end gave, in the
// terminal; no second one follows.
func TestEscapeInSuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	w.ok(w.agent.Terminate(w.ctx))
	mark := w.host.mark()
	term, err := pitest.StartTerminal(w.pi, w.home, append(w.stops.env(), w.host.env...), "-e", w.host.ext, "-e", w.stops.ext, "--session", w.session)
	w.missing(err)
	t.Cleanup(term.Close)
	w.connected(mark)
	w.hold("message")
	w.ok(w.host.say("open"))
	w.asked("the turn", byMessage)
	w.ok(term.See(w.ctx, "…"))
	mark = w.host.mark()
	w.ok(term.Press("Escape"))
	if l := w.event(mark, "session.turnClosed"); l.Why != "aborted" {
		t.Errorf("the turn ended %q", l.Why)
	}
	w.event(mark, "session.held")
	w.over(run)
	w.ok(term.Type("go on"))
	w.ok(term.Press("Enter"))
	w.asked("the chat", opened("go on"))
	w.event(mark, "session.freed")
	if n := w.provider.Opened(about.MatchString); n != 1 {
		t.Errorf("%d turns, want 1", n)
	}
	mark = w.host.mark()
	w.ok(term.Type("/quit"))
	w.ok(term.Press("Enter"))
	w.event(mark, "session.disconnected")
	w.startPi()
	w.turns(1)
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestCancelCommand: a person cancels a running run, in the terminal: a passive
// notice and no turn.
func TestCancelCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	w.ok(w.agent.Terminate(w.ctx))
	mark := w.host.mark()
	term, err := pitest.StartTerminal(w.pi, w.home, append(w.stops.env(), w.host.env...), "-e", w.host.ext, "-e", w.stops.ext, "--session", w.session)
	w.missing(err)
	t.Cleanup(term.Close)
	w.connected(mark)
	w.ok(term.See(w.ctx, "mock-1"))
	w.ok(term.Type("/workflow cancel " + run))
	w.ok(term.See(w.ctx, run[len(run)-8:]))
	w.ok(term.Press("Enter"))
	w.runEvent(mark, "launch.cancelled", run)
	w.event(mark, "session.confirmed") // the notice
	mark = w.host.mark()
	w.ok(term.Type("/quit"))
	w.ok(term.Press("Enter"))
	w.event(mark, "session.disconnected")
	w.startPi()
	w.over(run)
	w.turns(0)
	if got := w.end(0); len(got) > 0 {
		t.Errorf("the intents are %q, want none", got)
	}
	all, err := pitest.File(w.session)
	w.ok(err)
	notices := 0
	for _, e := range all {
		if e.MessageID() != "" && strings.Contains(e.Text(), run) {
			notices++
		}
	}
	if notices != 1 {
		t.Errorf("%d notices, want 1", notices)
	}
}

// TestShutdown: the end of Pi, in the turn of a start and later, owes nothing.
func TestShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.ok(w.agent.Ask(w.ctx, "hello")) // so that the session is on disk
	w.hold("start slow 2")
	mark := w.host.mark()
	w.ok(w.agent.Prompt(w.ctx, "start slow", "followUp"))
	run := w.started("slow")
	w.ok(w.agent.Terminate(w.ctx)) // aborts the turn
	w.event(mark, "session.disconnected")
	mark = w.host.mark()
	w.startPi()
	w.runEvent(mark, "launch.claimed", run) // the hold went with the process
	w.gate(mark)
	w.turns(0)
	w.ok(w.agent.Terminate(w.ctx)) // while the run runs
	w.event(mark, "session.disconnected")
	w.startPi()
	w.turns(0)
	w.ok(w.agent.Prompt(w.ctx, "/workflow cancel "+run, "followUp"))
	w.runEvent(mark, "launch.cancelled", run)
	w.over(run)
	w.event(mark, "session.confirmed") // the notice
	w.turns(0)
	if got := w.end(0); len(got) > 0 {
		t.Errorf("the intents are %q, want none", got)
	}
}
