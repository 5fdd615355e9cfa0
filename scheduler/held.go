package scheduler

import (
	"context"
	"errors"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// held is a claim of this host, from before the store is asked for it until it
// is gone, and then the code that has not returned yet.
type held struct {
	s    *Scheduler
	run  launch.RunID
	wf   *engine.Workflow
	plan *run.Plan
	auth launch.Authority // complete once claimed

	ctx   context.Context // of user code
	abort context.CancelCauseFunc

	moved bool       // something of this claim was accepted; the worker's own
	at    store.Next // where the run stands; likewise

	// Under the scheduler's lock.
	since   uint64      // events of the run up to the claim; 0 = not claimed yet
	left    uint64      // latest event seen that leaves the run without a claim
	end     launch.Mono // of the lease
	due     launch.Mono // of the alarm
	stop    func()      // stops the alarm
	asking  bool        // a renewal is under way
	failing bool        // the last renewal failed in passing
	over    bool        // the claim is gone or given up
}

func (s *Scheduler) newHeld(w store.Work, wf *engine.Workflow, token launch.Digest) *held {
	plan := wf.Plan()
	h := &held{s: s, run: w.Run, wf: wf, plan: &plan, stop: func() {},
		auth: launch.Authority{Runner: s.o.Runner, Token: token, Generation: w.Generation + 1}}
	h.ctx, h.abort = context.WithCancelCause(context.Background())
	return h
}

// quitLocked tells the code to stop and renews no more. The claim stands until
// it is released or lapses.
func (h *held) quitLocked(cause error) {
	h.stop()
	h.abort(cause)
}

// overLocked ends a claim that is gone.
func (h *held) overLocked(cause error) {
	h.over = true
	h.quitLocked(cause)
	if h.s.live[h.run] == h {
		delete(h.s.live, h.run)
	}
}

func (h *held) armLocked(at launch.Mono) {
	h.stop()
	_, now := h.s.clock.Now()
	h.due = at
	h.stop = h.s.afterLocked(at.Sub(now), h.tick)
}

// nearEnd reports whether the lease has ended on the monotonic clock, or nearly.
func (h *held) nearEnd(now launch.Mono) bool { return now >= h.end.Add(-h.s.margin) }

// tick renews the claim, or tells the code to stop when that has not succeeded
// in time. A process that was stopped past that moment has not tried yet, and
// does so first.
func (h *held) tick() {
	s := h.s
	s.mu.Lock()
	_, now := s.clock.Now()
	if h.over || h.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	if h.asking || h.failing && h.nearEnd(now) {
		h.quitLocked(errLease)
		s.mu.Unlock()
		return
	}
	late := now.Sub(h.due) > launch.ClockTolerance
	h.asking = true
	h.armLocked(max(h.end.Add(-s.margin), now.Add(s.margin)))
	s.mu.Unlock()

	if late {
		s.distrust()
	}
	err := h.renew()

	s.mu.Lock()
	defer s.mu.Unlock()
	h.asking = false
	_, now = s.clock.Now()
	switch {
	case h.over || h.ctx.Err() != nil:
	case err == nil:
		h.armLocked(h.end.Add(s.o.Renew - s.o.Lease))
	default:
		h.armLocked(max(now, min(now.Add(s.margin/2), h.end.Add(-s.margin))))
	}
}

// renew extends the lease. A refusal that does not pass means that the claim is
// gone.
func (h *held) renew() error {
	_, asked := h.s.clock.Now()
	_, err := do(context.Background(), h.s, store.Renew{Run: h.run, Authority: h.auth, Lease: h.s.o.Lease})
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	switch {
	case err == nil:
		h.end, h.failing = max(h.end, asked.Add(h.s.o.Lease)), false
	case passing(err):
		h.failing = true
	default:
		h.overLocked(err)
	}
	return err
}

// fit reports why nothing new may start under the claim now, after renewing a
// lease that has ended or nearly (rule scheduler/fence).
func (h *held) fit() error {
	h.s.mu.Lock()
	_, now := h.s.clock.Now()
	draining, late := h.s.draining, h.nearEnd(now)
	h.s.mu.Unlock()
	if draining {
		return errClosing
	}
	if late && h.ctx.Err() == nil {
		if err := h.renew(); passing(err) {
			return errLease
		} else if err != nil {
			return err
		}
	}
	return context.Cause(h.ctx)
}

// Waits between tries of a write that the store could not take.
const (
	firstWait = 10 * time.Millisecond
	maxWait   = time.Second
)

// persist carries out a command of the claim. It is repeated while the store is
// busy and the lease lasts; an expired claim is renewed once.
func persist[A any](h *held, c store.Command[A]) (A, error) {
	renewed := false
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		a, err := do(context.Background(), h.s, c)
		if isKind(err, launch.ErrOutcomeUnknown) {
			h.moved = true
		}
		if isKind(err, launch.ErrExpired) && !renewed {
			again := h.renew()
			if renewed = again == nil; renewed {
				continue
			}
			err = again
		}
		if claimGone(err) {
			h.s.mu.Lock()
			h.overLocked(err)
			h.s.mu.Unlock()
		}
		if err == nil || !passing(err) || !h.pause(wait) {
			return a, err
		}
	}
}

// claimGone reports whether a refusal says that the claim is not the caller's
// any more.
func claimGone(err error) bool {
	var r *launch.Refusal
	return errors.As(err, &r) && (r.Kind == launch.ErrEnded || r.Kind == launch.ErrStale && r.Fence != launch.FenceNone)
}

// pause waits, and reports whether the lease and the scheduler last longer.
func (h *held) pause(d time.Duration) bool {
	s := h.s
	s.mu.Lock()
	_, now := s.clock.Now()
	if s.closed || h.nearEnd(now.Add(d)) {
		s.mu.Unlock()
		return false
	}
	over := make(chan struct{})
	stop := s.afterLocked(d, func() { close(over) })
	s.mu.Unlock()
	select {
	case <-over:
		return true
	case <-s.done:
		stop()
		return false
	}
}
