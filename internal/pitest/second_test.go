package pitest_test

import (
	"slices"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// TestSecondProcess: another Pi opens the same session; the first one is
// fenced.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	mark := w.host.mark()
	first, second := w.agent, w.newPi()
	w.connected(mark)

	w.ok(w.host.say("open"))
	w.over(run)
	w.agent = second
	w.ok(second.Ask(w.ctx, "go on"))
	if n := w.host.count("session.connected"); n != 2 {
		t.Errorf("%d connections, want 2: the fenced one has to stay away", n)
	}
	for _, e := range first.Events() {
		if custom(e) {
			t.Errorf("the fenced process got %s", e.Raw)
		}
	}
	w.ok(first.Terminate(w.ctx))
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestTakenOverInTurn: another Pi opens the session while the first one runs a
// successor turn. The turn ends as the second one's branch shows it; what the
// first one does and reports later changes nothing.
func TestTakenOverInTurn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why   string
		stop  string // where the first Pi stands, all of it; empty: it waits for the model
		abort bool   // the person stops it there
		end   string
	}{
		{why: "the reply comes later", end: "lost"},
		{why: "the person stops the fenced one", abort: true, end: "lost"},
		{why: "it stood still in the reply", stop: "message_start assistant", end: "lost"},
		{why: "it stood still after the reply", stop: "agent_end", end: "completed"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			run := w.start("slow")
			w.gate(0)
			release := func() error { return w.stops.release() }
			if c.stop != "" {
				w.ok(w.stops.arm(c.stop))
			} else {
				reply := w.hold("message")
				release = func() error { reply(); return nil }
			}
			first, mark := w.agent, w.agent.Mark()
			if c.abort {
				release = func() error { _, err := first.Do(w.ctx, "abort", nil); return err }
			}
			w.ok(w.host.say("open"))
			w.asked("the turn", byMessage)
			if c.stop != "" {
				w.ok(w.stops.wait(w.ctx))
			}
			w.event(0, "session.turnOpened")
			at := w.host.mark()
			w.agent = w.newPi()
			w.connected(at)
			if l := w.event(at, "session.turnClosed"); l.Why != c.end {
				t.Errorf("the turn ended %q, want %q", l.Why, c.end)
			}
			w.ok(release())
			settled, err := first.Settled(w.ctx, mark)
			w.ok(err)
			if settled.Aborted != c.abort {
				t.Errorf("the first one's turn was aborted: %v, want %v", settled.Aborted, c.abort)
			}
			w.over(run)
			w.turns(1)
			for kind, want := range map[string]int{"session.connected": 2, "session.attempted": 1, "session.sent": 1, "session.turnOpened": 1,
				"session.turnClosed": 1, "session.lateEnd": 0, "session.held": 0} {
				if n := w.host.count(kind); n != want {
					t.Errorf("%s happened %d times, want %d", kind, n, want)
				}
			}
			if a, b := customs(first), customs(w.agent); a != 1 || b != 0 {
				t.Errorf("the first process got %d messages and the second %d, want 1 and 0", a, b)
			}
			w.ok(first.Terminate(w.ctx))
			if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
				t.Errorf("the intents are %q, want %q", got, want)
			}
		})
	}
}

// customs counts the custom messages that a process appended.
func customs(a *pitest.Agent) (n int) {
	for _, e := range a.Events() {
		if custom(e) {
			n++
		}
	}
	return n
}
