package intents

import (
	"testing"

	"example.com/piworkflows/launch"
)

func TestOwe(t *testing.T) {
	pending := pendingIntent()
	eligible := after(pending, byEnd)
	carried := after(pending, Claim{TokenHash: hash, Deadline: t0 + 100, Message: "m1", Run: runs, Natural: true})
	done := after(eligible, Resolve{ByFallback, "m1"})
	ended := Source{Kind: OnEnded, Actor: launch.Worker, Outcome: Failed}
	attention := Source{Kind: OnAttention, Actor: launch.Worker}
	cancel := func(a launch.Actor, active bool) Source { return Source{Kind: OnCancel, Actor: a, ActiveTurn: active} }
	waiting := Facts{Observed: ObservedWaiting}
	cancelled := Facts{Observed: ObservedCancelled}

	type state struct {
		cause    Cause
		eligible bool
		reason   Reason
		handoff  bool
	}
	for _, c := range []struct {
		why    string
		source Source
		facts  Facts
		stored []Intent
		chain  Reason
		want   []state // of the changed ones
		notice bool
	}{
		{"an end owes an intent of its own", ended, endFacts, nil, 0, []state{{Failed, true, 0, false}}, false},
		{"or joins the pending one, which becomes eligible", ended, endFacts, []Intent{pending}, 0, []state{{ClaimLost, true, 0, false}}, false},
		{"not one that a message carries, which becomes eligible too", ended, endFacts, []Intent{carried}, 0,
			[]state{{ClaimLost, true, 0, false}, {Failed, true, 0, false}}, false},
		{"not one that has ended", ended, endFacts, []Intent{done}, 0, []state{{Failed, true, 0, false}}, false},
		{"a stopped chain gets a notice", ended, endFacts, nil, ReasonChainStopped, []state{{Failed, false, ReasonChainStopped, false}}, true},
		{"the model cancels its turn", cancel(launch.Model, true), cancelled, nil, 0, []state{{AgentCancelled, true, 0, false}}, false},
		{"the model cancels elsewhere: nothing of its own, but nothing waits", cancel(launch.Model, false), cancelled, []Intent{pending}, 0,
			[]state{{ClaimLost, true, 0, false}}, false},
		{"a person cancels", cancel(launch.Person, true), cancelled, []Intent{pending, done}, 0, []state{{ClaimLost, false, ReasonCancelled, false}}, false},
		{"attention hands over", attention, waiting, []Intent{pending}, 0, []state{{ClaimLost, true, 0, true}}, false},
		{"attention with nothing to hand over", attention, waiting, []Intent{done}, 0, nil, true},
		{"headless", Source{Kind: OnEnded, Headless: true, Outcome: Failed}, endFacts, nil, 0, nil, false},
		{"a pause leaves what is pending", Source{Kind: OnPause, Actor: launch.Person}, waiting, []Intent{pending}, 0, nil, false},
	} {
		n := testNew(7, 0)
		n.Facts, n.Withdraw = c.facts, c.chain
		got, err := Owe(c.source, n, c.stored, t0+9)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if len(got.Changed) != len(c.want) || got.Notice != c.notice {
			t.Errorf("%s: changed %+v, notice %v", c.why, got.Changed, got.Notice)
			continue
		}
		for k, i := range got.Changed {
			if s := (state{i.Cause, i.Eligible(), i.WithdrawnReason, i.Facts.Handoff}); s != c.want[k] || i.Check() != nil {
				t.Errorf("%s: got %+v (%v), want %+v", c.why, s, i.Check(), c.want[k])
			}
		}
		// The same event again finds what it made.
		for _, i := range got.Changed {
			if i.SourceEvent != n.SourceEvent {
				continue
			}
			again, err := Owe(c.source, n, append([]Intent{i}, c.stored...), t0+10)
			if err != nil || len(again.Changed)+len(again.Events) != 0 {
				t.Errorf("%s, repeated: %+v, %v", c.why, again, err)
			}
		}
	}

	n := testNew(7, 0)
	n.Facts = endFacts
	first, _ := Owe(ended, n, nil, t0)
	n.Workflow = "other"
	_, err := Owe(ended, n, first.Changed, t0)
	want(t, "the same event with other facts", err, launch.ErrConflict, "workflow")
	n.Session = ""
	_, err = Owe(ended, n, nil, t0)
	want(t, "no session", err, launch.ErrInvalid, "session key")
}
