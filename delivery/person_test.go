package delivery_test

import (
	"slices"
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

// A person's input that comes while a send is on its way wins: the text is not
// lost, the send is no uncertain one, and the message follows it.
func TestInputAtTheLastMoment(t *testing.T) {
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
		if err := pi.Type("wait"); err != nil {
			b.Fatalf("type: %v", err)
		}
		hold.Release()
		after(20 * time.Second)
		if n := pi.File().MaxCount(issue(id, 1)); n != 0 {
			b.Errorf("sent although input waits")
		}
		if m := b.message(issue(id, 1)); m.Attempt.Epoch != 0 || m.Refusals != 0 {
			b.Errorf("an occupied session counts: %+v", m)
		}
		if err := pi.Submit(); err != nil {
			b.Errorf("the person's text: %v", err)
		}
		b.quiet()
		b.once(pi.File(), id, "input first")
		if turns := pi.File().Turns(); len(turns) != 3 || turns[1].Message != "" {
			b.Errorf("turns: %+v", turns)
		}
	})
}

// Input that is typed and left is forgotten after its grace.
func TestForgottenInput(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		j := h.start(pi, true)
		if err := pi.Type("never mind"); err != nil {
			b.Fatalf("type: %v", err)
		}
		id := j.end(h, run.OK)
		after(session.PendingGrace - time.Second)
		if n := h.count("send"); n != 0 {
			b.Errorf("%d sends while input waits", n)
		}
		after(10 * time.Second)
		b.want(id, "fallback", "the input is forgotten")
		b.once(pi.File(), id, "the input is forgotten")
	})
}

// escaped lets the person stop a chat turn in a session whose run works.
func escaped(b *bench, pi *deliverytest.Process) {
	b.Helper()
	hold := pi.Hold(deliverytest.PointVisible)
	if err := pi.Type("do it"); err != nil {
		b.Fatalf("type: %v", err)
	}
	if err := pi.Submit(); err != nil {
		b.Fatalf("submit: %v", err)
	}
	hold.Wait()
	pi.Escape()
	hold.Release()
	synctest.Wait()
}

// What a person stops stays stopped until the person acts; an abort that was
// but the session's end does not hold the next one.
func TestEscape(t *testing.T) {
	for _, c := range []struct {
		why  string
		then func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process
		free bool
	}{
		{"nothing", func(_ *bench, _ *host, pi *deliverytest.Process) *deliverytest.Process { return pi }, false},
		{"input", func(b *bench, _ *host, pi *deliverytest.Process) *deliverytest.Process { prompt(b, pi); return pi }, true},
		{"shutdown", func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process {
			pi.Shutdown()
			p := b.open(pi.File(), deliverytest.Options{})
			h.connect(p)
			return p
		}, true},
		{"kill", func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process {
			pi.Kill()
			p := b.open(pi.File(), deliverytest.Options{})
			h.connect(p)
			return p
		}, false},
		{"input and shutdown", func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process {
			if err := pi.Type("and"); err != nil {
				b.Fatalf("type: %v", err)
			}
			pi.Shutdown()
			p := b.open(pi.File(), deliverytest.Options{})
			h.connect(p)
			return p
		}, false},
		{"reload", func(b *bench, h *host, pi *deliverytest.Process) *deliverytest.Process {
			pi.Reload()
			h.connect(pi)
			return pi
		}, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				j := h.start(pi, true)
				escaped(b, pi)
				id := j.end(h, run.Failed)
				after(time.Minute)
				if n := h.count("send"); n != 0 {
					b.Errorf("%d sends into a held session", n)
				}
				pi = c.then(b, h, pi)
				after(time.Hour)
				if !c.free {
					b.want(id, "pending", "held")
					prompt(b, pi)
				}
				b.quiet()
				b.once(pi.File(), id, c.why)
			})
		})
	}
}

// Escape in the turn of a message ends that turn and holds the session; the
// message was delivered and is not sent again.
func TestEscapeInItsTurn(t *testing.T) {
	for _, point := range []deliverytest.Point{deliverytest.PointStarted, deliverytest.PointVisible, deliverytest.PointReply, deliverytest.PointRetry} {
		t.Run(point.String(), func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{Model: busy})
				h := b.host()
				h.connect(pi)
				hold := pi.Hold(point)
				id := h.start(pi, true).end(h, run.OK)
				synctest.Wait()
				hold.Wait()
				pi.Escape()
				hold.Release()
				b.quiet()
				b.served(pi.File(), id, 1, requestsFor(pi.File(), id), "escaped")
				if n := len(pi.File().Turns()); n != 1 {
					b.Errorf("%d turns", n)
				}
			})
		})
	}
}

