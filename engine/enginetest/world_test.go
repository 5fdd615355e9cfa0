package enginetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

// Whatever is done, every invariant holds and a refusal changes nothing; and the
// sequences are worth their time: about half of the steps are legal, and
// everything happens.
func TestSequences(t *testing.T) {
	legal, total := 0, 0
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := NewWorld(Plans().Draw(t, "plan"))
		for range 300 {
			step := w.Draw(t)
			before := *w
			err, broken := w.Apply(step)
			if broken != nil {
				t.Fatalf("%T%+v: %v", step, step, broken)
			}
			if total++; err == nil {
				legal++
				note(seen, &before, w, step)
				continue
			}
			var r *launch.Refusal
			if !errors.As(err, &r) || r.Message == "" {
				t.Fatalf("%T%+v: refused without a kind: %v", step, step, err)
			}
			if _, isAct := step.(Act); !isAct {
				before.n = w.n
				if !reflect.DeepEqual(before, *w) {
					t.Fatalf("%T%+v: refused (%v) and changed something", step, step, err)
				}
			}
			seen["refused: "+r.Kind.String()]++
			if w.Run.Status.Terminal() && odds(t, "over", 20) {
				w = NewWorld(Plans().Draw(t, "next plan"))
			}
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d of %d steps were legal: %v", legal, total, seen)
	if total < 20_000 {
		t.Skipf("only %d steps were drawn; nothing is said about their mix", total)
	}
	if share := float64(legal) / float64(total); share < 0.35 || share > 0.65 {
		t.Errorf("%.0f %% of the steps were legal, want 35 to 65", 100*share)
	}
	want := []string{"retried", "interval", "validating", "restart", "approved", "resumed", "reminded", "default"}
	for _, s := range request.States() {
		want = append(want, "request "+s.String())
	}
	for _, s := range []run.Status{run.Waiting, run.Attention, run.Completed, run.RunFailed, run.RunTimedOut, run.RunCancelled} {
		want = append(want, "run "+s.String())
	}
	for _, s := range []effect.State{effect.Pending, effect.Applied, effect.Rejected, effect.Ambiguous} {
		want = append(want, "effect "+s.String())
	}
	for _, k := range []launch.Kind{launch.ErrInvalid, launch.ErrNotAllowed, launch.ErrNotFound, launch.ErrConflict, launch.ErrStale, launch.ErrWrongKind,
		launch.ErrValidating, launch.ErrAlreadyDecided, launch.ErrEnded, launch.ErrExpired, launch.ErrUnsettledEffect, launch.ErrOverBudget} {
		want = append(want, "refused: "+k.String())
	}
	for _, c := range request.Matrix() {
		if c.Action != request.ActUpdate && c.Action < request.ActDefault {
			want = append(want, fmt.Sprintf("%s %s", c.Kind, c.Action))
		}
	}
	for _, what := range want {
		if seen[what] == 0 {
			t.Errorf("it never happens: %s", what)
		}
	}
}

// note counts what a legal step led to.
func note(seen map[string]int, before, after *World, s Step) {
	if p, ok := s.(Pass); ok && p.Restart {
		seen["restart"]++
	}
	if before.Run.Status != after.Run.Status {
		seen["run "+after.Run.Status.String()]++
	}
	if after.Run.Retry > before.Run.Retry {
		seen["retried"]++
	}
	if len(after.Intervals) > len(before.Intervals) {
		seen["interval"]++
	}
	for _, q := range after.Requests {
		was := before.Request(q.ID)
		switch {
		case was == nil:
			seen["request pending"]++
			continue
		case was.State != q.State:
			seen["request "+q.State.String()]++
			if q.State == request.Accepted && q.ByAction == request.ActDefault {
				seen["default"]++
			} else if q.State == request.Accepted {
				seen[fmt.Sprintf("%s %s", q.Kind, q.ByAction)]++
			}
		}
		for what, is := range map[string]bool{"approved": q.UsedBy != was.UsedBy, "resumed": q.Resumed > was.Resumed, "reminded": q.Reminders > was.Reminders,
			"validating": q.State == request.Validating && was.State == request.Pending} {
			if is {
				seen[what]++
			}
		}
	}
	for _, e := range after.Effects {
		if was := before.Effect(e.Key); was == nil || was.State != e.State {
			seen["effect "+e.State.String()]++
		}
	}
}
