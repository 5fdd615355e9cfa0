package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

// calls are all methods of a runtime that reach the file, for a run and a
// session that exist.
func calls(rt *piworkflows.Runtime, run launch.RunID, k launch.SessionKey) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Start": func(ctx context.Context) error {
			_, err := rt.Start(ctx, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(`{"n":1}`)})
			return err
		},
		"Status":         func(ctx context.Context) error { _, err := rt.Status(ctx, run); return err },
		"Wait":           func(ctx context.Context) error { _, err := rt.Wait(ctx, run); return err },
		"SessionRun":     func(ctx context.Context) error { _, err := rt.SessionRun(ctx, k); return err },
		"Output":         func(ctx context.Context) error { _, _, err := rt.Output(ctx, run, "twice"); return err },
		"Cancel":         func(ctx context.Context) error { _, err := rt.Cancel(ctx, run, launch.Host); return err },
		"Pause":          func(ctx context.Context) error { return rt.Pause(ctx, run) },
		"Resume":         func(ctx context.Context) error { return rt.Resume(ctx, run) },
		"Unblock":        func(ctx context.Context) error { return rt.Unblock(ctx, k, "m") },
		"AbandonSession": func(ctx context.Context) error { return rt.AbandonSession(ctx, k) },
		"Connect": func(ctx context.Context) error {
			_, err := rt.Connect(ctx, delivery.Hello{Session: k, Process: "p"}, deliverytestBridge{})
			return err
		},
	}
}

func TestUseAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	rt := host(t, piworkflows.Options{Path: path}, double())
	file := deliverytest.NewFile("s1", "/s1.jsonl")
	pi := file.Start(deliverytest.Options{})
	var conn *piworkflows.Conn
	if err := pi.Connect(deliverytest.Via(func(ctx context.Context, h delivery.Hello, s delivery.Session) (_ *piworkflows.Conn, err error) {
		conn, err = rt.Connect(ctx, h, s)
		return conn, err
	})); err != nil {
		t.Fatal(err)
	}
	s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Wait(bg, s.Run); err != nil {
		t.Fatal(err)
	}
	for range 3 { // a second Close does nothing
		if err := rt.Close(bg); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-conn.Done():
	default:
		t.Error("a connection outlives its runtime")
	}
	for what, call := range calls(rt, s.Run, file.Key()) {
		if err := call(bg); !errors.Is(err, launch.ErrClosed) {
			t.Errorf("%s after Close: %v, want %v", what, err, launch.ErrClosed)
		}
	}
	for _, args := range []string{`{"action":"start","workflow":"double"}`, `{"action":"status"}`, `{"action":"status","runId":"` + string(s.Run) + `"}`, `{"action":"cancel","runId":"` + string(s.Run) + `"}`} {
		r := conn.Tool(bg, piworkflows.ToolCall{Args: json.RawMessage(args), RequestKey: "k"})
		if !r.IsError || !strings.Contains(string(r.Details), `"error":"closed"`) {
			t.Errorf("the tool after Close, %s: %+v %s", args, r, r.Details)
		}
	}
	if _, err := conn.TurnStarted(bg, "t", ""); !errors.Is(err, launch.ErrClosed) {
		t.Errorf("a report after Close: %v", err)
	}
	conn.Changed() // says nothing to nobody
	conn.Close()
	if rt.Runner() == "" || rt.Tool().Name != "workflow" {
		t.Error("what needs no file is gone too")
	}
	pi.Kill()
	checkFile(t, path)
}

// Nothing happens under a context that has ended.
func TestEndedContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	gate := make(chan struct{})
	defer close(gate)
	working := make(chan bool, 1)
	rt := host(t, piworkflows.Options{Path: path}, double(), gated(func() { working <- true }, gate))
	s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "gated", Input: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	<-working
	k := deliverytest.NewFile("s1", "/s1.jsonl").Key()
	before := query(t, path, `SELECT count(*), (SELECT count(*) FROM workflow_events), (SELECT count(*) FROM workflow_sessions) FROM workflow_run_queue`)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	for what, call := range calls(rt, s.Run, k) {
		reads := what == "Status" || what == "SessionRun" || what == "Output" // harmless when it is answered
		if err := call(ctx); !errors.Is(err, context.Canceled) && !(reads && err == nil) {
			t.Errorf("%s under a context that has ended: %v", what, err)
		}
	}
	if after := query(t, path, `SELECT count(*), (SELECT count(*) FROM workflow_events), (SELECT count(*) FROM workflow_sessions) FROM workflow_run_queue`); after[0] != before[0] {
		t.Errorf("runs, events and sessions were %s, then %s", before, after)
	}
}

