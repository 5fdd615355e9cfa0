package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine"
	requests "example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// verdict is what is decided.
type verdict string

func (verdict) Choices() []verdict { return []verdict{"yes", "no"} }

// decision is a workflow of one decision that says yes when it expires, and of
// code after it.
func decision(name string, expires time.Duration, f code, opts ...engine.Option) *engine.Workflow {
	w := engine.New[none](name, "1")
	if expires > 0 {
		opts = append(opts, engine.Expires(expires))
	}
	d := engine.Decide[verdict](w, "ask", w.Input(), func(context.Context, none) (engine.Presentation, error) {
		return engine.Presentation{Title: "Go on?", Text: "There is more."}, nil
	}, opts...)
	then := engine.Compute(w, "then", w.Input(), func(ctx context.Context, _ none) (string, error) { return f(ctx) })
	engine.Then(d, then)
	return must(w.Build())
}

var byDefault = engine.Default(verdict("yes"))

// asked returns the request of a run's first attempt at a node.
func (f *file) asked(id launch.RunID, node string) requests.Request {
	f.t.Helper()
	synctest.Wait()
	return must(f.watch.Request(ctx, requests.ID(id, node, 1, 1)))
}

// answer carries a person's answer to a request.
func (f *file) answer(s *store.Store, q requests.Request, action requests.Action, payload string) store.Response {
	f.t.Helper()
	return do(f.t, s, store.Respond{Act: requests.Act{Request: q.ID, Action: action, Actor: launch.Person, Key: must(s.NewID()),
		Revision: q.Revision, Payload: []byte(payload), Person: "p", Channel: "c", Event: must(s.NewID())}})
}

func (f *file) count(id launch.RunID, kind string) (n int) {
	f.t.Helper()
	for _, k := range f.kinds(id) {
		if k == kind {
			n++
		}
	}
	return n
}

// timers is a clock that knows the timers that are armed.
type timers struct {
	clock.Clock
	mu    sync.Mutex
	armed map[*alarm]launch.Mono
}

type alarm struct {
	clock.Timer
	of *timers
}

func newTimers(c clock.Clock) *timers { return &timers{Clock: c, armed: map[*alarm]launch.Mono{}} }

func (c *timers) AfterFunc(d time.Duration, f func()) clock.Timer {
	_, now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{of: c}
	a.Timer = c.Clock.AfterFunc(d, func() { c.forget(a); f() })
	c.armed[a] = now.Add(d)
	return a
}

func (c *timers) forget(a *alarm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.armed, a)
}

func (a *alarm) Stop() bool {
	a.of.forget(a)
	return a.Timer.Stop()
}

// left returns in how long the armed timers fire, the earliest first.
func (c *timers) left() (all []time.Duration) {
	_, now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.armed {
		all = append(all, at.Sub(now))
	}
	slices.Sort(all)
	return all
}

func TestOneTimerForTheEarliestDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		late, soon, mid := decision("late", 40*time.Second, quick, byDefault), decision("soon", 10*time.Second, quick, byDefault), decision("mid", 20*time.Second, quick)
		c := newTimers(clock.System())
		p := f.openWith(c, nil, late, soon, mid)
		wantTimers := func(why string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := c.left(); !slices.Equal(got, want) {
				t.Errorf("%s: timers are armed for %v, want %v", why, got, want)
			}
		}
		wantTimers("nothing waits")
		first := p.start(late, "")
		wantTimers("one request", 40*time.Second)
		second, third := p.start(soon, ""), p.start(mid, "")
		wantTimers("an earlier one", 10*time.Second)
		after(10*time.Second - time.Millisecond)
		f.wantState(second, launch.Parked)
		after(time.Millisecond)
		f.wantState(second, launch.Done)
		wantTimers("the next one", 10*time.Second)
		after(10 * time.Second)
		if l := f.wantState(third, launch.Failed); l.Error.Code != launch.CodeRequestExpired {
			t.Errorf("without a default it failed as %v", l.Error)
		}
		wantTimers("the last one", 20*time.Second)
		f.answer(p.store, f.asked(first, "ask"), requests.ActDecide, `{"choice":"no"}`)
		f.wantState(first, launch.Done)
		after(time.Minute)
		wantTimers("all are answered")
	})
}