// The extension is loaded anew in the middle of a turn of a message.
func TestReloadInItsTurn(t *testing.T) {
	for _, point := range []deliverytest.Point{deliverytest.PointAccepted, deliverytest.PointStart, deliverytest.PointVisible, deliverytest.PointReply} {
		t.Run(point.String(), func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				hold := pi.Hold(point)
				id := h.start(pi, true).end(h, run.OK)
				synctest.Wait()
				hold.Wait()
				go pi.Reload()
				synctest.Wait()
				hold.Release()
				synctest.Wait()
				h.connect(pi)
				b.quiet()
				b.served(pi.File(), id, 1, requestsFor(pi.File(), id), "reloaded")
				j := h.start(pi, true) // not held
				b.once(pi.File(), j.endQuiet(h), "the next one")
			})
		})
	}
}

// An intent goes to its session, never to a fork of it.
func TestFork(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		prompt(b, pi)
		j := h.start(pi, true)
		file := pi.File()
		fork := pi.Clone("s9", "/s9.jsonl")
		b.files = append(b.files, fork)
		h.connect(pi)
		id := j.end(h, run.OK)
		after(time.Hour)
		if n := len(fork.Sends()) + len(file.Sends()); n != 0 {
			b.Errorf("%d sends while the session is away", n)
		}
		h.connect(b.open(file, deliverytest.Options{}))
		b.quiet()
		b.once(file, id, "opened again")
		if n := len(fork.Sends()); n != 0 {
			b.Errorf("%d sends to the fork", n)
		}
	})
}

// A message that was seen, and not known to be on disk, is issued once more when
// the person has moved away from it; moving back makes no third one.
func TestRewind(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		hold := pi.Hold(deliverytest.PointVisible)
		id := h.start(pi, true).end(h, run.OK)
		synctest.Wait()
		hold.Wait()
		after(0) // seen on a branch that is on no disk
		h.kill()
		hold.Release()
		pi.Wait()
		pi.Kill() // nobody told how the turn ended
		pi = b.open(pi.File(), deliverytest.Options{})
		replied := pi.Branch()
		if err := pi.Rewind(""); err != nil {
			b.Fatalf("rewind: %v", err)
		}
		next := b.host()
		next.connect(pi)
		after(time.Minute)
		if n := pi.File().MaxCount(issue(id, 2)); n != 1 {
			b.Errorf("%d entries of the second issue", n)
		}
		if err := pi.Rewind(replied[len(replied)-1].ID); err != nil {
			b.Fatalf("rewind: %v", err)
		}
		b.quiet()
		b.served(pi.File(), id, 2, 2, "moved back")
	})
}

// A delivered message is not issued again wherever the person moves.
func TestRewindDelivered(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		id := h.start(pi, true).end(h, run.OK)
		after(time.Second)
		if err := pi.Rewind(""); err != nil {
			b.Fatalf("rewind: %v", err)
		}
		b.quiet()
		b.once(pi.File(), id, "moved away")
	})
}

// A person's cancel withdraws the intent also when its message is on its way.
// The turn that begins all the same is stopped, quietly.
func TestCancelInFlight(t *testing.T) {
	for _, point := range []deliverytest.Point{deliverytest.PointSend, deliverytest.PointAccepted, deliverytest.PointStart} {
		t.Run(point.String(), func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				prompt(b, pi)
				hold := pi.Hold(point)
				started := pi.Hold(deliverytest.PointStarted)
				j := h.start(pi, true)
				id := j.end(h, run.Failed)
				synctest.Wait()
				hold.Wait()
				if _, err := store.Do(bg, h.store, store.Cancel{Run: j.id, Actor: launch.Person}); err != nil {
					b.Fatalf("cancel: %v", err)
				}
				hold.Release()
				synctest.Wait()
				if !slices.Equal(pi.File().Aborts(), []string{issue(id, 1)}) {
					b.Errorf("aborts: %v", pi.File().Aborts())
				}
				started.Release()
				b.quiet()
				b.want(id, "withdrawn", "cancelled")
				if m := b.message(issue(id, 1)); m.State != session.Sent || requestsFor(pi.File(), id) != 0 {
					b.Errorf("%s with %d requests", m.State, requestsFor(pi.File(), id))
				}
				if a, err := b.watch.Asked(bg, pi.File().Key()); err != nil || a.Session.Held {
					b.Errorf("the host's abort holds the session: %v", err)
				}
			})
		})
	}
}

// Nothing of a withdrawn intent is sent that was not on its way.
func TestCancelBeforeSend(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		j := h.start(pi, true)
		pi.Refuse(1, delivery.Occupied, "busy")
		id := j.end(h, run.Failed)
		synctest.Wait()
		if _, err := store.Do(bg, h.store, store.Cancel{Run: j.id, Actor: launch.Person}); err != nil {
			b.Fatalf("cancel: %v", err)
		}
		b.quiet()
		b.want(id, "withdrawn", "cancelled")
		if n := len(pi.File().ModelRequests()); n != 0 {
			b.Errorf("%d model requests", n)
		}
	})
}
