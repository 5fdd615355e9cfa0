package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/scheduler"
	"example.com/piworkflows/store"
	"github.com/google/go-cmp/cmp"
)

func TestHeadlessRunsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := flow("w", quick, quick)
		p := f.open(nil, wf)
		id := p.start(wf, "")
		l := f.wantState(id, launch.Done)
		if l.Finished != l.Created || l.Generation != 1 {
			t.Errorf("it took %v and %d claims; nothing had to be waited for", l.Finished.Sub(l.Created), l.Generation)
		}
		want := []string{"launch.reserved", "launch.claimed", "launch.started", "run.entered",
			"run.settled", "run.entered", "run.settled", "run.ended", "launch.done"}
		if diff := cmp.Diff(want, f.kinds(id)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestInteractiveWaitsForItsBoundary(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(quick))
		p := f.open(nil, wf)
		b := p.connect("s")
		b.free()
		b.saw(session.TurnStarted{Epoch: b.epoch, Turn: "t"})
		id := b.start(wf)
		for range 3 {
			p.Nudge(b.key)
			p.Wake()
			f.wantState(id, launch.Queued)
		}
		b.saw(session.TurnSettled{Epoch: b.epoch, Turn: "t", End: session.Completed})
		ran.want(t, 0)
		for range 3 { // any number of boundary events starts it once
			b.free()
		}
		f.wantState(id, launch.Done)
		ran.want(t, 1)
	})
}

func TestInteractiveStartsAtOnceInAFreeSession(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := flow("w", quick)
		p := f.open(nil, wf)
		b := p.connect("s")
		b.free()
		f.wantState(b.start(wf), launch.Done)
	})
}

func TestOnlyTheConnectedHostActivates(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(quick))
		p, q := f.open(nil, wf), f.open(nil, wf)
		b := p.connect("s")
		id := b.start(wf) // not reported yet
		q.Nudge(b.key)
		f.wantState(id, launch.Queued)
		again := q.connect("s") // the session moves to the other host
		p.Nudge(b.key)
		f.wantState(id, launch.Queued)
		again.free()
		if f.wantState(id, launch.Done); len(f.kinds(id)) == 0 {
			t.Fatal("no events")
		}
		ran.want(t, 1)
	})
}

func TestOthersWorkIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf, other := flow("w", quick), flow("other", quick)
		p := f.open(nil, wf)
		b := p.connect("s")
		b.free()
		unknown, foreign := p.start(other, ""), b.start(other)
		mine := p.start(wf, "")
		f.wantState(mine, launch.Done)
		f.wantState(unknown, launch.Queued)
		f.wantState(foreign, launch.Queued)
		f.open(nil, other)
		f.wantState(unknown, launch.Done)
		f.wantState(foreign, launch.Queued)
	})
}

func TestOthersBacklogHidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf, other := flow("w", quick), flow("other", quick)
		for range launch.MaxList + 1 {
			f.start(f.watch, other, "")
		}
		ids := []launch.RunID{f.start(f.watch, wf, ""), f.start(f.watch, wf, "")}
		f.open(nil, wf)
		for _, id := range ids {
			f.wantState(id, launch.Done)
		}
	})
}

func TestUnreadableStoreDelaysOnly(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := flow("w", quick)
		p := f.open(nil, wf)
		b := p.connect("s")
		b.free()
		synctest.Wait()
		p.blind.Store(true)
		headless, interactive := p.start(wf, ""), b.start(wf)
		after(10 * time.Second)
		f.wantState(headless, launch.Queued)
		f.wantState(interactive, launch.Queued)
		p.blind.Store(false)
		after(time.Second)
		f.wantState(headless, launch.Done)
		f.wantState(interactive, launch.Done)
	})
}

func TestChangedDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		old, changed := flow("w", quick), flow("w", quick, quick)
		p := f.open(nil, changed)
		l := f.wantState(p.start(old, ""), launch.Failed)
		if l.Error.Code != launch.CodeSourceChanged || l.Started != 0 {
			t.Errorf("failed as %v", l.Error)
		}
	})
}

