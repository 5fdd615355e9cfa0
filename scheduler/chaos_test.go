package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/scheduler"
	"example.com/piworkflows/store"
)

// Whatever happens to runs and processes: never more claims than the capacity
// (checked after every commit), no run's code twice under one generation, and in
// the end every run has ended.
func TestChaos(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				f.capacity = 3
				random := rand.New(rand.NewPCG(seed, 7))
				work := func(ctx context.Context) (string, error) { return takes(10 * time.Second)(ctx) }
				wf := flow("w", work, work, work)
				check := activated("check", func(ctx context.Context) error { _, err := work(ctx); return err }, work)
				f.open(nil, wf, check)
				f.open(nil, wf, check)
				f.watch.Subscribe(func([]store.Event) { f.others(nil) })
				var ids []launch.RunID
				for range 250 {
					p := f.processes[random.IntN(len(f.processes))]
					var id launch.RunID
					if len(ids) > 0 {
						id = ids[random.IntN(len(ids))]
					}
					caller := p.store
					if p.busy.Load() || p.lies.Load() > 0 {
						caller = f.watch
					}
					var err error
					switch n := random.IntN(20); {
					case id == "" || n < 5:
						ids = append(ids, f.start(caller, []*engine.Workflow{wf, check}[n%2], fmt.Sprint(n)))
					case n < 7:
						_, err = store.Do(ctx, caller, store.Cancel{Run: id, Actor: launch.Person})
					case n < 9:
						_, err = store.Do(ctx, caller, store.Pause{Run: id})
					case n < 11:
						_, err = store.Do(ctx, caller, store.Resume{Run: id})
					case n == 11:
						p.kill()
						f.open(nil, wf, check)
					case n == 12:
						p.closeWithin(time.Duration(random.IntN(15)) * time.Second)
						p.kill()
						f.open(nil, wf, check)
					case n == 13:
						p.busy.Store(!p.busy.Load())
					case n == 14:
						p.lies.Store(int64(random.IntN(4)))
					default:
						after(time.Duration(random.IntN(12000)) * time.Millisecond)
					}
					if err != nil && !errors.Is(err, launch.ErrEnded) && !errors.Is(err, launch.ErrNotAllowed) && !errors.Is(err, launch.ErrBusy) {
						t.Fatal(err)
					}
				}
				for _, p := range f.processes {
					p.busy.Store(false)
					p.lies.Store(0)
				}
				for range 3 { // whatever waits for a person is resumed; nothing else keeps a run from its end
					for _, id := range ids {
						_, _ = store.Do(ctx, f.watch, store.Resume{Run: id}) // refused where it waits for nobody
					}
					after(time.Duration(len(ids)) * 30 * time.Second)
				}
				for _, id := range ids {
					if l := f.get(id); !l.State.Terminal() {
						t.Errorf("run is %s %s %s", l.State, l.Park, l.Attention)
					}
					started := 0
					for _, k := range f.kinds(id) {
						switch k {
						case "launch.claimed":
							started = 0
						case "launch.started":
							if started++; started > 1 {
								t.Errorf("started twice under one claim: %v", f.kinds(id))
							}
						}
					}
				}
			})
		})
	}
}

// Two hosts with one SQLite file on the system's clock.
func TestSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	const runs = 40
	var mu sync.Mutex
	count := map[launch.RunID]int{}
	w := engine.New[none]("w", "1")
	engine.Action(w, "a", w.Input(), func(_ context.Context, a engine.Attempt, _ none) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		count[a.Run]++
		return "", nil
	}, engine.Unrepeatable())
	wf := must(w.Build())

	done := make(chan launch.RunID, runs)
	var hosts [2]*scheduler.Scheduler
	var stores [2]*store.Store
	for i := range hosts {
		s, err := store.Open(path, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	for i := range hosts {
		h, err := scheduler.New(scheduler.Options{Store: stores[i], Registry: must(engine.NewRegistry("test", wf)), Capacity: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close(context.Background())
		hosts[i] = h
	}
	for i := range hosts {
		stop := stores[i].Subscribe(func(events []store.Event) {
			hosts[1-i].Wake()
			for _, e := range events {
				if e.Launch == launch.EvDone {
					done <- e.Run
				}
			}
		})
		defer stop()
	}
	for i := range runs {
		s := stores[i%2]
		do(t, s, store.Start{Request: request(s, wf, "")})
	}
	for range runs {
		id := <-done
		mu.Lock()
		if count[id] != 1 {
			t.Errorf("the action ran %d times", count[id])
		}
		mu.Unlock()
	}
	for _, h := range hosts {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
