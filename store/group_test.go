package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows/launch"
)

// lockFile holds the write lock of a store's file, as another process would.
func lockFile(t testing.TB, e *sqliteEngine) (unlock func()) {
	t.Helper()
	conn, err := connect(e.path)
	if err == nil {
		err = execSQL(conn, "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() { conn.Close() })
}

func TestBusy(t *testing.T) {
	e := openTemp(t, SQLiteOptions{BusyTimeout: 20 * time.Millisecond})
	unlock := lockFile(t, e)
	defer unlock()
	var wg sync.WaitGroup
	for n := range 8 { // the leader and those who wait behind it
		wg.Go(func() {
			if err := putEvent(e, context.Background(), n); !errors.Is(err, launch.ErrBusy) {
				t.Errorf("while another connection holds the lock: %v", err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := putEvent(e, ctx, 1); !errors.Is(err, launch.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a short deadline: %v", err)
	}
	unlock()
	if err := putEvent(e, context.Background(), 1); err != nil {
		t.Errorf("once the lock is free: %v", err)
	}
}

// A leader that gives up leaves the others to the next one.
func TestLeaderGivesUp(t *testing.T) {
	e := openTemp(t, SQLiteOptions{})
	unlock := lockFile(t, e)
	defer unlock()
	ctx, cancel := context.WithCancel(context.Background())
	answers := make(chan error, 3)
	go func() { answers <- putEvent(e, ctx, 1) }()
	waitFor(func() bool { return e.group.isLeading() })
	go func() { answers <- putEvent(e, ctx, 2) }() // withdraws itself
	waitFor(func() bool { return e.group.waiters() == 1 })
	go func() { answers <- putEvent(e, context.Background(), 3) }()
	waitFor(func() bool { return e.group.waiters() == 2 })
	cancel()
	for range 2 {
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled update: %v", err)
		}
	}
	unlock()
	if err := <-answers; err != nil {
		t.Errorf("the update behind them: %v", err)
	}
	if hasEvent(t, e, 1) || hasEvent(t, e, 2) || !hasEvent(t, e, 3) {
		t.Error("what is there does not agree with the answers")
	}
}

func (g *group) isLeading() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.leading }
func (g *group) waiters() int    { g.mu.Lock(); defer g.mu.Unlock(); return len(g.waiting) }

func waitFor(ready func() bool) {
	for !ready() {
		runtime.Gosched()
	}
}

// A group is one transaction, and its members' refusals are their own.
func TestGroupIsOneTransaction(t *testing.T) {
	commits := 0
	e := openTemp(t, SQLiteOptions{Hook: func(point string) {
		if point == "after-commit" {
			commits++
		}
	}})
	release, begun := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = e.Update(context.Background(), func(Rows) error { close(begun); <-release; return nil })
	})
	<-begun
	refused := errors.New("refused")
	for n := range 40 {
		wg.Go(func() {
			err := e.Update(context.Background(), func(rows Rows) error {
				if n%4 == 0 {
					return refused
				}
				return rows.Put(nil, eventN(n))
			})
			if n%4 == 0 && err != refused || n%4 != 0 && err != nil {
				t.Errorf("update %d: %v", n, err)
			}
		})
	}
	waitFor(func() bool { return e.group.waiters() == 40 })
	close(release)
	wg.Wait()
	if commits != 2 {
		t.Errorf("%d commits, want 2: one caller alone and 40 together", commits)
	}
	for n := range 40 {
		if hasEvent(t, e, n) != (n%4 != 0) {
			t.Errorf("update %d does not agree with its answer", n)
		}
	}
}

// An update whose context ends at any moment either happened and says so, or
// did not and can be repeated.
func TestCancelAtAnyMoment(t *testing.T) {
	e := openTemp(t, SQLiteOptions{})
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for i := range 30 {
				n := c*1000 + i
				ctx, cancel := context.WithCancel(context.Background())
				after := random.IntN(40)
				go func() {
					for range after {
						runtime.Gosched()
					}
					cancel()
				}()
				switch err := putEvent(e, ctx, n); {
				case err == nil:
				case !errors.Is(err, context.Canceled):
					t.Errorf("update %d: %v", n, err)
				default:
					if err := putEvent(e, context.Background(), n); err != nil {
						t.Errorf("update %d was cancelled, and repeating it gives %v", n, err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for c := range 16 {
		for i := range 30 {
			if n := c*1000 + i; !hasEvent(t, e, n) {
				t.Errorf("update %d is missing", n)
			}
		}
	}
}

// A function that ends its goroutine, as t.FailNow does, harms nobody else.
func TestGoexit(t *testing.T) {
	e := openTemp(t, SQLiteOptions{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = e.Update(context.Background(), func(rows Rows) error {
			_ = rows.Put(nil, eventN(1))
			runtime.Goexit()
			return nil
		})
	})
	wg.Wait()
	if err := putEvent(e, context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	if hasEvent(t, e, 1) || !hasEvent(t, e, 2) {
		t.Error("the transaction of the lost goroutine was kept, or the next one not")
	}
}