// Whichever of two hosts lives applies the default, at its time and once.
func TestDefaultIsAppliedOnce(t *testing.T) {
	for _, c := range []struct {
		why  string
		kill int // which host is killed before; -1 = none
	}{
		{"both hosts live", -1},
		{"the host that asked is dead", 0},
		{"the other host is dead", 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				var ran probe
				wf := decision("w", 10*time.Second, ran.in(quick), byDefault)
				hosts := []*process{f.open(nil, wf), f.open(nil, wf)}
				id := hosts[0].start(wf, "")
				f.wantState(id, launch.Parked)
				if c.kill >= 0 {
					hosts[c.kill].kill()
				}
				after(10*time.Second - time.Millisecond)
				f.wantState(id, launch.Parked)
				after(time.Millisecond)
				f.wantState(id, launch.Done)
				ran.want(t, 1)
				q := f.asked(id, "ask")
				if q.State != requests.Accepted || q.By.Actor != launch.Timer || q.Settled != q.Deadline || f.count(id, "request.accepted") != 1 {
					t.Errorf("it was %s by %s %v after its deadline: %v", q.State, q.By.Actor, q.Settled.Sub(q.Deadline), f.kinds(id))
				}
			})
		})
	}
}

func TestDeadlineThatPassedWhileNoHostRan(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf, open := decision("w", 10*time.Second, quick, byDefault), decision("open", 3*time.Hour, quick)
		p := f.open(nil, wf, open)
		id, other := p.start(wf, ""), p.start(open, "")
		f.wantState(id, launch.Parked)
		f.wantState(other, launch.Parked)
		p.kill()
		after(time.Hour)
		f.wantState(id, launch.Parked)
		f.open(nil, wf, open)
		f.wantState(id, launch.Done) // at once
		if q := f.asked(id, "ask"); q.By.Actor != launch.Timer || q.Settled.Sub(q.Deadline) != time.Hour-10*time.Second {
			t.Errorf("it was answered by %s %v after its deadline", q.By.Actor, q.Settled.Sub(q.Deadline))
		}
		f.wantState(other, launch.Parked)
	})
}

// A store that cannot be written when a deadline passes delays it only.
func TestDeadlineWhileTheStoreIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		wf := decision("w", 10*time.Second, quick, byDefault)
		p := f.open(nil, wf)
		id := p.start(wf, "")
		f.wantState(id, launch.Parked)
		p.busy.Store(true)
		after(15 * time.Second)
		f.wantState(id, launch.Parked)
		p.busy.Store(false)
		after(time.Second)
		f.wantState(id, launch.Done)
	})
}

// shifted is a clock whose wall time a test moves.
type shifted struct {
	clock.Clock
	mu sync.Mutex
	by time.Duration
}

func (c *shifted) Now() (launch.Time, launch.Mono) {
	wall, mono := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return wall.Add(c.by), mono
}

func (c *shifted) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += d
}

// Nothing passes for one lease length after the wall clock jumped; then the new
// time counts (rule launch/clock).
func TestDeadlineAndAClockThatJumps(t *testing.T) {
	for _, c := range []struct {
		why           string
		jump, back    time.Duration
		parked, other time.Duration // after the jump: still open, and decided
	}{
		{"forward over the deadline", 2 * time.Hour, 0, lease - time.Second, lease + time.Minute},
		{"forward, and back in time", 2 * time.Hour, -2 * time.Hour, time.Hour - 2*time.Minute, time.Hour + lease},
		{"backward", -2 * time.Hour, 0, 3*time.Hour - 2*time.Minute, 3*time.Hour + lease},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				wf := decision("w", time.Hour, quick, byDefault)
				wall := &shifted{Clock: clock.System()}
				p := f.openWith(wall, nil, wf)
				id := p.start(wf, "")
				f.wantState(id, launch.Parked)
				after(time.Second)
				wall.jump(c.jump)
				began := time.Now()
				p.Wake() // by chance just then
				after(10 * time.Second)
				wall.jump(c.back)
				after(c.parked - time.Since(began))
				f.wantState(id, launch.Parked)
				after(c.other - time.Since(began))
				f.wantState(id, launch.Done)
			})
		})
	}
	t.Run("a host that slept", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *file) {
			wf := decision("w", 10*time.Second, quick, byDefault)
			c := newStalled()
			p := f.openWith(c, nil, wf)
			id := p.start(wf, "")
			f.wantState(id, launch.Parked)
			c.stop()
			after(time.Hour)
			c.resume()
			after(lease - time.Second) // a person may have answered on another host
			f.wantState(id, launch.Parked)
			after(2 * time.Second)
			f.wantState(id, launch.Done)
		})
	})
}

func TestDeclaredBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 1
		var mu sync.Mutex
		var tries []time.Duration
		began := time.Now()
		w := engine.New[none]("retried", "1")
		engine.Compute(w, "a", w.Input(), func(context.Context, none) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if tries = append(tries, time.Since(began)); len(tries) < 4 {
				return "", engine.Explain("not yet", errors.New("private"))
			}
			return "done", nil
		}, engine.Retry(3, 10*time.Second, engine.Failed))
		wf, other := must(w.Build()), flow("other", quick)
		f.noisy.Store(true)
		p := f.open(nil, wf, other)
		id := p.start(wf, "")
		if l := f.wantState(id, launch.Parked); l.Park != launch.ParkWaiting {
			t.Errorf("between tries it is parked as %s", l.Park)
		}
		f.wantState(p.start(other, ""), launch.Done) // it holds no slot
		after(15 * time.Second)                      // the second try is over
		p.kill()
		f.open(nil, wf, other)
		after(55 * time.Second)
		f.wantState(id, launch.Done)
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second}; !slices.Equal(tries, want) {
			t.Errorf("it was tried after %v, want %v", tries, want)
		}
	})
}