// A Close in the middle of calls lets each end with its answer or with
// launch.ErrClosed, and what was acknowledged is there.
func TestCloseUnderCalls(t *testing.T) {
	for round := range 5 {
		path := filepath.Join(t.TempDir(), "flows.db")
		rt, err := piworkflows.Open(piworkflows.Options{Path: path, Workflows: []*engine.Workflow{double()}, Capacity: 8})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var acknowledged []launch.RunID
		under := make(chan struct{}, 8)
		for range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))})
					if err == nil {
						_, err = rt.Status(bg, s.Run)
						mu.Lock()
						acknowledged = append(acknowledged, s.Run)
						mu.Unlock()
					}
					if err != nil {
						if !errors.Is(err, launch.ErrClosed) {
							t.Errorf("round %d: a call during Close: %v", round, err)
						}
						return
					}
					if n == 2 {
						under <- struct{}{}
					}
				}
			})
		}
		for range 8 {
			<-under
		}
		var closes sync.WaitGroup
		for range 2 {
			closes.Go(func() {
				if err := rt.Close(bg); err != nil {
					t.Errorf("round %d: Close: %v", round, err)
				}
			})
		}
		closes.Wait()
		wg.Wait()
		s := openStore(t, path)
		for _, id := range acknowledged {
			if l := launchOf(t, s, id); l.State.Claimed() || l.Expiries != 0 || l.Strikes != 0 {
				t.Errorf("round %d: run %s is left %s with %d expiries", round, id, l.State, l.Expiries)
			}
		}
		checkFile(t, path)
	}
}

// A polite Close gives what runs back; the next host goes on with it, and
// nothing of that counts as a failure.
func TestCloseGivesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	working := make(chan bool, 1)
	rt := host(t, piworkflows.Options{Path: path}, gated(func() { working <- true }, nil))
	s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "gated", Input: json.RawMessage(`{"n":3}`)})
	if err != nil {
		t.Fatal(err)
	}
	<-working
	waiting := make(chan error, 1)
	go func() { _, err := rt.Wait(bg, s.Run); waiting <- err }()
	now, cancel := context.WithCancel(bg)
	cancel()
	if err := rt.Close(now); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, launch.ErrClosed) {
		t.Errorf("who waits for a run is told %v, want %v", err, launch.ErrClosed)
	}
	open := make(chan struct{})
	close(open)
	next := host(t, piworkflows.Options{Path: path}, gated(func() {}, open))
	if v, err := next.Wait(bg, s.Run); err != nil || v.LaunchState != "done" {
		t.Errorf("the next host ends it %s, %v", v.LaunchState, err)
	}
	if l := launchOf(t, openStore(t, path), s.Run); l.Generation != 2 || l.Expiries != 0 || l.Strikes != 0 {
		t.Errorf("generation %d, %d expiries, %d strikes; want 2, 0, 0", l.Generation, l.Expiries, l.Strikes)
	}
}

// Opening, using and closing a runtime leaves no goroutine behind, also when it
// does not open.
func TestNoGoroutineIsLeft(t *testing.T) {
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	for n := range 5 {
		path := filepath.Join(dir, fmt.Sprint(n, ".db"))
		rt, err := piworkflows.Open(piworkflows.Options{Path: path, Workflows: []*engine.Workflow{double()}})
		if err != nil {
			t.Fatal(err)
		}
		pi := deliverytest.NewFile("s1", "/s1.jsonl").Start(deliverytest.Options{})
		if err := pi.Connect(deliverytest.Via(rt.Connect)); err != nil {
			t.Fatal(err)
		}
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 { // closed under way as well as afterwards
			if _, err := rt.Wait(bg, s.Run); err != nil {
				t.Fatal(err)
			}
		}
		if err := rt.Close(bg); err != nil {
			t.Fatal(err)
		}
		pi.Kill()
		if _, err := piworkflows.Open(piworkflows.Options{Path: path, Capacity: -1}); err == nil {
			t.Error("a bad option is accepted")
		}
	}
	until(t, fmt.Sprintf("at most %d goroutines as before", before), func() bool { return runtime.NumGoroutine() <= before })
}

// A host that respects fewer claims than a lost one left behind takes them over
// all the same, one after the other.
func TestSmallerHostRecovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	stuck, working := make(chan struct{}), make(chan bool, 8)
	defer close(stuck)
	deaf := engine.New[number]("deaf", "1")
	engine.Compute(deaf, "work", deaf.Input(), func(context.Context, number) (int, error) {
		working <- true
		<-stuck // and no word of its context
		return 0, nil
	})
	first, err := deaf.Build()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := piworkflows.Open(piworkflows.Options{Path: path, Workflows: []*engine.Workflow{first}, Capacity: 5, Lease: launch.MinLease})
	if err != nil {
		t.Fatal(err)
	}
	var runs []launch.RunID
	for range 5 {
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "deaf"})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s.Run)
		<-working
	}
	now, cancel := context.WithCancel(bg)
	cancel()
	if err := rt.Close(now); err != nil {
		t.Fatal(err)
	}
	hears := engine.New[number]("deaf", "1")
	engine.Compute(hears, "work", hears.Input(), func(context.Context, number) (int, error) { return 1, nil })
	second, err := hears.Build()
	if err != nil {
		t.Fatal(err)
	}
	small := host(t, piworkflows.Options{Path: path, Capacity: 2, Lease: launch.MinLease}, second)
	for _, id := range runs {
		if v, err := small.Wait(bg, id); err != nil || v.LaunchState != "done" {
			t.Errorf("run %s ends %s %s, %v", id, v.LaunchState, v.ErrorText, err)
		}
	}
	if most := mostAtOnce(checkFile(t, path)); most > 5 {
		t.Errorf("%d claims at one time", most)
	}
}
