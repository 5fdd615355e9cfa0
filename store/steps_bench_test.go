package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// loopPlan goes round two nodes for ever.
var loopPlan = &run.Plan{MaxSteps: run.MaxMaxSteps, Start: "a",
	Nodes: []run.Node{{Path: "a", Kind: run.Compute}, {Path: "b", Kind: run.Compute, Reads: []string{"a"}}},
	Edges: []run.Edge{{From: "a", On: run.Plain, To: "b"}, {From: "b", On: run.Plain, To: "a"}}}

// looper is a worker that goes round.
type looper struct {
	s    *store.Store
	id   launch.RunID
	auth launch.Authority
	next store.Next
}

func newLooper(s *store.Store) (*looper, error) {
	id, err := s.NewID()
	if err != nil {
		return nil, err
	}
	token := launch.Digest{1}
	started, err := store.Do(bg, s, store.Start{Request: launch.Request{ID: launch.NewRunID("bench", id), Workflow: "bench", Source: "bench",
		Digest: launch.Digest{1}, Mode: launch.Headless, Input: []byte(`{}`), Actor: launch.Host}})
	if err != nil {
		return nil, err
	}
	claimed, err := store.Do(bg, s, store.Claim{Run: started.Run, Runner: "bench", Token: token, Lease: launch.MaxLease,
		Digest: launch.Digest{1}, Source: "bench", Plan: loopPlan, Capacity: 9, Begin: true})
	return &looper{s, started.Run, launch.Authority{Runner: "bench", Token: token, Generation: claimed.Generation}, claimed.Next}, err
}

// step settles one node, reading what it reads.
func (l *looper) step() (err error) {
	if l.next.Node == "b" {
		if _, _, err := l.s.Output(bg, l.id, "a"); err != nil {
			return err
		}
	}
	l.next, err = store.Do(bg, l.s, store.Propose{Run: l.id, Authority: l.auth, Plan: loopPlan,
		Node: l.next.Node, Visit: l.next.Visit, Attempt: l.next.Attempt, Outcome: run.OK, Output: []byte(`{"n":1}`)})
	return err
}

