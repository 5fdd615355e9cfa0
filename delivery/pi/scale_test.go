package pi

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// plainHost is a coordinator on a file, without a runtime.
type plainHost struct {
	fakeHost
	store *store.Store
	*delivery.Coordinator
}

func openPlain(t *testing.T, c clock.Clock, reported func(launch.SessionKey)) *plainHost {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "flows", "flows.db"), store.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	d, err := delivery.New(delivery.Options{Store: s, Runner: "host", Reported: reported})
	if err != nil {
		t.Fatal(err)
	}
	return &plainHost{store: s, Coordinator: d}
}

func (h *plainHost) Connect(ctx context.Context, hello delivery.Hello, s delivery.Session) (Conn, error) {
	c, err := h.Coordinator.Connect(ctx, hello, s)
	if err != nil {
		return nil, err
	}
	return plainConn{c}, nil
}

func (h *plainHost) close(t *testing.T) {
	t.Helper()
	if err := h.Coordinator.Close(); err != nil {
		t.Error(err)
	}
	if err := h.store.Close(); err != nil {
		t.Error(err)
	}
}

type plainConn struct{ *delivery.Conn }

func (plainConn) Tool(context.Context, piworkflows.ToolCall) piworkflows.ToolResult {
	return piworkflows.ToolResult{}
}

// counted is a clock that stands, and counts the timers that wait in it.
type counted struct {
	*clock.Manual
	timers atomic.Int64
}

func (c *counted) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.timers.Add(1)
	return countedTimer{c.Manual.AfterFunc(d, f), c}
}

type countedTimer struct {
	clock.Timer
	c *counted
}

func (t countedTimer) Stop() bool {
	stopped := t.Timer.Stop()
	if stopped {
		t.c.timers.Add(-1)
	}
	return stopped
}

var crowd = 1000 // fewer under the race detector

