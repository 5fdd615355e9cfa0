package intentstest

import (
	"fmt"
	"testing"

	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

// Whatever is commanded, every invariant holds; and the sequences are worth
// their time: about half of the steps are refused, and every kind succeeds.
func TestSequences(t *testing.T) {
	legal, total := 0, 0
	done := make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		var w World
		for range 150 {
			step := w.Draw(t)
			events, err, broken := w.Apply(step)
			if broken != nil {
				t.Fatalf("%+v: %v", step, broken)
			}
			total++
			if err != nil {
				continue
			}
			legal++
			if d, ok := step.(Do); ok && len(events) > 0 {
				done[fmt.Sprintf("%T", d.Command)]++
			} else if !ok {
				done[fmt.Sprintf("%T", step)]++
			}
			for n, e := range events {
				done[e.Kind.String()]++
				if n > 0 && events[n-1].Kind == intents.EvSettled {
					done["merged"]++
				}
			}
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d of %d steps were legal: %v", legal, total, done)
	if total < 10_000 {
		t.Skipf("only %d steps were drawn; nothing is said about their mix", total)
	}
	if share := float64(legal) / float64(total); share < 0.35 || share > 0.65 {
		t.Errorf("%.0f %% of the steps were legal, want 35 to 65", 100*share)
	}
	// A resume makes hand-overs ineligible; the event below shows that it did.
	kinds := []string{
		"intentstest.Reserve", "intentstest.Start", "intentstest.Resume", "intentstest.Happen", "intentstest.Ensure",
		"intents.MakeEligible", "intents.Claim", "intents.Settle", "intents.Resolve", "intents.Withdraw",
		"merged",
	}
	for _, k := range intents.EventKinds() {
		kinds = append(kinds, k.String())
	}
	for _, k := range kinds {
		if done[k] == 0 {
			t.Errorf("%s never succeeded", k)
		}
	}
}

// On one intent alone, without a world around it: no sequence of commands
// resolves and withdraws it, it is resolved once, its fixed fields stay, and
// its events tell what became of it.
func TestOneIntent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := World{now: launch.Time(1e15)}
		if err := w.reserve(); err != nil {
			t.Fatal(err)
		}
		r := w.Runs[0]
		event, _ := intents.SourceEvent(r.ID, 1, "test")
		i, events, _, err := intents.Ensure(nil, intents.New{
			Identity: intents.Identity{Session: Session, Run: r.ID, SourceEvent: event, Cause: intents.ClaimLost},
			Workflow: "kit", Chain: r.ID, Facts: intents.Facts{Observed: intents.ObservedRunning},
		}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			r.State = rapid.SampledFrom(launch.States()).Draw(t, "state")
			r.Held = r.State == launch.Parked && rapid.Bool().Draw(t, "held")
			c := w.command(t, i, r, rapid.IntRange(0, 6).Draw(t, "command"), rapid.Bool().Draw(t, "fits"))
			if claim, ok := c.(intents.Claim); ok {
				claim.Run = r.Facts()
				c = claim
			}
			next, more, err := intents.Apply(i, c, w.time())
			if err != nil && (next != i || more != nil) {
				t.Fatalf("%+v: refused, and yet something changed", c)
			}
			if claim, ok := c.(intents.Claim); ok && err == nil {
				if err := Attempt(i, claim); err != nil {
					t.Fatal(err)
				}
			}
			if err := Immutable(i, next); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			for _, err := range []error{Resolution(next), Identity(next), next.Check()} {
				if err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
			}
			i, events = next, append(events, more...)
			ends := 0
			for _, e := range events {
				if e.Kind == intents.EvResolved || e.Kind == intents.EvWithdrawn {
					ends++
				}
			}
			eligible, resolution, reason := intents.Replay(events)
			if ends > 1 || eligible != i.Eligible() || resolution != i.Resolution || reason != i.WithdrawnReason {
				t.Fatalf("events %+v do not tell what became of %+v", events, i)
			}
			w.now = w.now.Add(3e9)
		}
	})
}