func TestActivation(t *testing.T) {
	for _, c := range []struct {
		why   string
		check func(context.Context) error
		state launch.State
		text  string
	}{
		{"passes", func(context.Context) error { return nil }, launch.Done, ""},
		{"explains why not", func(context.Context) error {
			return engine.Explain("git is missing; install it", errors.New("private"))
		}, launch.Failed, "git is missing; install it"},
		{"says nothing", func(context.Context) error { return errors.New("private") }, launch.Failed, "does not explain why"},
		{"panics", func(context.Context) error { panic("private") }, launch.Failed, "panicked"},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				var ran probe
				f.noisy.Store(true)
				wf := activated("w", c.check, ran.in(quick))
				p := f.open(nil, wf)
				l := f.wantState(p.start(wf, ""), c.state)
				if !strings.Contains(l.Error.Message, c.text) || strings.Contains(l.Error.Message, "private") {
					t.Errorf("error is %v", l.Error)
				}
				if c.state == launch.Failed {
					ran.want(t, 0)
					if l.Error.Code != launch.CodeActivationFailed {
						t.Errorf("error is %v", l.Error)
					}
				}
			})
		})
	}
}

func TestBadCodeHurtsOnlyItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		panics := flow("panics", func(context.Context) (string, error) { panic("private") })
		f.noisy.Store(true)
		exits := flow("exits", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
		wf := flow("w", quick)
		f.capacity = 1
		p := f.open(nil, panics, exits, wf)
		if l := f.wantState(p.start(panics, ""), launch.Failed); l.Error.Code != launch.CodeNodeFailed || strings.Contains(l.Error.Message, "private") {
			t.Errorf("error is %v", l.Error)
		}
		id := p.start(exits, "")
		next := p.start(wf, "")
		f.wantState(id, launch.Running)
		after(2*lease + time.Second)
		// Its claim lapsed twice without progress.
		if l := f.wantState(id, launch.Parked); l.Attention != launch.NoProgress || l.Generation != 2 {
			t.Errorf("parked for %s after %d claims", l.Attention, l.Generation)
		}
		f.wantState(next, launch.Done)
	})
}

func TestCancelInEveryState(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		var check, ran probe
		slow := activated("slow", func(ctx context.Context) error { _, err := check.in(takes(time.Hour))(ctx); return err }, ran.in(quick))
		wf := flow("w", ran.in(takes(time.Hour)))
		p := f.open(nil, slow, wf)
		starting, running := p.start(slow, ""), p.start(wf, "")
		f.wantState(starting, launch.Starting)
		f.wantState(running, launch.Running)
		queued := p.start(wf, "")
		f.wantState(queued, launch.Queued)
		if a := p.cancel(queued); !a.Won {
			t.Errorf("queued: %+v", a)
		}
		check.want(t, 1)
		ran.want(t, 1) // a run that held no slot frees none
		p.cancel(starting)
		f.wantState(starting, launch.Cancelled)
		check.want(t, 1, launch.ErrEnded)
		p.cancel(running)
		f.wantState(running, launch.Cancelled)
		ran.want(t, 1, launch.ErrEnded)
		if a := p.cancel(running); a.Won || a.State != launch.Cancelled {
			t.Errorf("twice: %+v", a)
		}
		if live := must(f.watch.Claims(ctx, 9)); len(live) != 0 {
			t.Errorf("claims are left: %+v", live)
		}
		after(time.Hour)
		ran.want(t, 1, launch.ErrEnded)
	})
}

func TestCancelByAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(time.Hour)))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		do(t, f.watch, store.Cancel{Run: id, Actor: launch.Person})
		ran.want(t, 1) // nobody told this process yet
		p.Wake()
		ran.want(t, 1, launch.ErrStale)

		id = p.start(wf, "")
		f.wantState(id, launch.Running)
		do(t, f.watch, store.Cancel{Run: id, Actor: launch.Person})
		after(launch.DefaultRenew) // the answer to the renewal tells, too
		ran.want(t, 2, launch.ErrStale, launch.ErrEnded)
	})
}

func TestCancelRightAfterTheClaim(t *testing.T) {
	for _, c := range []struct {
		why  string
		race func(p *process, cancel func(*store.Store))
	}{
		{"by another process, before the claim is looked at again", func(p *process, cancel func(*store.Store)) {
			p.onUpdate.set(func() { cancel(p.file.watch) })
		}},
		{"by this process, just then", func(p *process, cancel func(*store.Store)) {
			p.onUpdate.set(func() { p.onView.set(func() { cancel(p.store) }) })
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				var ran probe
				wf := flow("w", ran.in(quick))
				p := f.open(nil, wf)
				synctest.Wait()
				id := f.start(f.watch, wf, "")
				c.race(p, func(s *store.Store) { do(t, s, store.Cancel{Run: id, Actor: launch.Person}) })
				p.Wake()
				f.wantState(id, launch.Cancelled)
				ran.want(t, 0)
			})
		})
	}
}

