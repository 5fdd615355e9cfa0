package scheduler_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/scheduler"
	"example.com/piworkflows/store"
)

func TestLongWorkIsClaimedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(3600*time.Second)))
		p := f.open(nil, wf)
		f.open(nil, wf) // waits for the lease to end
		id := p.start(wf, "")
		after(3600 * time.Second)
		if l := f.wantState(id, launch.Done); l.Generation != 1 {
			t.Errorf("%d claims", l.Generation)
		}
		ran.want(t, 1)
	})
}

// stubborn is code that ignores its context.
func stubborn(d time.Duration) code {
	return func(context.Context) (string, error) {
		time.Sleep(d)
		return "late", nil
	}
}

func TestStalledOwnerIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var bad, good probe
		wf := flow("w", bad.in(stubborn(60*time.Second)))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		f.open(nil, flow("w", good.in(takes(20*time.Second))))
		after(20 * time.Second) // renewed at 10 s and 20 s, until 50 s
		p.busy.Store(true)
		after(29 * time.Second)
		if l := f.wantState(id, launch.Running); l.Generation != 1 {
			t.Fatal("replaced while its lease lasts")
		}
		after(2 * time.Second)
		if l := f.wantState(id, launch.Running); l.Generation != 2 {
			t.Fatalf("generation %d at 51 s", l.Generation)
		}
		p.busy.Store(false)
		after(9 * time.Second) // the old code returns at 60 s, with an outcome
		bad.want(t, 1, launch.ErrExpired)
		if l := f.wantState(id, launch.Running); l.Generation != 2 {
			t.Fatal("the late completion changed something")
		}
		after(11 * time.Second)
		f.wantState(id, launch.Done)
		if out, _, _ := f.watch.Output(ctx, id, "a"); string(out) != `"done"` {
			t.Errorf("the output is %s", out)
		}
		good.want(t, 1)
	})
}

func TestCodeIsStoppedBeforeItsLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		var stopped time.Duration
		began := time.Now()
		wf := flow("w", ran.in(func(ctx context.Context) (string, error) {
			<-ctx.Done()
			stopped = time.Since(began)
			return "", ctx.Err()
		}))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		p.busy.Store(true)
		after(28 * time.Second)
		ran.want(t, 1, launch.ErrExpired)
		if stopped != 27*time.Second {
			t.Errorf("stopped after %v, a lease of %v without a renewal", stopped, lease)
		}
		p.busy.Store(false)
		after(5 * time.Second)
		if l := f.get(id); l.State != launch.Running || l.Generation != 2 || l.Strikes != 1 {
			t.Errorf("run is %s, generation %d, %d strikes", l.State, l.Generation, l.Strikes)
		}
		p.cancel(id)
	})
}

func TestBusyStoreDelaysOnly(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(5*time.Second)), ran.in(quick))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		p.busy.Store(true)
		after(15 * time.Second) // over the end of the node and a renewal
		ran.want(t, 1)
		p.busy.Store(false)
		after(2 * time.Second)
		if l := f.wantState(id, launch.Done); l.Generation != 1 {
			t.Errorf("%d claims", l.Generation)
		}
		ran.want(t, 2)
	})
}

func TestFrozenOwnerThatNobodyReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(400*time.Second)), ran.in(quick))
		c := newStalled()
		p := f.openWith(c, nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		after(5 * time.Second)
		c.stop()
		after(295 * time.Second)
		c.resume()
		after(time.Second)
		l := f.wantState(id, launch.Running)
		if l.Generation != 1 || l.Claim.Expiry < launch.TimeOf(time.Now()) {
			t.Errorf("generation %d, lease until %v", l.Generation, l.Claim.Expiry)
		}
		after(100 * time.Second)
		f.wantState(id, launch.Done)
		ran.want(t, 2)
	})
}

func TestSlowRenewalAfterAFreeze(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		c := newStalled()
		wf := flow("w", ran.in(takes(120*time.Second)))
		p := f.openWith(c, nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		c.stop()
		after(60 * time.Second)
		p.onUpdate.set(func() { time.Sleep(2 * time.Second) }) // of telling the store, which comes first
		c.resume()
		after(60 * time.Second)
		if l := f.wantState(id, launch.Done); l.Generation != 1 {
			t.Errorf("%d claims", l.Generation)
		}
		ran.want(t, 1)
	})
}

func TestOutcomeAfterTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		c := newStalled() // its timers do not fire, so nothing is renewed
		wf := flow("w", ran.in(takes(60*time.Second)), ran.in(quick))
		p := f.openWith(c, nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		c.stop()
		after(60 * time.Second)
		if l := f.wantState(id, launch.Done); l.Generation != 1 {
			t.Errorf("%d claims: nobody replaced the owner", l.Generation)
		}
		ran.want(t, 2)
		c.resume()
	})
}

func TestUnknownOutcomes(t *testing.T) {
	for place, at := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond} { // claim, first, last proposal
		for lies := range int64(4) {
			bubble(t, func(t *testing.T, f *file) {
				var first, second probe
				wf := flow("w", first.in(takes(time.Second)), second.in(takes(time.Second)))
				p := f.open(nil, wf)
				id := f.start(f.watch, wf, "")
				if at == 0 {
					p.lies.Store(lies)
				}
				p.Wake()
				after(at)
				p.lies.Store(max(lies, p.lies.Load()))
				after(20 * time.Second)
				if l := f.wantState(id, launch.Done); l.Strikes != 0 {
					t.Errorf("place %d, %d lies: %d strikes", place, lies, l.Strikes)
				}
				for _, n := range []*probe{&first, &second} {
					if runs, _ := n.seen(); runs < 1 || runs > 2 {
						t.Errorf("place %d, %d lies: a node ran %d times", place, lies, runs)
					}
				}
			})
		}
	}
}

func TestWhatCannotGoOnIsGivenBackAfterProgress(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.noisy.Store(true)
		var p *process
		w := engine.New[none]("w", "1")
		a := engine.Compute(w, "a", w.Input(), func(context.Context, none) (string, error) {
			p.blind.Store(true)
			return "", nil
		})
		engine.Then(a, engine.Compute(w, "b", a, func(context.Context, string) (string, error) { return "", nil }))
		wf := must(w.Build())
		p = f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Parked)
		p.blind.Store(false)
		after(time.Second)
		if l := f.wantState(id, launch.Done); l.Generation != 2 {
			t.Errorf("%d claims", l.Generation)
		}
	})
}

func TestFrozenOwnerThatWasReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var old, fresh probe
		wf := flow("w", old.in(takes(400*time.Second)))
		c := newStalled()
		p := f.openWith(c, nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		after(5 * time.Second)
		c.stop()
		f.open(nil, flow("w", fresh.in(takes(400*time.Second))))
		after(195 * time.Second)
		if l := f.wantState(id, launch.Running); l.Generation != 2 {
			t.Fatalf("generation %d", l.Generation)
		}
		c.resume()
		old.want(t, 1, launch.ErrStale)
		after(400 * time.Second)
		if l := f.wantState(id, launch.Done); l.Generation != 2 {
			t.Errorf("generation %d", l.Generation)
		}
		fresh.want(t, 1)
	})
}

func TestSleeperTakesNothingAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := flow("w", takes(time.Hour))
		owner := f.open(nil, wf)
		id := owner.start(wf, "")
		f.wantState(id, launch.Running)
		c := newStalled()
		f.openWith(c, nil, wf)
		after(time.Second)
		c.stop()
		owner.kill()
		after(300 * time.Second)
		c.resume()
		after(lease - time.Second)
		if l := f.wantState(id, launch.Running); l.Generation != 1 {
			t.Fatal("after a sleep no lease counts as ended")
		}
		after(3 * time.Second)
		if l := f.wantState(id, launch.Running); l.Generation != 2 {
			t.Fatal("nobody took it over")
		}
	})
}

func TestSleeperThatHeldOnlyItsOwnRun(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf, other := flow("w", takes(time.Hour)), flow("other", quick)
		c := newStalled()
		p := f.openWith(c, nil, wf, other)
		f.wantState(p.start(wf, ""), launch.Running)
		c.stop()
		plan := other.Plan() // claimed by a host that dies meanwhile
		lost := f.start(f.watch, other, "")
		do(t, f.watch, store.Claim{Run: lost, Runner: "dead", Token: must(f.watch.NewToken()).Hash(), Lease: lease,
			Digest: other.Digest(), Source: "test", Plan: &plan, Capacity: f.capacity, Begin: true})
		after(300 * time.Second)
		c.resume()
		synctest.Wait()
		p.Wake()
		after(lease - time.Second)
		f.wantState(lost, launch.Running)
		after(2 * time.Second)
		f.wantState(lost, launch.Done)
	})
}

func TestNothingStartsUnderALeaseThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var left time.Duration
		wf := flow("w", func(context.Context) (string, error) {
			l := must(f.watch.Claims(ctx, 9))
			left = l[0].Claim.Expiry.Sub(launch.TimeOf(time.Now()))
			return "", nil
		})
		c := newStalled() // its timers do not fire
		p := f.openWith(c, nil, wf)
		synctest.Wait()
		c.stop()
		p.onUpdate.set(func() { time.Sleep(28 * time.Second) }) // of the claim
		id := f.start(f.watch, wf, "")
		p.Wake()
		after(29 * time.Second)
		f.wantState(id, launch.Done)
		if left != lease {
			t.Errorf("its code started %v before the end of the lease", left)
		}
		c.resume()
	})
}

func TestNoProgress(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var first, second probe
		wf := flow("w", first.in(quick), second.in(takes(time.Hour)))
		die := func() { // the process that runs it dies, and a lease passes
			t.Helper()
			f.processes[0].kill()
			f.open(nil, wf)
			after(lease + time.Second)
		}
		id := f.open(nil, wf).start(wf, "")
		f.wantState(id, launch.Running)
		die() // there was progress since the launch
		f.wantState(id, launch.Running)
		die()
		if l := f.wantState(id, launch.Running); l.Generation != 3 {
			t.Fatalf("generation %d: one relaunch without progress is due", l.Generation)
		}
		die()
		after(time.Hour)
		l := f.wantState(id, launch.Parked)
		if l.Attention != launch.NoProgress || l.Generation != 3 {
			t.Fatalf("parked for %q after %d claims", l.Attention, l.Generation)
		}
		first.want(t, 1)
		p := f.processes[0]
		do(t, p.store, store.Resume{Run: id})
		if l := f.wantState(id, launch.Running); l.Generation != 4 {
			t.Fatal("a resume gives one more try")
		}
		die()
		f.wantState(id, launch.Parked)
		if a := f.processes[0].cancel(id); !a.Won {
			t.Fatalf("%+v", a)
		}
		first.want(t, 1) // committed work is not repeated
	})
}

func TestLostActivation(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var check probe
		wf := activated("w", func(ctx context.Context) error { _, err := check.in(takes(time.Hour))(ctx); return err }, quick)
		id := f.open(nil, wf).start(wf, "")
		for range 3 {
			f.wantState(id, launch.Starting)
			f.processes[0].kill()
			f.open(nil, wf)
			after(lease + time.Second)
		}
		if l := f.wantState(id, launch.Failed); l.Error.Code != launch.CodeActivationFailed || l.Generation != 3 {
			t.Errorf("%v after %d claims", l.Error, l.Generation)
		}
	})
}

func TestLostInteractiveRun(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(time.Hour)))
		p, q := f.open(nil, wf), f.open(nil, wf)
		b := p.connect("s")
		b.free()
		id := b.start(wf)
		f.wantState(id, launch.Running)
		p.kill()
		after(lease + time.Second)
		if l := f.wantState(id, launch.Parked); l.Park != launch.ParkDue {
			t.Fatalf("parked as %s", l.Park)
		}
		ran.want(t, 1, launch.ErrClosed)
		q.connect("s").free()
		f.wantState(id, launch.Running)
		ran.want(t, 2, launch.ErrClosed)
	})
}

func TestLostInteractiveRunIsTakenOverByItsHost(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := flow("w", takes(time.Hour))
		slow := activated("slow", func(ctx context.Context) error { _, err := takes(time.Hour)(ctx); return err }, quick)
		p := f.open(nil, wf, slow)
		a, b := p.connect("a"), p.connect("b")
		a.free()
		b.free()
		running, starting := a.start(wf), b.start(slow)
		f.wantState(running, launch.Running)
		f.wantState(starting, launch.Starting)
		p.kill()
		q := f.open(func(o *scheduler.Options) {
			o.Sessions = func() []launch.SessionKey { return []launch.SessionKey{a.key, b.key} }
		}, wf, slow)
		q.connect("a")         // has not reported yet, and need not
		late := q.connect("b") // so that nothing may activate there
		after(lease + time.Second)
		if kinds := f.kinds(running); f.wantState(running, launch.Running).Generation != 2 || kinds[len(kinds)-1] != "run.reattempted" {
			t.Errorf("events are %v", kinds)
		}
		if l := f.wantState(starting, launch.Queued); l.Expiries != 1 {
			t.Errorf("%d expiries", l.Expiries)
		}
		late.free()
		f.wantState(starting, launch.Starting)
	})
}

