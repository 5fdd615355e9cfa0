package pitest_test

import (
	"slices"
	"strings"
	"testing"
)

// TestKilled kills Pi or the host at each boundary that a successor message
// passes, from the claim to the resolution, and starts it again; at some of them
// both, as when their machine goes down.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		where, why string
		both       bool
	}{
		{"host before propose", "the end of the run is not yet durable", false},
		{"host after propose", "the end of the run and what it owes are durable", false},
		{"host before try", "the intent is about to be claimed", true},
		{"host after try", "claimed, and not yet sent", true},
		{"pi before_agent_start", "sent, and not on the branch", true},
		{"pi message_start custom", "sent, and not on the branch", false},
		{"pi message_end custom", "sent, about to be on branch and disk", true},
		{"pi context", "on branch and disk, before the request to the model", true},
		{"pi message_start assistant", "the model has begun to answer", true},
		{"pi message_end assistant", "answered, and the answer not on disk", false},
		{"pi agent_end", "answered", false},
		{"pi agent_settled", "answered, and the host not told", false},
		{"host before answer", "on the branch, and the answer not recorded", true},
		{"host after answer", "the answer is recorded, the branch not reported", false},
		{"host before observe turnstarted", "the start of the turn is not recorded", false},
		{"host after observe turnstarted", "the start of the turn is recorded", true},
		{"host after try;before observe report", "the branch is reported, and not recorded", true},
		{"host after try;after observe report", "the branch is recorded", false},
		{"host before observe turnsettled", "the end of the turn is not recorded", true},
		{"host after observe turnsettled", "the end of the turn is recorded", false},
	} {
		for _, victim := range []string{"pi", "host", "both"} {
			if victim == "both" && !at.both {
				continue
			}
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

// killAt lets the waiting run go on, kills the victim, "pi", "host" or "both",
// when the boundary is reached, lets the other one go on and starts the victim
// again.
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
	if victim != "host" {
		w.agent.Kill()
	}
	if victim != "pi" {
		w.host.kill()
	}
	if victim != side && victim != "both" { // who waits at the boundary lives
		w.ok(release())
	}
	if victim != "pi" {
		w.startHost()
		w.ok(w.host.say("open")) // for a node that is run again
	}
	if victim != "host" {
		w.startPi()
	} else {
		w.connected(0) // so that nobody ends Pi while it still has to report
	}
}
