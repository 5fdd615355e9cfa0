package run

import (
	"time"

	"example.com/piworkflows/launch"
)

// Active is the active time of one attempt (rule run/active). The zero value
// has spent nothing and has no interval open.
type Active struct {
	Spent time.Duration // of all intervals, as of the last sample
	N     uint32        // intervals so far
	// The open interval; Opened is zero when there is none.
	Opened launch.Time
	From   time.Duration // Spent when it opened
	At     launch.Mono   // last sample
	Clock  string        // of At
}

// Interval is the immutable row of one closed active interval. Run, Node, Visit,
// Attempt and N are its key.
type Interval struct {
	Run     launch.RunID
	Node    string
	Visit   uint32
	Attempt uint32
	N       uint32 // from 1
	Opened  launch.Time
	Closed  launch.Time
	Spent   time.Duration // on a monotonic clock, up to its last sample
}

// StartClock opens an active interval of the current attempt: a worker begins to
// run its code, or a turn of its request began. An attempt without a budget
// records no intervals, and an open one stays as it is.
type StartClock struct{}

// SampleClock adds what the open interval has spent since the last sample. A
// reading of another process's clock adds nothing and goes on from there.
type SampleClock struct{}

// StopClock closes the open interval, if there is one. Lost says that whoever
// sampled it is gone, so that nothing counts after the last sample.
type StopClock struct{ Lost bool }

func (StartClock) apply(ch *change) error {
	if r := &ch.r; r.Budget > 0 && r.Active.Opened == 0 {
		a := &r.Active
		a.N++
		a.Opened, a.From, a.At, a.Clock = ch.now.Wall, a.Spent, ch.now.Mono, ch.now.Clock
	}
	return nil
}

func (SampleClock) apply(ch *change) error {
	ch.r.Active.sample(ch.now)
	return nil
}

func (c StopClock) apply(ch *change) error {
	if c.Lost {
		ch.r.Active.Clock = "" // nobody's: equal to no reading
	}
	ch.stopClock()
	return nil
}

func (a *Active) sample(now launch.Now) {
	if a.Opened == 0 {
		return
	}
	if a.Clock == now.Clock && a.Clock != "" {
		a.Spent += max(0, now.Mono.Sub(a.At))
	}
	a.At, a.Clock = now.Mono, now.Clock
}

// stopClock closes the open interval. A process that did not take its last
// sample cannot tell what was spent since, so that adds nothing.
func (ch *change) stopClock() {
	r, a := &ch.r, &ch.r.Active
	if a.Opened == 0 {
		return
	}
	a.sample(ch.now)
	ch.closed = &Interval{Run: r.ID, Node: r.Node, Visit: r.Visit, Attempt: r.Attempt, N: a.N,
		Opened: a.Opened, Closed: ch.now.Wall, Spent: a.Spent - a.From}
	*a = Active{Spent: a.Spent, N: a.N}
}

// Left returns what is left of the attempt's budget as of the last sample, and
// whether there is a budget at all.
func (r *Run) Left() (left time.Duration, limited bool) {
	return max(0, r.Budget-r.Active.Spent), r.Budget > 0
}
