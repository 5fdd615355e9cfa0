package launch_test

import (
	"errors"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
)

// saga drives one launch and fails the test when a step is refused.
type saga struct {
	t     *testing.T
	l     launch.Launch
	now   launch.Now
	trace launchtest.Trace
}

func newSaga(t *testing.T, state string) *saga {
	l, now := situation{State: state, Record: state == "running" || state == "parked", Park: map[string]string{"parked": "due"}[state]}.build()
	l.Progress = 0
	return &saga{t: t, l: l, now: now}
}

func (s *saga) do(c launch.Command) []launch.Event {
	s.t.Helper()
	e := apply(s.l, c, s.now)
	s.trace = append(s.trace, e)
	if e.Err != nil {
		s.t.Fatalf("%s: %v", c.Kind(), e.Err)
	}
	s.l = e.After
	return e.Events
}

func (s *saga) own() launch.Authority {
	return launch.Authority{Runner: s.l.Claim.Runner, Token: s.l.Claim.Token, Generation: s.l.Generation}
}

// run claims and starts, with that progress in the record.
func (s *saga) run(progress uint64) {
	s.t.Helper()
	s.do(launch.ClaimCommand{Authority: launch.Authority{Runner: "host-1", Token: tokenA}, Lease: lease, Digest: pinned, Progress: progress})
	s.do(launch.StartCommand{Authority: s.own()})
}

// lose lets the lease end and recovers, with that progress in the record.
func (s *saga) lose(progress uint64) {
	s.t.Helper()
	s.now.Wall = s.l.Claim.Expiry
	record := launch.Record{Progress: progress}
	if s.l.HasRecord() {
		record.Status = launch.RecordRunning
	}
	s.do(launch.RecoverCommand{Generation: s.l.Generation, Record: record})
}

func (s *saga) release(progress uint64) {
	s.t.Helper()
	s.do(launch.ReleaseCommand{Authority: s.own(), Record: launch.Record{Status: launch.RecordRunning, Progress: progress}})
}

func (s *saga) is(why string, p launch.Park) {
	s.t.Helper()
	if s.l.State != launch.Parked || s.l.Park != p {
		s.t.Errorf("%s: the launch is %s (%s), want parked (%s)", why, s.l.State, s.l.Park, p)
	}
	if err := s.trace.Check(); err != nil {
		s.t.Errorf("%s: %v", why, err)
	}
}

