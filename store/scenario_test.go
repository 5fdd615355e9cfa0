package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// This file holds the stories that are no script: they race, misuse the store,
// or compare errors with each other.

// headless returns a valid headless start.
func headless(t testing.TB, s *store.Store) launch.Request {
	t.Helper()
	id, err := s.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return launch.Request{ID: launch.NewRunID("w", id), Workflow: "w", Source: "src", Digest: digestNamed("d1"), Mode: launch.Headless, Input: []byte(`{"secret":"MARK-7f3"}`), Actor: launch.Host}
}

func start(t testing.TB, s *store.Store) launch.RunID {
	t.Helper()
	r := headless(t, s)
	if _, err := store.Do(bg, s, store.Start{Request: r}); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func claimOf(id launch.RunID, token string, plan string) store.Claim {
	return store.Claim{Run: id, Runner: "A", Token: launch.DigestOf([]byte(token)), Lease: launch.DefaultLease, Digest: digestNamed("d1"),
		Source: "src", Plan: graphs[plan], Capacity: 100, Begin: true}
}

func begin(t testing.TB, s *store.Store, id launch.RunID, plan string) launch.Authority {
	t.Helper()
	c := claimOf(id, "token", plan)
	a, err := store.Do(bg, s, c)
	if err != nil {
		t.Fatal(err)
	}
	return launch.Authority{Runner: c.Runner, Token: c.Token, Generation: a.Generation}
}

func ok(id launch.RunID, a launch.Authority) store.Propose {
	return store.Propose{Run: id, Authority: a, Plan: graphs["one"], Node: "a", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte("1")}
}

// Each kind of error is provoked once. It matches its kind and no other, also
// when a caller wraps it, says what to do, and holds no private input.
func TestEveryKind(t *testing.T) {
	for _, c := range []struct {
		kind    launch.Kind
		why     string
		provoke func(t *testing.T, b *bench) error
	}{
		{launch.ErrInvalid, "an input beyond its bound", func(t *testing.T, b *bench) error {
			r := headless(t, b.store)
			r.Input = []byte(`"` + strings.Repeat("x", launch.MaxInput) + `"`)
			_, err := store.Do(bg, b.store, store.Start{Request: r})
			return err
		}},
		{launch.ErrNotAllowed, "a timer cancels", func(t *testing.T, b *bench) error {
			_, err := store.Do(bg, b.store, store.Cancel{Run: start(t, b.store), Actor: launch.Timer})
			return err
		}},
		{launch.ErrNotFound, "a run of another session", func(t *testing.T, b *bench) error {
			_, err := store.Do(bg, b.store, store.Cancel{Run: start(t, b.store), Actor: launch.Model, Session: kernelSessions[0]})
			return err
		}},
		{launch.ErrConflict, "a request key with other content", func(t *testing.T, b *bench) error {
			r := headless(t, b.store)
			r.Scope, r.RequestKey = "host", "k"
			if _, err := store.Do(bg, b.store, store.Start{Request: r}); err != nil {
				return err
			}
			r.Input = []byte(`{"secret":"MARK-7f3","n":2}`)
			_, err := store.Do(bg, b.store, store.Start{Request: r})
			return err
		}},
		{launch.ErrStale, "a forged token", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			a := begin(t, b.store, id, "one")
			a.Token = launch.DigestOf([]byte("forged"))
			_, err := store.Do(bg, b.store, ok(id, a))
			return err
		}},
		{launch.ErrAlreadyDecided, "a receipt that contradicts the first", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			a := begin(t, b.store, id, "put")
			r := store.Receipt{Run: id, Token: a.Token, Node: "put", Visit: 1, Applied: true}
			if _, err := store.Do(bg, b.store, r); err != nil {
				return err
			}
			r.Applied = false
			_, err := store.Do(bg, b.store, r)
			return err
		}},
		{launch.ErrEnded, "a result of a cancelled run", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			a := begin(t, b.store, id, "one")
			if _, err := store.Do(bg, b.store, store.Cancel{Run: id, Actor: launch.Person}); err != nil {
				return err
			}
			_, err := store.Do(bg, b.store, ok(id, a))
			return err
		}},
		{launch.ErrExpired, "a result under an ended lease", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			a := begin(t, b.store, id, "one")
			b.clock.Advance(launch.DefaultLease)
			_, err := store.Do(bg, b.store, ok(id, a))
			return err
		}},
		{launch.ErrPaused, "a claim of a paused run", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			if _, err := store.Do(bg, b.store, store.Pause{Run: id}); err != nil {
				return err
			}
			_, err := store.Do(bg, b.store, claimOf(id, "token", "one"))
			return err
		}},
		{launch.ErrSourceChanged, "a plan without the run's node", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			a := begin(t, b.store, id, "one")
			if _, err := store.Do(bg, b.store, store.Release{Run: id, Authority: a}); err != nil {
				return err
			}
			_, err := store.Do(bg, b.store, claimOf(id, "other", "put"))
			return err
		}},
		{launch.ErrUnsettledEffect, "a resume with an ambiguous effect", func(t *testing.T, b *bench) error {
			id := start(t, b.store)
			a := begin(t, b.store, id, "pay")
			p := ok(id, a)
			p.Plan, p.Node, p.Unknown = graphs["pay"], "pay", true
			if _, err := store.Do(bg, b.store, p); err != nil {
				return err
			}
			_, err := store.Do(bg, b.store, store.Resume{Run: id})
			return err
		}},
		{launch.ErrSessionBusy, "a second run of a session", func(t *testing.T, b *bench) error {
			r := headless(t, b.store)
			r.Mode, r.Session = launch.Interactive, kernelSessions[0]
			if _, err := store.Do(bg, b.store, store.Start{Request: r}); err != nil {
				return err
			}
			r.ID = headless(t, b.store).ID
			_, err := store.Do(bg, b.store, store.Start{Request: r})
			return err
		}},
		{launch.ErrOverBudget, "a second start in one turn", overBudget},
		{launch.ErrFull, "a claim without a free slot", func(t *testing.T, b *bench) error {
			c := claimOf(start(t, b.store), "token", "one")
			c.Capacity = 0
			_, err := store.Do(bg, b.store, c)
			return err
		}},
		{launch.ErrClosed, "a command after Close", func(t *testing.T, b *bench) error {
			r := headless(t, b.store)
			if err := b.store.Close(); err != nil {
				return err
			}
			_, err := store.Do(bg, b.store, store.Start{Request: r})
			return err
		}},
		{launch.ErrIncompatible, "a file that is no store", func(t *testing.T, b *bench) error {
			path := fileIn(t)
			if err := os.WriteFile(path, []byte("MARK-7f3 is not a database, however long it is"), 0o600); err != nil {
				return err
			}
			_, err := store.Open(path, store.Options{})
			return err
		}},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			for _, path := range []string{"", fileIn(t)} {
				b := newBench(path)
				err := c.provoke(t, b)
				b.close()
				for _, err := range []error{err, fmt.Errorf("the host adds this: %w", err)} {
					for _, k := range launch.Kinds() {
						if got := errors.Is(err, k); got != (k == c.kind) {
							t.Errorf("%s: %v matches %s: %v", c.why, err, k, got)
						}
					}
				}
				if err != nil && strings.Contains(err.Error(), "MARK-7f3") {
					t.Errorf("%s: the error shows private input: %v", c.why, err)
				}
			}
		})
	}
}

