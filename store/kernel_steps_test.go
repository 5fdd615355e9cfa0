package store_test

import (
	"fmt"
	"slices"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// This file draws the steps of [TestKernelProperty] from what the tables hold.

func (k *kernel) token() launch.Digest { return launch.DigestOf(fmt.Appendf(nil, "token-%d", k.n)) }

func (k *kernel) live() (live []launch.Launch) {
	for _, l := range k.before.Launches {
		if l.State.Live() {
			live = append(live, l)
		}
	}
	return live
}

func (k *kernel) step() {
	switch weight := k.one(100); {
	case weight < 6:
		k.start()
	case weight < 54:
		k.pump(k.one(2))
	case weight < 70:
		k.work()
	case weight < 82:
		k.ask()
	case weight < 87:
		k.person()
	case weight < 95:
		k.disturb(k.one(2))
	default:
		k.time()
	}
	granted := k.granted
	k.granted = nil
	for _, g := range granted {
		k.carry(g.session, g.send, g.token)
	}
}

func (k *kernel) start() {
	if k.odds(60) {
		k.startIn(k.one(2), pickOf(k, launch.Model, launch.Model, launch.Person))
	} else {
		k.startIn(-1, launch.Host)
	}
}

// startIn starts a run in a session, or a headless one with s below 0.
func (k *kernel) startIn(s int, by launch.Actor) {
	r := launch.Request{Workflow: "w", Source: pickOf(k, "src", "src", "src", "other"), Digest: digestNamed("d1"),
		ID: launch.NewRunID("w", fmt.Sprintf("%026d", k.n)), Input: fmt.Appendf(nil, `{"n":%d}`, k.one(2)), Mode: launch.Headless, Scope: "host"}
	c := store.Start{Request: r}
	c.Actor = launch.Host
	if s >= 0 {
		c.Mode, c.Session, c.Scope, c.Actor = launch.Interactive, kernelSessions[s], string(kernelSessions[s]), by
		if by == launch.Model {
			c.Epoch = k.epoch(s)
		}
	}
	if k.odds(25) {
		c.RequestKey = pickOf(k, "k1", "k2", "k3", fmt.Sprint(k.n))
	}
	if k.odds(3) && len(k.acked) > 0 {
		c.ID = k.acked[k.one(len(k.acked))]
	}
	if a, err := do[store.Started](k, c); err == nil && a.Created {
		k.acked = append(k.acked, a.Run)
	}
}

// epoch is usually that of the session's live connection.
func (k *kernel) epoch(s int) uint64 {
	b := &k.bridges[s]
	if len(b.epochs) == 0 {
		return 1
	}
	if k.odds(4) {
		return b.epochs[k.one(len(b.epochs))]
	}
	return b.epochs[len(b.epochs)-1]
}

func (k *kernel) sessionRow(s int) session.Session {
	for _, row := range k.before.Sessions {
		if row.Key == kernelSessions[s] {
			return row
		}
	}
	return session.Session{}
}

func (k *kernel) see(s int, saw session.Command) (store.Seen, error) {
	c := store.Observe{Session: kernelSessions[s], Saw: saw}
	if _, settled := saw.(session.TurnSettled); settled {
		c.Reply = k.reply()
	}
	return do[store.Seen](k, c)
}

// pump does the next thing that a well-behaved bridge and coordinator do.
func (k *kernel) pump(s int) {
	b := &k.bridges[s]
	row := k.sessionRow(s)
	unsent := false
	for i := range k.before.Messages {
		m := &k.before.Messages[i]
		unsent = unsent || m.Session == row.Key && m.State == session.Pending
	}
	switch {
	case !row.Connected():
		k.connect(s)
	case b.opens != "":
		k.begin(s, b.opens)
	case row.Open != "" && k.odds(15) && k.loseIn(row): // its host is lost in its own turn
	case b.turn != "" && k.odds(40) && k.inTurn(s): // the model answers what its turn asks
	case b.turn != "" && k.odds(20):
		k.startIn(s, launch.Model)
	case b.turn != "":
		k.settle(s)
	case !row.Fresh || k.odds(10):
		k.report(s)
	case unsent:
		k.send(s)
	default:
		for _, l := range k.live() {
			if l.Session == row.Key {
				k.workOn(l)
				return
			}
		}
		k.startIn(s, pickOf(k, launch.Model, launch.Person))
	}
}

// loseIn loses the lease of a session's run and reports whether there was one.
func (k *kernel) loseIn(row session.Session) bool {
	for _, l := range k.live() {
		if l.Session == row.Key && l.State == launch.Running {
			k.lose(l)
			return true
		}
	}
	return false
}

func (k *kernel) connect(s int) {
	c := session.Connect{Host: pickOf(k, "A", "A", "B"), Process: pickOf(k, "p1", "p1", "p2"), Durable: k.odds(80)}
	if epoch, err := do[uint64](k, store.Connect{Session: kernelSessions[s], Connect: c}); err == nil {
		k.bridges[s].epochs = append(k.bridges[s].epochs, epoch)
	}
}

func (k *kernel) begin(s int, message string) {
	b := &k.bridges[s]
	b.opens = ""
	b.turn = fmt.Sprintf("t%d-%d", s, k.n)
	if _, err := k.see(s, session.TurnStarted{Epoch: k.epoch(s), Turn: b.turn, Message: message}); err != nil {
		b.turn = ""
	}
}

func (k *kernel) settle(s int) {
	b := &k.bridges[s]
	end := pickOf(k, session.Completed, session.Completed, session.Completed, session.Aborted, session.Error)
	if _, err := k.see(s, session.TurnSettled{Epoch: k.epoch(s), Turn: b.turn, End: end, ByPerson: k.odds(40)}); err == nil {
		b.turn, b.onDisk = "", len(b.branch)
	}
}

// report tells what the branch shows of everything that is watched.
func (k *kernel) report(s int) {
	b := &k.bridges[s]
	r := session.Report{Epoch: k.epoch(s), Idle: b.turn == "", Pending: k.odds(8)}
	for _, m := range k.before.Messages {
		if m.Session != kernelSessions[s] || !m.Watched || k.odds(5) {
			continue
		}
		at := slices.Index(b.branch, m.ID)
		e := session.Evidence{Message: m.ID, Present: at >= 0, Durable: at >= 0 && at < b.onDisk, Replied: at >= 0 && k.odds(50)}
		r.Evidence = append(r.Evidence, e)
	}
	k.see(s, r)
}

// send tries the next send.
func (k *kernel) send(s int) {
	c := store.Try{Session: kernelSessions[s], Epoch: k.epoch(s), Token: k.token()}
	if send, err := do[store.Send](k, c); err == nil && send.Message != nil {
		k.carry(s, send, c.Token)
	}
}

// carry carries a send out: the bridge takes it, drops it, refuses it, or takes
// it and its answer is lost.
func (k *kernel) carry(s int, send store.Send, token launch.Digest) {
	b := &k.bridges[s]
	at := attempt{send.Message.ID, token}
	verdict, answered := session.Taken, true
	switch pickOf(k, "takes", "takes", "takes", "takes", "answer lost", "dropped", "occupied", "refused") {
	case "answer lost":
		answered = false
	case "dropped":
		k.attempts = append(k.attempts, kernelAttempt{s, at})
		return
	case "occupied":
		verdict = session.Occupied
	case "refused":
		verdict = session.Refused
	}
	if verdict == session.Taken {
		if slices.ContainsFunc(append(send.Others, at.message), func(id string) bool { return slices.Contains(b.branch, id) }) {
			verdict = session.Present
		} else {
			b.branch = append(b.branch, at.message)
			if send.Message.Kind.StartsTurn() {
				b.opens = at.message
			}
		}
	}
	if !answered {
		k.attempts = append(k.attempts, kernelAttempt{s, at})
		return
	}
	k.answer(s, at, verdict)
}

func (k *kernel) answer(s int, at attempt, v session.Verdict) {
	do[struct{}](k, store.Answer{Session: kernelSessions[s], Answer: session.Answer{Message: at.message, Token: at.token, Verdict: v, Reason: "bridge"}})
}

// disturb is what goes wrong around a session.
func (k *kernel) disturb(s int) {
	b := &k.bridges[s]
	switch pickOf(k, "input", "chat", "disconnect", "takeover", "rewind", "rewind", "rewind", "back", "back", "late answer", "lie", "reopen", "shutdown", "repeat", "abandon") {
	case "input":
		k.see(s, session.Input{Epoch: k.epoch(s)})
	case "chat":
		k.begin(s, "")
	case "disconnect", "shutdown":
		if _, err := k.see(s, session.Disconnect{Epoch: k.epoch(s), Shutdown: k.odds(50)}); err == nil && k.odds(50) {
			b.branch, b.turn, b.opens = b.branch[:b.onDisk], "", ""
		}
	case "takeover":
		k.connect(s)
		b.branch, b.turn, b.opens = b.branch[:b.onDisk], "", ""
	case "rewind":
		if n := len(b.branch); n > 0 {
			keep := k.one(n)
			b.away, b.branch = slices.Clone(b.branch[keep:]), b.branch[:keep]
			b.onDisk = min(b.onDisk, keep)
		}
	case "back":
		b.branch = append(slices.Clone(b.branch), b.away...)
		b.away = nil
	case "late answer":
		if len(k.attempts) > 0 {
			a := k.attempts[k.one(len(k.attempts))]
			k.answer(a.session, a.attempt, pickOf(k, session.Taken, session.Refused, session.Occupied, session.Present))
		}
	case "lie":
		r := session.Report{Epoch: k.epoch(s), Idle: k.odds(50), Pending: k.odds(50)}
		for _, m := range k.before.Messages {
			if k.odds(50) {
				r.Evidence = append(r.Evidence, session.Evidence{Message: m.ID, Present: k.odds(50), Durable: k.odds(50), Replied: k.odds(50)})
			}
		}
		k.see(s, r)
	case "reopen":
		for _, m := range k.before.Messages {
			if m.State == session.Blocked || k.odds(5) {
				do[struct{}](k, store.Reopen{Session: kernelSessions[s], Message: m.ID})
				return
			}
		}
	case "abandon":
		do[struct{}](k, store.Abandon{Session: kernelSessions[s]})
	case "repeat":
		for _, m := range k.before.Messages {
			if m.Turn.ID != "" && k.odds(50) {
				k.see(s, session.TurnStarted{Epoch: k.epoch(s), Turn: m.Turn.ID, Message: m.ID})
				k.see(s, session.TurnSettled{Epoch: k.epoch(s), Turn: m.Turn.ID, End: pickOf(k, session.Completed, session.Error)})
				b.turn = ""
				return
			}
		}
	}
}
