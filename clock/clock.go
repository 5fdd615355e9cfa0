// Package clock gives time as values: wall time, monotonic time and timers.
// [System] is the real one; [Manual] moves only when a test says so.
package clock

import (
	"sync"
	"time"

	"example.com/piworkflows/launch"
)

// Clock is where a host takes time from. It is safe for concurrent use.
type Clock interface {
	// Now reads both clocks at one moment.
	Now() (launch.Time, launch.Mono)
	// AfterFunc calls f in its own goroutine once d has passed on the monotonic
	// clock, unless the timer is stopped first.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call.
type Timer interface {
	// Stop prevents the call and reports whether it did.
	Stop() bool
}

// System returns the clock of the machine.
func System() Clock { return system{start: time.Now()} }

type system struct{ start time.Time }

func (s system) Now() (launch.Time, launch.Mono) {
	now := time.Now()
	return launch.TimeOf(now), launch.Mono(now.Sub(s.start))
}

func (s system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Manual is a clock for tests. Timers fire within Advance, in the caller's
// goroutine, in the order in which they are due.
type Manual struct {
	mu     sync.Mutex
	wall   launch.Time
	mono   launch.Mono
	timers []*manualTimer
}

type manualTimer struct {
	clock *Manual
	due   launch.Mono
	f     func()
}

// NewManual returns a clock that stands at start.
func NewManual(start launch.Time) *Manual { return &Manual{wall: start} }

// Now implements [Clock].
func (m *Manual) Now() (launch.Time, launch.Mono) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall, m.mono
}

// AfterFunc implements [Clock].
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &manualTimer{clock: m, due: m.mono.Add(max(d, 0)), f: f}
	m.timers = append(m.timers, t)
	return t
}

// Stop implements [Timer].
func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	for i, o := range t.clock.timers {
		if o == t {
			t.clock.timers = append(t.clock.timers[:i], t.clock.timers[i+1:]...)
			return true
		}
	}
	return false
}

// Advance moves both clocks by d and runs the timers that become due.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.mono.Add(d)
	for {
		var next *manualTimer
		at := 0
		for i, t := range m.timers {
			if t.due <= end && (next == nil || t.due < next.due) {
				next, at = t, i
			}
		}
		if next == nil {
			break
		}
		m.timers = append(m.timers[:at], m.timers[at+1:]...)
		if step := next.due.Sub(m.mono); step > 0 {
			m.mono, m.wall = next.due, m.wall.Add(step)
		}
		m.mu.Unlock()
		next.f()
		m.mu.Lock()
	}
	if step := end.Sub(m.mono); step > 0 {
		m.mono, m.wall = end, m.wall.Add(step)
	}
	m.mu.Unlock()
}

// Jump moves the wall clock alone, as an adjustment of the system time does.
func (m *Manual) Jump(d time.Duration) {
	m.mu.Lock()
	m.wall = m.wall.Add(d)
	m.mu.Unlock()
}
