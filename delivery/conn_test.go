package delivery_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// script is a bridge whose every answer is the test's. What is not set answers
// as an idle session with an empty branch does.
type script struct {
	look   func(ctx context.Context, names []string) (delivery.Report, error)
	send   func(ctx context.Context, m delivery.Message) (delivery.Answer, error)
	abort  func(message string) error
	fenced func()
}

func (s *script) Look(ctx context.Context, names []string) (delivery.Report, error) {
	if s.look != nil {
		return s.look(ctx, names)
	}
	return idle(names), nil
}

// idle is the report of an idle session whose branch is empty.
func idle(names []string) delivery.Report {
	r := delivery.Report{Idle: true}
	for _, name := range names {
		r.Evidence = append(r.Evidence, delivery.Evidence{Message: name})
	}
	return r
}

func (s *script) Send(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
	if s.send != nil {
		return s.send(ctx, m)
	}
	return delivery.Answer{Verdict: delivery.Occupied}, nil
}

func (s *script) Abort(_ context.Context, m string) error {
	if s.abort != nil {
		return s.abort(m)
	}
	return nil
}

func (s *script) Fenced() {
	if s.fenced != nil {
		s.fenced()
	}
}

// scripted connects a script to the session of a process that never does.
func scripted(b *bench, h *host, s delivery.Session) (*delivery.Conn, *deliverytest.Process) {
	b.Helper()
	pi := b.pi(deliverytest.Options{})
	c, err := h.Connect(bg, delivery.Hello{Session: pi.File().Key(), Process: "script", Durable: true}, s)
	if err != nil {
		b.Fatalf("connect: %v", err)
	}
	c.Changed()
	synctest.Wait()
	return c, pi
}

func TestRefusedConnects(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		key := b.pi(deliverytest.Options{}).File().Key()
		for why, c := range map[string]struct {
			hello delivery.Hello
			s     delivery.Session
		}{
			"no session":                            {delivery.Hello{Session: key, Process: "p"}, nil},
			"no key":                                {delivery.Hello{Process: "p"}, &script{}},
			"no session key":                        {delivery.Hello{Session: "s1", Process: "p"}, &script{}},
			"no process":                            {delivery.Hello{Session: key}, &script{}},
			"a process name that cannot be printed": {delivery.Hello{Session: key, Process: "a\nb"}, &script{}},
		} {
			if _, err := h.Connect(bg, c.hello, c.s); !errors.Is(err, launch.ErrInvalid) {
				b.Errorf("%s: %v", why, err)
			}
		}
		if n := len(h.Sessions()); n != 0 {
			b.Errorf("%d sessions", n)
		}
		if _, err := delivery.New(delivery.Options{Runner: "r"}); !errors.Is(err, launch.ErrInvalid) {
			b.Errorf("no store: %v", err)
		}
		if _, err := delivery.New(delivery.Options{Store: b.watch}); !errors.Is(err, launch.ErrInvalid) {
			b.Errorf("no runner: %v", err)
		}
	})
}

// After Close nothing runs, and every method says why nothing happens.
func TestAfterClose(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		s := &script{}
		c, pi := scripted(b, h, s)
		h.close()
		h.close()
		select {
		case <-c.Done():
		default:
			b.Errorf("the connection is not done")
		}
		_, started := c.TurnStarted(bg, "t", "")
		for why, err := range map[string]error{
			"started": started, "settled": c.TurnSettled(bg, "t", delivery.Completed, false), "input": c.Input(bg), "shutdown": c.Shutdown(bg),
		} {
			if !errors.Is(err, launch.ErrStale) && !errors.Is(err, launch.ErrClosed) {
				b.Errorf("%s: %v", why, err)
			}
		}
		c.Changed()
		c.Close()
		h.Wake()
		if _, err := h.Connect(bg, delivery.Hello{Session: pi.File().Key(), Process: "p"}, s); !errors.Is(err, launch.ErrClosed) {
			b.Errorf("connect: %v", err)
		}
		if a, err := b.watch.Asked(bg, pi.File().Key()); err != nil || a.Session.Connected() {
			b.Errorf("the session counts as connected: %v", err)
		}
	})
}

// Close does not wait for an answer that does not come, and the send counts as
// unanswered.
func TestCloseDuringSend(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		hold := pi.Hold(deliverytest.PointSend)
		id := h.start(pi, true).end(h, run.OK)
		synctest.Wait()
		hold.Wait()
		h.close()
		if m := b.message(issue(id, 1)); m.Attempt.Epoch == 0 {
			b.Errorf("the attempt is settled")
		}
		hold.Release()
		b.host().connect(pi)
		b.quiet()
		b.once(pi.File(), id, "closed in a send")
	})
}

// Many connects of one session race with the end of the host.
func TestConnectsRaceWithClose(t *testing.T) {
	for range 50 {
		bubble(t, func(b *bench) {
			h := b.host()
			key := b.pi(deliverytest.Options{}).File().Key()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					c, err := h.Connect(bg, delivery.Hello{Session: key, Process: "p"}, &script{})
					if err == nil {
						c.Changed()
					} else if !errors.Is(err, launch.ErrClosed) {
						b.Errorf("connect: %v", err)
					}
				})
			}
			runtime.Gosched()
			h.close()
			wg.Wait()
			if a, err := b.watch.Asked(bg, key); err != nil || a.Session.Connected() {
				b.Errorf("the session counts as connected: %v", err)
			}
		})
	}
}

