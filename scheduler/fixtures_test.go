package scheduler_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/scheduler"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
)

const lease = launch.DefaultLease

var ctx = context.Background()

// file is one store file, with the processes that have it open. Its capacity is
// checked after every commit.
type file struct {
	t        *testing.T
	engine   store.Engine
	watch    *store.Store // sees everything, belongs to no process
	capacity int          // changed only while no process is open
	noisy    atomic.Bool  // errors in the log are what the test is about

	mu        sync.Mutex
	processes []*process
}

// process is one host that has the file open.
type process struct {
	*scheduler.Scheduler
	file  *file
	store *store.Store

	killed, busy, blind atomic.Bool
	lies                atomic.Int64 // so many commits to come have an unknown outcome
	updates             atomic.Int64

	onUpdate, onView hook
}

// hook is called once, after the next commit or read of a process.
type hook struct {
	mu sync.Mutex
	f  func()
}

func (h *hook) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

func (h *hook) fire() {
	h.mu.Lock()
	f := h.f
	h.f = nil
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

// bubble runs a test in virtual time. All goroutines have to end in it.
func bubble(t *testing.T, f func(t *testing.T, f *file)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := storetest.Memory()
		f(t, &file{t: t, engine: e, watch: store.New(e, store.Options{}), capacity: 4})
	})
}

// faulty is the engine as one process sees it.
type faulty struct{ p *process }

func (e faulty) fault() error {
	switch {
	case e.p.killed.Load():
		return launch.Refuse(launch.ErrInternal, "this process is dead")
	case e.p.busy.Load():
		return launch.Refuse(launch.ErrBusy, "the lock is taken")
	}
	return nil
}

func (e faulty) Update(ctx context.Context, fn func(store.Rows) error) error {
	if err := e.fault(); err != nil {
		return err
	}
	e.p.updates.Add(1)
	err := e.p.file.engine.Update(ctx, fn)
	if err == nil {
		e.p.onUpdate.fire()
	}
	if live, err := e.p.file.watch.Claims(context.Background(), launch.MaxList); err != nil {
		e.p.file.t.Error(err)
	} else if len(live) > e.p.file.capacity {
		e.p.file.t.Errorf("%d claims are live, of %d", len(live), e.p.file.capacity)
	}
	if err == nil && e.p.lies.Add(-1) >= 0 {
		e.p.file.others(nil) // the file has changed, which is noticed within a second
		return launch.Refuse(launch.ErrOutcomeUnknown, "the answer got lost")
	}
	return err
}

func (e faulty) View(ctx context.Context, fn func(store.Rows) error) error {
	if e.p.killed.Load() || e.p.blind.Load() {
		return launch.Refuse(launch.ErrInternal, "the disk cannot be read")
	}
	err := e.p.file.engine.View(ctx, fn)
	e.p.onView.fire()
	return err
}

func (e faulty) Version(ctx context.Context) (int64, error) { return e.p.file.engine.Version(ctx) }
func (e faulty) Close() error                               { return nil }

// open starts a process. Commits of one wake the schedulers of the others.
func (f *file) open(change func(*scheduler.Options), workflows ...*engine.Workflow) *process {
	f.t.Helper()
	return f.openWith(nil, change, workflows...)
}