func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var first, second, check probe
		wf := flow("w", first.in(takes(5*time.Second)), second.in(quick))
		slow := activated("slow", func(ctx context.Context) error { _, err := check.in(takes(5 * time.Second))(ctx); return err }, quick)
		p := f.open(nil, wf, slow)
		id, starting := p.start(wf, ""), p.start(slow, "")
		f.wantState(id, launch.Running)
		f.wantState(starting, launch.Starting)
		do(t, p.store, store.Pause{Run: id})
		do(t, p.store, store.Pause{Run: starting})
		check.want(t, 1, launch.ErrStale) // at once
		after(time.Hour)
		if l := f.wantState(id, launch.Parked); l.Park != launch.ParkPaused {
			t.Errorf("parked as %s", l.Park)
		}
		f.wantState(starting, launch.Queued)
		first.want(t, 1) // it was let finish
		second.want(t, 0)
		do(t, p.store, store.Resume{Run: id})
		do(t, p.store, store.Resume{Run: starting})
		f.wantState(id, launch.Done)
		first.want(t, 1)
		second.want(t, 1)
		after(5 * time.Second)
		f.wantState(starting, launch.Done)
	})
}

func TestCapacityOverTwoProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		var ran probe
		wf := flow("w", ran.in(takes(10*time.Second)))
		p, q := f.open(nil, wf), f.open(nil, wf)
		var ids []launch.RunID
		for i := range 20 {
			ids = append(ids, []*process{p, q}[i%2].start(wf, ""))
		}
		after(100 * time.Second)
		for _, id := range ids {
			f.wantState(id, launch.Done)
		}
		if runs, most := ran.seen(); most != 2 || runs != 20 {
			t.Errorf("%d at once, %d in all", most, runs)
		}
	})
}

func TestOneSlotOneWinner(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 1
		var ran probe
		wf := flow("w", ran.in(takes(time.Hour)))
		for range 8 {
			f.open(nil, wf)
		}
		p := f.processes[0]
		first := p.start(wf, "")
		var rest []launch.RunID
		for range 5 {
			rest = append(rest, p.start(wf, ""))
		}
		ran.want(t, 1)
		p.cancel(rest[1])
		ran.want(t, 1)
		p.cancel(first)
		f.wantState(rest[0], launch.Running) // the oldest
		if runs, _ := ran.seen(); runs != 2 {
			t.Errorf("%d executions for a slot that was taken twice", runs)
		}
	})
}

func TestKilledHostFreesItsSlots(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		wf := flow("w", takes(10*time.Second))
		p := f.open(nil, wf)
		var ids []launch.RunID
		for range 5 {
			ids = append(ids, p.start(wf, ""))
		}
		f.wantState(ids[1], launch.Running)
		p.kill()
		f.open(nil, wf)
		after(lease - time.Second)
		if l := f.wantState(ids[0], launch.Running); l.Generation != 1 {
			t.Fatal("taken over before its lease ended")
		}
		after(time.Second)
		if live := must(f.watch.Claims(ctx, 9)); len(live) != 2 || live[0].Runner == p.Runner() {
			t.Fatalf("claims are %+v", live)
		}
		after(30 * time.Second)
		for _, id := range ids {
			f.wantState(id, launch.Done)
		}
	})
}

func TestTwoSchedulersOfOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 1
		a, b := flow("a", stubborn(40*time.Second)), flow("b", quick)
		p := f.open(nil, a)
		first := p.start(a, "")
		f.wantState(first, launch.Running)
		other := must(scheduler.New(scheduler.Options{Store: p.store, Registry: must(engine.NewRegistry("test", a, b)), Capacity: 1}))
		defer other.Close(ctx)
		second := p.start(b, "")
		f.wantState(second, launch.Queued)
		after(40 * time.Second) // the slot of one is seen by the other
		f.wantState(second, launch.Done)
	})
	bubble(t, func(t *testing.T, f *file) {
		a := flow("a", stubborn(40*time.Second))
		p := f.open(nil, a)
		other := must(scheduler.New(scheduler.Options{Store: p.store, Registry: must(engine.NewRegistry("test"))}))
		defer other.Close(ctx)
		id := p.start(a, "")
		f.wantState(id, launch.Running)
		p.close()
		after(lease) // nobody says so, but a lease has ended
		f.wantState(id, launch.Parked)
		after(10 * time.Second)
	})
}