// overBudget lets the model start twice in the turn that tells of an end.
func overBudget(t *testing.T, b *bench) error {
	a := newActor(b)
	for _, line := range []string{
		"connect session=S1", "report session=S1", "start run=R1 session=S1", "claim run=R1 as=c1 begin", "propose claim=c1",
		"try session=S1 as=a1", "answer session=S1 attempt=a1 verdict=taken", "turn-start session=S1 turn=t1 message=m1",
		"start run=R2 session=S1", "cancel run=R2 actor=model session=S1",
	} {
		if _, err := a.do(must(splitWords(line))); err != nil {
			t.Fatal(line, err)
		}
		a.learn(b.take())
	}
	_, err := a.do(must(splitWords("start run=R3 session=S1")))
	return err
}

// Cancel and completion race for one run, many times: one of them ends it, the
// other is told how, and there is one event of the end.
func TestCancelRacesCompletion(t *testing.T) {
	for name, path := range map[string]string{"memory": "", "SQLite": fileIn(t)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(path)
			defer b.close()
			var wins [2]int
			for range 200 {
				id := start(t, b.store)
				a := begin(t, b.store, id, "one")
				var wg sync.WaitGroup
				var cancelled store.Cancellation
				var cancelErr, doneErr error
				wg.Go(func() {
					cancelled, cancelErr = store.Do(bg, b.store, store.Cancel{Run: id, Actor: launch.Person})
				})
				wg.Go(func() { _, doneErr = store.Do(bg, b.store, ok(id, a)) })
				wg.Wait()
				l, err := b.store.Launch(bg, id)
				if err != nil || cancelErr != nil {
					t.Fatal(err, cancelErr)
				}
				switch {
				case cancelled.Won && l.State == launch.Cancelled && errors.Is(doneErr, launch.ErrEnded):
					wins[0]++
				case !cancelled.Won && cancelled.State == launch.Done && l.State == launch.Done && doneErr == nil:
					wins[1]++
				default:
					t.Fatalf("run is %s; cancel: %+v; completion: %v", l.State, cancelled, doneErr)
				}
				ends := 0
				for _, e := range must(b.store.RunEvents(bg, id, 0)) {
					if e.Kind == "launch.cancelled" || e.Kind == "launch.done" {
						ends++
					}
				}
				if ends != 1 {
					t.Fatalf("run %s has %d ends", id, ends)
				}
			}
			t.Logf("cancel won %d times, completion %d times", wins[0], wins[1])
		})
	}
}

