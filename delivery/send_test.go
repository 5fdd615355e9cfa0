package delivery_test

import (
	"testing"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// The end of a run owes the session one turn, whichever end it is, in a fresh
// session and in one with a conversation.
func TestEndOwesOneTurn(t *testing.T) {
	for why, outcome := range map[string]run.Outcome{"completed": run.OK, "failed": run.Failed} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				for _, fresh := range []bool{true, false} {
					pi := b.pi(deliverytest.Options{})
					h := b.host()
					h.connect(pi)
					if !fresh {
						prompt(b, pi)
					}
					id := h.start(pi, true).end(h, outcome)
					b.quiet()
					b.once(pi.File(), id, why)
					h.close()
				}
			})
		})
	}
}

func prompt(b *bench, pi *deliverytest.Process) {
	b.Helper()
	if err := pi.Prompt("hello"); err != nil {
		b.Fatalf("prompt: %v", err)
	}
	after(0)
}

// What goes wrong between host and bridge is repaired without a second entry.
func TestFaultyBridge(t *testing.T) {
	for _, c := range []struct {
		why   string
		fault func(*deliverytest.Process)
		opt   deliverytest.Options
	}{
		{"lost answer", func(p *deliverytest.Process) { p.LoseAnswer(1) }, deliverytest.Options{}},
		{"many lost answers", func(p *deliverytest.Process) { p.LoseAnswer(20) }, deliverytest.Options{}},
		{"lost send", func(p *deliverytest.Process) { p.LoseSend(1) }, deliverytest.Options{}},
		{"lost sends", func(p *deliverytest.Process) { p.LoseSend(4) }, deliverytest.Options{}},
		{"lost send and answer", func(p *deliverytest.Process) { p.LoseSend(1); p.LoseAnswer(1) }, deliverytest.Options{}},
		{"refused", func(p *deliverytest.Process) { p.Refuse(4, delivery.Refused, "no") }, deliverytest.Options{}},
		{"occupied", func(p *deliverytest.Process) { p.Refuse(8, delivery.Occupied, "busy") }, deliverytest.Options{}},
		{"no verdict", func(p *deliverytest.Process) { p.Refuse(3, 0, "") }, deliverytest.Options{}},
		{"no look", func(p *deliverytest.Process) { p.FailLook(10) }, deliverytest.Options{}},
		{"duplicate reports", func(p *deliverytest.Process) { p.DuplicateReports(50) }, deliverytest.Options{}},
		{"no durability", func(*deliverytest.Process) {}, deliverytest.Options{NoDurability: true}},
		{"provider failure", func(*deliverytest.Process) {}, deliverytest.Options{RPC: true}},
	} {
		for _, fresh := range []bool{true, false} {
			t.Run(c.why, func(t *testing.T) {
				bubble(t, func(b *bench) {
					pi := b.pi(c.opt)
					h := b.host()
					h.connect(pi)
					if !fresh {
						prompt(b, pi)
					}
					j := h.start(pi, true)
					c.fault(pi)
					id := j.end(h, run.Failed)
					b.quiet()
					b.once(pi.File(), id, c.why)
				})
			})
		}
	}
}

// Reports that come late keep a turn from being looked at, and nothing else.
func TestDelayedReports(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		j := h.start(pi, true)
		started := pi.Hold(deliverytest.PointStart)
		id := j.end(h, run.OK)
		started.Wait()
		release := pi.DelayReports()
		started.Release()
		after(time.Hour)
		b.want(id, "pending", "nobody has told that the message is there")
		release()
		b.quiet()
		b.once(pi.File(), id, "released")
	})
}

// Five refusals block a message visibly; a call re-opens it.
func TestBlockedAndReopened(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		j := h.start(pi, true)
		pi.Refuse(session.MaxRefusals, delivery.Refused, "no")
		id := j.end(h, run.Failed)
		b.quiet()
		b.want(id, "blocked", "refused five times")
		m := b.message(issue(id, 1))
		if m.Attempts != session.MaxRefusals {
			b.Errorf("%d attempts, want %d", m.Attempts, session.MaxRefusals)
		}
		second := h.start(pi, true) // holds nothing back
		if _, err := store.Do(bg, h.store, store.Reopen{Session: pi.File().Key(), Message: m.ID}); err != nil {
			b.Fatalf("reopen: %v", err)
		}
		b.quiet()
		b.once(pi.File(), id, "reopened")
		b.once(pi.File(), second.endQuiet(h), "the next run")
	})
}

func (j *job) endQuiet(h *host) string {
	j.b.Helper()
	id := j.end(h, run.OK)
	j.b.quiet()
	return id
}

// A session that is occupied for ever costs nothing; a bridge that answers so
// although it looks free costs a bounded number of asks.
func TestOccupiedForEver(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		j := h.start(pi, true)
		finish, err := pi.Compact()
		if err != nil {
			b.Fatalf("compact: %v", err)
		}
		after(time.Minute)
		id := j.end(h, run.Failed)
		after(time.Minute)
		calls := [...]int{h.count("look"), h.count("send"), h.count("before try"), h.count("view")}
		after(24 * time.Hour)
		if now := [...]int{h.count("look"), h.count("send"), h.count("before try"), h.count("view")}; now != calls || calls[1] > 1 {
			b.Errorf("a busy session cost %v, then %v", calls, now)
		}
		finish()
		b.quiet()
		b.once(pi.File(), id, "compacted")
	})
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		j := h.start(pi, true)
		pi.Refuse(1<<30, delivery.Occupied, "busy")
		id := j.end(h, run.Failed)
		after(time.Hour)
		if n := h.count("send"); n > 150 {
			b.Errorf("%d sends in an hour", n)
		}
		pi.Refuse(0, delivery.Occupied, "")
		b.quiet()
		b.once(pi.File(), id, "at last")
	})
}

// A bridge that fails every look, or every send, is asked a bounded number of
// times.
func TestBrokenForEver(t *testing.T) {
	for why, fault := range map[string]func(*deliverytest.Process){
		"look": func(p *deliverytest.Process) { p.FailLook(1 << 30) },
		"send": func(p *deliverytest.Process) { p.LoseAnswer(1 << 30) },
		"none": func(p *deliverytest.Process) { p.Refuse(1<<30, 0, "") },
	} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				j := h.start(pi, true)
				fault(pi)
				id := j.end(h, run.Failed)
				after(time.Hour)
				if look, send := h.count("look"), h.count("send"); look > 400 || send > 150 {
					b.Errorf("%d looks and %d sends in an hour", look, send)
				}
				b.Logf("%s: %d looks, %d sends, intent %s", why, h.count("look"), h.count("send"), b.state(id))
				b.sound()
			})
		})
	}
}

// A passive message is appended without a turn.
func TestPassiveNotice(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{})
		h := b.host()
		h.connect(pi)
		prompt(b, pi)
		j := h.start(pi, true)
		requests := len(pi.File().ModelRequests())
		do(b, store.Cancel{Run: j.id, Actor: launch.Person})
		h.Wake()
		b.quiet()
		sends := pi.File().Sends()
		if len(sends) != 1 || sends[0].Message.TriggerTurn || pi.File().MaxCount(sends[0].Message.ID) != 1 {
			b.Errorf("sends: %+v", sends)
		}
		if n := len(pi.File().ModelRequests()); n != requests {
			b.Errorf("a notice cost %d model requests", n-requests)
		}
	})
}
