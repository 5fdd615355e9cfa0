package delivery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Conn is one live connection of a bridge. Its methods report what the bridge
// observed, in that order; each returns once the fact is committed. On a fenced
// connection they fail with launch.ErrStale. They are safe for concurrent use.
type Conn struct {
	c       *Coordinator
	key     launch.SessionKey
	epoch   uint64
	session Session

	ctx    context.Context
	cancel context.CancelFunc
	woken  chan struct{}
	done   chan struct{}
	ended  atomic.Bool

	ready   atomic.Bool // the bridge has called Changed
	changed atomic.Bool // a newer look is needed
	said    atomic.Bool // the bridge has called Changed since the last try
	stopped atomic.Bool // a turn that has to be stopped goes on: ask again
	moved   atomic.Bool // a run of the session may stand elsewhere than shown

	// record is held while a report or a look is recorded, so that a look is
	// never recorded after what was reported later.
	record sync.Mutex
	seen   atomic.Uint64 // reports of the bridge so far: a look that overlaps one is repeated

	waiting struct { // calls of Stopped
		sync.Mutex
		told []chan struct{}
	}

	replies struct { // of turns that are not settled yet
		sync.Mutex
		turn  string
		reply *Reply
	}

	// Used by run alone.
	token    launch.Digest // of the next attempt; zero: to be made
	granted  *store.Send   // an attempt that was recorded with what made it due
	timer    clock.Timer   // of the next look
	due      launch.Mono   // when it fires
	failures int           // steps that failed in a row
	refused  int           // sends in a row that were refused or whose answer was lost
	occupied bool          // the last one was refused as occupied
	aborted  string        // message whose turn was asked to stop last
	last     launch.Mono   // when
	shown    shown         // to a Viewer
}

type shown struct {
	run    launch.RunID
	status view.Status
}

const (
	firstPause = 250 * time.Millisecond // after a failure or refusal, doubling
	maxPause   = 30 * time.Second
)

func pauseAfter(times int) time.Duration { return min(firstPause<<min(times, 10), maxPause) }

// Epoch returns the connection's number; a later connection has a higher one.
func (n *Conn) Epoch() uint64 { return n.epoch }

// Session returns the session's key.
func (n *Conn) Session() launch.SessionKey { return n.key }

// Done is closed when the connection has ended.
func (n *Conn) Done() <-chan struct{} { return n.done }

// end ends the connection. A bridge that is fenced is told so before it can see
// that the connection is done, so that it does not connect again; it may close
// the connection while it is told.
func (n *Conn) end(fenced bool) {
	if !n.ended.CompareAndSwap(false, true) {
		return
	}
	n.c.forget(n)
	n.cancel()
	if fenced {
		n.session.Fenced()
	}
	close(n.done)
}

func (n *Conn) wake() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// run looks and sends until the connection ends.
func (n *Conn) run() {
	defer n.end(false)
	defer n.disarm()
	for {
		offer := n.offer()
		select {
		case <-n.ctx.Done():
		case <-n.woken:
		}
		if send, ok := offer.Withdraw(); ok {
			n.granted = &send
		}
		if n.ctx.Err() != nil {
			return
		}
		for more := true; more && n.ctx.Err() == nil; {
			var err error
			if more, err = n.step(); err == nil {
				n.failures = 0
				continue
			}
			if n.ctx.Err() != nil {
				return
			}
			if errors.Is(err, launch.ErrStale) {
				n.end(true)
				return
			}
			n.c.o.Log.Warn("delivery is delayed", "session", string(n.key), "err", err)
			n.arm(pauseAfter(n.failures))
			n.failures++
		}
		n.show()
	}
}

// show tells a Viewer how the session's run stands, if that is news. What cannot
// be read now is told with the next change.
func (n *Conn) show() {
	v, ok := n.session.(Viewer)
	if !ok || !n.ready.Load() || !n.moved.Swap(false) {
		return
	}
	run, err := n.c.o.Store.Displayed(n.ctx, n.key)
	if err != nil || run == "" {
		return
	}
	f, err := n.c.o.Store.Facts(n.ctx, run)
	if err != nil {
		return
	}
	if now := (shown{run, view.Of(f).Status}); now != n.shown {
		n.shown = now
		v.Show(now.run, now.status)
	}
}