func TestBudgetOfCode(t *testing.T) {
	for _, c := range []struct {
		why   string
		build func(w *engine.Builder[none], f code)
		state launch.State
	}{
		{"a computation times out", func(w *engine.Builder[none], f code) {
			engine.Compute(w, "a", w.Input(), func(ctx context.Context, _ none) (string, error) { return f(ctx) }, engine.Budget(10*time.Second))
		}, launch.Failed},
		{"an action that may be repeated too", func(w *engine.Builder[none], f code) {
			engine.Action(w, "a", w.Input(), func(ctx context.Context, _ engine.Attempt, _ none) (string, error) { return f(ctx) }, engine.Repeatable(), engine.Budget(10*time.Second))
		}, launch.Failed},
		{"another may have happened", func(w *engine.Builder[none], f code) {
			engine.Action(w, "a", w.Input(), func(ctx context.Context, _ engine.Attempt, _ none) (string, error) { return f(ctx) }, engine.Unrepeatable(), engine.Budget(10*time.Second))
		}, launch.Parked},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *file) {
				f.noisy.Store(true)
				var cause error
				var took time.Duration
				w := engine.New[none]("w", "1")
				c.build(w, func(ctx context.Context) (string, error) {
					began := time.Now()
					<-ctx.Done()
					took, cause = time.Since(began), context.Cause(ctx)
					return "", ctx.Err()
				})
				wf := must(w.Build())
				p := f.open(nil, wf)
				id := p.start(wf, "")
				f.wantState(id, launch.Running)
				after(10 * time.Second)
				l := f.wantState(id, c.state)
				if took != 10*time.Second || !errors.Is(cause, engine.ErrBudget) {
					t.Errorf("it was stopped after %v for %v", took, cause)
				}
				if c.state == launch.Failed && l.Error.Code != launch.CodeTimedOut || c.state == launch.Parked && l.Attention != launch.EffectAmbiguous {
					t.Errorf("it is %s %s %v", l.State, l.Attention, l.Error)
				}
			})
		})
	}
	t.Run("what a lost host ran is run again as an attempt of its own", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *file) {
			f.noisy.Store(true)
			var ran probe
			w := engine.New[none]("w", "1")
			engine.Compute(w, "a", w.Input(), func(ctx context.Context, _ none) (string, error) { return ran.in(takes(time.Hour))(ctx) }, engine.Budget(20*time.Second))
			wf := must(w.Build())
			p := f.open(nil, wf)
			id := p.start(wf, "")
			after(5 * time.Second)
			p.kill()
			f.open(nil, wf)
			after(lease - 5*time.Second + 20*time.Second - time.Millisecond)
			ran.want(t, 2, launch.ErrClosed)
			f.wantState(id, launch.Running)
			after(time.Millisecond)
			if l := f.wantState(id, launch.Failed); l.Error.Code != launch.CodeTimedOut {
				t.Errorf("it failed as %v", l.Error)
			}
		})
	})
}

// checked is a workflow of a checkpoint whose answer is judged by code.
func checked(name string, judge func(ctx context.Context) error) *engine.Workflow {
	w := engine.New[none](name, "1")
	engine.Checkpoint[none](w, "ask", w.Input(), func(context.Context, none) (string, error) { return "Well?", nil },
		engine.Validate(func(ctx context.Context, _ none) error { return judge(ctx) }))
	return must(w.Build())
}

func TestValidationNeedsASlot(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		f.capacity = 1
		var judged probe
		wf, long := checked("w", func(ctx context.Context) error { _, err := judged.in(takes(3 * time.Second))(ctx); return err }), flow("long", takes(time.Minute))
		p := f.open(nil, wf, long)
		id := p.start(wf, "")
		f.wantState(id, launch.Parked)
		f.wantState(p.start(long, ""), launch.Running)
		if got := f.answer(p.store, f.asked(id, "ask"), requests.ActAnswer, `{}`); got.Outcome != requests.Started {
			t.Errorf("the answer came to %s", got.Outcome)
		}
		after(59 * time.Second)
		judged.want(t, 0)
		if q := f.asked(id, "ask"); q.State != requests.Validating {
			t.Errorf("the request is %s", q.State)
		}
		after(time.Second)
		judged.want(t, 1)
		f.wantState(id, launch.Running)
		after(3 * time.Second)
		f.wantState(id, launch.Done)
		if q := f.asked(id, "ask"); q.State != requests.Accepted {
			t.Errorf("the request is %s", q.State)
		}
		judged.want(t, 1)
	})
}

