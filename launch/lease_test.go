package launch_test

import (
	"errors"
	"testing"
	"time"

	"example.com/piworkflows/launch"
)

// TestLeaseBoundary walks the exact nanoseconds at which a lease ends (rules
// launch/expiry and launch/clock).
func TestLeaseBoundary(t *testing.T) {
	const second = launch.Time(time.Second)
	whole := wall / second * second // so that a case can stay within one second
	for _, c := range []struct {
		why      string
		expiry   launch.Time
		distrust bool
		expired  bool
	}{
		{"1 ns before its end a lease holds", whole + 1, false, false},
		{"it ends at its expiry, not after it", whole, false, true},
		{"1 ns after its end", whole - 1, false, true},
		{"later in the same second it holds", whole + second - 1, false, false},
		{"a full lease ahead is what a claim makes", whole.Add(lease), false, false},
		{"a full lease and 5 s ahead is plausible", whole.Add(lease + launch.ClockTolerance), false, false},
		{"1 ns more is not: the clock that wrote it was wrong", whole.Add(lease+launch.ClockTolerance) + 1, false, true},
		{"an hour ahead", whole.Add(time.Hour), false, true},
		{"a distrusted clock ends no lease", whole, true, false},
		{"nor one that ended long ago", whole.Add(-time.Hour), true, false},
		{"nor one too far ahead", whole.Add(time.Hour), true, false},
	} {
		now := launch.Now{Wall: whole, Distrust: c.distrust}
		claim := claimed(c.expiry)
		if got := claim.Expired(now); got != c.expired {
			t.Errorf("%s: Expired is %v", c.why, got)
			continue
		}
		for _, s := range []situation{{State: "starting"}, {State: "running", Record: true}} {
			l, _ := s.build()
			l.Claim = claim
			record := launch.Record{}
			if s.Record {
				record = launch.Record{Status: launch.RecordRunning, Progress: 3}
			}
			_, _, err := launch.Apply(l, launch.RecoverCommand{Generation: 7, Record: record}, now)
			if (err == nil) != c.expired {
				t.Errorf("%s: recover of %s: %v", c.why, s.State, err)
			}
			_, _, err = launch.Apply(l, launch.FailCommand{Authority: own(), Error: map[bool]launch.SafeError{true: nodeFailed, false: notActivated}[s.Record]}, now)
			if (err == nil) == c.expired || c.expired && !errors.Is(err, launch.ErrExpired) {
				t.Errorf("%s: the holder's write to %s: %v", c.why, s.State, err)
			}
			after, events, err := launch.Apply(l, launch.RenewCommand{Authority: own(), Lease: 2 * lease}, now)
			if err != nil || len(events) != 0 || after.Claim.Expiry != whole.Add(2*lease) || after.Claim.Lease != 2*lease || after.Generation != 7 {
				t.Errorf("%s: renewal of %s must hold from now on, without an event: %+v %v", c.why, s.State, after.Claim, err)
			}
		}
	}
}

func own() launch.Authority { return launch.Authority{Runner: "host-1", Token: tokenA, Generation: 7} }

func TestPassed(t *testing.T) {
	for _, c := range []struct {
		why      string
		deadline launch.Time
		distrust bool
		want     bool
	}{
		{"1 ns before", wall + 1, false, false},
		{"at it", wall, false, true},
		{"after it", wall - 1, false, true},
		{"no deadline never passes", 0, false, false},
		{"none passes on a distrusted clock", wall - 1, true, false},
	} {
		if got := (launch.Now{Wall: wall, Distrust: c.distrust}).Passed(c.deadline); got != c.want {
			t.Errorf("%s: Passed is %v", c.why, got)
		}
	}
}

// TestWatch: a host whose clocks moved apart, or that slept, distrusts its
// clock for one lease length (rule launch/clock).
func TestWatch(t *testing.T) {
	const tick, five = time.Second, launch.ClockTolerance
	for _, c := range []struct {
		why  string
		jump time.Duration // of the wall clock, on top of the tick
		late bool
		want bool
	}{
		{"both clocks move alike", 0, false, false},
		{"exactly 5 s forward is tolerated", five, false, false},
		{"5 s and 1 ns forward is a jump", five + 1, false, true},
		{"exactly 5 s backward is tolerated", -five, false, false},
		{"5 s and 1 ns backward is a jump", -five - 1, false, true},
		{"an hour backward", -time.Hour, false, true},
		{"a late timer means that the host slept", 0, true, true},
	} {
		var w launch.Watch
		if now := w.Observe(wall, 100, lease); now.Distrust || now.Wall != wall {
			t.Fatalf("%s: the first reading has nothing to compare with: %+v", c.why, now)
		}
		at, mono := wall.Add(tick+c.jump), launch.Mono(100).Add(tick)
		if c.late {
			w.Late(mono, lease)
		}
		if now := w.Observe(at, mono, lease); now.Distrust != c.want || now.Wall != at {
			t.Errorf("%s: %+v", c.why, now)
			continue
		}
		if !c.want {
			continue
		}
		if now := w.Observe(at.Add(lease-1), mono.Add(lease-1), lease); !now.Distrust {
			t.Errorf("%s: trusted again 1 ns too early", c.why)
		}
		if now := w.Observe(at.Add(lease), mono.Add(lease), lease); now.Distrust {
			t.Errorf("%s: still distrusted after one lease length", c.why)
		}
	}
}