// step does the next thing that is due and reports whether to look again.
func (n *Conn) step() (bool, error) {
	n.disarm()
	granted := n.granted
	n.granted = nil // what is not sent now is asked for again
	if granted != nil {
		return n.send(granted)
	}
	n.waiting.Lock()
	waiting := n.waiting.told
	n.waiting.told = nil
	n.waiting.Unlock()
	st := n.c.o.Store
	asked, err := st.Asked(n.ctx, n.key)
	if err != nil {
		return false, err
	}
	if asked.Session.Epoch != n.epoch {
		return false, launch.Refuse(launch.ErrStale, "the session was connected again")
	}
	if n.stopped.Swap(false) {
		n.aborted = ""
	}
	if m := asked.Session.Abort; m != n.aborted {
		if m != "" {
			if err := n.session.Abort(n.ctx, m); err != nil {
				return false, err
			}
		}
		n.aborted = m
	}
	for _, told := range waiting {
		close(told)
	}
	if !n.ready.Load() {
		return false, nil
	}
	wall, mono := st.Clock().Now()
	if asked.Sample > 1 {
		n.arm(asked.Sample)
	} else if asked.Sample == 1 {
		return true, n.sample(asked.Over)
	}
	if asked.Next != 0 {
		n.arm(asked.Next.Sub(wall))
	}
	stale := !asked.Session.Fresh && (asked.Unsent > 0 || len(asked.Names) > 0)
	if n.changed.Swap(false) || stale || !asked.Session.Reported {
		return n.look(asked.Names)
	}
	if asked.Unsent == 0 {
		return false, nil
	}
	if n.refused > 0 {
		wait := pauseAfter(n.refused - 1)
		if n.occupied && n.said.Load() { // it may be free by now
			wait = firstPause
		}
		if left := n.last.Add(wait).Sub(mono); left > 0 {
			n.arm(left)
			return false, nil
		}
	}
	return n.try(&asked.Session)
}

// abortFirst is how long the record of a timeout may take before the turn is
// stopped without it.
const abortFirst = 250 * time.Millisecond

// sample records the active time of the open turn. over is its message when that
// ends the attempt: the record, with the turn that it owes, comes first and the
// abort after it, unless the store fails or takes too long (rule delivery/abort).
func (n *Conn) sample(over string) error {
	st := n.c.o.Store
	record := func() error {
		n.record.Lock() // the turn's end is recorded after it
		defer n.record.Unlock()
		_, err := store.Do(n.ctx, st, store.Sample{Session: n.key, Epoch: n.epoch})
		return err
	}
	if over == "" {
		return record()
	}
	late := make(chan struct{})
	timer := st.Clock().AfterFunc(abortFirst, func() { close(late) })
	defer timer.Stop()
	done := make(chan error, 1)
	go func() { done <- record() }()
	again := false
	select {
	case err := <-done:
		if err == nil || errors.Is(err, launch.ErrStale) || n.ctx.Err() != nil {
			return err
		}
		again = true
	case <-late:
	}
	n.c.o.Log.Warn("the store is slow; a turn whose time is used up is stopped before that is recorded", "session", string(n.key))
	err := n.session.Abort(n.ctx, over)
	if err == nil {
		n.aborted = over
	}
	if !again && <-done == nil {
		return err
	}
	if failed := record(); failed != nil {
		n.c.o.Log.Error("a turn was stopped and that its time is used up could not be recorded; its successor turn is not guaranteed", "session", string(n.key), "err", failed)
		return failed
	}
	return err
}

// arm makes the connection look again in that time, if it would not earlier.
func (n *Conn) arm(in time.Duration) {
	_, mono := n.c.o.Store.Clock().Now()
	due := mono.Add(in)
	if n.timer != nil && n.due <= due {
		return
	}
	n.disarm()
	n.due = due
	n.timer = n.c.o.Store.Clock().AfterFunc(in, func() {
		n.changed.Store(true)
		n.wake()
	})
}

func (n *Conn) disarm() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}
