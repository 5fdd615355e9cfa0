package scheduler_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

// closeWithin closes a scheduler with grace.
func (p *process) closeWithin(grace time.Duration) {
	p.file.t.Helper()
	graced, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.Close(graced); err != nil {
		p.file.t.Error(err)
	}
}

func TestCloseIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var short, long, later probe
		a, b := flow("a", short.in(takes(3*time.Second))), flow("b", long.in(takes(time.Hour)))
		p := f.open(nil, a, b)
		s := p.connect("s")
		s.free()
		first, second := p.start(a, ""), s.start(b)
		f.wantState(first, launch.Running)
		f.wantState(second, launch.Running)
		began := time.Now()
		p.closeWithin(5 * time.Second)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		f.wantState(first, launch.Done)
		if l := f.wantState(second, launch.Parked); l.Park != launch.ParkDue || l.Strikes != 0 {
			t.Errorf("parked as %s, %d strikes", l.Park, l.Strikes)
		}
		long.want(t, 1, launch.ErrClosed)
		if owed := must(f.watch.Intents(ctx, s.key)); len(owed) != 0 {
			t.Errorf("a release owes no turn: %+v", owed)
		}

		next := f.open(nil, a, flow("b", later.in(takes(time.Second))))
		next.connect("s").free()
		after(2 * time.Second)
		if l := f.wantState(second, launch.Done); l.Generation != 2 {
			t.Errorf("resumed %d times", l.Generation-1)
		}
		later.want(t, 1)
		short.want(t, 1)
	})
}

func TestCloseWaitsForTheNodeAndStartsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var first, second probe
		wf := flow("w", first.in(takes(3*time.Second)), second.in(quick))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		p.closeWithin(time.Minute)
		f.wantState(id, launch.Parked)
		second.want(t, 0)
		f.open(nil, wf)
		f.wantState(id, launch.Done)
		first.want(t, 1)
		second.want(t, 1)
	})
}

func TestCloseGivesAnActivationBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var check probe
		wf := activated("w", func(ctx context.Context) error { _, err := check.in(takes(3 * time.Second))(ctx); return err }, quick)
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Starting)
		p.close()
		if l := f.wantState(id, launch.Queued); l.Expiries != 0 {
			t.Errorf("it counts as %d lost leases", l.Expiries)
		}
		check.want(t, 1, launch.ErrClosed)
		f.open(nil, wf)
		after(3 * time.Second)
		f.wantState(id, launch.Done)
	})
}

func TestDrainingClaimsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(10*time.Second)))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		var closing sync.WaitGroup
		closing.Go(func() { p.closeWithin(time.Minute) })
		synctest.Wait()
		other := p.start(wf, "")
		p.Wake()
		f.wantState(other, launch.Queued)
		p.Nudge("nobody")
		closing.Wait()
		f.wantState(id, launch.Done)
		f.wantState(other, launch.Queued)
		f.open(nil, wf)
		after(10 * time.Second)
		f.wantState(other, launch.Done)
	})
}

func TestCloseLeavesCodeThatIgnoresIt(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := acts("w", engine.Repeatable(), ran.in(stubborn(20*time.Second)))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		began := time.Now()
		p.close()
		if took := time.Since(began); took != lease/10 {
			t.Errorf("it took %v", took)
		}
		writes := p.updates.Load()
		l := f.wantState(id, launch.Running)
		after(29 * time.Second) // the code returns with an outcome that comes too late
		if p.updates.Load() != writes {
			t.Errorf("%d writes after Close", p.updates.Load()-writes)
		}
		if now := f.wantState(id, launch.Running); now.Claim != l.Claim {
			t.Errorf("claim is %+v, was %+v", now.Claim, l.Claim)
		}
		f.open(nil, wf)
		after(22 * time.Second)
		f.wantState(id, launch.Done)
		ran.want(t, 2, launch.ErrClosed)
	})
}

func TestCloseAnyWay(t *testing.T) {
	for _, c := range []struct {
		why  string
		live bool
		do   func(p *process)
	}{
		{"at once", false, func(p *process) { p.close() }},
		{"twice", false, func(p *process) { p.close(); p.close() }},
		{"with a live claim", true, func(p *process) { p.close(); p.close() }},
		{"many times at once", true, func(p *process) {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() { p.closeWithin(time.Duration(i) * time.Second) })
			}
			all.Wait()
		}},
		{"among everything else", true, func(p *process) {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { p.Wake(); p.Nudge("s") })
				all.Go(p.close)
			}
			all.Wait()
		}},
		{"after the store", true, func(p *process) { p.killed.Store(true); p.close() }},
		{"while the store is busy", true, func(p *process) { p.busy.Store(true); p.close() }},
		{"and used afterwards", true, func(p *process) { p.close(); p.Wake(); p.Nudge("s"); p.Wake() }},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				wf := flow("w", takes(time.Hour))
				p := f.open(nil, wf)
				if c.live {
					f.wantState(p.start(wf, ""), launch.Running)
				}
				c.do(p)
				writes := p.updates.Load()
				f.start(f.watch, wf, "")
				p.Wake()
				after(time.Hour)
				if p.updates.Load() != writes {
					t.Error("it writes after Close")
				}
				if l := must(f.watch.Claims(ctx, 9)); c.live && len(l) == 1 && !p.killed.Load() && !p.busy.Load() {
					t.Error("the claim was not given back")
				}
			})
		})
	}
}
