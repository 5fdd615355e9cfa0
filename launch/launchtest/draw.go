package launchtest

import (
	"fmt"
	"time"

	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

var (
	sessions = []launch.SessionKey{"one@0123456789abcdef0123456789abcdef", "two@0123456789abcdef0123456789abcdef"}
	runners  = []string{"runner-a", "runner-b", "runner-c"}
	pinned   = launch.DigestOf([]byte("definition"))
	changed  = launch.DigestOf([]byte("changed definition"))
	actors   = []launch.Actor{launch.Person, launch.Model, launch.Host, launch.Worker, launch.Timer, 0}
	failures = []launch.SafeError{
		launch.NewSafeError(launch.CodeNodeFailed, "node draft failed; correct it"),
		launch.NewSafeError(launch.CodeActivationFailed, "a tool is missing; install it"),
		launch.NewSafeError(launch.CodeRecordUnreadable, ""),
		launch.NewSafeError(launch.CodeTimedOut, ""),
		{}, {Code: "unheard_of", Message: "x"},
	}
)

const (
	maxLive = 5 // launches that Draw keeps alive at a time
	keys    = 4 // request keys per scope
)

// even draws a number below n, each about equally often; it shrinks to 0. (A
// small range of rapid favours its low end too much for rare edges.)
func even(t *rapid.T, label string, n int) int {
	return int(rapid.Uint32().Draw(t, label) * 2654435761 >> 16 % uint32(n))
}

// one draws an element; repeat an element to draw it more often.
func one[V any](t *rapid.T, label string, from ...V) V { return from[even(t, label, len(from))] }

// odds draws true in about percent of 100 cases.
func odds(t *rapid.T, label string, percent int) bool {
	return even(t, label, 100) >= 100-percent
}

// Commands generates any command for any launch: what a confused or hostile
// caller may send.
func Commands() *rapid.Generator[launch.Command] {
	return rapid.Custom(func(t *rapid.T) launch.Command {
		a := launch.Authority{
			Runner:     one(t, "runner", "", runners[0], runners[1]),
			Token:      one(t, "token", launch.Digest{}, token(0), token(1)),
			Generation: rapid.Uint64Range(0, 3).Draw(t, "generation"),
		}
		return anything(t, a, rapid.Uint64Range(0, 3).Draw(t, "seen"))
	})
}

// Draw draws the next operation: about half of them are ones that the world
// accepts. It does not change the world.
func Draw(t *rapid.T, w *World) Op {
	op := Op{Wait: one(t, "wait", 0, 0, time.Millisecond, time.Second, 5*time.Second, 11*time.Second)}
	if odds(t, "jump", 2) {
		op.Jump = one(t, "by", 6*time.Second, -6*time.Second, time.Hour, -time.Hour, 5*time.Second)
	}
	var live, ended []int
	for i := range w.Launches {
		if w.Launches[i].State.Live() {
			live = append(live, i)
		} else {
			ended = append(ended, i)
		}
	}
	if len(live) == 0 || odds(t, "start", 8) && len(live) < maxLive || odds(t, "start anyway", 2) {
		op.Request = request(t, w)
		return op
	}
	if len(ended) > 0 && odds(t, "ended", 5) {
		live = ended
	}
	i := live[len(live)-1-even(t, "which", len(live))]
	l, record := &w.Launches[i], w.Records[i]
	op.Run = l.ID
	if odds(t, "unknown", 1) {
		op.Run = launch.NewRunID("demo", fmt.Sprintf("%026d", 999_999))
	}
	if !l.State.Terminal() && odds(t, "sensible", 58) {
		sensible(t, w, l, record, &op)
	} else {
		op.Command = anything(t, someClaim(t, w, l), l.Generation-uint64(one(t, "before", 0, 1)))
	}
	return op
}

// token is the hash of the n-th token of a world.
func token(n int) launch.Digest { return launch.DigestOf(fmt.Appendf(nil, "token-%d", n)) }

// someClaim draws the present claim, an earlier one, a foreign one or none.
func someClaim(t *rapid.T, w *World, l *launch.Launch) launch.Authority {
	held := w.held[l.ID]
	a := launch.Authority{Runner: one(t, "foreign", runners...), Token: token(-1), Generation: l.Generation}
	switch one(t, "claim", "earlier", "present", "foreign", "none", "token") {
	case "earlier":
		if len(held) > 0 {
			return held[even(t, "which claim", len(held))]
		}
	case "present":
		return present(l)
	case "none":
		return launch.Authority{}
	case "token":
		a.Runner = l.Claim.Runner
	}
	return a
}

func present(l *launch.Launch) launch.Authority {
	return launch.Authority{Runner: l.Claim.Runner, Token: l.Claim.Token, Generation: l.Generation}
}

func request(t *rapid.T, w *World) *launch.Request {
	n := len(w.Trace)
	r := &launch.Request{
		ID: launch.NewRunID("demo", fmt.Sprintf("%026d", n)), Workflow: "demo", Source: "source", Digest: pinned,
		Mode: launch.Headless, Scope: "headless", Actor: one(t, "starter", launch.Model, launch.Person, launch.Host),
		Input: fmt.Appendf(nil, `{"task":"%s","n":%d}`, Secret, even(t, "content", 2)),
	}
	if odds(t, "interactive", 60) {
		r.Mode, r.Session = launch.Interactive, one(t, "session", sessions...)
		r.Scope = string(r.Session)
	}
	switch {
	case odds(t, "old key", 30):
		r.RequestKey = fmt.Sprintf("key-%d", even(t, "key", keys))
	case odds(t, "new key", 50):
		r.RequestKey = fmt.Sprintf("key-of-%d", n)
	}
	if odds(t, "bad", 5) {
		r.Workflow = "No such name"
	}
	return r
}

// drawRecord draws what the run's record says when a claim ends: usually what it
// did last, sometimes more progress or an end.
func drawRecord(t *rapid.T, l *launch.Launch, r launch.Record) launch.Record {
	if !l.HasRecord() {
		return launch.Record{}
	}
	r.Progress += uint64(one(t, "progress", 0, 0, 1))
	if odds(t, "other status", 50) {
		r.Status = one(t, "status", launch.RecordWaiting, launch.RecordRunning, launch.RecordAttention, launch.RecordDone, launch.RecordFailed, launch.RecordCancelled, launch.RecordUnreadable)
	}
	if r.Status == launch.RecordFailed {
		r.Error = failures[0]
	}
	return r
}

// sensible draws a command that the launch's state calls for.
func sensible(t *rapid.T, w *World, l *launch.Launch, r launch.Record, op *Op) {
	own := present(l)
	claim := launch.ClaimCommand{
		Authority: launch.Authority{Runner: one(t, "runner", runners...), Token: token(len(w.Trace))},
		Lease:     launch.DefaultLease, Digest: pinned, Progress: r.Progress,
	}
	if odds(t, "other definition", 6) {
		claim.Digest = changed
	}
	cancel := launch.CancelCommand{Actor: one(t, "by", actors[:3]...)}
	pause, resume := launch.PauseCommand{Actor: one(t, "pauses", actors[:3]...)}, launch.ResumeCommand{Actor: launch.Person, Waiting: r.Status == launch.RecordWaiting}
	if l.HostPause && odds(t, "a disconnect", 60) {
		resume.Actor = launch.Host
	}
	attend, answer := launch.AttendCommand{Attention: launch.PromptsLost}, launch.WakeCommand{Answered: true}
	settle := launch.SettleCommand{Error: one(t, "outcome", launch.SafeError{}, failures[0])}
	if odds(t, "cancel", 4) {
		op.Command = cancel
		return
	}
	var cs []launch.Command
	switch {
	case l.Paused && !l.State.Claimed():
		cs = []launch.Command{resume, resume, resume, pause}
		if l.State == launch.Parked {
			cs = append(cs, settle, attend)
		}
		if l.Park == launch.ParkAttention {
			cs = append(cs, answer)
		}
	case l.State == launch.Queued:
		cs = []launch.Command{claim, claim, claim, pause}
	case l.State.Claimed():
		record := drawRecord(t, l, r)
		release := launch.ReleaseCommand{Authority: own, Record: record}
		renew := launch.RenewCommand{Authority: own, Lease: launch.DefaultLease}
		lost := launch.RecoverCommand{Generation: l.Generation, Record: record}
		end := max(0, l.Claim.Expiry.Sub(w.Now.Wall))
		lose := 25
		if l.Expiries+l.Strikes > 0 { // the last lost lease that is allowed is rare enough
			lose = 50
		}
		if odds(t, "lose the lease", lose) {
			op.Wait, op.Command = end+one[time.Duration](t, "late", 0, 1, -1), lost
			op.Wait = max(op.Wait, 0)
			return
		}
		if op.Wait >= end {
			op.Wait = 0
		}
		if l.Claim.Expired(w.Now) {
			op.Command = one[launch.Command](t, "expired", renew, release, lost)
			return
		}
		if l.State == launch.Starting {
			fail := launch.FailCommand{Authority: own, Error: failures[1]}
			if l.HasRecord() {
				fail.Error = failures[2]
			}
			start := launch.StartCommand{Authority: own}
			cs = []launch.Command{start, start, start, start, start, renew, release, release, pause, fail}
			break
		}
		why := one(t, "why", launch.ParkWaiting, launch.ParkDue, launch.ParkPaused, launch.ParkAttention)
		park := launch.ParkCommand{Authority: own, Why: why}
		if why == launch.ParkAttention {
			park.Attention = launch.EffectAmbiguous
		}
		if record.Status >= launch.RecordDone {
			release.Record.Status = launch.RecordRunning
		}
		cs = []launch.Command{park, park, park, release, release, renew, pause, launch.FinishCommand{Authority: own}, launch.FailCommand{Authority: own, Error: failures[0]}}
		if l.Paused {
			cs = append([]launch.Command{resume}, cs...)
		}
	case l.Park == launch.ParkDue:
		claim.Progress += uint64(one(t, "answered", 0, 1))
		cs = []launch.Command{claim, claim, claim, claim, claim, claim, attend, pause, pause, settle}
	case l.Park == launch.ParkWaiting:
		cs = []launch.Command{launch.WakeCommand{}, answer, answer, attend, pause, settle}
	default:
		cs = []launch.Command{resume, resume, resume, answer, launch.WakeCommand{}, pause, settle}
	}
	op.Command = one(t, "command", cs...)
}

// anything draws any command under that authority.
func anything(t *rapid.T, a launch.Authority, seen uint64) launch.Command {
	record := launch.Record{
		Status:   launch.RecordStatus(even(t, "status", int(launch.RecordUnreadable)+2)),
		Progress: rapid.Uint64Range(0, 3).Draw(t, "progress"), Error: one(t, "record error", failures...),
	}
	e, actor := one(t, "error", failures...), one(t, "actor", launch.Timer, launch.Worker, launch.Model, 0, launch.Host, launch.Person)
	lease := one(t, "lease", launch.DefaultLease, launch.MinLease-1, launch.MaxLease+1, 0, -1)
	return one[launch.Command](t, "any",
		launch.StartCommand{Authority: a}, launch.FinishCommand{Authority: a},
		launch.FailCommand{Authority: a, Error: e},
		launch.ParkCommand{Authority: a, Why: launch.Park(even(t, "why", 6)), Attention: launch.Attention(even(t, "attention", 6))},
		launch.ReleaseCommand{Authority: a, Record: record}, launch.RenewCommand{Authority: a, Lease: lease},
		launch.RecoverCommand{Generation: seen, Record: record},
		launch.SettleCommand{Error: e}, launch.WakeCommand{Answered: rapid.Bool().Draw(t, "answered")},
		launch.AttendCommand{Attention: launch.Attention(even(t, "asked attention", 6))},
		launch.ClaimCommand{Authority: a, Lease: lease, Digest: one(t, "digest", pinned, changed, launch.Digest{})},
		launch.PauseCommand{Actor: actor}, launch.ResumeCommand{Actor: actor, Waiting: rapid.Bool().Draw(t, "waiting")},
		launch.CancelCommand{Actor: actor},
	)
}
