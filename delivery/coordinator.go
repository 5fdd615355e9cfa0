package delivery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Options of a coordinator.
type Options struct {
	Store  *store.Store // required
	Runner string       // the host's name, unique per process start; required
	// Reported is called after each committed report of a session, when
	// something may activate there. It must not block. May be nil.
	Reported func(launch.SessionKey)
	Log      *slog.Logger // nil: nowhere
}

// Coordinator is the one sender of a host. It is safe for concurrent use.
type Coordinator struct {
	o    Options
	stop func() // of the subscription

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	conns  map[launch.SessionKey]*Conn
	wg     sync.WaitGroup
}

// New returns a coordinator over a store.
func New(o Options) (*Coordinator, error) {
	if o.Store == nil {
		return nil, launch.Refuse(launch.ErrInvalid, "delivery needs a store")
	}
	if err := launch.CheckKey("runner", o.Runner); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Reported == nil {
		o.Reported = func(launch.SessionKey) {}
	}
	c := &Coordinator{o: o, conns: map[launch.SessionKey]*Conn{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.stop = o.Store.Subscribe(c.committed)
	return c, nil
}

// committed wakes the connections whose session a commit concerns.
func (c *Coordinator) committed(events []store.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range events {
		if conn := c.conns[e.Session]; conn != nil {
			if e.Launch != 0 {
				conn.moved.Store(true)
			}
			conn.wake()
		}
	}
}

// Wake looks at every connected session again: another process committed.
func (c *Coordinator) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.moved.Store(true)
		conn.wake()
	}
}

// Sessions returns the sessions that are connected to this host, sorted.
func (c *Coordinator) Sessions() []launch.SessionKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make([]launch.SessionKey, 0, len(c.conns))
	for k := range c.conns {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Connect registers a bridge: the epoch rises, and an older connection of the
// session is fenced. The bridge then repeats its unconfirmed turn reports and
// calls [Conn.Changed]; nothing is looked at or sent before. launch.ErrStale
// says that h.After is over: the bridge stays away as after Fenced.
func (c *Coordinator) Connect(ctx context.Context, h Hello, s Session) (*Conn, error) {
	if s == nil {
		return nil, launch.Refuse(launch.ErrInvalid, "a connection needs a session")
	}
	if err := launch.CheckSessionKey(h.Session); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	c.wg.Add(1) // Close waits for this connection from here on
	c.mu.Unlock()
	epoch, err := store.Do(ctx, c.o.Store, store.Connect{Session: h.Session, Connect: session.Connect{Host: c.o.Runner, Process: h.Process, Durable: h.Durable, After: h.After}})
	if err != nil {
		c.wg.Done()
		return nil, err
	}
	conn := &Conn{c: c, key: h.Session, epoch: epoch, session: s, woken: make(chan struct{}, 1), done: make(chan struct{})}
	conn.ctx, conn.cancel = context.WithCancel(c.ctx)
	conn.moved.Store(true)
	c.mu.Lock()
	old := c.conns[h.Session]
	late := old != nil && old.epoch > epoch // two connects raced and the other won
	closed := c.closed                      // and nobody else ends this connection
	if !late && !closed {
		c.conns[h.Session] = conn
	}
	c.mu.Unlock()
	switch {
	case closed:
		conn.Close()
	case late:
		conn.end(true)
	case old != nil:
		old.end(true)
	}
	go func() {
		defer c.wg.Done()
		conn.run()
	}()
	return conn, nil
}

var errClosed = launch.Refuse(launch.ErrClosed, "the host is closed; open a new one")

// Close ends every connection and waits until nothing runs any more. A second
// Close does nothing.
func (c *Coordinator) Close() error {
	c.mu.Lock()
	c.closed = true
	open := slices.Collect(maps.Values(c.conns))
	c.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
	c.stop()
	c.cancel()
	c.wg.Wait()
	return nil
}

// forget drops a connection that has ended.
func (c *Coordinator) forget(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[conn.key] == conn {
		delete(c.conns, conn.key)
	}
}
