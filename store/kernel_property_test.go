package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"pgregory.net/rapid"
)

// Any sequence of commands, over two sessions and headless runs, two hosts
// whose claims get lost, and bridges whose branches lose what was on them,
// gives equal answers, events and rows in memory and on SQLite, keeps every
// invariant after every command, and leaves every table as it was when refused.
func TestKernelProperty(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		for range sequencesPerCheck {
			files++
			path := filepath.Join(dir, fmt.Sprint(files))
			// A seed is a step, and zero is none, so that a failure shrinks to the
			// steps that it needs.
			seeds := rapid.SliceOfN(rapid.Uint64(), 30, 150).Draw(t, "steps")
			k := newKernel(t, path)
			for _, seed := range seeds {
				if k.seed = seed; seed != 0 {
					k.step()
				}
			}
			k.finish()
			os.Remove(path)
		}
	})
}

// rapid checks 100 times unless told otherwise.
const sequencesPerCheck = 3

var kernelSessions = [2]launch.SessionKey{"one@0123456789abcdef0123456789abcdef", "two@0123456789abcdef0123456789abcdef"}

// kernel drives two stores in step, and knows what their hosts and bridges do.
type kernel struct {
	t      *rapid.T
	memory *bench
	sqlite *bench
	before store.All
	log    []string
	seed   uint64 // of the step

	n        int // commands so far; makes ids and tokens
	claims   []*held
	bridges  [2]bridge
	attempts []kernelAttempt
	acked    []launch.RunID
	trace    trace
}

type kernelAttempt struct {
	session int
	attempt
}

// bridge is one session's agent: its connection and its branch.
type bridge struct {
	epochs []uint64 // all of its connections; the last one is live
	branch []string // ids of messages on the active branch
	away   []string // and of those on another one
	onDisk int      // how many of branch are durable
	turn   string   // active turn
	opens  string   // message that was appended and has not started its turn
}

func newKernel(t *rapid.T, path string) *kernel {
	k := &kernel{t: t, memory: newBench(nil, ""), sqlite: newBench(nil, path)}
	k.trace.init()
	return k
}

func (k *kernel) finish() {
	k.compare()
	k.reopen()
	for _, id := range k.acked {
		if _, err := k.sqlite.store.Launch(bg, id); err != nil {
			k.fail("run %s was acknowledged and is gone: %v", id, err)
		}
	}
	k.memory.close()
	k.sqlite.close()
}

func (k *kernel) fail(format string, v ...any) {
	k.t.Helper()
	k.t.Fatalf("%s\nafter\n  %s", fmt.Sprintf(format, v...), strings.Join(k.log, "\n  "))
}

func (k *kernel) compare() {
	if a, b := must(k.memory.dump()), must(k.sqlite.dump()); !reflect.DeepEqual(a, b) {
		k.fail("memory and SQLite hold different rows:\n%s", strings.Join(diffDumps(a, b), "\n"))
	}
}

func (k *kernel) reopen() {
	if err := errors.Join(k.memory.reopen(), k.sqlite.reopen()); err != nil {
		k.fail("reopen: %v", err)
	}
	k.compare()
}

// do carries one command out on both stores and checks everything.
func do[A any](k *kernel, c store.Command[A]) (A, error) {
	k.n++
	k.memory.take()
	k.sqlite.take()
	frozen := must(k.memory.dump())
	answer, err := store.Do(bg, k.memory.store, c)
	events := k.memory.take()
	k.log = append(k.log, fmt.Sprintf("%T%+v: %+v, %v", c, c, answer, err))
	answer2, err2 := store.Do(bg, k.sqlite.store, c)
	events2 := k.sqlite.take()
	switch {
	case !reflect.DeepEqual(answer, answer2) || fmt.Sprint(err) != fmt.Sprint(err2):
		k.fail("answers differ: in memory %+v, %v\non SQLite %+v, %v", answer, err, answer2, err2)
	case !reflect.DeepEqual(events, events2):
		k.fail("events differ: in memory %+v\non SQLite %+v", events, events2)
	}
	after := must(k.memory.all())
	if err != nil {
		var r *launch.Refusal
		if !errors.As(err, &r) || r.Kind == launch.ErrInternal || r.Message == "" {
			k.fail("refused as a fault: %v", err)
		}
		if (r.Kind == launch.ErrStale || r.Kind == launch.ErrExpired) != (r.Fence != launch.FenceNone) && r.Fence != launch.FenceNone {
			k.fail("kind %s with fence %s", r.Kind, r.Fence)
		}
		if now := must(k.memory.dump()); !reflect.DeepEqual(frozen, now) || len(events) > 0 {
			k.fail("refused (%v) and changed\n%s", err, strings.Join(diffDumps(frozen, now), "\n"))
		}
		if now := must(k.sqlite.dump()); k.n%4 == 0 && !reflect.DeepEqual(frozen, now) {
			k.fail("refused (%v) and changed on SQLite\n%s", err, strings.Join(diffDumps(frozen, now), "\n"))
		}
	} else {
		if bad := rowInvariants(after); bad != nil {
			k.fail("%v", bad)
		}
		if bad := k.trace.check(k, c, k.before, after, events); bad != nil {
			k.fail("%v", bad)
		}
	}
	if k.n%16 == 0 {
		k.compare()
	}
	k.before = after
	return answer, err
}