// A bridge that is fenced may close its connection, and sees that it is fenced
// before it sees that the connection is done.
func TestFencedMayClose(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		var c *delivery.Conn
		told := false
		s := &script{}
		s.fenced = func() {
			select {
			case <-c.Done():
				b.Errorf("done before it was fenced")
			default:
			}
			c.Close()
			told = true
		}
		c, pi := scripted(b, h, s)
		if _, err := h.Connect(bg, delivery.Hello{Session: pi.File().Key(), Process: "other"}, &script{}); err != nil {
			b.Fatalf("connect: %v", err)
		}
		<-c.Done()
		if !told {
			b.Errorf("not fenced")
		}
		if _, err := c.TurnStarted(bg, "t", ""); !errors.Is(err, launch.ErrStale) {
			b.Errorf("a fenced connection reports: %v", err)
		}
		again := delivery.Hello{Session: pi.File().Key(), Process: "script", After: c.Epoch()}
		if _, err := h.Connect(bg, again, &script{}); !errors.Is(err, launch.ErrStale) {
			b.Errorf("a fenced process connects again by itself: %v", err)
		}
	})
}

// An abort that fails is tried again while its turn may be under way.
func TestAbortIsRepeated(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		aborts := 0
		s := &script{send: func(context.Context, delivery.Message) (delivery.Answer, error) {
			return delivery.Answer{Verdict: delivery.Taken}, nil
		}}
		s.abort = func(string) error {
			if aborts++; aborts < 3 || aborts > 4 {
				return errors.New("not now")
			}
			return nil
		}
		c, pi := scripted(b, h, s)
		j := h.start(pi, true)
		id := j.end(h, run.Failed)
		synctest.Wait()
		if _, err := store.Do(bg, h.store, store.Cancel{Run: j.id, Actor: launch.Person}); err != nil {
			b.Fatalf("cancel: %v", err)
		}
		s.look = func(context.Context, []string) (delivery.Report, error) { return delivery.Report{}, nil }
		for range 2 { // the agent starts again in one turn
			if _, err := c.TurnStarted(bg, "t", issue(id, 1)); err != nil {
				b.Fatalf("started: %v", err)
			}
			after(time.Minute)
		}
		if aborts != 4 {
			b.Errorf("%d aborts, want two failures and two aborts", aborts)
		}
		if _, err := c.TurnStarted(bg, "t", issue(id, 1)); err != nil {
			b.Fatalf("started: %v", err)
		}
		after(time.Minute)
		if err := c.TurnSettled(bg, "t", delivery.Aborted, false); err != nil {
			b.Fatalf("settled: %v", err)
		}
		after(time.Minute)
		if was := aborts; was > 20 {
			b.Errorf("%d aborts in a minute", was)
		} else if after(time.Hour); aborts != was {
			b.Errorf("an abort after the end of its turn")
		}
	})
}

// Stopped returns when the bridge was told to stop the turn, or does not answer.
func TestStopped(t *testing.T) {
	for _, c := range []struct {
		why   string
		takes time.Duration // of the bridge's answer
		waits time.Duration
	}{
		{"the bridge is told first", 100 * time.Millisecond, 100 * time.Millisecond},
		{"a bridge that does not answer holds nobody up", time.Minute, time.Second},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				h := b.host()
				s := &script{
					send: func(context.Context, delivery.Message) (delivery.Answer, error) {
						return delivery.Answer{Verdict: delivery.Taken}, nil
					},
					abort: func(string) error { after(c.takes); return nil },
				}
				conn, pi := scripted(b, h, s)
				j := h.start(pi, true)
				id := j.end(h, run.Failed)
				synctest.Wait()
				do(b, store.Cancel{Run: j.id, Actor: launch.Person})
				if _, err := conn.TurnStarted(bg, "t", issue(id, 1)); err != nil {
					b.Fatalf("started: %v", err)
				}
				began := time.Now()
				if conn.Stopped(bg); time.Since(began) != c.waits {
					b.Errorf("waited %s, want %s", time.Since(began), c.waits)
				}
				after(2 * time.Minute)
			})
		})
	}
}

// The answer to a send that is settled already does not end the connection.
func TestAnswerToSettledSend(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.host()
		s := &script{}
		c, pi := scripted(b, h, s)
		s.send = func(_ context.Context, m delivery.Message) (delivery.Answer, error) {
			do(b, store.Observe{Session: pi.File().Key(), Saw: session.Report{Epoch: c.Epoch(), Idle: true,
				Evidence: []session.Evidence{{Message: m.ID, Present: true, Durable: true, Replied: true}}}})
			return delivery.Answer{Verdict: delivery.Taken}, nil
		}
		id := h.start(pi, true).end(h, run.OK)
		after(time.Minute)
		b.want(id, "fallback", "seen")
		select {
		case <-c.Done():
			b.Errorf("the connection has ended")
		default:
		}
	})
}
