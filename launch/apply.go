package launch

import (
	"fmt"
	"slices"
	"time"
)

const (
	maxExpiries = 3 // lost leases before a run record that fail a launch
	maxStrikes  = 2 // lost leases without saved progress that park for attention
)

// step is one application of a command: a copy of the launch that the command
// changes, and what happened.
type step struct {
	l      Launch
	now    Now
	by     CommandKind
	events []Event
	err    error
	room   [2]Event // no command makes more, so events need no allocation
}

// Apply applies one command to a launch that exists and returns the launch and
// its events, or a [Refusal] with the launch unchanged. It never changes its
// argument.
func Apply(l Launch, c Command, now Now) (Launch, []Event, error) {
	if l.State < Queued || l.State > Cancelled {
		return l, nil, Refuse(ErrNotFound, "no such run; check the run id")
	}
	s := &step{l: l, now: now, by: c.Kind()}
	s.events = s.room[:0]
	c.apply(s)
	if s.err != nil {
		return l, nil, s.err
	}
	if len(s.events) > 0 || s.by == CmdRenew {
		s.l.Updated = now.Wall
	}
	return s.l, s.events, nil
}

func (s *step) refuse(kind Kind, format string, args ...any) {
	r := Refuse(kind, format, args...)
	r.Run, r.State = s.l.ID, s.l.State
	s.err = r
}

// move changes the state along an edge of the table. Leaving starting and
// running ends the claim; leaving queued and starting for anything but each
// other drops the private input.
func (s *step) move(to State, e Event) {
	if !Legal(s.l.State, to, s.by) {
		s.refuse(ErrNotAllowed, "a %s launch cannot become %s by %s", s.l.State, to, s.by)
		return
	}
	e.From, e.To, e.Generation = s.l.State, to, s.l.Generation
	s.l.State = to
	s.l.Park, s.l.Attention = e.Park, e.Attention
	if !to.Claimed() {
		s.l.Claim = Claim{}
	}
	if to != Queued && to != Starting {
		s.l.Input = nil
	}
	s.l.Ready = 0
	if (to == Queued && !s.l.Paused) || (to == Parked && e.Park == ParkDue) {
		s.l.Ready = s.now.Wall
	}
	if to.Terminal() {
		s.l.Finished, s.l.Paused, s.l.HostPause = s.now.Wall, false, false
	}
	s.events = append(s.events, e)
}

// note records an event that changes no state.
func (s *step) note(e Event) {
	e.From, e.To, e.Generation = s.l.State, s.l.State, s.l.Generation
	s.events = append(s.events, e)
}

// ended refuses a command for a launch that has ended.
func (s *step) ended() bool {
	if !s.l.State.Terminal() {
		return false
	}
	s.refuse(ErrEnded, "run %s has already ended: %s", s.l.ID, s.l.State)
	return true
}

// owns checks a worker's authority (rules launch/fence and launch/expiry).
func (s *step) owns(a Authority, expiredToo bool) bool {
	if s.ended() {
		return false
	}
	fence, what := FenceNone, ""
	switch {
	case a.Runner == "" || a.Token == (Digest{}):
		fence, what = MissingAuthority, "the caller named no claim"
	case !s.l.State.Claimed():
		fence, what = MissingAuthority, "nobody holds a claim any more"
	case a.Runner != s.l.Claim.Runner:
		fence, what = OwnerChanged, "another runner holds the claim"
	case a.Generation != s.l.Generation:
		fence, what = GenerationChanged, fmt.Sprintf("the claim is of generation %d, the caller's of %d", s.l.Generation, a.Generation)
	case a.Token != s.l.Claim.Token:
		fence, what = TokenChanged, "the claim has another token"
	case !expiredToo && s.l.Claim.Expired(s.now):
		s.refuse(ErrExpired, "the lease of run %s ended; renew the claim and repeat", s.l.ID)
		s.err.(*Refusal).Fence = LeaseExpired
		return false
	default:
		return true
	}
	s.refuse(ErrStale, "run %s: %s; stop and write nothing more", s.l.ID, what)
	s.err.(*Refusal).Fence = fence
	return false
}