// A host that is lost while it judges is replaced once. After a second loss
// the answer is rejected unjudged, without a person, and the next one is judged
// afresh.
func TestTakeoverWhileValidating(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var judged probe
		wf := checked("w", func(ctx context.Context) error { _, err := judged.in(takes(20 * time.Second))(ctx); return err })
		p := f.open(nil, wf)
		answered := func() launch.RunID {
			id := p.start(wf, "")
			f.answer(p.store, f.asked(id, "ask"), requests.ActAnswer, `{}`)
			after(5 * time.Second)
			f.wantState(id, launch.Running)
			return id
		}
		lose := func() {
			p.kill()
			p = f.open(nil, wf)
			after(lease)
		}
		once := answered()
		lose()
		after(20 * time.Second)
		f.wantState(once, launch.Done)
		judged.want(t, 2, launch.ErrClosed)

		twice := answered()
		lose()
		f.wantState(twice, launch.Running)
		lose()
		if l := f.wantState(twice, launch.Parked); l.Attention != launch.NoAttention {
			t.Errorf("after two losses it is parked for %s", l.Attention)
		}
		q := f.asked(twice, "ask")
		if q.State != requests.Pending || q.Rejection == "" {
			t.Errorf("the request is %s, rejected for %q", q.State, q.Rejection)
		}
		f.wantState(twice, launch.Parked)
		judged.want(t, 4, launch.ErrClosed, launch.ErrClosed, launch.ErrClosed)
		f.answer(p.store, q, requests.ActAnswer, `{}`)
		after(20 * time.Second)
		f.wantState(twice, launch.Done)
	})
}

// turn lets the bridge take the next message of its session and begin its turn.
func (b *bridge) turn(name string) session.Message {
	b.p.file.t.Helper()
	b.report()
	token := must(b.p.store.NewToken()).Hash()
	sent := do(b.p.file.t, b.p.store, store.Try{Session: b.key, Epoch: b.epoch, Token: token})
	if sent.Message == nil {
		b.p.file.t.Fatalf("nothing is sent: %s", sent.Why)
	}
	do(b.p.file.t, b.p.store, store.Answer{Session: b.key, Answer: session.Answer{Message: sent.Message.ID, Token: token, Verdict: session.Taken}})
	b.saw(session.TurnStarted{Epoch: b.epoch, Turn: name, Message: sent.Message.ID})
	b.report(sent.Message.ID)
	return *sent.Message
}

// report reports the session, with what is on its branch.
func (b *bridge) report(branch ...string) {
	b.p.file.t.Helper()
	r := session.Report{Epoch: b.epoch, Idle: len(branch) == 0}
	for _, id := range must(b.p.store.Asked(ctx, b.key)).Names {
		at := slices.Contains(branch, id)
		r.Evidence = append(r.Evidence, session.Evidence{Message: id, Present: at, Durable: at})
	}
	b.saw(r)
}

// An agent's step that used up its time ends before its turn is stopped; what
// follows in the run waits until the turn is over.
func TestNothingRunsWhileATurnIsStopped(t *testing.T) {
	bubble(t, func(t *testing.T, f *file) {
		var ran probe
		w := engine.New[none]("w", "1")
		step := engine.Agent[none](w, "step", w.Input(), func(context.Context, none) (string, error) { return "Do it.", nil }, engine.Budget(10*time.Second))
		rescue := engine.Compute(w, "rescue", w.Input(), func(ctx context.Context, _ none) (string, error) { return ran.in(quick)(ctx) })
		engine.OnOutcome(step, engine.When(engine.TimedOut, rescue))
		wf := must(w.Build())
		p := f.open(nil, wf)
		b := p.connect("s")
		b.free()
		id := b.start(wf)
		f.wantState(id, launch.Parked)
		m := b.turn("t")
		do(t, p.store, store.Sample{Session: b.key, Epoch: b.epoch})
		after(10 * time.Second)
		if got := do(t, p.store, store.Sample{Session: b.key, Epoch: b.epoch}); !got.TimedOut {
			t.Fatal("the step did not time out")
		}
		if q := f.asked(id, "step"); q.State != requests.Expired || q.Why != launch.CodeTimedOut {
			t.Errorf("the request is %s %s", q.State, q.Why)
		}
		p.Nudge(b.key)
		p.Wake()
		after(time.Hour)
		ran.want(t, 0)
		f.wantState(id, launch.Parked)
		b.saw(session.TurnSettled{Epoch: b.epoch, Turn: "t", End: session.Aborted})
		b.report(m.ID)
		ran.want(t, 1)
		f.wantState(id, launch.Done)
	})
}
