package enginetest

import (
	"fmt"
	"strconv"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

var (
	boom   = launch.NewSafeError(launch.CodeNodeFailed, "node failed; correct it")
	late   = launch.NewSafeError(launch.CodeTimedOut, "")
	actors = []launch.Actor{launch.Model, launch.Person, launch.Host, launch.Worker, launch.Timer, 0}
)

// Draw draws the next step: mostly one that fits the world as it is, otherwise
// any, so that about half of the steps are legal. It does not change the world.
func (w *World) Draw(t *rapid.T) Step {
	if odds(t, "time", 10) {
		return Pass{Wait: one(t, "wait", 0, time.Millisecond, time.Second, time.Minute, time.Hour),
			Jump: one(t, "jump", 0, 0, 0, -time.Hour, time.Hour), Restart: odds(t, "restart", 20)}
	}
	if !odds(t, "fits", 60) {
		return w.any(t)
	}
	r := &w.Run
	q, e := w.asked(), w.Effect(w.Key())
	n := w.Plan.Node(r.Node)
	switch {
	case r.Status.Terminal():
		return w.any(t)
	case r.Status == run.Waiting && r.Due != 0:
		if !w.Now.Passed(r.Due) {
			return Pass{Wait: r.Due.Sub(w.Now.Wall)}
		}
		return Move{one[run.Command](t, "after backoff", run.Elapse{}, run.Unpark{})}
	case q != nil && !q.State.Over():
		return w.open(t, q)
	case r.Status != run.Running:
		return Move{run.Unpark{}}
	case odds(t, "aside", 30):
		return Move{w.aside(t)}
	case q != nil:
		return Move{w.outcome(t, q)}
	case n.Kind.Asks():
		return Ask{}
	case n.Kind == run.Action && (e == nil || !e.State.Final()):
		return w.effects(t, n, e)
	}
	s := w.settle(t, n)
	s.Receipt = e != nil
	if e != nil && e.State == effect.Rejected {
		s.Outcome, s.Output, s.Failure = run.Failed, nil, boom
	}
	return Move{s}
}

// open draws what is done while a request is open.
func (w *World) open(t *rapid.T, q *request.Request) Step {
	tell := func(c request.Command) Step { return Tell{q.ID, c} }
	if q.State == request.Validating {
		return tell(one[request.Command](t, "verdict", request.Try{}, request.NoVerdict{}, request.Verdict{Accepted: true}, request.Verdict{Accepted: true},
			request.Verdict{Reason: "too short"}, request.Expire{Why: launch.CodeTimedOut}))
	}
	switch one(t, "open", "act", "act", "act", "turn", "prompt", "prompt", "clock", "expire", "resume", "park") {
	case "turn":
		if q.Latest == 0 && odds(t, "closes", 70) {
			return tell(request.TurnClosed{End: one(t, "end", session.Completed, session.Aborted, session.Error, session.Lost), PromptEntry: "e1"})
		}
		return tell(request.TurnOpened{})
	case "prompt":
		return tell(request.Prompted{Form: one(t, "form", request.Resumed, request.Reminder, request.Reminder)})
	case "clock":
		return Move{one[run.Command](t, "clock", run.StartClock{}, run.SampleClock{}, run.StopClock{}, run.StopClock{Lost: true})}
	case "expire":
		if q.Deadline != 0 && !w.Now.Passed(q.Deadline) {
			return Pass{Wait: max(0, q.Deadline.Sub(w.Now.Wall))}
		}
		return tell(request.Expire{Why: one(t, "why", launch.CodeRequestExpired, launch.CodeRequestExpired, launch.CodeTimedOut, launch.CodeSubmissionMissing)})
	case "resume":
		return tell(request.Resume{})
	case "park":
		return Move{one[run.Command](t, "park", run.Park{Status: run.Waiting}, run.Unpark{}, run.Configure{Revision: w.Run.Settings}, run.End{Status: run.RunCancelled})}
	}
	return Act{w.act(t, q, true)}
}

// act draws an action on a request: one that it takes, or any.
func (w *World) act(t *rapid.T, q *request.Request, fits bool) request.Act {
	n := w.Plan.Node(q.Node)
	a := request.Act{Request: q.ID, Session: Session, Actor: launch.Model, Key: "key-" + strconv.Itoa(w.n), Revision: q.Revision}
	switch q.Kind {
	case run.Agent:
		a.Action = one(t, "model's", request.ActSubmit, request.ActSubmit, request.ActUpdate)
	case run.Assistant:
		a.Action = request.ActRespond
	case run.Checkpoint:
		a.Action, a.Actor = request.ActAnswer, one(t, "by", launch.Model, launch.Person)
	case run.Decision:
		a.Action, a.Actor = request.ActDecide, launch.Person
	}
	if !fits {
		a.Request = one(t, "id", q.ID, q.ID, q.ID, "req-invented", w.Requests[0].ID)
		a.Action, a.Actor = one(t, "action", request.Actions()...), one(t, "actor", actors...)
		a.Session = one(t, "session", Session, Session, "other@0123456789abcdef0123456789abcdef")
		a.Revision = one(t, "revision", q.Revision, q.Revision, 0, q.Revision-1, q.Revision+1)
	}
	if odds(t, "old key", 20) {
		a.Key = "key-" + strconv.Itoa(even(t, "key", w.n))
	}
	if a.Actor == launch.Person {
		a.Person, a.Channel, a.Event = "alice", "pi", a.Key
	}
	a.Payload = Output(n).Draw(t, "payload")
	switch {
	case a.Action == request.ActUpdate:
		a.Payload = fmt.Appendf(nil, `{"completed":%d,"total":9}`, even(t, "completed", 10))
	case a.Action == request.ActDecide:
		a.Payload = []byte(one(t, "decision", `{"choice":"x"}`, `{"choice":"x"}`, `{"choice":"y"}`, `{"choice":"y","text":"ok"}`))
	}
	if odds(t, "misfit", 15) {
		a.Payload = Junk().Draw(t, "junk")
	}
	return a
}

// outcome settles the node as its request ended.
func (w *World) outcome(t *rapid.T, q *request.Request) run.Command {
	s := w.at()
	s.Outcome, s.Failure = run.TimedOut, late
	switch {
	case q.State == request.Accepted:
		s.Outcome, s.Output, s.Failure = run.OK, q.Answer, launch.SafeError{}
	case q.Why == launch.CodeSubmissionMissing:
		s.Outcome, s.Failure = run.Failed, boom
	}
	return s
}

func (w *World) at() run.Settle {
	return run.Settle{Node: w.Run.Node, Visit: w.Run.Visit, Attempt: w.Run.Attempt}
}

func (w *World) settle(t *rapid.T, n *run.Node) run.Settle {
	s := w.at()
	s.Outcome = one(t, "outcome", run.OK, run.OK, run.OK, run.Failed, run.TimedOut, run.Cancelled)
	switch s.Outcome {
	case run.OK:
		s.Output = Output(n).Draw(t, "output")
	case run.Failed:
		s.Failure = boom
	case run.TimedOut:
		s.Failure = late
	}
	return s
}

// aside draws what happens to a running run besides a result.
func (w *World) aside(t *rapid.T) run.Command {
	return one[run.Command](t, "aside", run.StartClock{}, run.StartClock{}, run.SampleClock{}, run.StopClock{}, run.StopClock{Lost: true},
		run.Reattempt{}, run.Park{Status: run.Attention}, run.Configure{Revision: w.Run.Settings}, run.Configure{Revision: 1})
}

// effects draws what is done to an action's effect before it is settled.
func (w *World) effects(t *rapid.T, n *run.Node, e *effect.Effect) Step {
	if e == nil || e.State == effect.Pending && odds(t, "again", 20) {
		want := effect.Reservation{Key: w.Key(), Fingerprint: Subject, Policy: n.Policy, Token: token(int(w.Run.Attempt)), Attempt: w.Run.Attempt}
		if n.Approval != "" && e == nil && odds(t, "gives up", 40) { // it may not be approved
			s := w.at()
			s.Outcome, s.Failure = run.Failed, boom
			return Move{s}
		}
		return Reserve{want}
	}
	if e.State == effect.Ambiguous {
		if odds(t, "not yet", 15) {
			return Reserve{effect.Reservation{Key: e.Key, Fingerprint: e.Fingerprint, Policy: e.Policy, Token: e.Token, Attempt: w.Run.Attempt}}
		}
		return Touch{e.Key, one[effect.Command](t, "found", effect.Observation{Found: odds(t, "there", 50)}, effect.Resolve{Verdict: effect.SaysApplied, Evidence: "seen"},
			effect.Resolve{Verdict: effect.SaysRejected, Evidence: "asked"}, effect.Settle{Token: e.Token, Verdict: effect.SaysApplied})}
	}
	return Touch{e.Key, one[effect.Command](t, "receipt", effect.Settle{Token: e.Token, Verdict: effect.SaysApplied}, effect.Settle{Token: e.Token, Verdict: effect.SaysApplied},
		effect.Settle{Token: e.Token, Verdict: effect.SaysRejected}, effect.Settle{Token: e.Token, Verdict: effect.SaysUnknown}, effect.Recover{})}
}

// token is the hash of the n-th token of a world.
func token(n int) launch.Digest { return launch.DigestOf(fmt.Appendf(nil, "token-%d", n)) }

// any draws what a confused or hostile caller may do.
func (w *World) any(t *rapid.T) Step {
	what := []string{"move", "move", "ask", "reserve"}
	if len(w.Requests) > 0 {
		what = append(what, "act", "act", "tell")
	}
	if len(w.Effects) > 0 {
		what = append(what, "touch")
	}
	switch one(t, "any", what...) {
	case "ask":
		return Ask{}
	case "act":
		return Act{w.act(t, &w.Requests[even(t, "request", len(w.Requests))], odds(t, "right action", 30))}
	case "tell":
		return Tell{w.Requests[even(t, "request", len(w.Requests))].ID, one[request.Command](t, "tell", request.Try{}, request.Verdict{Accepted: true}, request.NoVerdict{},
			request.Expire{Why: launch.CodeNodeFailed}, request.End{}, request.Prompted{}, request.Prompted{Form: request.Reminder}, request.TurnOpened{}, request.Take{}, request.Use{})}
	case "touch":
		e := &w.Effects[even(t, "effect", len(w.Effects))]
		return Touch{e.Key, one[effect.Command](t, "touch", effect.Settle{Token: token(0), Verdict: effect.SaysApplied}, effect.Settle{Token: e.Token, Verdict: effect.SaysRejected},
			effect.Observation{}, effect.Resolve{Verdict: effect.SaysApplied}, effect.Resolve{Verdict: effect.SaysRejected, Evidence: "x"}, effect.Recover{})}
	case "reserve":
		return Reserve{effect.Reservation{Key: w.Key(), Fingerprint: one(t, "print", Subject, launch.DigestOf(nil)), Policy: one(t, "policy", run.Repeatable, run.Observed),
			Token: token(even(t, "token", 3)), Attempt: uint32(even(t, "attempt", 3))}}
	}
	return Move{Commands(&w.Plan).Draw(t, "command")}
}

// Commands generates any command for a run of the plan.
func Commands(p *run.Plan) *rapid.Generator[run.Command] {
	return rapid.Custom(func(t *rapid.T) run.Command {
		n := &p.Nodes[even(t, "node", len(p.Nodes))]
		visit, attempt := uint32(even(t, "visit", 3)), uint32(even(t, "attempt", 3))
		s := run.Settle{Node: n.Path, Visit: visit, Attempt: attempt, Outcome: run.Outcome(even(t, "outcome", 6)), Output: Output(n).Draw(t, "output"), Receipt: odds(t, "receipt", 20)}
		if odds(t, "failure", 50) {
			s.Output, s.Failure = nil, one(t, "error", boom, late, launch.SafeError{Code: "unheard_of", Message: "x"})
		}
		return one[run.Command](t, "any command", s, s, s, run.Wait{Node: n.Path, Visit: visit, Attempt: attempt}, run.Elapse{}, run.Reattempt{},
			run.Park{Status: run.Status(even(t, "status", 9))}, run.Unpark{}, run.Configure{Revision: visit}, run.StartClock{}, run.SampleClock{},
			run.StopClock{Lost: true}, run.End{Status: run.Status(even(t, "end", 9))}, nil)
	})
}