// TestNoProgress: one relaunch without saved progress, then a person is asked
// (rule launch/recovery).
func TestNoProgress(t *testing.T) {
	for _, c := range []struct {
		why  string
		do   func(*saga)
		want launch.Park
	}{
		{"the first lost lease is relaunched", func(s *saga) { s.run(0); s.lose(0) }, launch.ParkDue},
		{"the second without progress is not", func(s *saga) { s.run(0); s.lose(0); s.run(0); s.lose(0) }, launch.ParkAttention},
		{"progress under the second lease is progress", func(s *saga) { s.run(0); s.lose(0); s.run(0); s.lose(1) }, launch.ParkDue},
		{"a lease lost with progress is no lease lost without", func(s *saga) { s.run(0); s.lose(1); s.run(1); s.lose(1) }, launch.ParkDue},
		{"after it one more is allowed, not two", func(s *saga) {
			s.run(0)
			s.lose(1)
			s.run(1)
			s.lose(1)
			s.run(1)
			s.lose(1)
		}, launch.ParkAttention},
		{"any number of leases lost with progress", func(s *saga) {
			for n := range uint64(9) {
				s.run(n)
				s.lose(n + 1)
			}
		}, launch.ParkDue},
		{"a polite release is not a lost lease", func(s *saga) {
			for range 9 {
				s.run(0)
				s.release(0)
			}
			s.run(0)
			s.lose(0)
		}, launch.ParkDue},
		{"nor does it forgive one", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.release(0)
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"progress before a polite release counts", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.release(1)
			s.run(1)
			s.lose(1)
		}, launch.ParkDue},
		{"so does an answer that was accepted while it waited", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.do(launch.ParkCommand{Authority: s.own(), Why: launch.ParkWaiting})
			s.do(launch.WakeCommand{})
			s.run(1)
			s.lose(1)
		}, launch.ParkDue},
		{"waking alone is no progress", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.do(launch.ParkCommand{Authority: s.own(), Why: launch.ParkWaiting})
			s.do(launch.WakeCommand{})
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"a resume gives one more try", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.ResumeCommand{Actor: launch.Person})
		}, launch.ParkDue},
		{"exactly one", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.ResumeCommand{Actor: launch.Person})
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"which a polite release does not use up", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.ResumeCommand{Actor: launch.Person})
			s.run(0)
			s.release(0)
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"and a pause and resume do not add to", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.do(launch.PauseCommand{Actor: launch.Person})
			s.do(launch.ResumeCommand{Actor: launch.Person})
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"nor does a pause that the host lifts", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.do(launch.PauseCommand{Actor: launch.Host})
			s.do(launch.ResumeCommand{Actor: launch.Host})
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"which ends no attention", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.do(launch.PauseCommand{Actor: launch.Host})
			s.lose(0)
			s.do(launch.ResumeCommand{Actor: launch.Host})
		}, launch.ParkAttention},
		{"an answer that comes after all gives one more try", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.WakeCommand{Answered: true})
		}, launch.ParkDue},
		{"exactly one as well", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.WakeCommand{Answered: true})
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"under a pause it is kept for the resume", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.PauseCommand{Actor: launch.Person})
			s.do(launch.WakeCommand{Answered: true})
		}, launch.ParkPaused},
		{"also when the host lifts that pause", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.run(0)
			s.lose(0)
			s.do(launch.PauseCommand{Actor: launch.Host})
			s.do(launch.WakeCommand{Answered: true})
			s.do(launch.ResumeCommand{Actor: launch.Host})
			s.run(0)
			s.release(0)
		}, launch.ParkDue},
		{"prompts that were lost forgive no lost lease", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.do(launch.AttendCommand{Attention: launch.PromptsLost})
			s.do(launch.WakeCommand{Answered: true})
			s.run(0)
			s.lose(0)
		}, launch.ParkAttention},
		{"a lost lease of a run that is still being rebuilt counts", func(s *saga) {
			s.run(0)
			s.lose(0)
			s.do(launch.ClaimCommand{Authority: launch.Authority{Runner: "host-1", Token: tokenA}, Lease: lease, Digest: pinned})
			s.lose(0)
		}, launch.ParkAttention},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := newSaga(t, "queued")
			c.do(s)
			s.is(c.why, c.want)
			if want := c.want == launch.ParkAttention; (s.l.Attention == launch.NoProgress) != want {
				t.Errorf("attention is %q", s.l.Attention)
			}
			if s.l.Strikes > 2 {
				t.Errorf("%d strikes; what gives one more try takes one back", s.l.Strikes)
			}
		})
	}
}

