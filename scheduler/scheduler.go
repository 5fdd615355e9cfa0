package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/admit"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Options of a scheduler. Store and Registry are required.
type Options struct {
	Store    *store.Store
	Registry *engine.Registry
	// Runner is the host's name in the file, unique for each start of a process
	// (1 to 512 printable bytes). Empty: "host-" and a new ULID.
	Runner string
	// Capacity is how many live claims in the file this host respects, 1 to
	// [admit.MaxCapacity]. 0: [admit.DefaultCapacity].
	Capacity int
	// Lease is the length of a claim, [launch.MinLease] to [launch.MaxLease].
	// 0: [launch.DefaultLease].
	Lease time.Duration
	// Renew is how often a claim is renewed, less than half a lease. 0:
	// [launch.DefaultRenew], or a third of the lease if that is shorter.
	Renew time.Duration
	// Sessions returns the sessions that are connected to this host. It must not
	// call the scheduler. Nil: none, except those that Nudge names.
	Sessions func() []launch.SessionKey
	Log      *slog.Logger // nil: nowhere
}

func (o *Options) complete() error {
	if o.Store == nil || o.Registry == nil {
		return launch.Refuse(launch.ErrInvalid, "scheduler options need a Store and a Registry")
	}
	if o.Runner == "" {
		id, err := o.Store.NewID()
		if err != nil {
			return err
		}
		o.Runner = "host-" + id
	}
	if err := launch.CheckKey("runner", o.Runner); err != nil {
		return err
	}
	if o.Capacity == 0 {
		o.Capacity = admit.DefaultCapacity
	}
	if o.Capacity < 1 || o.Capacity > admit.MaxCapacity {
		return launch.Refuse(launch.ErrInvalid, "capacity is %d; it must be 1 to %d", o.Capacity, admit.MaxCapacity)
	}
	if o.Lease == 0 {
		o.Lease = launch.DefaultLease
	}
	if o.Lease < launch.MinLease || o.Lease > launch.MaxLease {
		return launch.Refuse(launch.ErrInvalid, "lease is %v; it must be %v to %v", o.Lease, launch.MinLease, launch.MaxLease)
	}
	if o.Renew == 0 {
		o.Renew = min(launch.DefaultRenew, o.Lease/3)
	}
	if o.Renew <= 0 || o.Renew >= o.Lease/2 {
		return launch.Refuse(launch.ErrInvalid, "renewal every %v is not possible; it must be more often than every half lease, %v", o.Renew, o.Lease/2)
	}
	if o.Sessions == nil {
		o.Sessions = func() []launch.SessionKey { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Scheduler runs what may run on this host. It is safe for concurrent use.
type Scheduler struct {
	o      Options
	store  *store.Store
	clock  clock.Clock
	margin time.Duration // before the end of a lease

	ctx      context.Context // of claims; ends when the scheduler drains
	stopLoop context.CancelFunc
	wake     chan struct{}  // the loop has to look
	idle     chan struct{}  // closed once the drained scheduler has nothing running
	done     chan struct{}  // closed once nothing is written any more
	looped   chan struct{}  // closed once the loop has returned
	calls    sync.WaitGroup // writes and timers that Close waits for
	end      sync.Once
	unwatch  func()

	mu       sync.Mutex // never held while the store is called
	live     map[launch.RunID]*held
	workers  map[*held]struct{} // code that has not returned
	flags    flags
	looping  bool
	draining bool
	closed   bool

	loop loopState // the loop's own
}

// New starts a scheduler. It looks at once at what waits and what was lost.
// Errors: [launch.ErrInvalid] names the option.
func New(o Options) (*Scheduler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Scheduler{
		o: o, store: o.Store, clock: o.Store.Clock(), margin: o.Lease / 10,
		wake: make(chan struct{}, 1), idle: make(chan struct{}), done: make(chan struct{}), looped: make(chan struct{}),
		live: map[launch.RunID]*held{}, workers: map[*held]struct{}{}, looping: true,
		loop: newLoopState(),
	}
	s.ctx, s.stopLoop = context.WithCancel(context.Background())
	s.unwatch = s.store.Subscribe(s.committed)
	s.Wake()
	go s.run()
	return s, nil
}

// Runner returns the host's name in the file.
func (s *Scheduler) Runner() string { return s.o.Runner }

// Nudge says that something about a session may let its run start: call it
// after each report and connect. Starts and resumes are noticed without it. It
// does not block.
func (s *Scheduler) Nudge(session launch.SessionKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flags.nudge(session)
	s.wakeLocked()
}

// Wake says that another process committed, so that everything has to be looked
// at. It does not block.
func (s *Scheduler) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flags.scan, s.flags.ready, s.flags.all, s.flags.lapse = true, true, true, true
	s.wakeLocked()
}

func (s *Scheduler) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const maxGrace = 5 * time.Second // for code to return after it was told to

// Close stops the scheduler (rule scheduler/close). From now on it claims
// nothing and starts no node. It waits until ctx ends for nodes that run; then
// their contexts end, and they have a tenth of a lease, at most 5 seconds, to
// return. The claims of all that have returned are given back, which is no
// failure, costs no attempt that is counted, and lets another host or a later one
// go on at once. Code that ignores its context is left alone: it can change
// nothing any more, and its run is taken over when the lease has ended.
//
// After Close nothing is written. A second call waits for the first, and hurries
// it when its own ctx ends earlier. The store stays open. The error is nil.
func (s *Scheduler) Close(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.idleLocked()
	s.mu.Unlock()
	s.stopLoop()
	select {
	case <-s.idle:
	case <-s.done:
	case <-ctx.Done():
	}
	s.end.Do(s.shut)
	return nil
}

// shut ends what is still running, within bounded time.
func (s *Scheduler) shut() {
	s.mu.Lock()
	for h := range s.workers {
		h.quitLocked(errClosing)
	}
	over := make(chan struct{})
	stop := s.afterLocked(min(s.margin, maxGrace), func() { close(over) })
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-over:
	}
	stop()

	s.mu.Lock()
	s.closed = true
	close(s.done)
	for h := range s.workers {
		s.o.Log.Warn("code of a run ignores that the host closes; the run is taken over when its lease ends", "run", string(h.run))
		h.overLocked(errClosing)
	}
	s.mu.Unlock()
	<-s.looped
	s.unwatch()
	s.calls.Wait()
}

// idleLocked notices that a draining scheduler has nothing running any more.
func (s *Scheduler) idleLocked() {
	if !s.draining || s.looping || len(s.workers) > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

var (
	errClosing = launch.Refuse(launch.ErrClosed, "the host closes; stop, the run goes on later")
	errLease   = launch.Refuse(launch.ErrExpired, "the lease could not be renewed in time; stop, the run may be taken over")
)

// passing reports whether the same call may succeed a moment later.
func passing(err error) bool {
	var r *launch.Refusal
	return errors.As(err, &r) && r.Kind.Retryable()
}

// told is what a log may say of an error: refusals never hold private input.
func told(err error) slog.Attr {
	var r *launch.Refusal
	if errors.As(err, &r) {
		return slog.String("err", r.Error())
	}
	if errors.Is(err, context.Canceled) {
		return slog.String("err", "stopped")
	}
	return slog.String("err", "unexpected")
}