// Many claimants of one lost lease, and many starts with one key: one wins, and
// the others learn it.
func TestOneWinner(t *testing.T) {
	for name, path := range map[string]string{"memory": "", "SQLite": fileIn(t)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(path)
			defer b.close()
			id := start(t, b.store)
			begin(t, b.store, id, "one")
			b.clock.Advance(launch.DefaultLease)
			errs := together(16, func(n int) error {
				c := claimOf(id, fmt.Sprint(n), "one")
				c.Runner, c.Lost, c.Generation = fmt.Sprint("R", n), true, 1
				_, err := store.Do(bg, b.store, c)
				return err
			})
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else if !errors.Is(err, launch.ErrStale) {
					t.Errorf("a loser is told %v", err)
				}
			}
			if l := must(b.store.Launch(bg, id)); won != 1 || l.Generation != 2 {
				t.Errorf("%d of 16 took the lost lease, generation %d", won, l.Generation)
			}

			runs := make([]store.Started, 5)
			errs = together(len(runs), func(n int) (err error) {
				r := headless(t, b.store)
				r.Scope, r.RequestKey = "host", "k"
				runs[n], err = store.Do(bg, b.store, store.Start{Request: r})
				return err
			})
			created := 0
			for n := range runs {
				if errs[n] != nil || runs[n].Run != runs[0].Run {
					t.Errorf("start %d: %+v, %v", n, runs[n], errs[n])
				}
				if runs[n].Created {
					created++
				}
			}
			if created != 1 {
				t.Errorf("%d of 5 starts say that they created the run", created)
			}
		})
	}
}

func together(n int, f func(n int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

// Misuse in any order is an error or nothing at all: no panic, no write after
// Close, no goroutine that stays.
func TestMisuse(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, path := range map[string]string{"memory": "", "SQLite": fileIn(t)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(path)
			id := start(t, b.store)
			auth := begin(t, b.store, id, "one")
			frozen := must(b.dump())

			cancelled, cancel := context.WithCancel(bg)
			cancel()
			if _, err := store.Do(cancelled, b.store, store.Cancel{Run: id, Actor: launch.Person}); !errors.Is(err, context.Canceled) {
				t.Errorf("a context that has ended: %v", err)
			}
			zero := []error{
				second(store.Do(bg, b.store, store.Start{})), second(store.Do(bg, b.store, store.Claim{})), second(store.Do(bg, b.store, store.Propose{})),
				second(store.Do(bg, b.store, store.Propose{Run: id, Authority: auth})), second(store.Do(bg, b.store, store.Activate{Run: id, Authority: auth})),
				second(store.Do(bg, b.store, store.Cancel{})), second(store.Do(bg, b.store, store.Connect{})), second(store.Do(bg, b.store, store.Observe{})),
				second(store.Do(bg, b.store, store.Observe{Session: kernelSessions[0]})), second(store.Do(bg, b.store, store.Try{})),
				second(store.Do(bg, b.store, store.Answer{})), second(store.Do(bg, b.store, store.Reopen{})), second(store.Do(bg, b.store, store.Renew{Run: id})),
				second(store.Do(bg, b.store, store.Observe{Session: kernelSessions[0], Saw: session.Free{}})),
				second(b.store.Launch(bg, "")), second(b.store.Facts(bg, "x")), second(b.store.Intent(bg, "")), second(b.store.Message(bg, "\xff")), second(b.store.RunEvents(bg, "", 0)),
			}
			for n, err := range zero {
				var r *launch.Refusal
				if !errors.As(err, &r) || r.Kind == launch.ErrInternal {
					t.Errorf("misuse %d: %v", n, err)
				}
			}
			if !reflect.DeepEqual(frozen, must(b.dump())) {
				t.Error("misuse changed something")
			}

			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					r := headless(t, b.store)
					_, err := store.Do(bg, b.store, store.Start{Request: r})
					if err != nil && !errors.Is(err, launch.ErrClosed) {
						t.Errorf("a start while the store closes: %v", err)
					}
				})
			}
			if err := b.store.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if err := b.store.Close(); err != nil {
				t.Errorf("a second Close: %v", err)
			}
			for n, err := range []error{
				second(store.Do(bg, b.store, store.Renew{Run: id, Authority: auth, Lease: launch.DefaultLease})), second(b.store.Launch(bg, id)),
				second(b.store.Version(bg)), second(b.store.Claims(bg, 1)), b.store.Distrust(bg),
			} {
				if !errors.Is(err, launch.ErrClosed) {
					t.Errorf("call %d after Close: %v", n, err)
				}
			}
			if b.raw != nil {
				b.raw.Close()
			}
		})
	}
	for range 500_000 { // a goroutine that has been told to end needs a moment
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("%d goroutines stay:\n%s", runtime.NumGoroutine()-before, stacks[:runtime.Stack(stacks, true)])
}

func second[A any](_ A, err error) error { return err }

// The README of the scenarios names every one of them, and none that is not there.
func TestScenariosAreListed(t *testing.T) {
	readme, err := os.ReadFile("../testdata/scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("../testdata/scenarios/*.txt")
	for _, f := range files {
		if !strings.Contains(string(readme), "`"+filepath.Base(f)+"`") {
			t.Errorf("%s is not listed", filepath.Base(f))
		}
	}
	if got := strings.Count(string(readme), ".txt`"); got != len(files) {
		t.Errorf("the list names %d scenarios, there are %d", got, len(files))
	}
}