func (s *step) in(states ...State) bool {
	for _, st := range states {
		if s.l.State == st {
			return true
		}
	}
	s.refuse(ErrNotAllowed, "run %s is %s; %s needs %v", s.l.ID, s.l.State, s.by, slices.Clone(states))
	return false
}

func checkLease(d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return Refuse(ErrInvalid, "lease is %v; it must be %v to %v", d, MinLease, MaxLease)
	}
	return nil
}

func (c ClaimCommand) apply(s *step) {
	if s.ended() {
		return
	}
	if s.err = CheckKey("runner", c.Runner); s.err != nil {
		return
	}
	if s.err = checkLease(c.Lease); s.err != nil {
		return
	}
	switch {
	case c.Token == (Digest{}):
		s.refuse(ErrInvalid, "claim token is not set")
	case s.l.State.Claimed():
		s.refuse(ErrStale, "run %s is already claimed; it is not yours, do nothing", s.l.ID)
		s.err.(*Refusal).Fence = OwnerChanged
	case s.l.Paused || s.l.Park == ParkPaused:
		s.refuse(ErrPaused, "run %s is paused; a person resumes it", s.l.ID)
	case s.l.Park == ParkAttention:
		s.refuse(ErrPaused, "run %s waits for a person (%s): resume, cancel or restart it", s.l.ID, s.l.Attention)
	case s.l.Ready == 0:
		s.refuse(ErrNotAllowed, "run %s is %s and waits for its request; nothing is due", s.l.ID, s.l.State)
	case c.Digest != s.l.Digest && s.l.HasRecord():
		s.l.Park, s.l.Attention, s.l.Ready = ParkAttention, SourceChanged, 0
		s.note(Event{Kind: EvParked, Park: ParkAttention, Attention: SourceChanged})
	default:
		s.l.Generation++
		s.l.Activations++
		if c.Progress > s.l.Progress {
			s.l.Strikes = 0
		}
		s.l.Progress = c.Progress
		s.l.Claim = Claim{Runner: c.Runner, Token: c.Token, Expiry: s.now.Wall.Add(c.Lease), Lease: c.Lease}
		s.move(Starting, Event{Kind: EvClaimed, Runner: c.Runner})
		if c.Digest != s.l.Digest {
			s.fail(NewSafeError(CodeSourceChanged, fmt.Sprintf("the definition of workflow %s changed after the start was acknowledged (pinned %.12s, now %.12s); start it again",
				s.l.Workflow, s.l.Digest, c.Digest)))
		}
	}
}

// fail ends the launch as failed with that error.
func (s *step) fail(e SafeError) {
	if s.err = e.Check(); s.err != nil {
		return
	}
	if !s.l.HasRecord() && !e.Code.OfLaunch() || s.l.HasRecord() && !e.Code.OfRun() {
		s.refuse(ErrInvalid, "error code %s is not one of %s", e.Code, map[bool]string{true: "a run", false: "a launch that never ran"}[s.l.HasRecord()])
		return
	}
	s.l.Error = e
	s.move(Failed, Event{Kind: EvFailed, Code: e.Code})
}

func (c StartCommand) apply(s *step) {
	if !s.owns(c.Authority, false) || !s.in(Starting) {
		return
	}
	if s.l.Started == 0 {
		s.l.Started = s.now.Wall
	}
	s.move(Running, Event{Kind: EvStarted})
}

func (c RenewCommand) apply(s *step) {
	if s.err = checkLease(c.Lease); s.err != nil || !s.owns(c.Authority, true) {
		return
	}
	s.l.Claim.Expiry, s.l.Claim.Lease = s.now.Wall.Add(c.Lease), c.Lease
}

func (c ReleaseCommand) apply(s *step) {
	if s.owns(c.Authority, true) {
		s.leave(c.Record, EvReleased)
	}
}

func (c ParkCommand) apply(s *step) {
	if !s.owns(c.Authority, false) || !s.in(Running) {
		return
	}
	if c.Why < ParkDue || c.Why > ParkAttention || (c.Why == ParkAttention) != (c.Attention != NoAttention) || c.Attention >= attentionSentinel {
		s.refuse(ErrInvalid, "park reason is not one of due, waiting, paused, or attention with its reason")
		return
	}
	s.l.HostPause = s.l.HostPause && c.Why != ParkPaused
	s.move(Parked, Event{Kind: EvParked, Park: s.held(c.Why), Attention: c.Attention})
}

