package scheduler

import (
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/admit"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// flags say what has to be looked at. The zero value: what is known to wait.
type flags struct {
	scan     bool // claims of the file
	ready    bool // headless runs that wait
	all      bool // all connected sessions
	lapse    bool // stored deadlines
	sessions map[launch.SessionKey]struct{}
}

func (f *flags) nudge(k launch.SessionKey) {
	if f.sessions == nil {
		f.sessions = map[launch.SessionKey]struct{}{}
	}
	f.sessions[k] = struct{}{}
}

// loopState belongs to the loop's goroutine.
type loopState struct {
	last     admit.Origin
	headless map[launch.RunID]store.Work    // known to wait
	stale    bool                           // headless is to be read again
	more     bool                           // and there is more of it than was read
	sessions map[launch.SessionKey]struct{} // to be looked at, or known to wait for a slot
	full     bool                           // a lost claim waits for a slot
	deadline launch.Mono                    // stored deadline that passes first; 0 = none
	expiry   launch.Mono                    // of the foreign lease that ends first; 0 = none
	retry    launch.Mono                    // when to repeat what failed in passing; 0 = nothing
	due      launch.Mono                    // of the alarm; 0 = none
	stop     func()                         // stops the alarm
	mine     map[launch.SessionKey]struct{} // connected sessions, read once a look; nil = not read
}

func newLoopState() loopState {
	return loopState{headless: map[launch.RunID]store.Work{}, sessions: map[launch.SessionKey]struct{}{}, stop: func() {}}
}

// committed is told every commit of this process.
func (s *Scheduler) committed(events []store.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := false
	for i := range events {
		e := &events[i]
		if e.Timer {
			s.flags.lapse, look = true, true
		}
		if e.Launch == 0 {
			continue // what concerns only a session comes with a nudge
		}
		claimed := claimedState(e.To)
		h := s.live[e.Run]
		switch {
		case h != nil && !claimed:
			if h.left = max(h.left, e.N); h.since != 0 && e.N > h.since {
				h.overLocked(gone(e))
			}
		case h == nil && claimed: // by another scheduler; its lease has to be watched
			s.flags.scan, look = true, true
		case h == nil && claimedState(e.From): // a slot is free
			look = true
		}
		if e.To == launch.Queued.String() || e.To == launch.Parked.String() {
			look = true
			if e.Session != "" {
				s.flags.nudge(e.Session)
			} else {
				s.flags.ready = true
			}
		}
	}
	if look {
		s.wakeLocked()
	}
}

func claimedState(name string) bool {
	return name == launch.Starting.String() || name == launch.Running.String()
}

// gone is what code is told of an event that took its claim away.
func gone(e *store.Event) error {
	if e.To == launch.Queued.String() || e.To == launch.Parked.String() {
		return errGone
	}
	r := launch.Refuse(launch.ErrEnded, "the run has ended: %s; stop", e.To)
	r.Run = e.Run
	return r
}

func (s *Scheduler) run() {
	defer close(s.looped)
	defer func() {
		s.loop.stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looping = false
		s.idleLocked()
	}()
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.look()
	}
}

// look does what can be done now, and arms the one timer for what is due later.
func (s *Scheduler) look() {
	s.mu.Lock()
	f := s.flags
	s.flags = flags{}
	s.mu.Unlock()

	l := &s.loop
	if _, now := s.clock.Now(); l.due != 0 && now >= l.due {
		if now.Sub(l.due) > launch.ClockTolerance {
			s.distrust()
		}
		if l.deadline != 0 && now >= l.deadline {
			f.lapse = true
		}
		f.scan = f.scan || l.expiry != 0 && now >= l.expiry || l.retry != 0 && now >= l.retry
		l.due, l.retry = 0, 0
	}
	if f.lapse {
		s.lapse()
	}
	l.mine = nil
	l.stale = l.stale || f.ready
	for k := range f.sessions {
		l.sessions[k] = struct{}{}
	}
	if f.all {
		for k := range s.connected() {
			l.sessions[k] = struct{}{}
		}
	}
	if f.scan || l.full && s.room() > 0 {
		s.scan()
	}
	s.admit()
	s.arm()
}

// connected returns the sessions of this host.
func (s *Scheduler) connected() map[launch.SessionKey]struct{} {
	if s.loop.mine == nil {
		s.loop.mine = map[launch.SessionKey]struct{}{}
		for _, k := range s.o.Sessions() {
			s.loop.mine[k] = struct{}{}
		}
	}
	return s.loop.mine
}

// room returns how many claims more this host may hold.
func (s *Scheduler) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return admit.Free(s.o.Capacity, len(s.live), s.lingeringLocked())
}

// retryEvery is how long after a failure in passing the loop looks again.
const retryEvery = time.Second

func (s *Scheduler) again() {
	if _, now := s.clock.Now(); s.loop.retry == 0 {
		s.loop.retry = now.Add(min(retryEvery, s.o.Renew))
	}
}

// unread notes that a read failed. It is repeated unless the store is closed.
func (s *Scheduler) unread(what string, err error) {
	if s.ctx.Err() != nil || isKind(err, launch.ErrClosed) {
		return
	}
	s.o.Log.Warn("the scheduler cannot read "+what, told(err))
	s.again()
}

// refused notes that a run was not to be had, and reports whether that passes.
func (s *Scheduler) refused(run launch.RunID, err error) bool {
	log := s.o.Log.With("run", string(run), told(err))
	switch {
	case s.ctx.Err() != nil:
	case passing(err):
		log.Debug("the store is busy; the run is looked at again")
		s.again()
		return true
	case isKind(err, launch.ErrInternal):
		log.Error("the run cannot be claimed")
	default:
		log.Debug("the run is not ours")
	}
	return false
}

// arm sets the timer for what is due first.
func (s *Scheduler) arm() {
	l := &s.loop
	at := l.expiry
	for _, other := range [...]launch.Mono{l.retry, l.deadline} {
		if other != 0 && (at == 0 || other < at) {
			at = other
		}
	}
	if at == l.due {
		return
	}
	l.stop()
	l.stop = func() {}
	l.due = at
	if at == 0 {
		return
	}
	_, now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.stop = s.afterLocked(at.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wakeLocked()
	})
}

// owned returns the workflow of a run that this host may claim, as far as it can
// tell (rule scheduler/owner).
func (s *Scheduler) owned(w *store.Work) (*engine.Workflow, bool) {
	wf, ok := s.o.Registry.Lookup(w.Workflow)
	return wf, ok && (w.Mode == launch.Interactive || w.Source == s.o.Registry.Source())
}
