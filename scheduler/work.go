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

func isKind(err error, kind launch.Kind) bool { return errors.Is(err, kind) }

// claim asks for a run and starts its worker. The error is nil also when the
// store ended or parked the run instead; a refusal means that the run is not
// this host's.
func (s *Scheduler) claim(w store.Work, wf *engine.Workflow, lost bool) error {
	token, err := s.store.NewToken()
	if err != nil {
		return err
	}
	h := s.newHeld(w, wf, token.Hash())
	s.mu.Lock()
	if s.live[w.Run] != nil {
		s.mu.Unlock()
		return launch.Refuse(launch.ErrStale, "run %s is claimed by this host already", w.Run)
	}
	s.live[w.Run] = h // before the claim, so that no later event is missed
	capacity := s.o.Capacity - s.lingeringLocked()
	s.mu.Unlock()

	_, asked := s.clock.Now()
	claimed, err := do(s.ctx, s, store.Claim{
		Run: w.Run, Runner: s.o.Runner, Token: h.auth.Token, Lease: s.o.Lease, Digest: wf.Digest(), Source: s.o.Registry.Source(),
		Plan: h.plan, Capacity: capacity, Begin: !wf.HasActivation(), Lost: lost, Generation: w.Generation,
	})
	if isKind(err, launch.ErrOutcomeUnknown) { // nobody would work on it
		_, _ = do(context.Background(), s, store.Release{Run: w.Run, Authority: h.auth})
	}
	if err != nil || !claimed.State.Claimed() {
		s.drop(h)
		return err
	}
	h.auth.Generation = claimed.Generation
	// The claim and whatever came after it: what was committed until now is in
	// this snapshot, and what is committed later is seen as an event.
	l, err := s.store.Launch(context.Background(), w.Run)
	if err != nil {
		_, _ = do(context.Background(), s, store.Release{Run: w.Run, Authority: h.auth})
		s.drop(h)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !l.State.Claimed() || l.Generation != h.auth.Generation || h.left > l.Events {
		h.overLocked(errGone)
		return nil
	}
	h.since = l.Events
	h.end = asked.Add(s.o.Lease)
	s.workers[h] = struct{}{}
	h.armLocked(asked.Add(s.o.Renew))
	go s.work(h, claimed)
	return nil
}

var errGone = launch.Refuse(launch.ErrStale, "the claim is gone; stop and change nothing more")

// drop forgets a claim that came to nothing.
func (s *Scheduler) drop(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.overLocked(errGone)
}

// lingeringLocked counts the code that has not returned although its claim is
// gone.
func (s *Scheduler) lingeringLocked() (n int) {
	for h := range s.workers {
		if h.over {
			n++
		}
	}
	return n
}

var errExited = launch.Refuse(launch.ErrInternal, "code of the run ended its goroutine; let it return instead")

// work runs the code of a claim and gives the claim up afterwards.
func (s *Scheduler) work(h *held, c store.Claimed) {
	err := error(errExited) // what stays when user code ends the goroutine
	defer func() {
		lapses := h.giveUp(err)
		s.mu.Lock()
		defer s.mu.Unlock()
		h.overLocked(errGone)
		delete(s.workers, h)
		s.flags.scan = s.flags.scan || lapses
		s.wakeLocked()
		s.idleLocked()
	}()
	err = h.perform(c)
}

// perform runs the activation, if there is one, and node after node.
func (h *held) perform(c store.Claimed) error {
	if err := h.fit(); err != nil {
		return err
	}
	if c.State == launch.Starting {
		err := h.wf.Activate(h.ctx, c.Input)
		if stopped := h.fit(); stopped != nil {
			return stopped
		}
		if err != nil {
			_, err = persist(h, store.FailActivation{Run: h.run, Authority: h.auth,
				Error: launch.NewSafeError(launch.CodeActivationFailed, err.Error())})
			return err
		}
		if c, err = persist(h, store.Activate{Run: h.run, Authority: h.auth, Plan: h.plan}); err != nil {
			return err
		}
		if err := h.fit(); err != nil {
			return err
		}
	}
	h.at = c.Next
	job := engine.Job{Run: h.run, Input: c.Input, Current: engine.Next(c.Next), Log: h.s.o.Log}
	return engine.Work(h.ctx, h.wf, job, h)
}

// giveUp gives the claim back after the code has returned, and reports whether
// it is left to lapse instead (rules scheduler/stop and scheduler/lapse).
func (h *held) giveUp(err error) (lapses bool) {
	h.s.mu.Lock()
	h.stop()
	over := h.over
	h.s.mu.Unlock()
	log := h.s.o.Log.With("run", string(h.run), "generation", h.auth.Generation)
	switch {
	case err == nil:
		return false
	case over:
		log.Debug("stopped: the claim is gone", told(err))
		return false
	case !h.moved && h.ctx.Err() == nil && !errors.Is(err, errClosing) && !errors.Is(err, errLease) && !passing(err):
		log.Error("the run cannot go on; its claim is left to lapse", told(err))
		return true
	}
	_, err = persist(h, store.Release{Run: h.run, Authority: h.auth})
	if err != nil && !claimGone(err) {
		log.Warn("the claim could not be given back; it is left to lapse", told(err))
	}
	return err != nil
}

// Propose implements [engine.Host].
func (h *held) Propose(_ context.Context, p engine.Proposal) (engine.Next, error) {
	next, err := persist(h, store.Propose{
		Run: h.run, Authority: h.auth, Plan: h.plan, Node: p.Node, Visit: p.Visit, Attempt: p.Attempt,
		Outcome: p.Outcome, Output: p.Output, Failure: p.Failure, Unknown: p.Unknown, Observed: p.Observed, Applied: p.Applied,
		Ask: (*store.Ask)(p.Ask), Notice: p.Notice, Verdict: store.Verdict(p.Verdict),
	})
	if err != nil {
		h.receipt(p, err)
		return engine.Next{}, err
	}
	h.moved, h.at = true, next
	if next.Ended || next.Parked {
		return engine.Next(next), nil
	}
	return engine.Next(next), h.fit()
}

// Output implements [engine.Host].
func (h *held) Output(ctx context.Context, node string) ([]byte, bool, error) {
	return h.s.store.Output(ctx, h.run, node)
}

// Reserve implements [engine.Host].
func (h *held) Reserve(_ context.Context, fingerprint launch.Digest) error {
	_, err := persist(h, store.Reserve{Run: h.run, Authority: h.auth, Plan: h.plan, Node: h.at.Node, Visit: h.at.Visit, Attempt: h.at.Attempt, Fingerprint: fingerprint})
	if err == nil {
		return h.fit()
	}
	return err
}

// Settings implements [engine.Host].
func (h *held) Settings(ctx context.Context, revision uint32) ([]byte, error) {
	value, _, err := h.s.store.Settings(ctx, h.run, revision)
	return value, err
}

// Limit implements [engine.Host].
func (h *held) Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := h.s
	s.mu.Lock()
	stop := s.afterLocked(d, func() { cancel(engine.ErrBudget) })
	s.mu.Unlock()
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// receipt records what became of an action whose run was ended or taken over
// while its code ran (rule scheduler/receipt). In a live run this serves only
// the person who is asked about an unrepeatable action: what can be observed or
// repeated, the next claim observes or repeats, and so has its output too.
func (h *held) receipt(p engine.Proposal, refused error) {
	n := h.plan.Node(p.Node)
	if n == nil || n.Kind != run.Action || p.Unknown || p.Observed {
		return
	}
	if !isKind(refused, launch.ErrEnded) && (n.Policy != run.Unrepeatable || !claimGone(refused)) {
		return
	}
	applied := p.Outcome == engine.OK || p.Applied
	_, err := persist(h, store.Receipt{Run: h.run, Token: h.auth.Token, Node: p.Node, Visit: p.Visit, Retry: h.at.Retry, Applied: applied})
	if err != nil {
		h.s.o.Log.Warn("the receipt of an action could not be recorded", "run", string(h.run), "node", p.Node, told(err))
	}
}
