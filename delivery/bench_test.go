package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
)

var bg = context.Background()

// tb is what a *testing.T and a *rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// bench is one store file in virtual time, with the hosts that open it and the
// session files that they deliver to.
type bench struct {
	tb
	engine store.Engine
	watch  *store.Store // sees everything, belongs to no host
	files  []*deliverytest.File
	owners []*deliverytest.Process

	mu     sync.Mutex
	hosts  []*host
	named  int
	events []store.Event
}

// bubble runs a test in virtual time on a store in memory. All goroutines have
// to end in it.
func bubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, storetest.Memory())
		f(b)
		b.end()
	})
}

func newBench(t tb, e store.Engine) *bench {
	return &bench{tb: t, engine: e, watch: store.New(e, store.Options{})}
}

// end stops everything; what still runs then hangs the bubble.
func (b *bench) end() {
	for _, p := range b.owners {
		p.Kill()
	}
	for _, h := range slices.Clone(b.hosts) {
		h.close()
	}
	synctest.Wait()
	if err := b.engine.Close(); err != nil {
		b.Errorf("close: %v", err)
	}
}

// pi opens a new session file, or another process on one.
func (b *bench) pi(o deliverytest.Options) *deliverytest.Process {
	n := len(b.files) + 1
	f := deliverytest.NewFile(fmt.Sprintf("s%d", n), fmt.Sprintf("/s%d.jsonl", n))
	b.files = append(b.files, f)
	return b.open(f, o)
}

func (b *bench) open(f *deliverytest.File, o deliverytest.Options) *deliverytest.Process {
	o.Clock = clock.System()
	p := f.Start(o)
	b.owners = append(b.owners, p)
	return p
}

// host is one process that embeds the library. It dies at a moment in its own
// work, or when the test says so: from then on it commits and calls nothing.
type host struct {
	b     *bench
	name  string
	store *store.Store
	*delivery.Coordinator
	dead atomic.Bool

	mu    sync.Mutex
	die   string // moment at which it dies
	calls map[string]int
	last  string        // moment
	slow  time.Duration // of each command
	fails int           // of samples, from now on
}

// lags makes each command of the host take so long, and its next samples fail.
func (h *host) lags(slow time.Duration, fails int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow, h.fails = slow, fails
}

// fail reports whether what is about to be committed fails instead.
func (h *host) fail() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != "before sample" || h.fails == 0 {
		return false
	}
	h.fails--
	return true
}

// host starts a host under a name that was never used before.
func (b *bench) host() *host {
	b.Helper()
	b.mu.Lock()
	b.named++
	h := &host{b: b, name: fmt.Sprintf("host-%d", b.named), calls: map[string]int{}}
	b.hosts = append(b.hosts, h)
	b.mu.Unlock()
	h.store = store.New(mortal{b.engine, h}, store.Options{Probe: h.at})
	h.store.Subscribe(b.committed(h))
	var err error
	if h.Coordinator, err = delivery.New(delivery.Options{Store: h.store, Runner: h.name}); err != nil {
		b.Fatalf("new: %v", err)
	}
	return h
}

// committed keeps what a host commits, and has the others notice it within a
// second.
func (b *bench) committed(by *host) func([]store.Event) {
	return func(events []store.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, events...)
		for _, h := range b.hosts {
			if h != by {
				time.AfterFunc(time.Second, h.Wake)
			}
		}
	}
}

// trace returns what was committed so far.
func (b *bench) trace() []store.Event {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// dieAt makes the host die at the next such moment: "before try" and "after
// try" a commit, "look" and "send" before the bridge is called, "looked" and
// "sent" before its answer arrives.
func (h *host) dieAt(moment string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.die = moment
}

func (h *host) at(moment string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[moment]++
	h.last = moment
	if h.die == moment {
		h.dead.Store(true)
	}
}

// count returns how often the host came to a moment.
func (h *host) count(moment string) int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[moment]
}

// kill ends the host without a word: its connections drop.
func (h *host) kill() {
	h.dead.Store(true)
	h.close()
}

func (h *host) close() {
	h.b.mu.Lock()
	h.b.hosts = slices.DeleteFunc(h.b.hosts, func(o *host) bool { return o == h })
	h.b.mu.Unlock()
	if err := h.Close(); err != nil {
		h.b.Errorf("close: %v", err)
	}
}

// connect binds a process to the host.
func (h *host) connect(p *deliverytest.Process) {
	h.b.Helper()
	if err := p.Connect(deliverytest.Via(h.bind)); err != nil {
		h.b.Fatalf("connect: %v", err)
	}
	synctest.Wait()
}

func (h *host) bind(ctx context.Context, hello delivery.Hello, s delivery.Session) (*delivery.Conn, error) {
	return h.Connect(ctx, hello, watched{s, h})
}

var errDead = launch.Refuse(launch.ErrClosed, "this host is dead")

// mortal is the engine as one host has it.
type mortal struct {
	store.Engine
	h *host
}

func (e mortal) Update(ctx context.Context, fn func(store.Rows) error) error {
	if e.h.dead.Load() {
		return errDead
	}
	e.h.mu.Lock()
	slow := e.h.slow
	e.h.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
	return e.Engine.Update(ctx, func(rows store.Rows) error {
		err := fn(rows)
		if err == nil && e.h.fail() {
			return launch.Refuse(launch.ErrBusy, "another process holds the lock; retry")
		}
		if err == nil && e.h.dead.Load() { // not committed
			return errDead
		}
		return err
	})
}