// one draws a number below n from the seed of the step.
func (k *kernel) one(n int) int {
	k.seed += 0x9e3779b97f4a7c15
	z := k.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

func (k *kernel) odds(percent int) bool { return k.one(100) >= 100-percent }

func pickOf[V any](k *kernel, from ...V) V {
	return from[k.one(len(from))]
}

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
	case weight < 12:
		k.start()
	case weight < 45:
		k.pump(k.one(2))
	case weight < 75:
		k.work()
	case weight < 83:
		k.person()
	case weight < 92:
		k.disturb(k.one(2))
	default:
		k.time()
	}
}

func (k *kernel) start() {
	r := launch.Request{Workflow: "w", Source: pickOf(k, "src", "src", "src", "other"), Digest: digestNamed("d1"),
		ID: launch.NewRunID("w", fmt.Sprintf("%026d", k.n)), Input: fmt.Appendf(nil, `{"n":%d}`, k.one(2)), Mode: launch.Headless, Scope: "host"}
	c := store.Start{Actor(launch.Host, r), 0, ""}
	if k.odds(75) {
		s := k.one(2)
		c.Mode, c.Session, c.Scope = launch.Interactive, kernelSessions[s], string(kernelSessions[s])
		c.Request.Actor = pickOf(k, launch.Model, launch.Model, launch.Person)
		if c.Request.Actor == launch.Model {
			c.Epoch = k.epoch(s)
		}
	}
	if k.odds(30) {
		c.RequestKey = pickOf(k, "k1", "k2", "k3")
	}
	if k.odds(3) && len(k.acked) > 0 {
		c.ID = k.acked[k.one(len(k.acked))]
	}
	if a, err := do[store.Started](k, c); err == nil && a.Created {
		k.acked = append(k.acked, a.Run)
	}
}

// Actor returns the request of an actor.
func Actor(a launch.Actor, r launch.Request) launch.Request { r.Actor = a; return r }

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
	return do[store.Seen](k, store.Observe{Session: kernelSessions[s], Saw: saw})
}

// pump does the next thing that a well-behaved bridge and coordinator do.
func (k *kernel) pump(s int) {
	b := &k.bridges[s]
	row := k.sessionRow(s)
	switch {
	case !row.Connected():
		k.connect(s)
	case b.opens != "":
		k.begin(s, b.opens)
	case b.turn != "":
		k.settle(s)
	case !row.Fresh || k.odds(15):
		k.report(s)
	default:
		k.send(s)
	}
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

// send tries the next send; the bridge takes it, drops it, refuses it, or takes
// it and its answer is lost.
func (k *kernel) send(s int) {
	b := &k.bridges[s]
	c := store.Try{Session: kernelSessions[s], Epoch: k.epoch(s), Token: k.token()}
	send, err := do[store.Send](k, c)
	if err != nil || send.Message == nil {
		return
	}
	at := attempt{send.Message.ID, c.Token}
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
	switch pickOf(k, "input", "chat", "disconnect", "takeover", "rewind", "back", "late answer", "lie", "reopen", "prompt", "shutdown", "repeat") {
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
	case "prompt":
		for _, l := range k.before.Launches {
			if l.Session == kernelSessions[s] && l.HasRecord() && l.State.Live() {
				do[struct{}](k, store.Prompt{Run: l.ID, Text: fmt.Sprint(k.n)})
			}
		}
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

// work is what hosts do with runs.
func (k *kernel) work() {
	live := k.live()
	if len(live) == 0 || k.odds(8) {
		live = k.before.Launches
	}
	if len(live) == 0 {
		return
	}
	l := live[k.one(len(live))]
	h := k.claimOf(l.ID)
	if h == nil || k.odds(6) && len(k.claims) > 0 {
		if h = nil; len(k.claims) > 0 && k.odds(10) {
			h = k.claims[k.one(len(k.claims))]
		}
	}
	if !l.State.Claimed() || h == nil {
		k.claim(l, false)
		return
	}
	switch what := pickOf(k, "go on", "go on", "go on", "go on", "renew", "release", "lose", "lose", "receipt"); {
	case what == "renew":
		do[store.Renewed](k, store.Renew{Run: h.run, Authority: h.auth, Lease: launch.DefaultLease})
	case what == "release":
		do[launch.State](k, store.Release{Run: h.run, Authority: h.auth})
	case what == "receipt":
		do[bool](k, store.Receipt{Run: h.run, Token: h.auth.Token, Node: h.next.Node, Visit: h.next.Visit, Applied: k.odds(50)})
	case what == "lose":
		k.advance(31 * time.Second)
		if k.odds(60) {
			k.claim(l, true)
		} else {
			do[launch.State](k, store.Recover{Run: l.ID, Generation: l.Generation})
		}
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
		Source: l.Source, Capacity: 3, Begin: k.odds(60), Lost: lost, Generation: l.Generation}
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
	names := []string{"one", "two", "pay", "put", "ask", "loop"}
	return names[int(launch.DigestOf([]byte(id))[0])%len(names)]
}

func (k *kernel) propose(h *held) {
	c := store.Propose{Run: h.run, Authority: h.auth, Plan: graphs[h.plan], Node: h.next.Node, Visit: h.next.Visit, Attempt: h.next.Attempt, Outcome: run.OK, Output: []byte("1")}
	switch pickOf(k, "ok", "ok", "ok", "failed", "timed_out", "cancelled", "unknown", "observed", "wrong") {
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
		k.memory.clock.Jump(d)
		k.sqlite.clock.Jump(d)
	case "restart":
		k.log = append(k.log, "restart")
		k.reopen()
	case "late":
		k.log = append(k.log, "late timer")
		if err := errors.Join(k.memory.store.Distrust(bg), k.sqlite.store.Distrust(bg)); err != nil {
			k.fail("%v", err)
		}
	}
}

var _ testing.TB
