package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
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
		p, err := x.run(ctx)
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
	// Of a node of an included workflow, while its sources read: where that is,
	// and what its input is.
	prefix string
	input  func(ctx context.Context) (any, error)
}

func (x *execution) run(ctx context.Context) (Proposal, error) {
	if x.at.Candidate != nil {
		return x.judge(ctx), nil
	}
	code := ctx // of user code
	if x.at.Budget > 0 {
		limited, done := x.host.Limit(ctx, x.at.Budget)
		defer done()
		code = limited
	}
	if x.recovers() {
		switch {
		case x.n.plan.Policy == run.Observed:
			if p, done, err := x.observe(ctx, code); done || err != nil {
				return p, err
			}
		case x.n.plan.Policy != run.Repeatable || x.at.Ambiguous:
			return x.unknown("was interrupted and nobody knows whether it took effect; find out and resolve it"), nil
		}
	}
	in, err := x.n.read(ctx, x)
	if err == nil && x.n.plan.Approval != "" && (x.at.Reserve || x.recovers()) {
		err = x.reserve(ctx, in)
	}
	if m, ok := errors.AsType[*misfit](err); ok {
		return x.early(m.why), nil
	}
	if err != nil {
		return Proposal{}, err
	}
	var out any
	err = guard(func() (err error) {
		out, err = x.n.call(code, x.attempt(), in)
		return err
	})
	spent := ctx.Err() == nil && errors.Is(context.Cause(code), ErrBudget)
	switch {
	case err != nil:
		return x.failed(code, spent, err), nil
	case spent && x.n.plan.Kind != run.Action:
		return x.timedOut(), nil
	}
	if a, ok := out.(*Ask); ok && x.n.plan.Kind.Asks() {
		p := x.proposal(0)
		p.Ask = a
		return p, nil
	}
	p := x.ok(out)
	if x.n.plan.Kind == run.Notify && p.Outcome == OK {
		if p.Notice, _ = out.(string); p.Notice == "" || len(p.Notice) > launch.MaxOptions || !utf8.ValidString(p.Notice) {
			return x.fail(fmt.Sprintf("says %d bytes; it must be 1 to %d of valid UTF-8", len(p.Notice), launch.MaxOptions)), nil
		}
	}
	return p, nil
}

// recovers reports whether an earlier attempt may have taken effect.
func (x *execution) recovers() bool {
	return x.n.plan.Kind == run.Action && (x.at.Recovering || x.at.Ambiguous)
}

// reserve uses the approval of an action for what it is about to do. When it was
// reserved before, this makes sure that the action has not changed since: its
// settings may have.
func (x *execution) reserve(ctx context.Context, in any) error {
	fingerprint, err := digestOf(in)
	if err != nil {
		return launch.Refuse(launch.ErrInternal, "what node %s reads has no digest", x.n.plan.Path)
	}
	err = x.host.Reserve(ctx, fingerprint)
	if r, ok := errors.AsType[*launch.Refusal](err); ok && (r.Kind == launch.ErrNotAllowed || r.Kind == launch.ErrConflict) {
		return &misfit{r.Message}
	}
	return err
}

// digestOf is the digest of what a node reads: of its JSON as the engine writes
// it. Canonical JSON would take large integers that differ for the same.
func digestOf(in any) (launch.Digest, error) {
	raw, err := encode(in)
	return launch.DigestOf(raw), err
}

// early is why the code of this execution does not run.
func (x *execution) early(why string) Proposal {
	if x.recovers() {
		return x.unknown("was interrupted and cannot run again: " + why)
	}
	return x.fail("did not start: " + why)
}

// maxJudge bounds how long a node's validation code runs.
const maxJudge = 30 * time.Second

