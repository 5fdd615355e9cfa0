package scheduler

import (
	"context"
	"time"

	"example.com/piworkflows/store"
)

// enter counts a write that Close waits for, or reports that it comes too late.
// Each is followed by calls.Done.
func (s *Scheduler) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enterLocked()
}

func (s *Scheduler) enterLocked() bool {
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// do carries out a command, and nothing once the scheduler is closed.
func do[A any](ctx context.Context, s *Scheduler, c store.Command[A]) (A, error) {
	if !s.enter() {
		var none A
		return none, errClosing
	}
	defer s.calls.Done()
	return store.Do(ctx, s.store, c)
}

// distrust tells the store that this process slept (rule scheduler/clock).
func (s *Scheduler) distrust() {
	if !s.enter() {
		return
	}
	defer s.calls.Done()
	if err := s.store.Distrust(context.Background()); err != nil {
		s.o.Log.Warn("the store cannot be told that this process slept", told(err))
	}
}

// afterLocked calls f after d, unless the scheduler is closed or stop is called
// first. stop may be called any number of times, also under the lock.
func (s *Scheduler) afterLocked(d time.Duration, f func()) (stop func()) {
	if !s.enterLocked() {
		return func() {}
	}
	t := s.clock.AfterFunc(max(d, 0), func() {
		defer s.calls.Done()
		f()
	})
	return func() {
		if t.Stop() {
			s.calls.Done()
		}
	}
}
