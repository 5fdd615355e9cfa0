package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
	"github.com/google/go-cmp/cmp"
)

// What a look misses counts as of when it was asked for: the send may have been
// carried out while the answer was on its way.
func TestSlowLook(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		s := &script{}
		s.send = func(context.Context, delivery.Message) (delivery.Answer, error) {
			return delivery.Answer{}, errors.New("lost")
		}
		c, pi := scripted(b, h, s)
		j := h.start(pi, true)
		id := j.end(h, run.Failed)
		synctest.Wait()
		if _, err := store.Do(bg, h.store, store.Cancel{Run: j.id, Actor: launch.Person}); err != nil { // so that it is not asked again
			b.Fatalf("cancel: %v", err)
		}
		after(session.SendDeadline - time.Second)
		s.look = func(ctx context.Context, names []string) (delivery.Report, error) {
			select {
			case <-time.After(3 * time.Second):
				return idle(names), nil
			case <-ctx.Done():
				return delivery.Report{}, ctx.Err()
			}
		}
		c.Changed()
		after(4 * time.Second) // that look has ended, beyond the deadline
		if m := b.message(issue(id, 1)); m.Attempt.Epoch == 0 {
			b.Errorf("the attempt is settled by a look from before its deadline")
		}
		after(4 * time.Second)
		if m := b.message(issue(id, 1)); m.Attempt.Epoch != 0 {
			b.Errorf("the attempt is not settled by the next look: %+v", m.Attempt)
		}
	})
}

// gate is an engine that lets something happen just before a transaction.
type gate struct {
	store.Engine
	before func()
}

func (g *gate) Update(ctx context.Context, fn func(store.Rows) error) error {
	if f := g.before; f != nil {
		g.before = nil
		f()
	}
	return g.Engine.Update(ctx, fn)
}

// A look is never recorded after what was reported later than it, whether the
// report comes before the look's answer or before its record.
func TestLookIsRecordedInOrder(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := &gate{Engine: storetest.Memory()}
			b := newBench(t, g)
			h := b.host()
			s := &script{}
			c, pi := scripted(b, h, s)
			typed := false
			input := func() {
				if err := c.Input(bg); err != nil {
					b.Errorf("input: %v", err)
				}
			}
			s.look = func(context.Context, []string) (delivery.Report, error) {
				report := delivery.Report{Idle: true, Pending: typed}
				switch {
				case typed:
				case late:
					g.before = func() { // the look is about to be recorded
						go input()
						for range 1000 {
							runtime.Gosched()
						}
					}
				default:
					input()
				}
				typed = true
				return report, nil
			}
			c.Changed()
			after(time.Second)
			if a, err := b.watch.Asked(bg, pi.File().Key()); err != nil || !a.Session.Input || !a.Session.Pending {
				b.Errorf("the input is forgotten: %+v %v", a.Session, err)
			}
			b.end()
		})
	}
}

// Nothing is looked at before the bridge says that it has repeated its reports;
// from then on each report is followed by a look.
func TestLooks(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		s := &script{}
		key := b.pi(deliverytest.Options{}).File().Key()
		c, err := h.Connect(bg, delivery.Hello{Session: key, Process: "script"}, watched{s, h})
		if err != nil {
			b.Fatalf("connect: %v", err)
		}
		looks := 0
		want := func(more int, why string) {
			b.Helper()
			after(time.Hour)
			if looks += more; h.count("look") != looks {
				b.Errorf("%s: %d looks, want %d", why, h.count("look"), looks)
			}
		}
		h.Wake()
		want(0, "not ready")
		c.Changed()
		want(1, "ready")
		s.look = func(context.Context, []string) (delivery.Report, error) { return delivery.Report{}, nil }
		if _, err := c.TurnStarted(bg, "t", ""); err != nil {
			b.Fatalf("started: %v", err)
		}
		want(1, "a turn began")
		s.look = nil
		if err := c.TurnSettled(bg, "t", delivery.Completed, false); err != nil {
			b.Fatalf("settled: %v", err)
		}
		want(1, "it is over")
		h.Wake()
		want(0, "a commit elsewhere")
	})
}