// TestPauseOfHost: the host lifts its own pause and no other, and a pause that
// anyone else asks for on top is like one that was there before (rule
// launch/pause).
func TestPauseOfHost(t *testing.T) {
	pause := func(a launch.Actor) launch.Command { return launch.PauseCommand{Actor: a} }
	parked := situation{State: "parked", Record: true, Park: "waiting"}
	for _, c := range []struct {
		why   string
		s     situation
		first []launch.Command
		lifts bool
	}{
		{"its own, while queued", situation{State: "queued"}, []launch.Command{pause(launch.Host)}, true},
		{"its own, while running", situation{State: "running", Record: true, Expiry: 1}, []launch.Command{pause(launch.Host)}, true},
		{"its own, asked for twice", parked, []launch.Command{pause(launch.Host), pause(launch.Host)}, true},
		{"its own, after the run gave up its slot", situation{State: "running", Record: true, Expiry: 1}, []launch.Command{
			pause(launch.Host), launch.ParkCommand{Authority: own(), Why: launch.ParkWaiting}}, true},
		{"a person's", parked, []launch.Command{pause(launch.Person)}, false},
		{"a model's", parked, []launch.Command{pause(launch.Model)}, false},
		{"a person's after its own", parked, []launch.Command{pause(launch.Host), pause(launch.Person)}, false},
		{"a model's after its own", parked, []launch.Command{pause(launch.Host), pause(launch.Model)}, false},
		{"its own after a person's", parked, []launch.Command{pause(launch.Person), pause(launch.Host)}, false},
		{"one that the run made itself", situation{State: "parked", Record: true, Park: "paused"}, []launch.Command{pause(launch.Host)}, false},
		{"one that the run makes itself under its own", situation{State: "running", Record: true, Expiry: 1}, []launch.Command{
			pause(launch.Host), launch.ParkCommand{Authority: own(), Why: launch.ParkPaused}}, false},
		{"one that the run made itself, with attention since", situation{State: "parked", Record: true, Park: "paused"}, []launch.Command{
			launch.AttendCommand{Attention: launch.PromptsLost}, launch.WakeCommand{Answered: true}}, false},
		{"one that was lifted", parked, []launch.Command{pause(launch.Host), launch.ResumeCommand{Actor: launch.Person}}, false},
		{"attention without a pause", parked, []launch.Command{launch.AttendCommand{Attention: launch.PromptsLost}}, false},
	} {
		l, now := c.s.build()
		s := &saga{t: t, l: l, now: now}
		for _, cmd := range c.first {
			s.do(cmd)
		}
		e := apply(s.l, launch.ResumeCommand{Actor: launch.Host}, s.now)
		if lifted := e.Err == nil && !e.After.Paused; lifted != c.lifts || e.Err != nil && !errors.Is(e.Err, launch.ErrNotAllowed) {
			t.Errorf("%s: lifted is %v, want %v; %v", c.why, lifted, c.lifts, e.Err)
		}
		if err := errors.Join(append(s.trace, e).Check(), launchtest.CheckRows([]launch.Launch{e.After})); err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

// TestThirdExpiry: only expiries count, and the third fails the launch in the
// same step (rule launch/recovery).
func TestThirdExpiry(t *testing.T) {
	s := newSaga(t, "queued")
	claim := launch.ClaimCommand{Authority: launch.Authority{Runner: "host-1", Token: tokenA}, Lease: lease, Digest: pinned}
	politely := func() {
		t.Helper()
		s.do(claim)
		s.do(launch.ReleaseCommand{Authority: s.own()})
		s.do(claim)
		s.do(launch.PauseCommand{Actor: launch.Person})
		s.do(launch.ResumeCommand{Actor: launch.Person})
	}
	for n := range 2 {
		politely()
		s.do(claim)
		s.lose(0)
		if s.l.State != launch.Queued || s.l.Input == nil || s.l.Ready == 0 || int(s.l.Expiries) != n+1 {
			t.Fatalf("expiry %d must return it to queued, claimable and with its input: %+v", n+1, s.l)
		}
	}
	politely()
	s.do(claim)
	s.lose(0)
	if s.l.State != launch.Failed || s.l.Error.Code != launch.CodeActivationFailed || s.l.Input != nil || s.l.Finished == 0 {
		t.Errorf("the third expiry must fail it: %s %+v", s.l.State, s.l.Error)
	}
	if err := errors.Join(s.trace.Check(), launchtest.CheckRows([]launch.Launch{s.l})); err != nil {
		t.Error(err)
	}
}

// TestCancelRace: in every live state a cancel and the command that races with
// it have one winner, and the loser learns how the launch ended.
func TestCancelRace(t *testing.T) {
	record := launch.Record{Status: launch.RecordRunning, Progress: 3}
	own := own()
	for _, c := range []struct {
		s     situation
		rival launch.Command
	}{
		{situation{State: "queued"}, launch.ClaimCommand{Authority: launch.Authority{Runner: "host-2", Token: tokenB}, Lease: lease, Digest: pinned}},
		{situation{State: "queued"}, launch.ClaimCommand{Authority: launch.Authority{Runner: "host-2", Token: tokenB}, Lease: lease, Digest: other}},
		{situation{State: "queued"}, launch.PauseCommand{Actor: launch.Person}},
		{situation{State: "starting", Expiry: 1}, launch.StartCommand{Authority: own}},
		{situation{State: "starting", Expiry: 1}, launch.FailCommand{Authority: own, Error: notActivated}},
		{situation{State: "starting", Expiry: 0}, launch.RecoverCommand{Generation: 7}},
		{situation{State: "starting", Expiry: 0}, launch.RenewCommand{Authority: own, Lease: lease}},
		{situation{State: "starting", Record: true, Expiry: 1}, launch.ReleaseCommand{Authority: own, Record: record}},
		{situation{State: "running", Record: true, Expiry: 1}, launch.FinishCommand{Authority: own}},
		{situation{State: "running", Record: true, Expiry: 1}, launch.FailCommand{Authority: own, Error: nodeFailed}},
		{situation{State: "running", Record: true, Expiry: 1}, launch.ParkCommand{Authority: own, Why: launch.ParkWaiting}},
		{situation{State: "running", Record: true, Expiry: 0}, launch.RecoverCommand{Generation: 7, Record: record}},
		{situation{State: "parked", Record: true, Park: "due"}, launch.ClaimCommand{Authority: launch.Authority{Runner: "host-2", Token: tokenB}, Lease: lease, Digest: pinned}},
		{situation{State: "parked", Record: true, Park: "waiting"}, launch.WakeCommand{}},
		{situation{State: "parked", Record: true, Park: "waiting"}, launch.AttendCommand{Attention: launch.PromptsLost}},
		{situation{State: "parked", Record: true, Park: "attention", Attention: "prompts_lost"}, launch.WakeCommand{Answered: true}},
		{situation{State: "parked", Record: true, Park: "paused", Paused: true, HostPause: true}, launch.ResumeCommand{Actor: launch.Host}},
		{situation{State: "parked", Record: true, Park: "waiting"}, launch.SettleCommand{Error: nodeFailed}},
		{situation{State: "parked", Record: true, Park: "paused", Paused: true}, launch.ResumeCommand{Actor: launch.Person}},
		{situation{State: "parked", Record: true, Park: "attention", Attention: "no_progress"}, launch.ResumeCommand{Actor: launch.Person}},
	} {
		before, now := c.s.build()
		cancel := launch.CancelCommand{Actor: launch.Person}

		won := apply(before, cancel, now)
		if won.Err != nil || won.After.State != launch.Cancelled || won.After.Claim != (launch.Claim{}) || won.After.Input != nil {
			t.Errorf("%s: cancel first: %s, %v", c.s.State, won.After.State, won.Err)
			continue
		}
		late := apply(won.After, c.rival, now)
		var r *launch.Refusal
		if !errors.As(late.Err, &r) || r.Kind != launch.ErrEnded || r.State != launch.Cancelled || r.Run != runID {
			t.Errorf("%s: %s after the cancel must learn that it was cancelled: %v", c.s.State, c.rival.Kind(), late.Err)
		}
		again := apply(won.After, cancel, now)
		if !errors.As(again.Err, &r) || r.State != launch.Cancelled {
			t.Errorf("%s: a repeated cancel must learn that it was cancelled: %v", c.s.State, again.Err)
		}

		first := apply(before, c.rival, now)
		if first.Err != nil {
			t.Errorf("%s: %s alone: %v", c.s.State, c.rival.Kind(), first.Err)
			continue
		}
		second := apply(first.After, cancel, now)
		if first.After.State.Terminal() {
			if !errors.As(second.Err, &r) || r.Kind != launch.ErrEnded || r.State != first.After.State {
				t.Errorf("%s: a cancel after %s must learn how it ended: %v", c.s.State, c.rival.Kind(), second.Err)
			}
		} else if second.Err != nil || second.After.State != launch.Cancelled {
			t.Errorf("%s: a cancel after %s must win: %v", c.s.State, c.rival.Kind(), second.Err)
		}
		for _, tr := range []launchtest.Trace{{won, late, again}, {first, second}} {
			if err := tr.Check(); err != nil {
				t.Errorf("%s + %s: %v", c.s.State, c.rival.Kind(), err)
			}
		}
	}
}

// A changed definition ends a launch that never ran, and asks a person about
// one that did.
func TestSourceChanged(t *testing.T) {
	claim := launch.ClaimCommand{Authority: launch.Authority{Runner: "host-1", Token: tokenA}, Lease: lease, Digest: other}
	s := newSaga(t, "queued")
	events := s.do(claim)
	if len(events) != 2 || events[0].To != launch.Starting || events[1].To != launch.Failed || events[1].Code != launch.CodeSourceChanged {
		t.Errorf("it must fail through starting, in one step: %+v", events)
	}
	if s.l.Input != nil || s.l.Claim != (launch.Claim{}) || s.l.Error.Code != launch.CodeSourceChanged {
		t.Errorf("claim and input must be gone: %+v", s.l)
	}
	s = newSaga(t, "parked")
	s.do(claim)
	s.is("with a record", launch.ParkAttention)
	if s.l.Attention != launch.SourceChanged || s.l.Generation != 7 || s.l.Claim != (launch.Claim{}) {
		t.Errorf("it must stay unclaimed with its generation: %+v", s.l)
	}
}

// TestFieldsOfOneLife follows the fields that count and date a launch.
func TestFieldsOfOneLife(t *testing.T) {
	s := newSaga(t, "queued")
	s.now.Wall++
	s.run(0)
	started := s.now.Wall
	if s.l.Started != started || s.l.Activations != 8 || s.l.Generation != 8 {
		t.Errorf("a claim counts and a start is dated: %+v", s.l)
	}
	s.now.Wall++
	if events := s.do(launch.RenewCommand{Authority: s.own(), Lease: lease}); len(events) != 0 || s.l.Updated != s.now.Wall {
		t.Errorf("a renewal is dated and makes no event: %v, %s", events, s.l.Updated)
	}
	s.do(launch.PauseCommand{Actor: launch.Person})
	paused := s.l
	s.now.Wall++
	if events := s.do(launch.PauseCommand{Actor: launch.Person}); len(events) != 0 || s.l.Updated != paused.Updated {
		t.Errorf("a second pause is adopted and changes nothing: %v", events)
	}
	s.do(launch.ResumeCommand{Actor: launch.Person})
	s.release(0)
	if s.l.Ready != s.now.Wall {
		t.Errorf("it waits for a claim since its release: %s", s.l.Ready)
	}
	s.now.Wall++
	s.run(0)
	if s.l.Started != started || s.l.Activations != 9 || s.l.Generation != 9 || s.l.Ready != 0 {
		t.Errorf("a second start keeps the time of the first: %+v", s.l)
	}
	s.do(launch.FinishCommand{Authority: s.own()})
	if s.l.Finished != s.now.Wall || s.l.Updated != s.now.Wall || s.l.Started != started {
		t.Errorf("an end is dated: %+v", s.l)
	}
}

// Owns answers as a worker's write is answered.
func TestOwns(t *testing.T) {
	for _, c := range []struct {
		why   string
		s     situation
		a     launch.Authority
		kind  launch.Kind
		fence launch.Fence
	}{
		{"the holder", situation{State: "running", Record: true, Expiry: 1}, own(), 0, 0},
		{"the holder while it starts", situation{State: "starting", Expiry: 1}, own(), 0, 0},
		{"the holder after its lease", situation{State: "running", Record: true}, own(), launch.ErrExpired, launch.LeaseExpired},
		{"nobody", situation{State: "running", Record: true, Expiry: 1}, launch.Authority{}, launch.ErrStale, launch.MissingAuthority},
		{"a former holder", situation{State: "parked", Record: true, Park: "due"}, own(), launch.ErrStale, launch.MissingAuthority},
		{"the holder of what ended", situation{State: "done", Record: true}, own(), launch.ErrEnded, 0},
	} {
		l, now := c.s.build()
		err := launch.Owns(l, c.a, now)
		if c.kind == 0 {
			if err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
			continue
		}
		var r *launch.Refusal
		if !errors.As(err, &r) || r.Kind != c.kind || r.Fence != c.fence {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}