func (f *file) openWith(c clock.Clock, change func(*scheduler.Options), workflows ...*engine.Workflow) *process {
	f.t.Helper()
	p := &process{file: f}
	p.store = store.New(faulty{p}, store.Options{Clock: c})
	registry, err := engine.NewRegistry("test", workflows...)
	if err != nil {
		f.t.Fatal(err)
	}
	o := scheduler.Options{Store: p.store, Registry: registry, Capacity: f.capacity, Log: slog.New(quiet{f, p})}
	if change != nil {
		change(&o)
	}
	if p.Scheduler, err = scheduler.New(o); err != nil {
		f.t.Fatal(err)
	}
	p.store.Subscribe(func([]store.Event) { f.others(p) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes = append(f.processes, p)
	f.t.Cleanup(func() { p.close() })
	return p
}

func (f *file) others(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.processes {
		if o != p && !o.killed.Load() {
			o.Wake()
		}
	}
}

// quiet is a log in which nothing is to be written that looks like a fault.
type quiet struct {
	f *file
	p *process
}

func (q quiet) Enabled(context.Context, slog.Level) bool { return true }
func (q quiet) WithAttrs([]slog.Attr) slog.Handler       { return q }
func (q quiet) WithGroup(string) slog.Handler            { return q }
func (q quiet) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && !q.f.noisy.Load() && !q.p.killed.Load() {
		var all string
		r.Attrs(func(a slog.Attr) bool { all += a.String() + " "; return true })
		q.f.t.Errorf("the log says: %s %s", r.Message, all)
	}
	return nil
}

// close closes a scheduler without grace.
func (p *process) close() {
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.Close(stopped); err != nil {
		p.file.t.Error(err)
	}
}

// kill ends a process without a word.
func (p *process) kill() {
	p.killed.Store(true)
	p.close()
	p.file.mu.Lock()
	defer p.file.mu.Unlock()
	for i, o := range p.file.processes {
		if o == p {
			p.file.processes = append(p.file.processes[:i], p.file.processes[i+1:]...)
			return
		}
	}
}

// start reserves a headless run.
func (p *process) start(wf *engine.Workflow, group string) launch.RunID {
	p.file.t.Helper()
	return p.file.start(p.store, wf, group)
}

func (f *file) start(s *store.Store, wf *engine.Workflow, group string) launch.RunID {
	f.t.Helper()
	return do(f.t, s, store.Start{Request: request(s, wf, group)}).Run
}

// request asks for a headless run.
func request(s *store.Store, wf *engine.Workflow, group string) launch.Request {
	return launch.Request{ID: launch.NewRunID(wf.Name(), must(s.NewID())), Workflow: wf.Name(), Source: "test", Digest: wf.Digest(),
		Mode: launch.Headless, Group: group, Actor: launch.Host, Input: []byte("{}")}
}

func do[A any](t *testing.T, s *store.Store, c store.Command[A]) A {
	t.Helper()
	a, err := store.Do(ctx, s, c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return a
}

func (p *process) cancel(id launch.RunID) store.Cancellation {
	p.file.t.Helper()
	return do(p.file.t, p.store, store.Cancel{Run: id, Actor: launch.Person})
}

// get returns a run once nothing moves any more.
func (f *file) get(id launch.RunID) launch.Launch {
	f.t.Helper()
	synctest.Wait()
	l, err := f.watch.Launch(ctx, id)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

func (f *file) wantState(id launch.RunID, want launch.State) launch.Launch {
	f.t.Helper()
	l := f.get(id)
	if l.State != want {
		f.t.Fatalf("run is %s %s %s %v, want %s", l.State, l.Park, l.Attention, l.Error, want)
	}
	return l
}

// kinds returns the kinds of a run's events.
func (f *file) kinds(id launch.RunID) (all []string) {
	f.t.Helper()
	events, err := f.watch.RunEvents(ctx, id, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	for i, e := range events {
		if e.N != uint64(i)+1 {
			f.t.Fatalf("event %d of the run is numbered %d", i+1, e.N)
		}
		all = append(all, e.Kind)
	}
	return all
}

// after lets time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

type none struct{}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type code func(ctx context.Context) (string, error)

// flow is a workflow of compute nodes a, b, c..., one after the other.
func flow(name string, nodes ...code) *engine.Workflow {
	w := engine.New[none](name, "1")
	var before engine.Node[string]
	for i, f := range nodes {
		n := engine.Compute(w, string(rune('a'+i)), w.Input(), func(ctx context.Context, _ none) (string, error) { return f(ctx) })
		if i > 0 {
			engine.Then(before, n)
		}
		before = n
	}
	return must(w.Build())
}

// acts is a workflow of one action.
func acts(name string, policy engine.Policy, f code) *engine.Workflow {
	w := engine.New[none](name, "1")
	engine.Action(w, "a", w.Input(), func(ctx context.Context, _ engine.Attempt, _ none) (string, error) { return f(ctx) }, policy)
	return must(w.Build())
}

// activated is a workflow whose activation needs code.
func activated(name string, check func(context.Context) error, f code) *engine.Workflow {
	w := engine.New[none](name, "1")
	w.OnActivate(func(ctx context.Context, _ none) error { return check(ctx) })
	engine.Compute(w, "a", w.Input(), func(ctx context.Context, _ none) (string, error) { return f(ctx) })
	return must(w.Build())
}

// takes is code that works for d and obeys its context.
func takes(d time.Duration) code {
	return func(ctx context.Context) (string, error) {
		select {
		case <-time.After(d):
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func quick(context.Context) (string, error) { return "done", nil }

// probe is code whose executions a test watches.
type probe struct {
	mu       sync.Mutex
	runs     int
	now, max int
	causes   []error
}

func (p *probe) in(f code) code {
	return func(ctx context.Context) (string, error) {
		p.mu.Lock()
		p.runs++
		p.now++
		p.max = max(p.max, p.now)
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.now--
			if ctx.Err() != nil {
				p.causes = append(p.causes, context.Cause(ctx))
			}
		}()
		return f(ctx)
	}
}

// seen returns how often the code ran, and how much of it at once at most.
func (p *probe) seen() (runs, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs, p.max
}

func (p *probe) want(t *testing.T, runs int, causes ...launch.Kind) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs != runs || len(p.causes) != len(causes) {
		t.Fatalf("the code ran %d times and was stopped for %v; want %d and %v", p.runs, p.causes, runs, causes)
	}
	for i, c := range p.causes {
		if !errors.Is(c, causes[i]) {
			t.Fatalf("stop %d was for %v, want %v", i+1, c, causes[i])
		}
	}
}

// bridge plays a session.
type bridge struct {
	p     *process
	key   launch.SessionKey
	epoch uint64
}

func (p *process) connect(name string) *bridge {
	p.file.t.Helper()
	key := must(launch.NewSessionKey(name, "/sessions/"+name))
	epoch := do(p.file.t, p.store, store.Connect{Session: key, Connect: session.Connect{Host: p.Runner(), Process: name, Durable: true}})
	p.Nudge(key)
	return &bridge{p, key, epoch}
}

func (b *bridge) saw(c session.Command) {
	b.p.file.t.Helper()
	do(b.p.file.t, b.p.store, store.Observe{Session: b.key, Saw: c})
	b.p.Nudge(b.key)
}

func (b *bridge) free() { b.saw(session.Report{Epoch: b.epoch, Idle: true}) }

func (b *bridge) start(wf *engine.Workflow) launch.RunID {
	b.p.file.t.Helper()
	r := request(b.p.store, wf, "")
	r.Mode, r.Session, r.Actor = launch.Interactive, b.key, launch.Model
	return do(b.p.file.t, b.p.store, store.Start{Request: r, Epoch: b.epoch}).Run
}

// stalled is the clock of a process that can be stopped like one in a debugger:
// meanwhile its timers do not fire.
type stalled struct {
	clock.Clock
	mu   sync.Mutex
	gate chan struct{} // nil: runs
}

func newStalled() *stalled { return &stalled{Clock: clock.System()} }

func (c *stalled) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

func (c *stalled) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.gate)
	c.gate = nil
}

func (c *stalled) AfterFunc(d time.Duration, f func()) clock.Timer {
	return c.Clock.AfterFunc(d, func() {
		c.mu.Lock()
		gate := c.gate
		c.mu.Unlock()
		if gate != nil {
			<-gate
		}
		f()
	})
}
