package run

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/launch"
)

// patient is a -> b, where a is tried three times and asks in between.
func patient(r Retry) *Plan {
	p := plan([]Node{{Path: "a", Kind: Checkpoint, Ask: &Ask{Form: []byte(`{}`)}, Budget: 10, Retry: &r}, compute("b")}, then("a", "b"))
	return &p
}

func apply(t *testing.T, r Run, c Command, p *Plan, now launch.Now) Result {
	t.Helper()
	res, err := Apply(r, c, p, visited(0), now)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	if err := Check(res.Run); err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return res
}

func failing(r Run, o Outcome) Settle {
	return Settle{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt, Outcome: o, Failure: boom}
}

func TestRetry(t *testing.T) {
	p := patient(Retry{Max: 2, Backoff: 10 * time.Hour, On: []Outcome{Failed}})
	r, err := Begin("w-1", p, []byte(`1`), 1)
	if err != nil {
		t.Fatal(err)
	}
	r = apply(t, r, Reattempt{}, p, when(2)).Run // does not count
	var steps []Step
	for i, due := range []launch.Time{when(5).Wall.Add(10 * time.Hour), when(5).Wall.Add(20 * time.Hour)} {
		res := apply(t, r, failing(r, Failed), p, when(5))
		steps = append(steps, *res.Step)
		r = res.Run
		want := []Event{{Settled, "a", 1, uint32(i + 2), Failed, Running}, {Retried, "a", 1, uint32(i + 3), 0, Waiting}}
		if diff := cmp.Diff(want, res.Events); diff != "" {
			t.Fatal(diff)
		}
		if r.Due != due || r.Retry != uint32(i+1) || r.Visit != 1 {
			t.Fatalf("retry %d is due at %s, want %s: %+v", i+1, r.Due, due, r)
		}
		if err := CheckWalk(p, r, steps); err != nil {
			t.Fatal(err)
		}
		if res, err := Apply(r, Elapse{}, p, nil, when(6)); !errors.Is(err, launch.ErrNotAllowed) || res.Run.Due == 0 {
			t.Fatalf("a backoff that is not over elapses: %v", err)
		}
		r = apply(t, r, Elapse{}, p, launch.Now{Wall: due}).Run
		r = apply(t, r, Unpark{}, p, launch.Now{Wall: due}).Run
	}
	res := apply(t, r, failing(r, Failed), p, when(7))
	if steps = append(steps, *res.Step); res.Run.Status != RunFailed {
		t.Fatalf("after the last retry the run is %s; its outcome must be routed", res.Run.Status)
	}
	if err := CheckWalk(p, res.Run, steps); err != nil {
		t.Fatal(err)
	}
	for why, spoil := range map[string]func([]Step, *Run){
		"one attempt twice":      func(s []Step, _ *Run) { s[1].Attempt = s[0].Attempt },
		"an undeclared retry":    func(s []Step, _ *Run) { s[0].Outcome = TimedOut },
		"a row that counts less": func(_ []Step, r *Run) { r.Steps-- },
	} {
		bad, row := append([]Step(nil), steps...), res.Run
		if spoil(bad, &row); CheckWalk(p, row, bad) == nil {
			t.Errorf("%s passes as a walk", why)
		}
	}
}

func TestRetryEdges(t *testing.T) {
	for _, c := range []struct {
		why    string
		retry  Retry
		spoil  func(*Plan, *Run)
		with   Outcome
		status Status
		due    time.Duration
	}{
		{"at once without a backoff", Retry{Max: 1, On: []Outcome{Failed}}, nil, Failed, Running, 0},
		{"another outcome", Retry{Max: 1, On: []Outcome{Failed}}, nil, TimedOut, RunTimedOut, 0},
		{"both outcomes", Retry{Max: 1, On: []Outcome{Failed, TimedOut}}, nil, TimedOut, Running, 0},
		{"a cancel is never tried again", Retry{Max: 1, On: []Outcome{Failed, TimedOut}}, nil, Cancelled, RunCancelled, 0},
		{"the backoff has a bound", Retry{Max: MaxRetries, Backoff: time.Hour, On: []Outcome{Failed}},
			func(_ *Plan, r *Run) { r.Retry, r.Attempt = 90, 91 }, Failed, Waiting, MaxBackoff},
		{"nor beyond the step limit", Retry{Max: 5, On: []Outcome{Failed}}, func(p *Plan, _ *Run) { p.MaxSteps = 1 }, Failed, RunFailed, 0},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := patient(c.retry)
			r, err := Begin("w-1", p, []byte(`1`), 1)
			if err != nil {
				t.Fatal(err)
			}
			if c.spoil != nil {
				c.spoil(p, &r)
			}
			s := failing(r, c.with)
			if c.with == Cancelled {
				s.Failure = launch.SafeError{}
			}
			got := apply(t, r, s, p, when(5)).Run
			if got.Status != c.status || c.due != 0 && got.Due != when(5).Wall.Add(c.due) {
				t.Fatalf("status %s, due %s", got.Status, got.Due)
			}
		})
	}
}

func TestWait(t *testing.T) {
	p := patient(Retry{Max: 1, On: []Outcome{Failed}})
	r, err := Begin("w-1", p, []byte(`1`), 1)
	if err != nil {
		t.Fatal(err)
	}
	ask := Wait{Node: "a", Visit: 1, Attempt: 1}
	waits := apply(t, r, ask, p, when(2)).Run
	if waits.Status != Waiting || !waits.Asked {
		t.Fatalf("after its question the run is %s", waits.Status)
	}
	again := apply(t, waits, Unpark{}, p, when(3)).Run
	if _, err := Apply(again, ask, p, nil, when(4)); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("a second request of one attempt: %v", err)
	}
	if _, err := Apply(again, Reattempt{}, p, nil, when(4)); !errors.Is(err, launch.ErrNotAllowed) {
		t.Errorf("an attempt with a request is replaced: %v", err)
	}
	if _, err := Apply(r, Wait{Node: "a", Visit: 1, Attempt: 2}, p, nil, when(4)); !errors.Is(err, launch.ErrStale) {
		t.Errorf("a request of another attempt: %v", err)
	}
	retried := apply(t, again, failing(again, Failed), p, when(5)).Run
	if retried.Asked {
		t.Error("a retry asks anew")
	}
	b := apply(t, again, ok(again, `1`), p, when(5)).Run
	if _, err := Apply(b, Wait{Node: "b", Visit: 1, Attempt: 1}, p, nil, when(6)); !errors.Is(err, launch.ErrInvalid) {
		t.Errorf("a compute node asks: %v", err)
	}
}