func (e mortal) View(ctx context.Context, fn func(store.Rows) error) error {
	if e.h.dead.Load() {
		return errDead
	}
	e.h.at("view")
	return e.Engine.View(ctx, fn)
}

func (mortal) Close() error { return nil }

// watched is a bridge as one host has it.
type watched struct {
	delivery.Session
	h *host
}

func (s watched) at(moment string) error {
	if s.h.at(moment); s.h.dead.Load() {
		return errDead
	}
	return nil
}

func (s watched) Look(ctx context.Context, names []string) (delivery.Report, error) {
	if err := s.at("look"); err != nil {
		return delivery.Report{}, err
	}
	r, err := s.Session.Look(ctx, names)
	if e := s.at("looked"); e != nil {
		return delivery.Report{}, e
	}
	return r, err
}

func (s watched) Send(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
	if err := s.at("send"); err != nil {
		return delivery.Answer{}, err
	}
	a, err := s.Session.Send(ctx, m)
	if e := s.at("sent"); e != nil {
		return delivery.Answer{}, e
	}
	return a, err
}

func (s watched) Abort(ctx context.Context, message string) error {
	if err := s.at("abort"); err != nil {
		return err
	}
	return s.Session.Abort(ctx, message)
}

func (s watched) Fenced() {
	if s.at("fenced") == nil {
		s.Session.Fenced()
	}
}

var plan = &run.Plan{MaxSteps: 100, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}}}

// job is a run that works in a session and waits for the test to end it.
type job struct {
	b    *bench
	id   launch.RunID
	auth launch.Authority
}

// do carries out a command in the name of no host.
func do[A any](b *bench, c store.Command[A]) A {
	b.Helper()
	a, err := store.Do(bg, b.watch, c)
	if err != nil {
		b.Fatalf("%T: %v", c, err)
	}
	return a
}

// queue reserves a run in a session.
func (h *host) queue(p *deliverytest.Process) launch.RunID {
	h.b.Helper()
	id, err := h.store.NewID()
	if err != nil {
		h.b.Fatalf("id: %v", err)
	}
	s, err := store.Do(bg, h.store, store.Start{Request: launch.Request{ID: launch.NewRunID("w", id), Workflow: "w", Source: "test",
		Digest: launch.DigestOf(nil), Mode: launch.Interactive, Session: p.File().Key(), Input: []byte("{}"), Actor: launch.Host}})
	if err != nil {
		h.b.Fatalf("start: %v", err)
	}
	return s.Run
}

// start has a run work in a free session, or wait for its activation.
func (h *host) start(p *deliverytest.Process, begin bool) *job {
	h.b.Helper()
	id := h.queue(p)
	synctest.Wait()
	token, err := h.store.NewToken()
	if err != nil {
		h.b.Fatalf("token: %v", err)
	}
	c, err := store.Do(bg, h.store, store.Claim{Run: id, Runner: h.name, Token: token.Hash(), Lease: launch.MaxLease,
		Digest: launch.DigestOf(nil), Source: "test", Plan: plan, Capacity: 1000, Begin: begin})
	if err != nil || !c.State.Claimed() {
		h.b.Fatalf("claim: %v %v", c.State, err)
	}
	return &job{h.b, id, launch.Authority{Runner: h.name, Token: token.Hash(), Generation: c.Generation}}
}

// end has a running run complete or fail; the session is owed a turn from now
// on. It is carried out by a host, whose coordinator looks at once.
func (j *job) end(h *host, o run.Outcome) (intent string) {
	j.b.Helper()
	c := store.Propose{Run: j.id, Authority: j.auth, Plan: plan, Node: "a", Visit: 1, Attempt: 1, Outcome: o}
	if o == run.OK {
		c.Output = []byte("1")
	} else {
		c.Failure = launch.NewSafeError(launch.CodeNodeFailed, "it broke")
	}
	if _, err := store.Do(bg, h.store, c); err != nil {
		j.b.Fatalf("propose: %v", err)
	}
	return j.intent()
}

// failActivation ends a starting run.
func (j *job) failActivation(h *host) (intent string) {
	j.b.Helper()
	c := store.FailActivation{Run: j.id, Authority: j.auth, Error: launch.NewSafeError(launch.CodeActivationFailed, "no key")}
	if _, err := store.Do(bg, h.store, c); err != nil {
		j.b.Fatalf("fail: %v", err)
	}
	return j.intent()
}

// intent returns the id of the intent that the run's end has left.
func (j *job) intent() (id string) {
	j.b.Helper()
	j.b.mu.Lock()
	defer j.b.mu.Unlock()
	for _, e := range j.b.events {
		if e.Run == j.id && e.Turn == intents.EvRequested {
			id = e.Intent
		}
	}
	if id == "" {
		j.b.Fatalf("run %s owes nothing", j.id)
	}
	return id
}

// first returns the id of the n-th message of an intent.
func issue(intent string, n uint8) string { return session.MessageID("intent:"+intent, n) }

// after lets time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
