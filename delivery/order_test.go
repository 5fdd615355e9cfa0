package delivery_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
)

// owed makes a session owe n turns that nobody can deliver yet.
func owed(b *bench, h *host, pi *deliverytest.Process, n int) (ids []string) {
	b.Helper()
	pi.Refuse(1<<30, delivery.Occupied, "busy")
	for range n {
		ids = append(ids, h.start(pi, false).failActivation(h))
		after(time.Second) // equal times are ordered by id
	}
	return ids
}

// inOrder wants the intents served in that order, each after the turn of the
// one before.
func inOrder(b *bench, ids []string, why string) {
	b.Helper()
	at := 0
	flight := ""
	for _, e := range b.trace() {
		n := slices.Index(ids, e.Intent)
		switch {
		case n < 0:
		case e.Of == session.EvAttempted && flight != "" && flight != e.Message:
			b.Errorf("%s: %d is tried while another is in flight", why, n)
		case e.Of == session.EvAttempted:
			flight = e.Message
		case e.Of == session.EvRefused || e.Of == session.EvUncarried || e.Of == session.EvTurnClosed:
			flight = ""
		}
		if n >= 0 && e.Of == session.EvTurnOpened {
			if n != at {
				b.Errorf("%s: the turn of %d comes at place %d", why, n, at)
			}
			at++
		}
	}
	if at != len(ids) {
		b.Errorf("%s: %d of %d turns", why, at, len(ids))
	}
}

// Two messages that are owed go out in their order, one turn after the other,
// also when the first gets lost on its way.
func TestOrder(t *testing.T) {
	for why, fault := range map[string]func(*deliverytest.Process){
		"nothing":     func(*deliverytest.Process) {},
		"lost send":   func(p *deliverytest.Process) { p.LoseSend(2) },
		"lost answer": func(p *deliverytest.Process) { p.LoseAnswer(2) },
	} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{Model: busy})
				h := b.host()
				h.connect(pi)
				ids := owed(b, h, pi, 2)
				after(time.Minute)
				pi.Refuse(0, 0, "")
				fault(pi)
				b.quiet()
				inOrder(b, ids, why)
				for _, id := range ids {
					b.served(pi.File(), id, 1, 3, why)
				}
			})
		})
	}
}

// After a long time without a host all that is owed is delivered, one turn at a
// time in each session.
func TestDrain(t *testing.T) {
	const sessions, each = 50, 3
	bubble(t, func(b *bench) {
		h := b.host()
		var pis []*deliverytest.Process
		var ids [][]string
		for range sessions {
			pi := b.pi(deliverytest.Options{})
			h.connect(pi)
			pis, ids = append(pis, pi), append(ids, owed(b, h, pi, each))
		}
		h.kill()
		after(12 * time.Hour)
		h = b.host()
		for _, pi := range pis {
			pi.Refuse(0, 0, "")
			h.connect(pi)
		}
		after(2 * calm)
		b.sound()
		for i, pi := range pis {
			inOrder(b, ids[i], "drained")
			b.quietSession(pi.File().Key())
			for _, id := range ids[i] {
				b.once(pi.File(), id, "drained")
			}
		}
		if n := len(b.trace()); n > sessions*each*40 {
			b.Errorf("%d events", n)
		}
	})
}

// A commit elsewhere costs an idle session one read and the bridge nothing.
func TestWakeIsCheap(t *testing.T) {
	const sessions = 1000
	bubble(t, func(b *bench) {
		h := b.host()
		for range sessions {
			h.connect(b.pi(deliverytest.Options{}))
		}
		after(time.Minute)
		version, err := b.watch.Version(bg)
		if err != nil {
			b.Fatalf("version: %v", err)
		}
		views, looks := h.count("view"), h.count("look")
		h.Wake()
		if n := h.count("view") - views; n != sessions {
			b.Errorf("%d reads", n)
		}
		if n := h.count("look") - looks; n != 0 {
			b.Errorf("%d looks", n)
		}
		if v, err := b.watch.Version(bg); err != nil || v != version {
			b.Errorf("something was committed: %v", err)
		}
	})
}