func openSQLite(t *testing.T) store.Engine {
	t.Helper()
	e, err := store.OpenSQLite(filepath.Join(t.TempDir(), "flat.db"), store.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// counting counts the rows that an engine is asked for and hands out.
type counting struct {
	store.Engine
	n *int
}

type countingRows struct {
	store.Rows
	n *int
}

func (c counting) Update(ctx context.Context, fn func(store.Rows) error) error {
	return c.Engine.Update(ctx, func(rows store.Rows) error { return fn(countingRows{rows, c.n}) })
}

func (c counting) View(ctx context.Context, fn func(store.Rows) error) error {
	return c.Engine.View(ctx, func(rows store.Rows) error { return fn(countingRows{rows, c.n}) })
}

func (c countingRows) Get(row store.Row) (bool, error) { *c.n++; return c.Rows.Get(row) }
func (c countingRows) Put(old, row store.Row) error    { *c.n++; return c.Rows.Put(old, row) }
func (c countingRows) Scan(ix *store.Index, prefix []store.Value, limit int, row store.Row, each func() bool) error {
	return c.Rows.Scan(ix, prefix, limit, row, func() bool { *c.n++; return each() })
}

// A step touches as many rows after 2,000 steps as after ten: the run's current
// state, never its history.
func TestStepsStayFlat(t *testing.T) {
	n := 0
	s := store.New(counting{openSQLite(t), &n}, store.Options{})
	defer s.Close()
	l, err := newLooper(s)
	if err != nil {
		t.Fatal(err)
	}
	touched := map[int]int{}
	for i := range 2_000 {
		before := n
		if err := l.step(); err != nil {
			t.Fatal(err)
		}
		touched[i] = n - before
	}
	for _, i := range []int{1_000, 1_998} {
		if touched[i] != touched[10] || touched[i+1] != touched[11] {
			t.Errorf("steps %d and %d touch %d and %d rows, steps 10 and 11 %d and %d", i, i+1, touched[i], touched[i+1], touched[10], touched[11])
		}
	}
}

// BenchmarkSteps reports what a step costs at the end of a run of 10,000 against
// its start, and what the recovery of such a run costs in floor commits.
func BenchmarkSteps(b *testing.B) {
	const steps, window = 10_000, 1_000
	for range b.N {
		manual := clock.NewManual(launch.TimeOf(time.Unix(1_800_000_000, 0)))
		s, err := store.Open(filepath.Join(b.TempDir(), "steps.db"), store.Options{Clock: manual})
		if err != nil {
			b.Fatal(err)
		}
		l, err := newLooper(s)
		if err != nil {
			b.Fatal(err)
		}
		took := make([]time.Duration, steps)
		for i := range took {
			at := time.Now()
			if err := l.step(); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(at)
		}
		b.ReportMetric(float64(median(took[steps-window:]))/float64(median(took[:window])), "end/start")

		// The worker is lost: one commit takes the run over.
		commit := median(took[steps-window:])
		manual.Advance(launch.MaxLease + time.Second)
		at := time.Now()
		claimed, err := store.Do(bg, s, store.Claim{Run: l.id, Runner: "other", Token: launch.Digest{2}, Lease: launch.DefaultLease,
			Digest: launch.Digest{1}, Source: "bench", Plan: loopPlan, Capacity: 9, Begin: true, Lost: true, Generation: l.auth.Generation})
		if err != nil || claimed.State != launch.Running {
			b.Fatal(claimed, err)
		}
		b.ReportMetric(float64(time.Since(at))/float64(commit), "resume/commit")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func median(all []time.Duration) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

var parkedPlan = &run.Plan{MaxSteps: 9, Start: "ask", Nodes: []run.Node{{Path: "ask", Kind: run.Decision, Choices: []string{"yes", "no"},
	Ask: &run.Ask{Form: []byte(`{}`), Expires: time.Hour, Default: []byte(`"no"`)}}}}

// Runs that wait for a request hold no slot, no goroutine and no timer, whatever
// their number, and the earliest of their deadlines is one row away.
func TestParkedRunsCostNothing(t *testing.T) {
	n := 0
	manual := clock.NewManual(launch.TimeOf(time.Unix(1_800_000_000, 0)))
	s := store.New(counting{openSQLite(t), &n}, store.Options{Clock: manual})
	defer s.Close()
	park := func(i int) {
		t.Helper()
		id := launch.NewRunID("bench", fmt.Sprintf("%026d", i))
		if _, err := store.Do(bg, s, store.Start{Request: launch.Request{ID: id, Workflow: "bench", Source: "bench", Digest: launch.Digest{1},
			Mode: launch.Headless, Input: []byte(`{}`), Actor: launch.Host}}); err != nil {
			t.Fatal(err)
		}
		claimed, err := store.Do(bg, s, store.Claim{Run: id, Runner: "bench", Token: launch.Digest{2}, Lease: launch.DefaultLease,
			Digest: launch.Digest{1}, Source: "bench", Plan: parkedPlan, Capacity: 1, Begin: true})
		if err != nil {
			t.Fatalf("run %d finds no slot: %v", i, err)
		}
		if _, err := store.Do(bg, s, store.Propose{Run: id, Authority: launch.Authority{Runner: "bench", Token: launch.Digest{2}, Generation: claimed.Generation},
			Plan: parkedPlan, Node: "ask", Visit: 1, Attempt: 1, Ask: &store.Ask{Title: "go?", Task: "go?"}}); err != nil {
			t.Fatal(err)
		}
	}
	cost := func() (rows, goroutines int) {
		t.Helper()
		before := n
		at, err := s.Deadline(bg)
		if err != nil || at == 0 {
			t.Fatal(at, err)
		}
		if lapsed, err := store.Do(bg, s, store.Lapse{}); err != nil || lapsed != 0 {
			t.Fatal(lapsed, err)
		}
		return n - before, runtime.NumGoroutine()
	}
	park(1)
	rows, goroutines := cost()
	const many = 1_000
	for i := 2; i <= many; i++ {
		park(i)
	}
	if r, g := cost(); r != rows || g > goroutines {
		t.Errorf("with %d parked runs a look touches %d rows with %d goroutines, with one %d and %d", many, r, g, rows, goroutines)
	}
	answered, err := store.Do(bg, s, store.Respond{Act: request.Act{Request: request.ID(launch.NewRunID("bench", fmt.Sprintf("%026d", 77)), "ask", 1, 1),
		Action: request.ActDecide, Actor: launch.Person, Key: "k", Revision: 1, Payload: []byte(`{"choice":"yes"}`), Person: "p", Channel: "c", Event: "e"}})
	if err != nil || answered.Refused != nil {
		t.Fatal(answered, err)
	}
	if all, _, err := s.Ready(bg, 9); err != nil || len(all) != 1 {
		t.Errorf("one answer makes %d runs runnable: %v", len(all), err)
	}
}