func TestCodeWithoutAClaimFillsASlot(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		var ran probe
		a, b := flow("a", ran.in(stubborn(10*time.Second))), flow("b", ran.in(takes(time.Second)))
		p := f.open(nil, a, b)
		id := p.start(a, "")
		f.wantState(id, launch.Running)
		p.cancel(id)
		var ids []launch.RunID
		for range 4 {
			ids = append(ids, p.start(b, ""))
		}
		after(3500 * time.Millisecond)
		f.wantState(ids[3], launch.Running)
		after(time.Second)
		if _, most := ran.seen(); most != 2 {
			t.Errorf("%d pieces of code at once", most)
		}
		f.wantState(ids[3], launch.Done)
		after(10 * time.Second)
	})
}

func TestBacklogBeyondOneRead(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = launch.MaxList
		wf := flow("w", quick)
		var ids []launch.RunID
		for range launch.MaxList + 2 {
			ids = append(ids, f.start(f.watch, wf, ""))
		}
		f.open(nil, wf)
		f.wantState(ids[0], launch.Done)
		f.wantState(ids[len(ids)-1], launch.Done)
	})
}

func TestBacklogDelaysNobody(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		var mu sync.Mutex
		var order []string
		wf := func(name string) *engine.Workflow {
			return flow(name, func(ctx context.Context) (string, error) {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				return takes(10 * time.Second)(ctx)
			})
		}
		many, one := wf("many"), wf("one")
		p := f.open(nil, many, one)
		for range 100 {
			p.start(many, "backlog")
		}
		after(time.Second)
		p.start(one, "other")
		after(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if i := slices.Index(order, "one"); i < 0 || i > 3 {
			t.Errorf("the other origin was served as number %d", i+1)
		}
	})
}

func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		registry := must(engine.NewRegistry("test"))
		for _, c := range []struct {
			why, want string
			o         scheduler.Options
		}{
			{"nothing", "Store", scheduler.Options{}},
			{"no registry", "Registry", scheduler.Options{Store: f.watch}},
			{"a runner that cannot be printed", "runner", scheduler.Options{Store: f.watch, Registry: registry, Runner: "a\nb"}},
			{"no capacity", "capacity", scheduler.Options{Store: f.watch, Registry: registry, Capacity: -1}},
			{"too much of it", "1000", scheduler.Options{Store: f.watch, Registry: registry, Capacity: 1001}},
			{"a lease that is too short", "lease", scheduler.Options{Store: f.watch, Registry: registry, Lease: time.Millisecond}},
			{"and too long", "lease", scheduler.Options{Store: f.watch, Registry: registry, Lease: 2 * time.Hour}},
			{"renewed too late", "half", scheduler.Options{Store: f.watch, Registry: registry, Lease: 20 * time.Second, Renew: 10 * time.Second}},
			{"never renewed", "half", scheduler.Options{Store: f.watch, Registry: registry, Renew: -1}},
		} {
			if _, err := scheduler.New(c.o); !errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.why, err)
			}
		}
		a, b := f.open(nil), f.open(func(o *scheduler.Options) { o.Runner, o.Lease = "mine", time.Second })
		if !strings.HasPrefix(a.Runner(), "host-") || b.Runner() != "mine" {
			t.Errorf("runners are %q and %q", a.Runner(), b.Runner())
		}
	})
}

func TestRestartOfMany(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 40
		var ran, fresh probe
		wf := flow("w", ran.in(takes(10*time.Second)))
		p := f.open(nil, wf)
		var ids []launch.RunID
		for i := range 40 {
			ids = append(ids, p.start(wf, fmt.Sprint("group", i%6)))
		}
		ran.want(t, 40)
		p.close() // all 40 are given back
		after(12 * time.Hour)
		f.capacity = 4
		again := flow("w", fresh.in(takes(10*time.Second)))
		f.open(nil, again)
		after(100 * time.Second)
		for _, id := range ids {
			if l := f.wantState(id, launch.Done); l.Generation != 2 {
				t.Errorf("%d claims", l.Generation)
			}
		}
		if runs, most := fresh.seen(); most != 4 || runs != 40 {
			t.Errorf("%d at once, %d executions", most, runs)
		}
	})
}
