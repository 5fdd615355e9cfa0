package store

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"example.com/piworkflows/launch"
)

// Rule store/group: one transaction at a time writes, led by one of the callers
// that wait for it. A lone caller that finds nobody leading runs its function at
// once on its own goroutine. Whoever comes meanwhile waits, and the first of
// them leads all that wait through the next transaction; each is answered after
// that has committed. A leader that is not alone first lets those who were just
// answered come back. A function that is refused before its first put hurts
// nobody; whatever else goes wrong, everything is rolled back and each function
// runs again in a transaction of its own, so that no answer rests on what never
// happened.

const (
	maxGroup = 256 // ops of one transaction
	// linger is how often in a row a new leader yields in vain for the next of the
	// callers that it knows of, most of whom were just answered: a few
	// microseconds, a fraction of the sync that each saves by joining it. It is
	// counted, because a clock stands still in a testing/synctest bubble.
	linger = 64
)

// op is one Update.
type op struct {
	ctx   context.Context
	fn    func(Rows) error
	since time.Time // when it began to wait; zero = not yet
	err   error     // its outcome, once settled

	refused error     // what fn returned last; used by leaders only
	settled bool      // used by leaders only
	leads   bool      // it was made leader; under the group's lock
	wake    chan bool // true: lead the next group; false: it is settled
	self    [1]*op
}

// settle gives the op its outcome. Later calls change nothing.
func (o *op) settle(err error) {
	if o.settled {
		return
	}
	o.settled, o.err = true, err
	if !o.leads {
		o.wake <- false
	}
}

// expired returns why an op that has not begun must not begin any more.
func (o *op) expired(now time.Time, timeout time.Duration) error {
	if err := o.ctx.Err(); err != nil {
		return o.stopped(err)
	}
	if o.since.IsZero() || now.IsZero() {
		return nil
	}
	if waited := now.Sub(o.since); waited >= timeout {
		return refuseBusy("update", waited)
	}
	return nil
}

// stopped is the answer when the context ended a wait. A deadline that passed
// while others held the lock is the store being busy.
func (o *op) stopped(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !o.since.IsZero() {
		return refuseBusy("update", time.Since(o.since))
	}
	return err
}

type group struct {
	lead func(ops []*op) (rest []*op) // runs them; settles all but rest

	mu      sync.Mutex
	closed  bool
	leading bool
	callers int   // in the last group and behind it
	waiting []*op // never shares memory with a group that was taken
	active  sync.WaitGroup
}

// enter counts a call that close waits for.
func (g *group) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosed
	}
	g.active.Add(1)
	return nil
}

func (g *group) leave() { g.active.Done() }

var errClosed = launch.Refuse(launch.ErrClosed, "the store is closed; open it again")

// close refuses later calls and waits for earlier ones.
func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.active.Wait()
}

// submit runs fn in some transaction and returns its outcome.
func (g *group) submit(ctx context.Context, fn func(Rows) error) error {
	o := &op{ctx: ctx, fn: fn}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return errClosed
	}
	g.active.Add(1)
	defer g.active.Done()
	if !g.leading {
		g.leading, o.leads = true, true
		if g.callers > 1 { // the others are about to come back
			g.waiting = append(g.waiting, o)
			g.mu.Unlock()
			g.run(g.take())
			return o.err
		}
		g.mu.Unlock()
		o.self[0] = o
		g.run(o.self[:])
		return o.err
	}
	o.wake, o.since = make(chan bool, 1), time.Now()
	g.waiting = append(g.waiting, o)
	g.mu.Unlock()

	var leads bool
	select {
	case leads = <-o.wake:
	case <-ctx.Done():
		if g.withdraw(o) {
			return o.stopped(ctx.Err())
		}
		leads = <-o.wake // someone runs it or withdraws it for us
	}
	if leads {
		g.run(g.take())
	}
	return o.err
}

// withdraw takes back an op that nobody has taken, nor made leader.
func (g *group) withdraw(o *op) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, o)
	if i < 0 || o.leads {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// take returns the next group; its first op is the leader's.
func (g *group) take() []*op {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, vain := 0, 0; len(g.waiting) < min(g.callers, maxGroup) && vain < linger; vain++ {
		if len(g.waiting) > n {
			n, vain = len(g.waiting), 0
		}
		g.mu.Unlock()
		runtime.Gosched()
		g.mu.Lock()
	}
	n := min(len(g.waiting), maxGroup)
	ops := g.waiting[:n:n]
	g.waiting = append(make([]*op, 0, n), g.waiting[n:]...)
	return ops
}

// run leads ops and hands over. Answers go first, so that callers with more to
// do are back before the next group is taken.
func (g *group) run(ops []*op) {
	var rest []*op
	defer func() { g.handOver(len(ops), rest) }() // also when a function ends its goroutine
	rest = g.lead(ops)
}

// handOver makes the first of rest, or of those that wait behind a group of n,
// the next leader.
func (g *group) handOver(n int, rest []*op) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers = n - len(rest) + len(g.waiting)
	if len(rest) > 0 {
		g.waiting = append(slices.Clone(rest), g.waiting...)
	}
	if len(g.waiting) == 0 {
		g.leading = false
		return
	}
	next := g.waiting[0]
	next.leads = true
	next.wake <- true
}
