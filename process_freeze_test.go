package piworkflows_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// freezeChild starts a run when it is named "first", and runs what it can get
// hold of. A node waits until the process is told, or for its context to end.
func freezeChild(c *child) {
	ctx := context.Background()
	gate := make(chan struct{})
	w := engine.New[number]("gated", "1")
	engine.Compute(w, "work", w.Input(), func(ctx context.Context, in number) (int, error) {
		c.say("working")
		select {
		case <-gate:
			return in.N, nil
		case <-ctx.Done():
			c.say("stopped stale=%t", errors.Is(context.Cause(ctx), launch.ErrStale) || errors.Is(context.Cause(ctx), launch.ErrEnded))
			return 0, context.Cause(ctx)
		}
	})
	wf, err := w.Build()
	c.must(err)
	rt, err := piworkflows.Open(piworkflows.Options{
		Path: c.args[0], Workflows: []*engine.Workflow{wf}, Lease: launch.MinLease,
		Observe: func(e store.Event) {
			if e.Launch == launch.EvDone {
				c.say("done")
			}
		},
	})
	c.must(err)
	if c.args[1] == "first" {
		s, err := rt.Start(ctx, piworkflows.StartOptions{Workflow: "gated", Input: []byte(`{"n":1}`)})
		c.must(err)
		c.say("run %s", s.Run)
	}
	c.hear()
	close(gate)
	c.hear()
	c.must(rt.Close(ctx))
}

// freeze stops a process while it holds no lock of the file.
func freeze(t *testing.T, p *process, path string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		t.Fatalf("the process did not stop: %v, %v", status, err)
	}
	if err := sqlitex.ExecuteTransient(conn, "ROLLBACK", nil); err != nil {
		t.Fatal(err)
	}
}

// A process that was stopped for longer than its lease, and that nobody
// replaced, goes on as if nothing had happened.
func TestFrozenAndNotReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "flows.db")
	p := spawn(t, "freeze", path, "first")
	run := launch.RunID(p.await("run"))
	p.await("working")
	freeze(t, p, path)
	s := openStore(t, path)
	until(t, "the lease ends", func() bool {
		f, err := s.Facts(context.Background(), run)
		return err == nil && view.Of(f).Owner == "expired"
	})
	p.tell("go on") // it hears that when it wakes, and its result meets an expired claim
	p.signal(syscall.SIGCONT)
	p.await("done")
	p.tell("close")
	p.wait()
	for _, line := range p.seen {
		if strings.HasPrefix(line, "stopped") {
			t.Errorf("its code was stopped: %s", line)
		}
	}
	if l := launchOf(t, s, run); l.State != launch.Done || l.Generation != 1 || l.Activations != 1 {
		t.Errorf("the run is %s in generation %d after %d activations, want done in 1 after 1", l.State, l.Generation, l.Activations)
	}
	checkFile(t, path)
}

// A process that was replaced meanwhile changes nothing any more and is told so.
func TestFrozenAndReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "flows.db")
	first := spawn(t, "freeze", path, "first")
	run := launch.RunID(first.await("run"))
	first.await("working")
	freeze(t, first, path)
	second := spawn(t, "freeze", path, "second")
	second.await("working") // when the lease has ended
	first.signal(syscall.SIGCONT)
	if got := first.await("stopped"); got != "stale=true" {
		t.Errorf("the code of the replaced host was told %q", got)
	}
	second.tell("go on")
	second.await("done")
	for _, p := range []*process{first, second} {
		if p == first {
			p.tell("go on")
		}
		p.tell("close")
		p.wait()
	}
	s := openStore(t, path)
	if l := launchOf(t, s, run); l.State != launch.Done || l.Generation != 2 {
		t.Errorf("the run is %s in generation %d, want done in 2", l.State, l.Generation)
	}
	if claims := checkFile(t, path); len(claims) != 2 || mostAtOnce(claims) != 1 {
		t.Errorf("claims %+v, want two, one after the other", claims)
	}
}
