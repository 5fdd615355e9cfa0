package scheduler_test

import (
	"context"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine"
	requests "example.com/piworkflows/engine/request"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/scheduler"
	"example.com/piworkflows/store"
)

// counted is an engine that counts what is asked of it.
type counted struct {
	store.Engine
	calls atomic.Int64
}

func (e *counted) Update(ctx context.Context, fn func(store.Rows) error) error {
	e.calls.Add(1)
	return e.Engine.Update(ctx, fn)
}

func (e *counted) View(ctx context.Context, fn func(store.Rows) error) error {
	e.calls.Add(1)
	return e.Engine.View(ctx, fn)
}

// parked is what runs that wait cost, and what one answer among them does.
type parked struct {
	Goroutines, Timers int
	Idle               int64 // calls of the store in an hour
	Answer             int64 // calls of the store for one answer and all that follows
}

// park lets runs of a workflow wait on one host with one SQLite file, and says
// what that costs.
func park(t *testing.T, wf *engine.Workflow, runs int) (cost parked) {
	path := filepath.Join(t.TempDir(), "store.db")
	synctest.Test(t, func(t *testing.T) {
		e := &counted{Engine: must(store.OpenSQLite(path, store.SQLiteOptions{}))}
		c := newTimers(clock.System())
		s := store.New(e, store.Options{Clock: c})
		defer s.Close()
		h := must(scheduler.New(scheduler.Options{Store: s, Registry: must(engine.NewRegistry("test", wf))}))
		defer h.Close(ctx)
		var last launch.RunID
		for range runs {
			last = do(t, s, store.Start{Request: request(s, wf, "")}).Run
			synctest.Wait()
		}
		q := must(s.Request(ctx, requests.ID(last, "ask", 1, 1)))
		before := e.calls.Load()
		after(time.Hour)
		cost = parked{Goroutines: runtime.NumGoroutine(), Timers: len(c.left()), Idle: e.calls.Load() - before}
		before = e.calls.Load()
		do(t, s, store.Respond{Act: requests.Act{Request: q.ID, Action: requests.ActDecide, Actor: launch.Person, Key: "k",
			Revision: q.Revision, Payload: []byte(`{"choice":"no"}`), Person: "p", Channel: "c", Event: "e"}})
		synctest.Wait()
		cost.Answer = e.calls.Load() - before
		if l := must(s.Launch(ctx, last)); l.State != launch.Done {
			t.Errorf("the run that was answered is %s", l.State)
		}
	})
	return cost
}

// Runs that wait for an answer cost nothing while they wait, however many there
// are: no goroutine, no timer and no look at the store for each. All deadlines
// together take one timer, and a look a minute. The number is what the store can
// park in a few seconds.
func TestManyParkedRuns(t *testing.T) {
	for _, c := range []struct {
		why          string
		wf           *engine.Workflow
		timers, idle int64
	}{
		{"without a deadline", decision("forever", 0, quick), 0, 0},
		{"with one", decision("dated", 30*24*time.Hour, quick, byDefault), 1, 2 * 60},
	} {
		t.Run(c.why, func(t *testing.T) {
			many := 3000
			if testing.Short() {
				many = 300
			}
			one, all := park(t, c.wf, 1), park(t, c.wf, many)
			if one != all {
				t.Errorf("%d runs cost %+v, one costs %+v", many, all, one)
			}
			if int64(all.Timers) != c.timers || all.Idle != c.idle {
				t.Errorf("%d timers and %d calls an hour, want %d and %d", all.Timers, all.Idle, c.timers, c.idle)
			}
		})
	}
}
