package delivery_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
	"pgregory.net/rapid"
)

// chaos is one session, its host, and everything that may happen to them.
type chaos struct {
	*bench
	rt      *rapid.T
	host    *host
	other   *store.Store            // of another process
	pis     []*deliverytest.Process // the last one is the person's
	job     *job
	begun   bool
	holds   []*deliverytest.Hold
	release []func() // what is held back and is let go in the end
}

func (c *chaos) pi() *deliverytest.Process { return c.pis[len(c.pis)-1] }

func (c *chaos) one(n int) int { return rapid.IntRange(0, n-1).Draw(c.rt, "n") }

// connect lets the bridge do what a bridge does on its own: connect, unless it
// is to stay away.
func (c *chaos) connect() {
	_ = c.pi().Connect(deliverytest.Via(c.host.bind)) // a killed host answers nothing
}

var steps = map[string]func(c *chaos){
	"start": func(c *chaos) {
		if c.job != nil || !c.free() {
			return
		}
		c.begun = c.one(3) > 0
		id, err := c.host.store.NewID()
		if err != nil {
			c.Fatalf("id: %v", err)
		}
		r, err := store.Do(bg, c.host.store, store.Start{Request: launch.Request{ID: launch.NewRunID("w", id), Workflow: "w", Source: "test",
			Digest: launch.DigestOf(nil), Mode: launch.Interactive, Session: c.pi().File().Key(), Input: []byte("{}"), Actor: launch.Host}})
		if err != nil { // the last one is not told yet
			return
		}
		token, err := c.host.store.NewToken()
		if err != nil {
			c.Fatalf("token: %v", err)
		}
		claimed, err := store.Do(bg, c.host.store, store.Claim{Run: r.Run, Runner: c.host.name, Token: token.Hash(), Lease: launch.MaxLease,
			Digest: launch.DigestOf(nil), Source: "test", Plan: plan, Capacity: 1000, Begin: c.begun})
		if err != nil {
			c.Fatalf("claim: %v", err)
		}
		c.job = &job{c.bench, r.Run, launch.Authority{Runner: c.host.name, Token: token.Hash(), Generation: claimed.Generation}}
	},
	"end": func(c *chaos) { c.endJob() },
	"cancel": func(c *chaos) { // the last run, ended or not
		for _, e := range slices.Backward(c.trace()) {
			if e.Run != "" {
				_, _ = store.Do(bg, c.host.store, store.Cancel{Run: e.Run, Actor: launch.Person}) // the host may be dead
				break
			}
		}
		if c.job != nil {
			if l, err := c.watch.Launch(bg, c.job.id); err != nil {
				c.Fatalf("launch: %v", err)
			} else if l.State.Terminal() {
				c.job = nil
			}
		}
	},
	"prompt": func(c *chaos) {
		if c.pi().Type("hello") == nil && c.one(4) > 0 {
			_ = c.pi().Submit() // the text is lost when another turn begins
		}
		c.connect()
	},
	"submit": func(c *chaos) { _ = c.pi().Submit() },
	"escape": func(c *chaos) { c.pi().Escape() },
	"stop": func(c *chaos) { // in the middle of whatever turn there is
		hold := c.pi().Hold(rapid.SampledFrom(points()[2:]).Draw(c.rt, "point"))
		_ = c.pi().Type("do it")
		_ = c.pi().Submit()
		synctest.Wait()
		c.pi().Escape()
		hold.Release()
	},
	"rewind": func(c *chaos) {
		if branch := c.pi().File().Entries(); len(branch) > 0 {
			_ = c.pi().Rewind(branch[c.one(len(branch))].ID) // or it is busy
		}
	},
	"compact": func(c *chaos) {
		if finish, err := c.pi().Compact(); err == nil {
			c.release = append(c.release, finish)
		}
	},
	"finish": func(c *chaos) { c.letGo() },
	"kill pi": func(c *chaos) {
		c.pi().Kill()
		c.another()
	},
	"second pi": func(c *chaos) { c.another() },
	"shutdown": func(c *chaos) {
		go c.pi().Shutdown()
		synctest.Wait()
		c.another()
	},
	"reload": func(c *chaos) {
		go c.pi().Reload()
		synctest.Wait()
		c.connect()
	},
	"drop": func(c *chaos) { c.pi().DropConnection() },
	"back": func(c *chaos) { c.connect() },
	"kill host": func(c *chaos) {
		c.host.kill()
		c.host = c.bench.host()
		if c.one(2) > 0 {
			c.connect()
		}
	},
	"close host": func(c *chaos) {
		c.host.close()
		c.host = c.bench.host()
		c.connect()
	},
	"die at": func(c *chaos) {
		c.host.dieAt(rapid.SampledFrom([]string{"before try", "after try", "send", "sent", "before answer", "after answer", "look", "looked",
			"before observe report", "after observe report", "before observe turnstarted", "after observe turnstarted",
			"before observe turnsettled", "after observe turnsettled", "after propose", "before propose"}).Draw(c.rt, "moment"))
	},
	"lose answer": func(c *chaos) { c.pi().LoseAnswer(1) },
	"lose send":   func(c *chaos) { c.pi().LoseSend(1) },
	"occupied":    func(c *chaos) { c.pi().Refuse(1+c.one(2), delivery.Occupied, "busy") },
	"refused":     func(c *chaos) { c.pi().Refuse(1, delivery.Refused, "no") },
	"no look":     func(c *chaos) { c.pi().FailLook(1) },
	"twice":       func(c *chaos) { c.pi().DuplicateReports(2) },
	"delay":       func(c *chaos) { c.release = append(c.release, c.pi().DelayReports()) },
	"hold": func(c *chaos) {
		c.holds = append(c.holds, c.pi().Hold(rapid.SampledFrom(points()).Draw(c.rt, "point")))
	},
	"distrust": func(c *chaos) { _ = c.host.store.Distrust(bg) },
	"time": func(c *chaos) {
		after(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 9 * time.Second, 11 * time.Second, 31 * time.Second, time.Hour}).Draw(c.rt, "time"))
	},
}