// Another process takes the session over: the first one is fenced and stays
// away, and the second is sent nothing before what the first may still carry
// out has expired. A host that waits for the first one's answer tells it when
// that comes; what is carried out until then costs a second model request, on a
// path of its own.
func TestTakeover(t *testing.T) {
	for _, c := range []struct {
		why     string
		other   bool          // the second process connects to another host
		release time.Duration // when the send reaches the first one
		twice   bool
	}{
		{"the send arrives at once", false, 0, false},
		{"the send arrives before its deadline", false, 5 * time.Second, false},
		{"the send arrives late", false, time.Minute, false},
		{"another host, before its deadline", true, 5 * time.Second, true},
		{"another host, late", true, time.Minute, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				prompt(b, pi)
				j := h.start(pi, true)
				hold := pi.Hold(deliverytest.PointSend)
				id := j.end(h, run.OK)
				synctest.Wait()
				hold.Wait()
				tried := time.Now()
				second, to := b.open(pi.File(), deliverytest.Options{}), h
				if c.other {
					to = b.host()
				}
				to.connect(second)
				time.AfterFunc(c.release, hold.Release)
				after(session.SendDeadline - time.Millisecond)
				for _, s := range pi.File().Sends() {
					if s.Process == second.Name() {
						b.Errorf("sent %v after the first one's send", time.Since(tried))
					}
				}
				after(2 * time.Minute)
				if pi.Connected() {
					b.Errorf("the first process is not fenced")
				}
				if err := pi.Connect(deliverytest.Via(to.bind)); !errors.Is(err, deliverytest.ErrAway) {
					b.Errorf("the first process connects again: %v", err)
				}
				b.quiet()
				requests := 1
				if c.twice {
					requests = 2
				}
				b.served(pi.File(), id, 1, requests, c.why)
			})
		})
	}
}

// A host notices within a second that its session is connected elsewhere.
func TestTakeoverOfIdle(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h, other := b.host(), b.host()
		h.connect(pi)
		other.connect(b.open(pi.File(), deliverytest.Options{}))
		after(time.Second)
		if pi.Connected() || len(h.Sessions()) != 0 {
			b.Errorf("the first process is not fenced")
		}
		prompt(b, pi) // a person acts there
		h.connect(pi)
		after(time.Second)
		if !pi.Connected() || len(other.Sessions()) != 0 {
			b.Errorf("the first process is not back")
		}
	})
}

// The same process connects again at any moment of a turn.
func TestReconnect(t *testing.T) {
	for _, point := range points() {
		for _, away := range []time.Duration{0, time.Minute} {
			t.Run(point.String(), func(t *testing.T) {
				bubble(t, func(b *bench) {
					pi := b.pi(deliverytest.Options{Model: busy})
					h := b.host()
					h.connect(pi)
					j := h.start(pi, true)
					hold := pi.Hold(point)
					id := j.end(h, run.OK)
					synctest.Wait()
					hold.Wait()
					pi.DropConnection()
					after(away)
					if away > 0 {
						hold.Release()
						pi.Wait()
						h.connect(pi)
					} else {
						h.connect(pi)
						hold.Release()
					}
					b.quiet()
					b.served(pi.File(), id, 1, 3, point.String())
				})
			})
		}
	}
}

// Waits that end while the clock is not trusted are looked at when it is again.
func TestDistrust(t *testing.T) {
	for why, wait := range map[string]func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process{
		"another process's send": func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process {
			pi.Kill()
			p := b.open(pi.File(), deliverytest.Options{})
			h.connect(p)
			return p
		},
		"forgotten input": func(b *bench, _ *host, pi *deliverytest.Process) *deliverytest.Process {
			if err := pi.Type("never mind"); err != nil {
				b.Fatalf("type: %v", err)
			}
			return pi
		},
	} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				prompt(b, pi)
				j := h.start(pi, true)
				hold := pi.Hold(deliverytest.PointSend)
				id := j.end(h, run.OK)
				synctest.Wait()
				hold.Wait()
				wait(b, h, pi)
				hold.Release()
				after(session.SendDeadline - time.Second)
				if err := h.store.Distrust(bg); err != nil {
					b.Fatalf("distrust: %v", err)
				}
				after(25 * time.Second)
				b.want(id, "pending", "the clock is not trusted")
				after(time.Minute)
				b.want(id, "fallback", "it is again")
				b.once(pi.File(), id, "distrusted")
			})
		})
	}
}