// A thousand sessions on one host, each with an intent that waits until it is
// idle: what they cost, and that each is served then.
func TestThousandSessions(t *testing.T) {
	reported := make(chan launch.SessionKey, 8*crowd)
	now := &counted{Manual: clock.NewManual(launch.TimeOf(time.Now()))}
	h := openPlain(t, now, func(k launch.SessionKey) { reported <- k })
	defer h.close(t)
	e, err := Listen(Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()

	// The work of the test is done by a few goroutines that are there all the
	// time, so that many commits share a sync.
	work := make(chan func())
	defer close(work)
	for range 32 {
		go func() {
			for f := range work {
				f()
			}
		}()
	}
	each := func(f func(i int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range crowd {
			wg.Add(1)
			work <- func() {
				defer wg.Done()
				if err := f(i); err != nil {
					t.Error(err)
				}
			}
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()

	bots := make([]*bot, crowd)
	keys := make([]launch.SessionKey, crowd)
	for i := range bots {
		name := fmt.Sprint("s", i)
		bots[i] = newBot(t, e, name)
		if keys[i], err = launch.NewSessionKey(name, "/"+name+".jsonl"); err != nil {
			t.Fatal(err)
		}
	}
	set := func(idle bool) { // and wait until the host knows of all
		for _, b := range bots {
			b.set(idle)
		}
		for seen := map[launch.SessionKey]bool{}; len(seen) < crowd; {
			seen[<-reported] = true
		}
	}
	set(true)
	ends := make([]store.Propose, crowd)
	plan := &run.Plan{MaxSteps: 1, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}}}
	each(func(i int) error {
		id, err := h.store.NewID()
		if err != nil {
			return err
		}
		r := launch.Request{ID: launch.NewRunID("w", id), Workflow: "w", Source: "test", Digest: launch.DigestOf(nil),
			Mode: launch.Interactive, Session: keys[i], Input: []byte("{}"), Actor: launch.Host}
		if _, err := store.Do(t.Context(), h.store, store.Start{Request: r}); err != nil {
			return err
		}
		token := launch.DigestOf([]byte(id))
		c, err := store.Do(t.Context(), h.store, store.Claim{Run: r.ID, Runner: "host", Token: token, Lease: launch.MaxLease,
			Digest: r.Digest, Source: r.Source, Plan: plan, Capacity: crowd, Begin: true})
		ends[i] = store.Propose{Run: r.ID, Authority: launch.Authority{Runner: "host", Token: token, Generation: c.Generation}, Plan: plan,
			Node: "a", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte("1")}
		return err
	})
	set(false)
	idle := runtime.NumGoroutine()
	each(func(i int) error {
		_, err := store.Do(t.Context(), h.store, ends[i])
		return err
	})
	each(func(i int) error {
		a, err := h.store.Asked(t.Context(), keys[i])
		if err == nil && a.Unsent != 1 {
			err = fmt.Errorf("%d messages wait in session %d, want one", a.Unsent, i)
		}
		return err
	})
	if n := runtime.NumGoroutine(); n > idle {
		t.Errorf("%d goroutines more with an intent in each session", n-idle)
	}
	if n := now.timers.Load(); n > 0 {
		t.Errorf("%d timers wait with the intents", n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	bytes := (int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / int64(crowd)
	perSession := float64(idle-goroutines) / float64(crowd)
	t.Logf("%d bytes and %.1f goroutines for each session, the test's own end included", bytes, perSession)
	if bytes > 100_000 || perSession > 5 { // reader, reports, writer and sender here, one in the test
		t.Errorf("a session costs %d bytes and %.1f goroutines; the bounds are 100 KB and 5", bytes, perSession)
	}

	for _, b := range bots {
		b.set(true)
	}
	for i, b := range bots {
		<-b.taken
		if len(b.taken) > 0 {
			t.Errorf("session %d was sent its message twice", i)
		}
	}
}

// Sessions that never answer, never read or never stop talking keep nothing
// from another one.
func TestStalledClients(t *testing.T) {
	rt := openRuntime(t)
	e := open(t, Options{Host: ForRuntime(rt)})
	for i := range 100 {
		c := dial(t, e)
		c.hello(e, fmt.Sprint("silent", i))
		c.say(0, &changedBody{}) // and does not answer the look
		if i == 0 {
			line, err := encode(0, &changedBody{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for err == nil {
					_, err = c.c.Write(line)
				}
			}()
		}
	}
	b := newBot(t, e, "s")
	b.set(true)
	key, err := launch.NewSessionKey("s", "/s.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Start(t.Context(), piworkflows.StartOptions{Workflow: "greet", Session: key}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.taken:
	case <-time.After(time.Minute): // a hang is a failure
		t.Fatal("nothing was delivered")
	}
}

func TestThousandConnectsAndKills(t *testing.T) {
	for _, c := range []struct {
		why  string
		host func(t *testing.T) (Host, func())
	}{
		{"a host that takes everything", func(*testing.T) (Host, func()) { return &fakeHost{}, func() {} }},
		{"a coordinator on a file", func(t *testing.T) (Host, func()) {
			h := openPlain(t, nil, nil)
			return h, func() { h.close(t) }
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			open(t, Options{Host: &fakeHost{}}) // what Go itself opens for a first socket is open now
			goroutines, files := runtime.NumGoroutine(), openFiles(t)
			h, closeHost := c.host(t)
			e, err := Listen(Options{Host: h})
			if err != nil {
				t.Fatal(err)
			}
			first := dial(t, e)
			first.hello(e, "good")
			served := runtime.NumGoroutine()
			for i := range 1000 {
				connectAndKill(t, e, i)
			}
			last := dial(t, e)
			last.hello(e, "good") // so that all before it are accepted; it fences the first
			for late := time.After(time.Minute); runtime.NumGoroutine() > served; runtime.Gosched() {
				select {
				case <-late:
					t.Fatalf("%d goroutines are left of connections that are gone", runtime.NumGoroutine()-served)
				default:
				}
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			closeHost()
			for _, c := range []*client{first, last} {
				if err := c.c.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if n := runtime.NumGoroutine(); n > goroutines {
				t.Errorf("%d goroutines more than before", n-goroutines)
			}
			if n := openFiles(t); n > files {
				t.Errorf("%d open files more than before", n-files)
			}
			if err := e.Close(); err != nil {
				t.Errorf("a second Close: %v", err)
			}
		})
	}
}

// connectAndKill connects and goes: at once, within its hello, after it, or
// when it was about to be looked at.
func connectAndKill(t *testing.T, e *Endpoint, i int) {
	t.Helper()
	c, err := net.Dial("unix", e.socket())
	if err != nil {
		t.Fatal(err)
	}
	line, err := encode(1, hello(e, fmt.Sprint("s", i/8))) // and again, on the same session
	if err != nil {
		t.Fatal(err)
	}
	changed, err := encode(0, &changedBody{})
	if err != nil {
		t.Fatal(err)
	}
	says := [][]byte{nil, line[:len(line)/2], line, append(line, changed...)}[i%4]
	if _, err := c.Write(says); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// openFiles counts the file descriptors, or returns 0 where it cannot.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}