// judge runs the node's validation code on an answer.
func (x *execution) judge(ctx context.Context) Proposal {
	limit := maxJudge
	if x.at.Budget > 0 {
		limit = min(limit, x.at.Budget)
	}
	code, done := x.host.Limit(ctx, limit)
	defer done()
	err := guard(func() error {
		if x.n.judge == nil {
			return context.Canceled // nothing can tell
		}
		return x.n.judge(code, x.at.Candidate)
	})
	_, isPanic := errors.AsType[*panicked](err)
	p := x.proposal(0)
	switch {
	case x.n.judge == nil || isPanic || code.Err() != nil:
		x.fault(code, "validation came to no verdict", err)
		p.Verdict = NoVerdict
	case err == nil:
		p.Verdict = Accepted
	default:
		p.Verdict = Rejected
		p.Failure = launch.NewSafeError(launch.CodeNodeFailed, explained(err, "the workflow's own check refuses it and does not explain why"))
	}
	return p
}

// happened reports whether the proposal says that an effect took place, which
// is worth telling whatever became of ctx meanwhile.
func (x *execution) happened(p Proposal) bool {
	return x.n.plan.Kind == run.Action && (p.Outcome == OK || p.Applied)
}

// observe asks the author's observer. done is false when the action's code has
// to run.
func (x *execution) observe(ctx, code context.Context) (p Proposal, done bool, err error) {
	in, err := x.n.read(ctx, x)
	if m, ok := errors.AsType[*misfit](err); ok {
		return x.early(m.why), true, nil
	}
	if err != nil {
		return Proposal{}, false, err
	}
	var out any
	var found bool
	err = guard(func() (err error) {
		out, found, err = x.n.observe(code, x.attempt(), in)
		return err
	})
	switch {
	case err != nil:
		x.fault(code, "observer failed", err)
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
	a := Attempt{Run: x.job.Run, Node: x.n.plan.Path, Visit: x.at.Visit, Attempt: x.at.Attempt, Retry: x.at.Retry}
	if x.n.plan.Kind == run.Action {
		a.Key = effect.ActionKey(a.Run, a.Node, a.Visit, a.Retry).ID().String()
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
		p.Applied = x.n.plan.Kind == run.Action
		return p
	}
	if err := x.n.plan.CheckOutput(raw); err != nil {
		p := x.fail("its output cannot be stored")
		if r, ok := errors.AsType[*launch.Refusal](err); ok {
			p.Failure = launch.NewSafeError(launch.CodeNodeFailed, r.Message)
		}
		p.Applied = x.n.plan.Kind == run.Action
		return p
	}
	p := x.proposal(OK)
	p.Output = raw
	return p
}

// failed is an error of the node's own code (rules engine/error, engine/unknown
// and engine/budget).
func (x *execution) failed(code context.Context, spent bool, err error) Proposal {
	x.fault(code, "node failed", err)
	_, isUnknown := errors.AsType[*unknown](err)
	_, isPanic := errors.AsType[*panicked](err)
	action := x.n.plan.Kind == run.Action
	switch {
	case action && (isUnknown || (isPanic || spent) && x.n.plan.Policy != run.Repeatable):
		message := "may or may not have taken effect: " + why(err)
		if spent {
			message = "used up its active time and " + message
		}
		return x.unknown(message)
	case isPanic:
		return x.fail("panicked; see the host's log")
	case spent:
		return x.timedOut()
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
	return Proposal{Node: x.n.plan.Path, Visit: x.at.Visit, Attempt: x.at.Attempt, Outcome: o}
}

func (x *execution) fail(message string) Proposal {
	p := x.proposal(Failed)
	p.Failure = launch.NewSafeError(launch.CodeNodeFailed, "node "+x.n.plan.Path+" "+message)
	return p
}

func (x *execution) timedOut() Proposal {
	p := x.proposal(TimedOut)
	p.Failure = launch.NewSafeError(launch.CodeTimedOut, "node "+x.n.plan.Path+" used up its active time; restart the run, or declare a larger budget")
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
	attrs := []any{"workflow", x.wf.name, "run", string(x.job.Run), "node", x.n.plan.Path,
		"visit", x.at.Visit, "attempt", x.at.Attempt}
	if p, ok := errors.AsType[*panicked](err); ok {
		attrs = append(attrs, "panic", p.kind, "stack", string(p.stack))
	} else {
		attrs = append(attrs, "type", typeName(err), "explanation", explained(err, ""))
	}
	x.job.Log.Error(message, attrs...)
}