func TestWatchSecondJumpBeginsAnew(t *testing.T) {
	var w launch.Watch
	w.Observe(wall, 0, lease)
	at, mono := wall.Add(time.Hour), launch.Mono(1)
	w.Observe(at, mono, lease)
	half := lease / 2
	at, mono = at.Add(half-time.Hour), mono.Add(half)
	if !w.Observe(at, mono, lease).Distrust {
		t.Fatal("the jump back is a jump")
	}
	if !w.Observe(at.Add(lease-1), mono.Add(lease-1), lease).Distrust {
		t.Error("the second jump must count from itself, not from the first")
	}
	if w.Observe(at.Add(lease), mono.Add(lease), lease).Distrust {
		t.Error("distrusted beyond one lease length")
	}
}

// A wall clock that jumps forward past a lease's end lets nobody take the run;
// the holder renews meanwhile and keeps it.
func TestForwardJumpTakesNothing(t *testing.T) {
	l, _ := situation{State: "running", Record: true, Expiry: lease}.build()
	var w launch.Watch
	w.Observe(wall, 0, lease)
	now := w.Observe(wall.Add(time.Hour), launch.Mono(time.Second), lease)
	if _, _, err := launch.Apply(l, launch.RecoverCommand{Generation: 7, Record: launch.Record{Status: launch.RecordRunning}}, now); !errors.Is(err, launch.ErrNotAllowed) {
		t.Fatalf("recover after a jump: %v", err)
	}
	l, _, err := launch.Apply(l, launch.RenewCommand{Authority: own(), Lease: lease}, now)
	if err != nil {
		t.Fatal(err)
	}
	now = w.Observe(now.Wall.Add(lease-time.Second), launch.Mono(lease), lease)
	if _, _, err := launch.Apply(l, launch.FinishCommand{Authority: own()}, now); err != nil {
		t.Errorf("the holder that renewed finishes: %v", err)
	}
}

// After a takeover the old worker is refused everywhere, whatever it tries and
// wherever the launch stands by then.
func TestStaleWorkerIsRefusedEverywhere(t *testing.T) {
	old := launch.Authority{Runner: "host-1", Token: tokenA, Generation: 7}
	for _, next := range []launch.Authority{
		{Runner: "host-2", Token: tokenB}, // another process
		{Runner: "host-1", Token: tokenB}, // the same process again
		{Runner: "host-1", Token: tokenA}, // even with the same token
	} {
		l, now := situation{State: "running", Record: true, Expiry: 0}.build()
		step := func(c launch.Command) {
			t.Helper()
			var err error
			if l, _, err = launch.Apply(l, c, now); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(stage string) {
			t.Helper()
			for _, c := range []launch.Command{
				launch.StartCommand{Authority: old}, launch.RenewCommand{Authority: old, Lease: lease},
				launch.ReleaseCommand{Authority: old, Record: launch.Record{Status: launch.RecordRunning}},
				launch.ParkCommand{Authority: old, Why: launch.ParkDue}, launch.FinishCommand{Authority: old},
				launch.FailCommand{Authority: old, Error: nodeFailed},
			} {
				e := apply(l, c, now)
				got := told(e)
				want := "stale"
				if l.State.Terminal() {
					want = "ended"
				}
				if got.Refused != want || want == "stale" && got.Fence == "" || len(e.Events) != 0 {
					t.Errorf("%s, taken by %s: %s of the old worker: %+v", stage, next.Runner, c.Kind(), got)
				}
			}
		}
		step(launch.RecoverCommand{Generation: 7, Record: launch.Record{Status: launch.RecordRunning, Progress: 3}})
		refused("parked")
		step(launch.ClaimCommand{Authority: next, Lease: lease, Digest: pinned, Progress: 3})
		next.Generation = 8
		refused("starting")
		step(launch.StartCommand{Authority: next})
		refused("running")
		step(launch.FinishCommand{Authority: next})
		refused("done")
	}
}
