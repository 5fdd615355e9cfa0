package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Host is what a worker needs from whoever keeps the run. It checks every
// proposal against actor, revision, exact attempt and claim, and decides.
type Host interface {
	// Propose offers what an execution came to. The answer says what the worker
	// does next. An error, such as a lost claim, stops the worker.
	Propose(ctx context.Context, p Proposal) (Next, error)
	// Output returns the latest accepted output of a node in this run, or ok
	// false when there is none. The worker does not change or keep the bytes.
	Output(ctx context.Context, node string) (json []byte, ok bool, err error)
	// Settings returns a revision of the run's settings as JSON.
	Settings(ctx context.Context, revision uint32) (json []byte, err error)
	// Reserve reserves the effect of the current action for exactly this proposal,
	// if it is approved.
	Reserve(ctx context.Context, fingerprint launch.Digest) error
	// Limit returns a context that ends after d on the host's monotonic clock, with
	// [ErrBudget] as its cause, and a function that stops the waiting.
	Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// ErrBudget is the cause of a context that ended because an active time was used
// up.
var ErrBudget = launch.Refuse(launch.ErrExpired, "the active time is used up; stop")

// Job is one stretch of work on a run, from a claim until the run ends or parks.
type Job struct {
	Run     launch.RunID
	Input   []byte // normalized, as [Workflow.CheckInput] returned it
	Current Next   // where the run stands
	// Log gets what is for the developer and is never stored: where code
	// panicked, and the types of errors. Nil means nowhere.
	Log *slog.Logger
}

// Next is where the host says that the run stands.
type Next struct {
	Node string
	// Retry counts the declared retries before this attempt.
	Visit, Attempt, Retry uint32
	Ended, Parked         bool // nothing to run; the rest is not looked at
	// Recovering says that the effect of this visit was reserved before this
	// attempt and is not settled.
	Recovering bool
	// Ambiguous says besides that it is known to be ambiguous: only observation
	// or a person can settle it, so that no code runs again.
	Ambiguous bool
	// Reserve says that the action needs an approval, so that its effect is not
	// reserved yet.
	Reserve bool
	// Budget is what is left of the attempt's active time; 0 is no bound.
	Budget time.Duration
	// Seen is the revision of the settings that the attempt sees.
	Seen uint32
	// Candidate is an answer that the node's own code has to check, instead of
	// running the node.
	Candidate []byte
}

// Proposal is what one execution came to.
type Proposal struct {
	Node           string
	Visit, Attempt uint32
	Outcome        Outcome          // OK, Failed or TimedOut; zero with Unknown, Ask and Verdict
	Output         []byte           // with OK: JSON that fits the node
	Failure        launch.SafeError // with Failed, TimedOut, Unknown and Rejected
	// Unknown says that the effect of the action may or may not have happened:
	// the effect becomes ambiguous and the node stays unsettled.
	Unknown bool
	// Observed says that the outcome comes from the author's observer: OK, it
	// had happened; Failed, an ambiguous effect had surely not.
	Observed bool
	// Applied says that the effect happened although the outcome is Failed: its
	// output cannot be stored.
	Applied bool
	Ask     *Ask    // the node asks, and waits for the answer
	Notice  string  // what a notify node says, with OK
	Verdict Verdict // about Next.Candidate
}

// Ask is what a node asks.
type Ask struct {
	Title, Task string
	Subject     launch.Digest // of what a decision is about
}

// Verdict is what a node's own code says of an answer.
type Verdict uint8

// The verdicts.
const (
	_         Verdict = iota
	Accepted          // it stands, as Output
	Rejected          // it has to be corrected, for the reason in Failure
	NoVerdict         // the code failed or was stopped
)

// Work runs the current node and proposes what came out, again and again, until
// the host says that the run ended or parked (nil), ctx ends (its cause; rule
// engine/stop), or the host returns an error (that error). User code runs on the
// calling goroutine and gets ctx. A proposal that is made is not cancelled with
// it: Propose gets ctx without its end.
func Work(ctx context.Context, wf *Workflow, job Job, host Host) error {
	for at := job.Current; !at.Ended && !at.Parked; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := wf.nodes[at.Node]
		if n == nil {
			return launch.Refuse(launch.ErrSourceChanged, "workflow %s has no node %s; use the definition that is pinned for the run", wf.name, cut(at.Node))
		}
		x := &execution{wf: wf, job: &job, host: host, n: n, at: at}
		p, err := x.within(ctx)
		if ctx.Err() != nil && !x.happened(p) {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if at, err = host.Propose(context.WithoutCancel(ctx), p); err != nil {
			return err
		}
	}
	return nil
}

// execution is one execution of one node.
type execution struct {
	wf   *Workflow
	job  *Job
	host Host
	n    *node
	at   Next

	// Of a node of an included workflow: its mounts, and its input.
	prefix  string
	mounted func(ctx context.Context) (any, error)
}

// within runs the node inside its budget (rule engine/budget).
func (x *execution) within(ctx context.Context) (Proposal, error) {
	if x.at.Candidate != nil {
		return x.verdict(ctx), nil
	}
	if x.at.Budget == 0 {
		return x.run(ctx)
	}
	limited, stop := x.host.Limit(ctx, x.at.Budget)
	defer stop()
	p, err := x.run(limited)
	if context.Cause(limited) != ErrBudget || p.Outcome == OK || p.Applied || p.Ask != nil {
		return p, err
	}
	const spent = "used up its active time"
	if x.n.kind == run.Action && x.n.policy != run.Repeatable {
		return x.unknown(spent + " and may or may not have taken effect; find out and resolve it"), nil
	}
	p = x.proposal(TimedOut)
	p.Failure = launch.NewSafeError(launch.CodeTimedOut, "node "+x.n.name+" "+spent+"; shorten its work or declare a larger budget")
	return p, nil
}

func (x *execution) run(ctx context.Context) (Proposal, error) {
	if x.n.kind == run.Action && (x.at.Recovering || x.at.Ambiguous) {
		switch {
		case x.n.policy == run.Observed:
			if p, done, err := x.observe(ctx); done || err != nil {
				return p, err
			}
		case x.n.policy != run.Repeatable || x.at.Ambiguous:
			return x.unknown("was interrupted and nobody knows whether it took effect; find out and resolve it"), nil
		}
	}
	in, err := x.n.read(ctx, x)
	if _, isSaid := errors.AsType[*said](err); isSaid {
		return x.fail("cannot run: " + explained(err, "")), nil
	}
	if err != nil {
		return Proposal{}, err
	}
	if x.n.kind.Asks() {
		return x.ask(ctx, in)
	}
	if x.at.Reserve {
		if p, done, err := x.reserve(ctx, in); done || err != nil {
			return p, err
		}
	}
	var out any
	err = guard(func() (err error) {
		out, err = x.n.call(ctx, x.attempt(), in)
		return err
	})
	if err != nil {
		return x.failed(ctx, err), nil
	}
	p := x.ok(out)
	if text, isText := out.(string); isText && x.n.kind == run.Notify {
		p.Notice = text
	}
	return p, nil
}

// happened reports whether the proposal says that an effect took place, which
// is worth telling whatever became of ctx meanwhile.
func (x *execution) happened(p Proposal) bool {
	return x.n.kind == run.Action && (p.Outcome == OK || p.Applied)
}

// observe asks the author's observer. done is false when the action's code has
// to run.
func (x *execution) observe(ctx context.Context) (p Proposal, done bool, err error) {
	in, err := x.n.read(ctx, x)
	if err != nil {
		return Proposal{}, false, err
	}
	var out any
	var found bool
	err = guard(func() (err error) {
		out, found, err = x.n.observe(ctx, x.attempt(), in)
		return err
	})
	switch {
	case err != nil:
		x.fault(ctx, "observer failed", err)
		return x.unknown("was interrupted and its observer cannot tell whether it took effect: " + why(err)), true, nil
	case found:
		p = x.ok(out)
	case x.at.Ambiguous:
		p = x.fail("did not take effect, as its observer found out")
	default:
		return Proposal{}, false, nil
	}
	p.Observed = true
	return p, true, nil
}

func (x *execution) attempt() Attempt {
	a := Attempt{Run: x.job.Run, Node: x.n.name, Visit: x.at.Visit, Attempt: x.at.Attempt}
	if x.n.kind == run.Action {
		a.Key = effect.ActionKey(a.Run, a.Node, a.Visit, x.at.Retry).ID().String()
	}
	return a
}

func (x *execution) ok(out any) Proposal {
	var raw []byte
	err := guard(func() (err error) {
		raw, err = encode(out)
		return err
	})
	if err != nil {
		x.log("output cannot be encoded", err)
		p := x.fail("output " + explained(err, "could not be encoded: its own code panicked"))
		p.Applied = x.n.kind == run.Action
		return p
	}
	if err := x.wf.plan.Node(x.n.name).CheckOutput(raw); err != nil {
		p := x.fail("its output cannot be stored")
		if r, ok := errors.AsType[*launch.Refusal](err); ok {
			p.Failure = launch.NewSafeError(launch.CodeNodeFailed, r.Message)
		}
		p.Applied = x.n.kind == run.Action
		return p
	}
	p := x.proposal(OK)
	p.Output = raw
	return p
}

// failed is an error of the node's own code (rules engine/error and
// engine/unknown).
func (x *execution) failed(ctx context.Context, err error) Proposal {
	x.fault(ctx, "node failed", err)
	_, isUnknown := errors.AsType[*unknown](err)
	_, isPanic := errors.AsType[*panicked](err)
	if x.n.kind == run.Action && (isUnknown || isPanic && x.n.policy != run.Repeatable) {
		return x.unknown("may or may not have taken effect: " + why(err))
	}
	if isPanic {
		return x.fail("panicked; see the host's log")
	}
	return x.fail("failed: " + why(err))
}

func why(err error) string {
	if _, ok := errors.AsType[*panicked](err); ok {
		return "it panicked; see the host's log"
	}
	return explained(err, "it returned an error without an explanation; let its code use engine.Explain")
}

func (x *execution) proposal(o Outcome) Proposal {
	return Proposal{Node: x.n.name, Visit: x.at.Visit, Attempt: x.at.Attempt, Outcome: o}
}

func (x *execution) fail(message string) Proposal {
	p := x.proposal(Failed)
	p.Failure = launch.NewSafeError(launch.CodeNodeFailed, "node "+x.n.name+" "+message)
	return p
}

func (x *execution) unknown(message string) Proposal {
	p := x.fail(message)
	p.Outcome, p.Unknown = 0, true
	return p
}

// fault logs an error of user code, unless it only says that the code was told
// to stop.
func (x *execution) fault(ctx context.Context, message string, err error) {
	if _, isPanic := errors.AsType[*panicked](err); isPanic || ctx.Err() == nil {
		x.log(message, err)
	}
}

// log tells the developer. The values of errors and panics may be private, so
// only their types are told (rule engine/error).
func (x *execution) log(message string, err error) {
	if x.job.Log == nil {
		return
	}
	attrs := []any{"workflow", x.wf.name, "run", string(x.job.Run), "node", x.n.name,
		"visit", x.at.Visit, "attempt", x.at.Attempt}
	if p, ok := errors.AsType[*panicked](err); ok {
		attrs = append(attrs, "panic", p.kind, "stack", string(p.stack))
	} else {
		attrs = append(attrs, "type", typeName(err), "explanation", explained(err, ""))
	}
	x.job.Log.Error(message, attrs...)
}
