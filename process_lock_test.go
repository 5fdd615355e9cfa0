package piworkflows_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// lockChild holds the write lock of the file until it is told to let go.
func lockChild(c *child) {
	conn, err := sqlite.OpenConn(c.args[0], sqlite.OpenReadWrite)
	c.must(err)
	c.must(sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil))
	c.say("locked")
	c.hear()
	c.must(sqlitex.ExecuteTransient(conn, "ROLLBACK", nil))
	c.must(conn.Close())
}

// A lock that another process holds for too long is a typed error that changes
// nothing; reads go on, and so does everything else once the lock is free.
func TestLockHeldTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "flows.db")
	ctx := context.Background()
	working, gate, done := make(chan bool, 1), make(chan struct{}), make(chan launch.RunID, 2)
	rt, err := piworkflows.Open(piworkflows.Options{
		Path: path, Workflows: []*engine.Workflow{gated(func() { working <- true }, gate)}, BusyTimeout: 100 * time.Millisecond,
		Observe: func(e store.Event) {
			if e.Launch == launch.EvDone {
				done <- e.Run
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	start := func(key string) (piworkflows.Started, error) {
		return rt.Start(ctx, piworkflows.StartOptions{Workflow: "gated", Input: []byte(`{"n":1}`), Scope: "s", RequestKey: key})
	}
	running, err := start("before")
	if err != nil {
		t.Fatal(err)
	}
	<-working
	locker := spawn(t, "lock", path)
	locker.await("locked")
	before := launchOf(t, openStore(t, path), running.Run)
	file := deliverytest.NewFile("s1", "/s1.jsonl")
	pi := file.Start(deliverytest.Options{})
	bind := deliverytest.Via(rt.Connect)
	for what, call := range map[string]func(context.Context) error{
		"start":   func(context.Context) error { _, err := start("during"); return err },
		"cancel":  func(ctx context.Context) error { _, err := rt.Cancel(ctx, running.Run, launch.Person); return err },
		"pause":   func(ctx context.Context) error { return rt.Pause(ctx, running.Run) },
		"resume":  func(ctx context.Context) error { return rt.Resume(ctx, running.Run) },
		"unblock": func(ctx context.Context) error { return rt.Unblock(ctx, file.Key(), "m") },
		"abandon": func(ctx context.Context) error { return rt.AbandonSession(ctx, file.Key()) },
		"connect": func(context.Context) error { return pi.Connect(bind) },
	} {
		err := call(ctx)
		var r *launch.Refusal
		if !errors.As(err, &r) || r.Kind != launch.ErrBusy || !r.Kind.Retryable() {
			t.Errorf("%s under another's lock: %v, want %v", what, err, launch.ErrBusy)
		}
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := rt.Cancel(short, running.Run, launch.Person); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, launch.ErrBusy) {
		t.Errorf("with a deadline that is earlier: %v", err)
	}
	if v, err := rt.Status(ctx, running.Run); err != nil || v.LaunchState != "running" {
		t.Errorf("a read under another's lock: %v, %v", v.LaunchState, err)
	}
	close(gate) // the node's result finds the lock taken
	locker.tell("let go")
	locker.wait()
	if id := <-done; id != running.Run {
		t.Errorf("run %s is done, want %s", id, running.Run)
	}
	after := launchOf(t, openStore(t, path), running.Run)
	if after.State != launch.Done || after.Generation != before.Generation {
		t.Errorf("the run is %s in generation %d, was in %d: a lock is no failure", after.State, after.Generation, before.Generation)
	}
	if rows := query(t, path, `SELECT request_key FROM workflow_run_queue`); len(rows) != 1 {
		t.Errorf("runs %q; a refused start left something", rows)
	}
	if rows := query(t, path, `SELECT session_id FROM workflow_sessions`); len(rows) != 0 {
		t.Errorf("sessions %q; a refused connect left something", rows)
	}
	again, err := start("during")
	if err != nil || !again.Created {
		t.Errorf("the refused start, repeated: %+v, %v", again, err)
	}
	<-working
	if id := <-done; id != again.Run {
		t.Errorf("run %s is done, want %s", id, again.Run)
	}
	if err := pi.Connect(bind); err != nil {
		t.Errorf("the refused connect, repeated: %v", err)
	}
	pi.Kill()
}