// held turns a reason into ParkPaused for a paused launch, except attention,
// which a person has to see in any case.
func (s *step) held(why Park) Park {
	if s.l.Paused && why != ParkAttention {
		return ParkPaused
	}
	return why
}

func (c WakeCommand) apply(s *step) {
	if s.ended() || !s.in(Parked) {
		return
	}
	switch {
	case s.l.Park == ParkWaiting:
	case c.Answered && s.l.Park == ParkAttention && s.l.Attention != SourceChanged:
		s.l.Strikes = min(s.l.Strikes, maxStrikes-1)
	case s.l.Park == ParkDue:
		s.refuse(ErrNotAllowed, "run %s is already due", s.l.ID)
		return
	default:
		s.refuse(ErrPaused, "run %s is parked (%s); a person resumes it", s.l.ID, s.l.Park)
		return
	}
	s.l.Park, s.l.Attention = s.held(ParkDue), NoAttention // a pause on top of attention stands
	if s.l.Park == ParkDue {
		s.l.Ready = s.now.Wall
	}
	s.note(Event{Kind: EvWoken, Park: s.l.Park})
}

func (c AttendCommand) apply(s *step) {
	switch {
	case s.ended() || !s.in(Parked):
	case c.Attention == NoAttention || c.Attention >= attentionSentinel:
		s.refuse(ErrInvalid, "attention needs one of its reasons")
	case s.l.Park != ParkAttention:
		s.l.Paused = s.l.Paused || s.l.Park == ParkPaused // also when the run parked itself so
		s.l.Park, s.l.Attention, s.l.Ready = ParkAttention, c.Attention, 0
		s.note(Event{Kind: EvParked, Park: ParkAttention, Attention: c.Attention})
	}
}

func (c PauseCommand) apply(s *step) {
	if s.ended() {
		return
	}
	if c.Actor < Model || c.Actor > Host {
		s.refuse(ErrNotAllowed, "only the model, a person or the host pauses a run")
		return
	}
	if s.l.Paused && (c.Actor == Host || !s.l.HostPause) {
		return // adopted
	}
	s.l.Paused, s.l.HostPause = true, c.Actor == Host && s.l.Park != ParkPaused
	switch e := (Event{Kind: EvPaused, Actor: c.Actor}); {
	case s.l.State == Starting && !s.l.HasRecord():
		s.move(Queued, e)
	case s.l.State == Starting:
		e.Park = ParkPaused
		s.move(Parked, e)
	case s.l.State == Parked && s.l.Park != ParkAttention:
		s.l.Park, s.l.Ready, e.Park = ParkPaused, 0, ParkPaused
		s.note(e)
	default: // queued; running, whose node finishes first; attention, which stays
		if s.l.State == Queued {
			s.l.Ready = 0
		}
		e.Park, e.Attention = s.l.Park, s.l.Attention
		s.note(e)
	}
}

func (c ResumeCommand) apply(s *step) {
	if s.ended() {
		return
	}
	lifts := c.Actor == Host && s.l.HostPause
	if c.Actor != Person && !lifts {
		s.refuse(ErrNotAllowed, "only a person resumes a run: in Pi with /workflow resume")
		return
	}
	if !s.l.Paused && s.l.Park != ParkPaused && s.l.Park != ParkAttention {
		s.refuse(ErrNotAllowed, "run %s is %s and neither paused nor waiting for attention; there is nothing to resume", s.l.ID, s.l.State)
		return
	}
	s.l.Paused, s.l.HostPause = false, false
	if !lifts {
		s.l.Attention, s.l.Strikes = NoAttention, min(s.l.Strikes, maxStrikes-1)
	}
	switch {
	case s.l.Attention != NoAttention: // which only a person ends
	case s.l.State == Queued:
		s.l.Ready = s.now.Wall
	case s.l.State == Parked && c.Waiting:
		s.l.Park = ParkWaiting
	case s.l.State == Parked:
		s.l.Park, s.l.Ready = ParkDue, s.now.Wall
	}
	s.note(Event{Kind: EvResumed, Actor: c.Actor, Park: s.l.Park, Attention: s.l.Attention})
}

