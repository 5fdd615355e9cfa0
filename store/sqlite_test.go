package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"zombiezen.com/go/sqlite"
)

func openAt(t testing.TB, path string, o SQLiteOptions) *sqliteEngine {
	t.Helper()
	e, err := OpenSQLite(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e.(*sqliteEngine)
}

func openTemp(t testing.TB, o SQLiteOptions) *sqliteEngine {
	return openAt(t, filepath.Join(t.TempDir(), "store.db"), o)
}

// eventN is a small row, the n-th of one stream.
func eventN(n int) *eventRow { return &eventRow{Stream: [16]byte{1}, N: uint64(n)} }

func putEvent(e Engine, ctx context.Context, n int) error {
	return e.Update(ctx, func(rows Rows) error { return rows.Put(nil, eventN(n)) })
}

func hasEvent(t testing.TB, e Engine, n int) (found bool) {
	t.Helper()
	err := e.View(context.Background(), func(rows Rows) (err error) {
		found, err = rows.Get(eventN(n))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The outcome of a COMMIT whose answer was lost is read back.
func TestLostCommit(t *testing.T) {
	lost := sqlite.ResultIOErr.ToError()
	for _, c := range []struct {
		name  string
		fault func(e *sqliteEngine, err error) error
		want  error
		there bool
	}{
		{"it took place", func(*sqliteEngine, error) error { return lost }, nil, true},
		{"it did not", nil, launch.ErrInternal, false},
		{"nobody can tell", func(e *sqliteEngine, err error) error {
			e.path += ".gone"
			return lost
		}, launch.ErrOutcomeUnknown, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := openTemp(t, SQLiteOptions{BusyTimeout: time.Second})
			path := e.path
			if c.fault == nil { // SQLite rolled back by itself
				e.o.Hook = func(point string) {
					if point == "before-commit" {
						if err := execSQL(e.writer.rows.conn, "ROLLBACK"); err != nil {
							t.Error(err)
						}
					}
				}
			} else {
				e.commitFault = func(err error) error { return c.fault(e, err) }
			}
			err := putEvent(e, context.Background(), 1)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("the answer is %v, want %v", err, c.want)
			}
			e.path, e.o.Hook, e.commitFault = path, nil, nil
			if hasEvent(t, e, 1) != c.there {
				t.Errorf("the row is there: %v", !c.there)
			}
			if err := putEvent(e, context.Background(), 2); err != nil {
				t.Errorf("the next update: %v", err)
			}
		})
	}
}

// An update whose transaction SQLite ended is never half there.
func TestFull(t *testing.T) {
	e := openTemp(t, SQLiteOptions{MaxPages: 60})
	var full error
	kept := 0
	for n := 0; n < 1000 && full == nil; n++ {
		full = e.Update(context.Background(), func(rows Rows) error {
			r := eventN(2 * n)
			r.Facts = string(make([]byte, 6000))
			return errors.Join(rows.Put(nil, eventN(2*n+1)), rows.Put(nil, r))
		})
		if full == nil {
			kept++
		}
	}
	if !errors.Is(full, launch.ErrFull) {
		t.Fatalf("the answer is %v", full)
	}
	for n := range kept + 1 {
		if a, b := hasEvent(t, e, 2*n), hasEvent(t, e, 2*n+1); a != (n < kept) || b != a {
			t.Errorf("update %d of %d: its rows are there: %v, %v", n, kept, a, b)
		}
	}
	small := 0
	var wg sync.WaitGroup
	var mu sync.Mutex
	for n := range 64 { // in groups of which a member fails
		wg.Go(func() {
			err := e.Update(context.Background(), func(rows Rows) error {
				r := eventN(10000 + n)
				if n%8 == 0 {
					r.Facts = string(make([]byte, 100_000))
				}
				return rows.Put(nil, r)
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				small++
			} else if !errors.Is(err, launch.ErrFull) {
				t.Errorf("update %d: %v", n, err)
			}
			if hasEvent(t, e, 10000+n) != (err == nil) {
				t.Errorf("update %d answers %v, which is not what is there", n, err)
			}
		})
	}
	wg.Wait()
	if small == 0 {
		t.Error("nothing small fitted any more")
	}
}

// A view waits for a free connection as long as its context allows, and hurts
// nobody by what happens in it.
func TestReadersAreBounded(t *testing.T) {
	e := openTemp(t, SQLiteOptions{Readers: 1})
	err := e.View(context.Background(), func(Rows) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.View(ctx, func(Rows) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a view without a connection: %v", err)
		}
		return putEvent(e, context.Background(), 1) // updates need none
	})
	if err != nil {
		t.Fatal(err)
	}
	if !hasEvent(t, e, 1) { // the next view sees the present
		t.Error("a view keeps seeing the past")
	}
}

// A row that was updated tells as well as an inserted one whether a commit took
// place.
func TestLostCommitOfUpdate(t *testing.T) {
	e := openTemp(t, SQLiteOptions{})
	if err := putEvent(e, context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	update := func(at launch.Time) error {
		return e.Update(context.Background(), func(rows Rows) error {
			old, now := eventN(1), eventN(1)
			if _, err := rows.Get(old); err != nil {
				return err
			}
			now.At = at
			return rows.Put(old, now)
		})
	}
	e.commitFault = func(error) error { return sqlite.ResultIOErr.ToError() }
	if err := update(7); err != nil {
		t.Errorf("it took place, and the answer is %v", err)
	}
	e.commitFault = nil
	e.o.Hook = func(point string) {
		if point == "before-commit" {
			_ = execSQL(e.writer.rows.conn, "ROLLBACK")
		}
	}
	if err := update(8); !errors.Is(err, launch.ErrInternal) {
		t.Errorf("it did not take place, and the answer is %v", err)
	}
}

func TestCloseFreesEverything(t *testing.T) {
	fds := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no list of descriptors on this system")
		}
		return len(entries)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	openAt(t, path, SQLiteOptions{}).Close()
	goroutines, open := runtime.NumGoroutine(), fds()
	for range 3 {
		e := openAt(t, path, SQLiteOptions{})
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() { _ = putEvent(e, context.Background(), n); hasEvent(t, e, n) })
		}
		wg.Wait()
		began, finish := make(chan bool), make(chan bool)
		wg.Go(func() {
			err := e.Update(context.Background(), func(Rows) error { close(began); <-finish; return nil })
			if err != nil {
				t.Errorf("an update that has begun: %v", err)
			}
		})
		<-began
		closed := make(chan bool)
		go func() { e.Close(); close(closed) }()
		waitFor(func() bool { return e.group.enter() != nil || func() bool { e.group.leave(); return false }() })
		close(finish)
		wg.Wait()
		<-closed
	}
	waitFor(func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := fds(); n > open {
		t.Errorf("%d descriptors are open, %d were before", n, open)
	}
}

// sampleLaunch returns the n-th of many valid launches.
func sampleLaunch(n int) *launchRow {
	var id ulid.ULID
	_ = id.SetTime(uint64(n))
	r := &launchRow{}
	r.ID = launch.NewRunID("w", id.String())
	r.Chain, r.Workflow, r.Source, r.Mode, r.State = r.ID, "w", "source", launch.Headless, launch.Queued
	r.Digest = launch.DigestOf(id[:])
	r.Content, r.Input = r.Digest, []byte(`{"n":1}`)
	r.Scope, r.RequestKey = "scope", id.String()
	r.Created, r.Updated, r.Ready = 1, 1, launch.Time(n)
	return r
}

// The insert of a launch, by one caller and by 64.
func BenchmarkUpdate(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			e := openTemp(b, SQLiteOptions{})
			b.ReportAllocs()
			var n atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						r := sampleLaunch(int(i))
						if err := e.Update(context.Background(), func(rows Rows) error { return rows.Put(nil, r) }); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkGet(b *testing.B) {
	e := openTemp(b, SQLiteOptions{})
	r := sampleLaunch(1)
	if err := e.Update(context.Background(), func(rows Rows) error { return rows.Put(nil, r) }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	err := e.View(context.Background(), func(rows Rows) error {
		for b.Loop() {
			got := &launchRow{}
			got.ID = r.ID
			if _, err := rows.Get(got); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// What the writer remembers of rows is what a read would find.
func TestCacheIsInvisible(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	ours, theirs := openAt(t, path, SQLiteOptions{}), openAt(t, path, SQLiteOptions{})
	get := func(e Engine) (l launchRow) {
		t.Helper()
		l.ID = sampleLaunch(1).ID
		if err := e.Update(context.Background(), func(rows Rows) error { _, err := rows.Get(&l); return err }); err != nil {
			t.Fatal(err)
		}
		return l
	}
	change := func(e Engine, fails error, f func(l *launchRow)) {
		t.Helper()
		old := get(e)
		err := e.Update(context.Background(), func(rows Rows) error {
			l := old
			f(&l)
			return errors.Join(rows.Put(&old, &l), fails)
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
	}
	if err := ours.Update(context.Background(), func(rows Rows) error { return rows.Put(nil, sampleLaunch(1)) }); err != nil {
		t.Fatal(err)
	}
	mutable := get(ours)
	mutable.Input[0] = 'x' // what was handed out is the caller's
	mutable.Digest[0]++
	for n := launch.Time(1); n < 4; n++ {
		for _, e := range []Engine{ours, theirs} { // another process's commit is seen
			change(e, nil, func(l *launchRow) { l.Updated += n })
		}
		change(ours, errors.New("too late"), func(l *launchRow) { l.Updated = -1 }) // a rolled back put is not
	}
	want := sampleLaunch(1)
	want.Updated += 2 * (1 + 2 + 3)
	for _, e := range []Engine{ours, theirs} {
		if d := cmp.Diff(*want, get(e)); d != "" {
			t.Error(d)
		}
	}
	change(ours, nil, func(l *launchRow) { l.Input = make([]byte, maxCachedBytes+1) }) // too long to remember
	if got := get(ours).Input; len(got) != maxCachedBytes+1 {
		t.Errorf("a long row reads back with %d bytes of input", len(got))
	}
}

// The rows that are remembered are bounded, and more than that are all found.
func TestCacheIsBounded(t *testing.T) {
	e := openTemp(t, SQLiteOptions{})
	const n = 5 * cacheSets * cacheWays
	err := e.Update(context.Background(), func(rows Rows) error {
		for i := range n {
			if err := rows.Put(nil, sampleLaunch(i)); err != nil {
				return err
			}
		}
		for i := range n {
			got := &launchRow{}
			got.ID = sampleLaunch(i).ID
			if found, err := rows.Get(got); err != nil || !found || !cmp.Equal(got, sampleLaunch(i)) {
				return fmt.Errorf("row %d: found %v, %v", i, found, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
