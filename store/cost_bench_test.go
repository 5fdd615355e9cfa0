package store_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/internal/yardstick"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"github.com/oklog/ulid/v2"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// What commands cost besides their number a second. All figures are ratios, or
// counts, that hold on any machine.

// finished fills an empty store's file with n finished launches, each a copy of
// a real one under an older id.
func finished(path string, n int) (err error) {
	s, err := store.Open(path, store.Options{})
	if err != nil {
		return err
	}
	err = errors.Join(lifecycle(context.Background(), s, launch.Digest{1}), s.Close())
	if err != nil {
		return err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := sqlitex.ExecuteTransient(conn, "PRAGMA synchronous = OFF", nil); err != nil {
		return err
	}
	var copies []*sqlite.Stmt
	for _, t := range [...]struct{ name, key string }{
		{"workflow_run_queue", "run_id"}, {"workflow_runs", "run_id"}, {"workflow_steps", "run_id"}, {"workflow_events", "stream"},
	} {
		var rest []string
		err := sqlitex.ExecuteTransient(conn, "SELECT name FROM pragma_table_info('"+t.name+"') WHERE name <> '"+t.key+"' ORDER BY cid", &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error { rest = append(rest, stmt.ColumnText(0)); return nil },
		})
		if err != nil {
			return err
		}
		columns := strings.Join(rest, ", ")
		stmt, err := conn.Prepare(fmt.Sprintf("INSERT INTO %s (%s, %s) SELECT ?1, %s FROM %s WHERE %s = (SELECT max(run_id) FROM workflow_run_queue)",
			t.name, t.key, columns, columns, t.name, t.key))
		if err != nil {
			return err
		}
		copies = append(copies, stmt)
	}
	for done := 0; done < n-1; {
		if err := sqlitex.ExecuteTransient(conn, "BEGIN", nil); err != nil {
			return err
		}
		for end := min(n-1, done+10_000); done < end; done++ {
			var id ulid.ULID
			_ = id.SetTime(uint64(done) + 1)
			for _, stmt := range copies {
				stmt.BindBytes(1, id[:])
				if _, err := stmt.Step(); err != nil {
					return err
				}
				if err := stmt.Reset(); err != nil {
					return err
				}
			}
		}
		if err := sqlitex.ExecuteTransient(conn, "COMMIT", nil); err != nil {
			return err
		}
	}
	return sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
}

// BenchmarkGrowth compares the commands of a store that holds a million
// finished launches with those of one that holds a thousand.
func BenchmarkGrowth(b *testing.B) {
	const few, many = 1_000, 1_000_000
	arm := func(name string, n int) yardstick.Arm {
		a := storeArm(1)
		setup := a.Setup
		a.Name = name
		a.Setup = func(dir string) (func(int) error, func() error, error) {
			if err := finished(filepath.Join(dir, "store.db"), n); err != nil {
				return nil, nil, err
			}
			return setup(dir)
		}
		return a
	}
	yardstick.Compare(b, arm("thousand", few), arm("million", many))
}

// BenchmarkRecovery reports what the recovery of one launch of a thousand costs
// against one of a hundred, and with 10⁵ finished launches against none.
func BenchmarkRecovery(b *testing.B) {
	const few, many, history = 100, 1000, 100_000
	var ratios struct{ linear, history []float64 }
	files := b.TempDir()
	empty, full := filepath.Join(files, "empty.db"), filepath.Join(files, "full.db")
	if err := errors.Join(finished(empty, 1), finished(full, history)); err != nil {
		b.Fatal(err)
	}
	for range max(5, b.N) {
		a, z, h := recovery(b, empty, few), recovery(b, empty, many), recovery(b, full, many)
		ratios.linear = append(ratios.linear, z/a)
		ratios.history = append(ratios.history, h/z)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(ratios.linear), "1000/100")
	b.ReportMetric(middle(ratios.history), "history/none")
}

func middle(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }

// recovery loses n leases in the store at path and returns the seconds that the
// recovery of one took, the scan that finds them included.
func recovery(b *testing.B, path string, n int) float64 {
	c := clock.NewManual(launch.TimeOf(time.Now()))
	s, err := store.Open(path, store.Options{Clock: c})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	for i := range n {
		id, err := s.NewID()
		if err != nil {
			b.Fatal(err)
		}
		var token launch.Digest
		binary.BigEndian.PutUint64(token[:], uint64(i)+1)
		if _, _, err := begun(ctx, s, id, token); err != nil {
			b.Fatal(err)
		}
	}
	c.Advance(launch.DefaultLease + time.Second)
	began, lost := time.Now(), 0
	for {
		work, err := s.Claims(ctx, launch.MaxList)
		if err != nil {
			b.Fatal(err)
		}
		if len(work) == 0 {
			break
		}
		for _, w := range work {
			if _, err := store.Do(ctx, s, store.Recover{Run: w.Run, Generation: w.Generation}); err != nil {
				b.Fatal(err)
			}
			lost++
		}
	}
	took := time.Since(began).Seconds()
	if lost != n {
		b.Fatalf("%d launches were recovered, want %d", lost, n)
	}
	return took / float64(n)
}

// BenchmarkPure compares the rules alone with the floor's commit.
func BenchmarkPure(b *testing.B) {
	floor, err := yardstick.OpenFloor(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer floor.Close()
	var commits []float64
	for range 3000 {
		began := time.Now()
		if err := floor.Commit(); err != nil {
			b.Fatal(err)
		}
		commits = append(commits, time.Since(began).Seconds())
	}
	commit := middle(commits[1000:])

	id := launch.NewRunID("bench", ulid.Make().String())
	now := launch.Now{Wall: launch.TimeOf(time.Now())}
	l, _, err := launch.Reserve(launch.Request{ID: id, Workflow: "bench", Source: "bench", Digest: launch.Digest{1}, Mode: launch.Headless, Actor: launch.Host}, now)
	if err != nil {
		b.Fatal(err)
	}
	claim := launch.ClaimCommand{Authority: launch.Authority{Runner: "bench", Token: launch.Digest{2}}, Lease: launch.DefaultLease, Digest: launch.Digest{1}}
	owed, _, _, err := intents.Ensure(nil, newIntent(id), now.Wall)
	if err != nil {
		b.Fatal(err)
	}
	eligible := intents.MakeEligible{Facts: owed.Facts} // with its reason's redaction
	served := intents.Resolve{Resolution: intents.ByFallback, Message: "message:1"}
	for name, apply := range map[string]func() error{
		"launch":  func() error { _, _, err := launch.Apply(l, claim, now); return err },
		"intents": func() error { _, _, err := intents.Apply(owed, served, now); return err },
		"redact":  func() error { _, _, err := intents.Apply(owed, eligible, now); return err },
	} {
		var took []float64
		for range 200 {
			const n = 100
			began := time.Now()
			for range n {
				if err := apply(); err != nil {
					b.Fatal(err)
				}
			}
			took = append(took, time.Since(began).Seconds()/n)
		}
		b.ReportMetric(middle(took)/commit, name+"/commit")
		b.ReportMetric(testing.AllocsPerRun(100, func() { _ = apply() }), name+"-allocs")
	}
	b.ReportMetric(0, "ns/op")
}

func newIntent(id launch.RunID) intents.New {
	session := launch.SessionKey("bench@0123456789abcdef0123456789abcdef")
	return intents.New{
		Identity: intents.Identity{Session: session, Run: id, SourceEvent: "run:" + string(id) + ":1:failed", Cause: intents.Failed},
		Workflow: "bench", Chain: id,
		Facts: intents.Facts{Observed: intents.Observe(launch.Failed, 0), Cause: intents.Failed, Code: launch.CodeNodeFailed, Reason: "node only failed"},
	}
}

// BenchmarkBytes reports what a finished job leaves in the file, its events
// included, and how many commits it takes one caller, each with one sync.
func BenchmarkBytes(b *testing.B) {
	const jobs = 4000
	path := filepath.Join(b.TempDir(), "store.db")
	var commits atomic.Int64
	o := store.Options{SQLite: store.SQLiteOptions{Hook: func(point string) {
		if point == "after-commit" {
			commits.Add(1)
		}
	}}}
	fileSize := func() int64 { // after the checkpoint of the last close
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		return info.Size()
	}
	run := func(n int) {
		s, err := store.Open(path, o)
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			var token launch.Digest
			binary.BigEndian.PutUint64(token[:], uint64(i)+1)
			if err := lifecycle(context.Background(), s, token); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	run(0)
	before := fileSize()
	run(jobs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(fileSize()-before)/jobs, "bytes/job")
	b.ReportMetric(float64(commits.Load())/jobs, "commits/job")
}
