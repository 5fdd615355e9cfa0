package intentstest

import (
	"strings"
	"testing"

	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Each invariant holds for what the rules make, and fails, naming itself, for
// each broken value.
func TestInvariantsFail(t *testing.T) {
	const run = launch.RunID("kit-00000000000000000000000001")
	const now = launch.Time(1e18)
	event, _ := intents.SourceEvent(run, 1, "test")
	want := intents.New{
		Identity: intents.Identity{Session: Session, Run: run, SourceEvent: event, Cause: intents.Failed},
		Workflow: "kit", Chain: run, Facts: intents.Facts{Observed: intents.ObservedFailed}, Eligible: true,
	}
	good, events, _, err := intents.Ensure(nil, want, now)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(f func(*intents.Intent)) intents.Intent {
		i := good
		f(&i)
		return i
	}
	other := edit(func(i *intents.Intent) { i.ID, i.SourceEvent = "other", "other" })
	ineligible := edit(func(i *intents.Intent) { i.EligibleAt = 0 })
	handoff := edit(func(i *intents.Intent) { i.Facts.Handoff = true })
	carried := edit(func(i *intents.Intent) { i.DeliveryClaimToken = launch.Digest{1} })
	resolved := edit(func(i *intents.Intent) {
		i.ResolvedAt, i.Resolution, i.ResolutionMessage = 1, intents.ByFallback, "m"
	})
	withdrawn := edit(func(i *intents.Intent) { i.WithdrawnAt, i.WithdrawnReason = 1, intents.ReasonCancelled })
	claim := func(s launch.State, attention, natural bool) intents.Claim {
		return intents.Claim{Run: intents.RunFacts{State: s, Attention: attention}, Natural: natural}
	}
	in := func(s launch.State) func(launch.RunID) launch.State {
		return func(launch.RunID) launch.State { return s }
	}
	ended := intents.Source{Kind: intents.OnEnded, Outcome: intents.Failed}
	held := intents.RunFacts{State: launch.Parked, Attention: true}
	headless := ended
	headless.Headless = true
	person := intents.Source{Kind: intents.OnCancel, Actor: launch.Person}
	list := func(l ...intents.Intent) []intents.Intent { return l }

	for _, c := range []struct {
		name, why string
		err       error
		broken    bool
	}{
		{"Resolution", "pending", Resolution(good), false},
		{"Resolution", "resolved", Resolution(resolved), false},
		{"Resolution", "withdrawn", Resolution(withdrawn), false},
		{"Resolution", "only the time", Resolution(edit(func(i *intents.Intent) { i.ResolvedAt = 1 })), true},
		{"Resolution", "only the kind", Resolution(edit(func(i *intents.Intent) { i.Resolution = 1 })), true},
		{"Resolution", "no message", Resolution(edit(func(i *intents.Intent) { i.ResolvedAt, i.Resolution = 1, 1 })), true},
		{"Resolution", "no reason", Resolution(edit(func(i *intents.Intent) { i.WithdrawnAt = 1 })), true},
		{"Resolution", "both ends", Resolution(func() intents.Intent {
			i := resolved
			i.WithdrawnAt, i.WithdrawnReason = 1, intents.ReasonCancelled
			return i
		}()), true},

		{"Identity", "its digest", Identity(good), false},
		{"Identity", "another cause", Identity(edit(func(i *intents.Intent) { i.Cause = intents.TimedOut })), true},
		{"Identity", "another id", Identity(other), true},
		{"Identity", "no identity", Identity(intents.Intent{}), true},

		{"Immutable", "the same", Immutable(good, good), false},
		{"Immutable", "resolved since", Immutable(carried, resolved), false},
		{"Immutable", "another chain", Immutable(good, edit(func(i *intents.Intent) { i.Chain = "c" })), true},
		{"Immutable", "requested anew", Immutable(good, edit(func(i *intents.Intent) { i.RequestedAt++ })), true},
		{"Immutable", "pending again", Immutable(resolved, good), true},
		{"Immutable", "another end", Immutable(resolved, withdrawn), true},
		{"Immutable", "another place", Immutable(good, edit(func(i *intents.Intent) { i.EligibleAt++ })), true},

		{"OnePerSource", "two events", OnePerSource(list(good, other)), false},
		{"OnePerSource", "one event twice", OnePerSource(list(good, edit(func(i *intents.Intent) { i.ID = "other" }))), true},

		{"Owed", "one requested", Owed(ended, event, events), false},
		{"Owed", "none", Owed(ended, event, nil), true},
		{"Owed", "two", Owed(ended, event, append(events, events...)), true},
		{"Owed", "one of another event", Owed(ended, "other", events), true},
		{"Owed", "headless and none", Owed(headless, event, nil), false},
		{"Owed", "headless and one", Owed(headless, event, events), true},
		{"Owed", "a person's cancel and one", Owed(person, event, events), true},

		{"Uncarried", "one, and the run has ended", Uncarried(list(good), in(launch.Failed)), false},
		{"Uncarried", "a carried one besides", Uncarried(list(good, carried), in(launch.Failed)), false},
		{"Uncarried", "ended ones besides", Uncarried(list(good, resolved, withdrawn), in(launch.Failed)), false},
		{"Uncarried", "two", Uncarried(list(good, other), in(launch.Failed)), true},
		{"Uncarried", "ineligible while the run goes on", Uncarried(list(ineligible), in(launch.Running)), false},
		{"Uncarried", "ineligible after the run", Uncarried(list(ineligible), in(launch.Done)), true},

		{"Attempt", "eligible after the run", Attempt(good, claim(launch.Failed, false, false)), false},
		{"Attempt", "a prompt for an ineligible one", Attempt(ineligible, claim(launch.Running, false, true)), false},
		{"Attempt", "a hand-over in attention", Attempt(handoff, claim(launch.Parked, true, false)), false},
		{"Attempt", "ineligible", Attempt(ineligible, claim(launch.Failed, false, false)), true},
		{"Attempt", "resolved", Attempt(resolved, claim(launch.Failed, false, false)), true},
		{"Attempt", "withdrawn", Attempt(withdrawn, claim(launch.Failed, false, true)), true},
		{"Attempt", "a prompt after the run", Attempt(good, claim(launch.Failed, false, true)), true},
		{"Attempt", "the run goes on", Attempt(good, claim(launch.Running, false, false)), true},
		{"Attempt", "a hand-over after the resume", Attempt(handoff, claim(launch.Running, false, false)), true},

		{"Handoff", "eligible in attention", Handoff(list(good), run, held), false},
		{"Handoff", "ineligible in attention", Handoff(list(ineligible), run, held), true},
		{"Handoff", "ineligible while waiting", Handoff(list(ineligible), run, intents.RunFacts{State: launch.Parked}), false},
	} {
		if (c.err != nil) != c.broken || c.err != nil && !strings.HasPrefix(c.err.Error(), c.name+": ") {
			t.Errorf("%s, %s: got %v, want broken = %v", c.name, c.why, c.err, c.broken)
		}
	}
}

// A world whose rows were tampered with says so at the next step.
func TestWorldSeesWhatIsBroken(t *testing.T) {
	for why, tamper := range map[string]func(*World){
		"resolved in part":     func(w *World) { w.Intents[0].ResolvedAt = 1 },
		"another id":           func(w *World) { w.Intents[0].ID = "other" },
		"ineligible after end": func(w *World) { w.Intents[0].EligibleAt = 0 },
		"a second uncarried": func(w *World) {
			i := w.Intents[0]
			i.SourceEvent += "again"
			i.ID, _ = intents.ID(i.Identity())
			w.Intents = append(w.Intents, i)
		},
	} {
		var w World
		step := func(s Step) error {
			_, err, broken := w.Apply(s)
			if err != nil {
				t.Fatalf("%s: %v", why, err)
			}
			return broken
		}
		broken := step(Reserve{})
		if broken == nil {
			broken = step(Happen{Run: w.Runs[0].ID, Source: intents.Source{Kind: intents.OnActivationFailed}})
		}
		if broken != nil || len(w.Intents) != 1 {
			t.Fatalf("%s: %v, %d intents", why, broken, len(w.Intents))
		}
		tamper(&w)
		if step(Reserve{}) == nil {
			t.Errorf("%s: not seen", why)
		}
	}
}
