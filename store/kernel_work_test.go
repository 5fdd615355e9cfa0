package store_test

import (
	"errors"
	"slices"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// work is what hosts do with runs.
func (k *kernel) work() {
	live := k.live()
	if len(live) == 0 || k.odds(8) {
		live = k.before.Launches
	}
	if len(live) == 0 {
		return
	}
	k.workOn(live[k.one(len(live))])
}

func (k *kernel) workOn(l launch.Launch) {
	if (l.Paused || l.Park == launch.ParkPaused || l.Park == launch.ParkAttention) && k.odds(70) {
		if k.odds(80) {
			do[launch.State](k, store.Resume{Run: l.ID})
		} else {
			do[store.Cancellation](k, store.Cancel{Run: l.ID, Actor: pickOf(k, launch.Person, launch.Model, launch.Host), Session: l.Session})
		}
		return
	}
	if l.Park == launch.ParkWaiting && k.odds(75) && k.awaited(l) {
		return
	}
	h := k.claimOf(l.ID)
	if len(k.claims) > 0 && k.odds(8) { // a worker that was replaced, or confused
		h = k.claims[k.one(len(k.claims))]
	}
	if !l.State.Claimed() || h == nil {
		k.claim(l, false)
		return
	}
	switch what := pickOf(k, "go on", "go on", "go on", "go on", "go on", "go on", "go on", "go on", "renew", "release", "lose", "receipt"); {
	case what == "renew":
		do[store.Renewed](k, store.Renew{Run: h.run, Authority: h.auth, Lease: launch.DefaultLease})
	case what == "release":
		do[launch.State](k, store.Release{Run: h.run, Authority: h.auth})
	case what == "receipt":
		do[bool](k, store.Receipt{Run: h.run, Token: h.auth.Token, Node: h.next.Node, Visit: h.next.Visit, Retry: h.next.Retry, Applied: k.odds(50)})
	case what == "lose":
		k.lose(l)
	case l.State == launch.Starting && k.odds(40):
		do[launch.State](k, store.FailActivation{Run: h.run, Authority: h.auth, Error: launch.NewSafeError(launch.CodeActivationFailed, "a tool is missing")})
	case l.State == launch.Starting:
		if a, err := do[store.Claimed](k, store.Activate{Run: h.run, Authority: h.auth, Plan: graphs[h.plan]}); err == nil {
			h.next = a.Next
		}
	default:
		k.propose(h)
	}
}

// lose lets a lease end and somebody find it.
func (k *kernel) lose(l launch.Launch) {
	k.advance(31 * time.Second)
	if k.odds(60) {
		k.claim(l, true)
	} else {
		do[launch.State](k, store.Recover{Run: l.ID, Generation: l.Generation})
	}
}

func (k *kernel) claimOf(id launch.RunID) *held {
	for _, h := range slices.Backward(k.claims) {
		if h.run == id {
			return h
		}
	}
	return nil
}

func (k *kernel) claim(l launch.Launch, lost bool) {
	c := store.Claim{Run: l.ID, Runner: pickOf(k, "A", "A", "B"), Token: k.token(), Lease: launch.DefaultLease, Digest: digestNamed("d1"),
		Source: l.Source, Capacity: 3, Begin: k.odds(75), Lost: lost, Generation: l.Generation}
	for i := range kernelSessions {
		if host := k.sessionRow(i).Host; l.Session == kernelSessions[i] && host != "" && k.odds(90) {
			c.Runner = host
		}
	}
	if k.odds(6) {
		c.Digest = digestNamed("d2")
	}
	plan := k.plan(l.ID)
	c.Plan = graphs[plan]
	a, err := do[store.Claimed](k, c)
	if err == nil && a.State.Claimed() {
		k.claims = append(k.claims, &held{l.ID, launch.Authority{Runner: c.Runner, Token: c.Token, Generation: a.Generation}, plan, a.Next})
	}
}

// plan is fixed for a run.
func (k *kernel) plan(id launch.RunID) string {
	names := []string{"one", "two", "pay", "put", "ask", "loop", "gate", "gate", "gate", "poll", "poll", "poll"}
	for i := range k.before.Launches {
		if l := &k.before.Launches[i]; l.ID == id && l.Session != "" {
			names = append(names, "flow", "flow", "flow", "flow", "flow", "talk", "talk", "talk", "talk", "talk", "talk")
		}
	}
	return names[int(launch.DigestOf([]byte(id))[0])%len(names)]
}

func (k *kernel) propose(h *held) {
	c := store.Propose{Run: h.run, Authority: h.auth, Plan: graphs[h.plan], Node: h.next.Node, Visit: h.next.Visit, Attempt: h.next.Attempt, Outcome: run.OK, Output: []byte("1")}
	n := c.Plan.Node(c.Node)
	switch {
	case n == nil:
	case n.Kind.Asks() && k.odds(85):
		k.asks(h, n, &c)
		k.take(h, c)
		return
	case h.next.Reserve && k.odds(85):
		k.reserve(h)
		return
	case n.Choices != nil:
		c.Output = []byte(`"` + n.Choices[k.one(len(n.Choices))] + `"`)
	case n.Kind == run.Notify:
		c.Output, c.Notice = []byte(`"hello"`), pickOf(k, "hello", "hello", "")
	}
	what := []string{"ok", "ok", "ok", "failed", "timed_out", "cancelled", "unknown", "observed", "wrong"}
	if n != nil && n.Kind.Asks() { // its prompt function fails
		what = append(what, "failed", "failed", "failed")
	}
	switch pickOf(k, what...) {
	case "failed":
		c.Outcome, c.Output, c.Failure = run.Failed, nil, launch.NewSafeError(launch.CodeNodeFailed, "")
		c.Applied = k.odds(30)
	case "timed_out":
		c.Outcome, c.Output, c.Failure = run.TimedOut, nil, launch.NewSafeError(launch.CodeTimedOut, "")
	case "cancelled":
		c.Outcome, c.Output = run.Cancelled, nil
	case "unknown":
		c.Unknown = true
	case "observed":
		c.Observed = true
	case "wrong":
		c.Attempt++
	}
	k.take(h, c)
}

// take proposes, and goes on as the answer says.
func (k *kernel) take(h *held, c store.Propose) {
	if n, err := do[store.Next](k, c); err == nil && !n.Ended && !n.Parked {
		h.next = n
	}
}

// person is what people and models do to runs.
func (k *kernel) person() {
	all := k.live()
	if len(all) == 0 || k.odds(20) {
		all = k.before.Launches
	}
	if len(all) == 0 {
		return
	}
	l := all[k.one(len(all))]
	switch pickOf(k, "cancel", "pause", "resume", "resume", "model", "host") {
	case "cancel":
		do[store.Cancellation](k, store.Cancel{Run: l.ID, Actor: launch.Person})
	case "model":
		do[store.Cancellation](k, store.Cancel{Run: l.ID, Actor: launch.Model, Session: pickOf(k, l.Session, l.Session, l.Session, kernelSessions[0])})
	case "host":
		do[store.Cancellation](k, store.Cancel{Run: l.ID, Actor: launch.Host})
	case "pause":
		do[launch.State](k, store.Pause{Run: l.ID})
	case "resume":
		do[launch.State](k, store.Resume{Run: l.ID})
	}
}

func (k *kernel) advance(d time.Duration) {
	k.log = append(k.log, "advance "+d.String())
	k.memory.clock.Advance(d)
	k.sqlite.clock.Advance(d)
}

func (k *kernel) time() {
	switch pickOf(k, "advance", "advance", "advance", "jump", "restart", "late") {
	case "advance":
		k.advance(pickOf(k, time.Millisecond, time.Second, 10*time.Second, 31*time.Second, time.Hour))
	case "jump":
		d := pickOf(k, 6*time.Second, -6*time.Second, time.Hour, -time.Hour)
		k.log = append(k.log, "jump "+d.String())
		k.jumped = true
		k.memory.clock.Jump(d)
		k.sqlite.clock.Jump(d)
	case "restart":
		k.log = append(k.log, "restart")
		k.reopen()
	case "late":
		k.log = append(k.log, "late timer")
		_, mono := k.memory.clock.Now()
		k.doubt = mono.Add(launch.DefaultLease)
		if err := errors.Join(k.memory.store.Distrust(bg), k.sqlite.store.Distrust(bg)); err != nil {
			k.fail("%v", err)
		}
	}
}