func (c FinishCommand) apply(s *step) {
	if s.owns(c.Authority, false) && s.in(Running) {
		s.move(Done, Event{Kind: EvDone})
	}
}

func (c FailCommand) apply(s *step) {
	if s.owns(c.Authority, false) {
		s.fail(c.Error)
	}
}

func (c SettleCommand) apply(s *step) {
	switch {
	case s.ended() || !s.in(Parked):
	case c.Error.IsZero():
		s.move(Done, Event{Kind: EvDone, Actor: Host})
	default:
		s.fail(c.Error)
	}
}

func (c CancelCommand) apply(s *step) {
	if s.ended() {
		return
	}
	if c.Actor < Model || c.Actor > Host {
		s.refuse(ErrNotAllowed, "only the model, a person or the host cancels a run")
		return
	}
	s.move(Cancelled, Event{Kind: EvCancelled, Actor: c.Actor})
}

func (c RecoverCommand) apply(s *step) {
	switch {
	case s.ended():
	case !s.l.State.Claimed():
		s.refuse(ErrStale, "run %s is %s; there is no lease to recover", s.l.ID, s.l.State)
		s.err.(*Refusal).Fence = MissingAuthority
	case c.Generation != s.l.Generation:
		s.refuse(ErrStale, "run %s was claimed again; it is not yours, do nothing", s.l.ID)
		s.err.(*Refusal).Fence = GenerationChanged
	case !s.l.Claim.Expired(s.now):
		s.refuse(ErrNotAllowed, "the lease of run %s has not ended", s.l.ID)
	default:
		s.leave(c.Record, EvRecovered)
	}
}

// leave ends a claim from outside or politely: where the launch goes is what
// its record proves (rule launch/recovery).
func (s *step) leave(r Record, why EventKind) {
	lost := why == EvRecovered
	switch {
	case s.l.HasRecord() && r.Status == NoRecord:
		r.Status = RecordUnreadable
	case !s.l.HasRecord():
		r = Record{} // it never ran, whatever the caller believes
	}
	e := Event{Kind: why, Runner: s.l.Claim.Runner}
	switch r.Status {
	case NoRecord:
		if lost {
			s.l.Expiries++
		}
		if lost && s.l.Expiries >= maxExpiries {
			s.fail(NewSafeError(CodeActivationFailed, fmt.Sprintf("workflow %s was activated %d times and its host was lost each time; check the host, then start it again", s.l.Workflow, maxExpiries)))
			return
		}
		s.move(Queued, e)
	case RecordRunning:
		e.Park = s.held(ParkDue)
		if lost {
			if r.Progress > s.l.Progress {
				s.l.Strikes = 0
			} else {
				s.l.Strikes++
			}
			if s.l.Strikes >= maxStrikes {
				e.Park, e.Attention = ParkAttention, NoProgress
			}
		}
		s.move(Parked, e)
	case RecordWaiting:
		e.Park = s.held(ParkWaiting)
		s.move(Parked, e)
	case RecordAttention:
		e.Park, e.Attention = ParkAttention, EffectAmbiguous
		s.move(Parked, e)
	case RecordDone:
		e.Kind = EvDone
		s.move(Done, e)
	case RecordFailed:
		s.fail(r.Error)
	case RecordCancelled:
		e.Kind, e.Actor = EvCancelled, Host
		s.move(Cancelled, e)
	default:
		s.unreadable()
	}
}

// unreadable ends a launch whose record cannot be read.
func (s *step) unreadable() {
	s.l.Error = NewSafeError(CodeRecordUnreadable, "the record of run "+string(s.l.ID)+" cannot be read; start the workflow again")
	s.move(Failed, Event{Kind: EvFailed, Code: CodeRecordUnreadable})
}

// Owns refuses a worker that does not hold the launch's claim, or whose claim
// has expired (rules launch/fence and launch/expiry).
func Owns(l Launch, a Authority, now Now) error {
	s := &step{l: l, now: now}
	if !s.owns(a, false) {
		return s.err
	}
	return nil
}