func (c *chaos) another() {
	c.pis = append(c.pis, c.bench.open(c.pi().File(), deliverytest.Options{Model: c.model, NoDurability: c.one(5) == 0}))
	if c.one(4) > 0 {
		c.connect()
	}
}

// free reports whether a run may activate in the session. A message that the
// host has not noticed yet would be sent first.
func (c *chaos) free() bool {
	synctest.Wait()
	a, err := c.watch.Asked(bg, c.pi().File().Key())
	if err != nil {
		c.Fatalf("asked: %v", err)
	}
	return !c.host.dead.Load() && a.Session.Host == c.host.name && a.Session.Idle && a.Unsent == 0 &&
		a.Session.Boundary(launch.Now{Distrust: true}) == ""
}

// endJob has the run end, if there is one.
func (c *chaos) endJob() {
	if c.job == nil || c.host.dead.Load() {
		return
	}
	if _, err := store.Do(bg, c.watch, store.Renew{Run: c.job.id, Authority: c.job.auth, Lease: launch.MaxLease}); err != nil {
		c.Fatalf("renew: %v", err)
	}
	var err error
	by := c.host.store
	if c.one(3) == 0 {
		by = c.other
	}
	switch {
	case !c.begun:
		_, err = store.Do(bg, by, store.FailActivation{Run: c.job.id, Authority: c.job.auth, Error: launch.NewSafeError(launch.CodeActivationFailed, "no key")})
	case c.one(2) > 0:
		_, err = store.Do(bg, by, store.Propose{Run: c.job.id, Authority: c.job.auth, Plan: plan, Node: "a", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte("1")})
	default:
		_, err = store.Do(bg, by, store.Propose{Run: c.job.id, Authority: c.job.auth, Plan: plan, Node: "a", Visit: 1, Attempt: 1, Outcome: run.Failed,
			Failure: launch.NewSafeError(launch.CodeNodeFailed, "it broke")})
	}
	if err == nil {
		c.job = nil
	} else if !c.host.dead.Load() {
		c.Fatalf("end: %v", err)
	}
}

func (c *chaos) letGo() {
	for _, h := range c.holds {
		h.Release()
	}
	for _, f := range c.release {
		f()
	}
	c.holds, c.release = nil, nil
	synctest.Wait()
}

// model answers, with a tool call or a failure in between.
func (c *chaos) model(ctx context.Context, t deliverytest.Turn) deliverytest.Reply {
	if len(t.Context)%3 == 0 {
		return busy(ctx, t)
	}
	return deliverytest.Reply{Text: "ok"}
}

// Whatever happens to Pi, the person, the host and what they say to each other:
// once it is calm, every intent ends or is visibly blocked, and no message is
// twice on a path.
func TestRandom(t *testing.T) {
	names := make([]string, 0, len(steps))
	for name := range steps {
		names = append(names, name)
	}
	slices.Sort(names)
	for range 6 {
		names = append(names, "start", "end", "time")
	}
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			b := newBench(rt, storetest.Memory())
			c := &chaos{bench: b, rt: rt, host: b.host(), other: store.New(b.engine, store.Options{})}
			c.other.Subscribe(b.committed(nil))
			c.pis = []*deliverytest.Process{b.pi(deliverytest.Options{Model: c.model})}
			defer func() { // also of a test that has failed
				c.letGo()
				b.end()
			}()
			c.connect()
			synctest.Wait()
			steps["start"](c)
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				name := rapid.SampledFrom(names).Draw(rt, "step")
				steps[name](c)
				synctest.Wait()
				b.sound()
			}
			c.calm()
			b.quiet()
		})
	})
}

// calm ends all that goes wrong: one process and one host are left, and the
// person has acted.
func (c *chaos) calm() {
	c.letGo()
	for _, p := range c.pis[:len(c.pis)-1] {
		p.Kill()
	}
	c.host.kill()
	c.host = c.bench.host()
	p := c.pi()
	p.LoseAnswer(0)
	p.LoseSend(0)
	p.Refuse(0, 0, "")
	p.FailLook(0)
	after(time.Minute)
	for range 3 { // a text may be lost to a turn that begins
		_ = p.Type("go on")
		_ = p.Submit()
		c.connect()
		after(time.Minute)
	}
	c.endJob()
}
