package run

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/launch"
)

func TestActiveTime(t *testing.T) {
	p := patient(Retry{Max: 1, On: []Outcome{Failed}})
	r, err := Begin("w-1", p, []byte(`1`), 1)
	if err != nil {
		t.Fatal(err)
	}
	clock := func(mono launch.Mono, id string) launch.Now { return launch.Now{Wall: 100, Mono: mono, Clock: id} }
	for _, s := range []struct {
		why    string
		do     Command
		now    launch.Now
		spent  time.Duration
		closed time.Duration // of the interval; -1 = none
	}{
		{"a sample of nothing", SampleClock{}, clock(5, "p"), 0, -1},
		{"nothing to stop", StopClock{}, clock(5, "p"), 0, -1},
		{"the code starts", StartClock{}, clock(10, "p"), 0, -1},
		{"a turn starts meanwhile: overlapping counts once", StartClock{}, clock(12, "p"), 0, -1},
		{"renewal", SampleClock{}, clock(13, "p"), 3, -1},
		{"a clock that stands still", SampleClock{}, clock(13, "p"), 3, -1},
		{"a clock that runs backward takes nothing back", SampleClock{}, clock(11, "p"), 3, -1},
		{"the code returns", StopClock{}, clock(12, "p"), 4, 4},
		{"downtime, another process", StartClock{}, clock(1000, "q"), 4, -1},
		{"its sample", SampleClock{}, clock(1001, "q"), 5, -1},
		{"its owner is lost: nothing after the last sample", StopClock{Lost: true}, clock(1009, "q"), 5, 1},
		{"once more", StartClock{}, clock(1, "r"), 5, -1},
		{"another process cannot tell", SampleClock{}, clock(5000, "q"), 5, -1},
		{"but goes on from there", SampleClock{}, clock(5001, "q"), 6, -1},
		{"a pause closes it", Park{Waiting}, clock(5002, "q"), 7, 2},
		{"waiting spends nothing", SampleClock{}, clock(9000, "q"), 7, -1},
		{"a turn of its request", StartClock{}, clock(9000, "q"), 7, -1},
		{"ends", StopClock{}, clock(9001, "q"), 8, 1},
		{"resumed", Unpark{}, clock(9009, "q"), 8, -1},
	} {
		before := r.Revision
		res := apply(t, r, s.do, p, s.now)
		if r = res.Run; r.Active.Spent != s.spent {
			t.Fatalf("%s: %d spent, want %d", s.why, r.Active.Spent, s.spent)
		}
		if (res.Interval != nil) != (s.closed >= 0) || res.Interval != nil && res.Interval.Spent != s.closed {
			t.Fatalf("%s: closed %+v", s.why, res.Interval)
		}
		if len(res.Events) == 0 && r.Revision != before {
			t.Fatalf("%s: the revision rose", s.why)
		}
	}
	if left, limited := r.Left(); left != 2 || !limited {
		t.Errorf("%d left of the budget of 10", left)
	}
	r = apply(t, r, StartClock{}, p, clock(0, "q")).Run
	res := apply(t, r, ok(r, `1`), p, clock(9, "q"))
	want := &Interval{Run: "w-1", Node: "a", Visit: 1, Attempt: 1, N: 5, Opened: 100, Closed: 100, Spent: 9}
	if diff := cmp.Diff(want, res.Interval); diff != "" || res.Step.Spent != 17 {
		t.Errorf("settling closes the interval: %s; step spent %d", diff, res.Step.Spent)
	}
	if left, _ := r.Left(); left != 2 {
		t.Errorf("%d left", left)
	}
	b := res.Run
	if got := apply(t, b, StartClock{}, p, clock(1, "q")).Run; got.Active != (Active{}) {
		t.Error("an attempt without a budget records no interval")
	}
	if _, limited := b.Left(); limited {
		t.Error("node b has no budget")
	}
}

func TestRetryStartsItsOwnBudget(t *testing.T) {
	p := patient(Retry{Max: 1, On: []Outcome{TimedOut}})
	r, err := Begin("w-1", p, []byte(`1`), 1)
	if err != nil {
		t.Fatal(err)
	}
	r = apply(t, r, StartClock{}, p, launch.Now{Wall: 2, Mono: 1, Clock: "p"}).Run
	s := failing(r, TimedOut)
	s.Failure = launch.NewSafeError(launch.CodeTimedOut, "")
	r = apply(t, r, s, p, launch.Now{Wall: 3, Mono: 11, Clock: "p"}).Run
	if left, _ := r.Left(); left != 10 || r.Began != 3 {
		t.Errorf("the retry has %d left and began at %d", left, r.Began)
	}
}
