package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// calls are all methods of a runtime that reach the file, for a run and a
// session that exist.
func calls(rt *piworkflows.Runtime, run launch.RunID, k launch.SessionKey) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Start": func(ctx context.Context) error {
			_, err := rt.Start(ctx, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(`{"n":1}`)})
			return err
		},
		"Status":     func(ctx context.Context) error { _, err := rt.Status(ctx, run); return err },
		"Wait":       func(ctx context.Context) error { _, err := rt.Wait(ctx, run); return err },
		"SessionRun": func(ctx context.Context) error { _, err := rt.SessionRun(ctx, k); return err },
		"Output":     func(ctx context.Context) error { _, _, err := rt.Output(ctx, run, "twice"); return err },
		"Cancel":     func(ctx context.Context) error { _, err := rt.Cancel(ctx, run, launch.Host); return err },
		"Pause":      func(ctx context.Context) error { return rt.Pause(ctx, run) },
		"Resume":     func(ctx context.Context) error { return rt.Resume(ctx, run) },
		"Unblock":    func(ctx context.Context) error { return rt.Unblock(ctx, k, "m") },
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

// A full disk refuses and loses nothing, and a host with space goes on.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	small, err := store.OpenSQLite(path, store.SQLiteOptions{MaxPages: 120})
	if err != nil {
		t.Fatal(err)
	}
	w := engine.New[struct{ Text string }]("keep", "1")
	engine.Compute(w, "length", w.Input(), func(_ context.Context, in struct{ Text string }) (int, error) { return len(in.Text), nil })
	keep, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	// Nobody runs them meanwhile: the host that fills the disk is of another source.
	rt := host(t, piworkflows.Options{Engine: small, Source: "a"}, keep)
	input := json.RawMessage(`{"Text":"` + strings.Repeat("x", 60_000) + `"}`)
	var kept []launch.RunID
	for {
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "keep", Input: input, Session: deliverytest.NewFile("s", fmt.Sprint("/", len(kept))).Key()})
		if err != nil {
			var r *launch.Refusal
			if !errors.As(err, &r) || r.Kind != launch.ErrFull || !r.Kind.Retryable() {
				t.Fatalf("a start on a full disk: %v, want %v", err, launch.ErrFull)
			}
			break
		}
		if kept = append(kept, s.Run); len(kept) > 100 {
			t.Fatal("the bound has no effect")
		}
	}
	if len(kept) == 0 {
		t.Fatal("nothing fits")
	}
	for _, id := range kept {
		if v, err := rt.Status(bg, id); err != nil || v.LaunchState != "queued" {
			t.Errorf("run %s is %s, %v", id, v.LaunchState, err)
		}
	}
	if err := rt.Close(bg); err != nil {
		t.Errorf("Close on a full disk: %v", err)
	}
	again := host(t, piworkflows.Options{Path: path, Source: "a"}, keep)
	for _, id := range kept {
		if c, err := again.Cancel(bg, id, launch.Host); err != nil || !c.Won {
			t.Errorf("with space again, run %s: %+v, %v", id, c, err)
		}
	}
	if _, err := again.Start(bg, piworkflows.StartOptions{Workflow: "keep", Input: input}); err != nil {
		t.Errorf("with space again: %v", err)
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

// A disk that gets full while runs are under way ends none of them: they go on
// once there is space.
func TestDiskFillsUnderRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	small, err := store.OpenSQLite(path, store.SQLiteOptions{MaxPages: 90})
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	all, settled := make(chan bool, 16), make(chan bool, 16)
	w := engine.New[number]("big", "1")
	engine.Compute(w, "out", w.Input(), func(context.Context, number) (string, error) {
		if made.Add(1) == 8 {
			all <- true
		}
		return strings.Repeat("x", 100_000), nil
	})
	big, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := piworkflows.Open(piworkflows.Options{Engine: small, Workflows: []*engine.Workflow{big}, Capacity: 8, Lease: launch.MinLease,
		Observe: func(e store.Event) {
			if e.Kind == "run.settled" {
				settled <- true
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	var kept []launch.RunID
	for range 8 {
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "big"})
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, s.Run)
	}
	<-all // of the outputs, of which not all find space
	<-settled
	now, cancel := context.WithCancel(bg)
	cancel()
	if err := rt.Close(now); err != nil {
		t.Errorf("Close on a full disk: %v", err)
	}
	if rows := query(t, path, `SELECT count(*) FROM workflow_run_queue WHERE state = 5`); rows[0] == "8" {
		t.Fatal("the disk did not fill")
	}
	again := host(t, piworkflows.Options{Path: path, Lease: launch.MinLease}, big)
	for _, id := range kept {
		wctx, wc := context.WithTimeout(bg, 5*time.Second)
		v, err := again.Wait(wctx, id)
		wc()
		ev, _ := openStore(t, path).RunEvents(bg, id, 0)
		for _, e := range ev { t.Logf("%s %s %d %s", e.Kind, launch.State(e.State), e.Generation, e.Data) }
		if err != nil || v.LaunchState != "done" {
		t.Logf("%+v", v)
			t.Errorf("with space again run %s ends %s %s, %v", id, v.LaunchState, v.ErrorText, err)
		}
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("nothing is read-only for root")
	}
	dir := filepath.Join(t.TempDir(), "ro")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := piworkflows.Open(piworkflows.Options{Path: filepath.Join(dir, "flows.db")})
	wantKind(t, err, launch.ErrInvalid, "writable")
}
