package pitest_test

import (
	"slices"
	"strings"
	"testing"
)

// TestKilled kills Pi or the host at each boundary that a successor message
// passes, from the claim to the resolution, and starts it again.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ where, why string }{
		{"host before propose", "the end of the run is not yet durable"},
		{"host after propose", "the end of the run and what it owes are durable"},
		{"host before try", "the intent is about to be claimed"},
		{"host after try", "claimed, and not yet sent"},
		{"pi before_agent_start", "sent, and not on the branch"},
		{"pi message_start custom", "sent, and not on the branch"},
		{"pi message_end custom", "sent, about to be on branch and disk"},
		{"pi context", "on branch and disk, before the request to the model"},
		{"pi message_start assistant", "the model has begun to answer"},
		{"pi message_end assistant", "answered, and the answer not on disk"},
		{"pi agent_end", "answered"},
		{"pi agent_settled", "answered, and the host not told"},
		{"host before answer", "on the branch, and the answer not recorded"},
		{"host after answer", "the answer is recorded, the branch not reported"},
		{"host before observe turnstarted", "the start of the turn is not recorded"},
		{"host after observe turnstarted", "the start of the turn is recorded"},
		{"host after try;before observe report", "the branch is reported, and not recorded"},
		{"host after try;after observe report", "the branch is recorded"},
		{"host before observe turnsettled", "the end of the turn is not recorded"},
		{"host after observe turnsettled", "the end of the turn is recorded"},
	} {
		for _, victim := range []string{"pi", "host"} {
			t.Run(victim+" at "+strings.ReplaceAll(at.where, ";", " then "), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, nil)
				run := w.start("slow")
				w.gate(0)
				w.killAt(at.where, victim)
				w.over(run)
				w.ok(w.agent.Ask(w.ctx, "go on"))
				if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
					t.Errorf("the intents are %q, want %q (%s)\n%s", got, want, at.why, w.host.story())
				}
			})
		}
	}
}

// killAt lets the waiting run go on, kills the victim when the boundary is
// reached, lets the other one go on and starts the victim again.
func (w *world) killAt(where, victim string) {
	w.t.Helper()
	side, point, _ := strings.Cut(where, " ")
	release := func() error { return w.host.say("go") }
	if side == "pi" {
		release = w.stops.release
		w.ok(w.stops.arm(point))
	} else {
		w.ok(w.host.arm(w.ctx, point))
	}
	mark := w.host.mark()
	w.ok(w.host.say("open"))
	if side == "pi" {
		w.ok(w.stops.wait(w.ctx))
	} else {
		_, err := w.host.wait(w.ctx, mark, where, func(l line) bool { return l.At != "" })
		w.ok(err)
	}
	if victim == "pi" {
		w.agent.Kill()
		if side == "host" {
			w.ok(release())
		}
		w.startPi()
		return
	}
	w.host.kill()
	if side == "pi" {
		w.ok(release())
	}
	w.startHost()
	w.ok(w.host.say("open")) // for a node that is run again
}