func TestLostRunOfAnotherKind(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := flow("w", takes(10*time.Second))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		p.kill()
		f.open(nil) // without the workflow
		after(lease + time.Second)
		f.wantState(id, launch.Parked)
		f.open(nil, wf)
		after(10 * time.Second)
		f.wantState(id, launch.Done)
	})
}

func TestLostRunWaitsForASlot(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		wf := flow("w", takes(40*time.Second))
		p := f.open(nil, wf)
		lost := p.start(wf, "")
		f.wantState(lost, launch.Running)
		p.kill()
		q := f.open(func(o *scheduler.Options) { o.Capacity = 1 }, wf)
		after(5 * time.Second)
		busy := q.start(wf, "")
		f.wantState(busy, launch.Queued) // the lost claim still counts
		after(lease)
		f.wantState(lost, launch.Running)
		after(80 * time.Second)
		f.wantState(lost, launch.Done)
		f.wantState(busy, launch.Done)
	})
}

func TestLostRunIsTakenOverWhenASlotGetsFree(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 2
		wf, other := flow("w", takes(100*time.Second)), flow("other", takes(100*time.Second))
		q := f.open(func(o *scheduler.Options) { o.Capacity = 1 }, wf, other)
		own := q.start(wf, "")
		f.wantState(own, launch.Running)
		p := f.open(nil, other)
		lost := p.start(other, "")
		f.wantState(lost, launch.Running)
		p.kill()
		after(99 * time.Second)
		if l := f.wantState(lost, launch.Running); l.Generation != 1 {
			t.Fatal("without a slot it stays as it is")
		}
		after(time.Second)
		if l := f.wantState(lost, launch.Running); l.Generation != 2 {
			t.Fatal("nobody took it over at once")
		}
	})
}

func TestManyRecoverers(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		wf := flow("w", ran.in(takes(time.Hour)))
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Running)
		p.kill()
		for range 16 {
			f.open(nil, wf)
		}
		after(lease + time.Second)
		if l := f.wantState(id, launch.Running); l.Generation != 2 {
			t.Errorf("generation %d", l.Generation)
		}
		ran.want(t, 2, launch.ErrClosed)
		f.kinds(id)
		synctest.Wait()
	})
}

func TestActionIsNotLost(t *testing.T) {
	// The code takes effect although it was told to stop.
	effective := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "sent", nil
	}
	count := func(all []string, kind string) (n int) {
		for _, k := range all {
			if k == kind {
				n++
			}
		}
		return n
	}
	t.Run("the host closes", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *file) {
			wf := acts("w", engine.Unrepeatable(), effective)
			p := f.open(nil, wf)
			id := p.start(wf, "")
			f.wantState(id, launch.Running)
			p.close()
			f.wantState(id, launch.Done)
		})
	})
	t.Run("a cancel wins", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *file) {
			wf := acts("w", engine.Unrepeatable(), effective)
			p := f.open(nil, wf)
			id := p.start(wf, "")
			f.wantState(id, launch.Running)
			p.cancel(id)
			f.wantState(id, launch.Cancelled)
			if all := f.kinds(id); count(all, "effect.applied") != 1 {
				t.Errorf("events are %v", all)
			}
		})
	})
	t.Run("a cancel of another process wins", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *file) {
			wf := acts("w", engine.Unrepeatable(), stubborn(5*time.Second))
			p := f.open(nil, wf)
			id := p.start(wf, "")
			f.wantState(id, launch.Running)
			do(t, f.watch, store.Cancel{Run: id, Actor: launch.Person})
			after(5 * time.Second)
			if all := f.kinds(id); count(all, "effect.applied") != 1 {
				t.Errorf("events are %v", all)
			}
		})
	})
	t.Run("an unrepeatable one that was stopped asks a person", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *file) {
			wf := acts("w", engine.Unrepeatable(), takes(time.Hour))
			p := f.open(nil, wf)
			id := p.start(wf, "")
			f.wantState(id, launch.Running)
			p.close()
			if l := f.wantState(id, launch.Parked); l.Attention != launch.EffectAmbiguous {
				t.Errorf("parked for %q", l.Attention)
			}
		})
	})
}