// A busy session is asked again as soon as the bridge says that it has changed,
// however often it was occupied before; a bridge that says so at each refusal
// is still asked at a bounded rate.
func TestOccupiedThenChanged(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		s := &script{}
		var sends atomic.Int64
		var free, noisy atomic.Bool
		var c *delivery.Conn
		s.send = func(context.Context, delivery.Message) (delivery.Answer, error) {
			sends.Add(1)
			if noisy.Load() {
				c.Changed()
			}
			if free.Load() {
				return delivery.Answer{Verdict: delivery.Taken}, nil
			}
			return delivery.Answer{Verdict: delivery.Occupied}, nil
		}
		c, pi := scripted(b, h, s)
		h.start(pi, true).end(h, run.OK)
		after(time.Hour)
		before := sends.Load()
		noisy.Store(true)
		c.Changed()
		after(time.Minute)
		if n := sends.Load() - before; n == 0 || n > 300 {
			b.Errorf("%d sends in a minute", n)
		}
		noisy.Store(false)
		after(time.Minute)
		free.Store(true)
		before = sends.Load()
		c.Changed()
		after(time.Second)
		if n := sends.Load() - before; n != 1 {
			b.Errorf("%d sends after the session changed", n)
		}
	})
}

// A report may answer about anything; only what was asked counts.
func TestMoreEvidenceThanAsked(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		s := &script{}
		s.look = func(_ context.Context, names []string) (delivery.Report, error) {
			r := idle(names)
			for n := range 2 * launch.MaxList {
				r.Evidence = append(r.Evidence, delivery.Evidence{Message: fmt.Sprint(n)})
			}
			return r, nil
		}
		_, pi := scripted(b, h, s)
		if a, err := b.watch.Asked(bg, pi.File().Key()); err != nil || !a.Session.Reported {
			b.Errorf("the report is lost: %v", err)
		}
	})
}

// A message names the other issues of its subject and its intent, and its
// details name itself.
func TestMessage(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		id := h.start(pi, true).end(h, run.OK)
		after(time.Second)
		m := pi.File().Sends()[0].Message
		if m.ID != issue(id, 1) || m.Intent != id || !slices.Equal(m.Others, []string{issue(id, 2), issue(id, 3)}) || m.Epoch != 1 || !m.TriggerTurn {
			b.Errorf("message: %+v", m)
		}
		if left := time.Until(m.Deadline.Std()); left != session.SendDeadline-time.Second {
			b.Errorf("deadline in %v", left)
		}
		if e := pi.Branch()[0]; e.MessageID() != m.ID || e.IntentID() != id {
			b.Errorf("details: %s", e.Details)
		}
	})
}

// viewer is a script that a person looks at.
type viewer struct {
	script
	mu  sync.Mutex
	saw []string
}

func (v *viewer) Show(id launch.RunID, status view.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.saw = append(v.saw, string(id)+" "+string(status))
}

// A viewer is shown each change of the session's run without asking, and nothing
// twice: not what is as before, and not what has passed while it was busy.
func TestViewer(t *testing.T) {
	bubble(t, func(b *bench) {
		h, pi := b.host(), b.pi(deliverytest.Options{})
		connect := func() (*delivery.Conn, *viewer) {
			v := &viewer{}
			c, err := h.Connect(bg, delivery.Hello{Session: pi.File().Key(), Process: "script", Durable: true}, v)
			if err != nil {
				b.Fatalf("connect: %v", err)
			}
			return c, v
		}
		c, v := connect()
		want := func(why string, saw ...string) {
			b.Helper()
			synctest.Wait()
			v.mu.Lock()
			defer v.mu.Unlock()
			if d := cmp.Diff(saw, v.saw); d != "" {
				b.Errorf("%s (-want +got):\n%s", why, d)
			}
			v.saw = nil
		}
		c.Changed()
		want("a session that never had a run")
		first := h.start(pi, true)
		want("a start", string(first.id)+" queued", string(first.id)+" running")
		h.Wake()
		want("nothing new")

		open := make(chan struct{})
		v.look = func(_ context.Context, names []string) (delivery.Report, error) {
			<-open
			return idle(names), nil
		}
		c.Changed()
		synctest.Wait()
		if _, err := store.Do(bg, h.store, store.Pause{Run: first.id}); err != nil {
			b.Fatalf("pause: %v", err)
		}
		first.end(h, run.Failed)
		want("while it is asked for a look")
		close(open)
		want("and after it", string(first.id)+" failed")

		c, v = connect()
		want("a new connection that is not ready")
		c.Changed()
		want("and then", string(first.id)+" failed")
	})
}
