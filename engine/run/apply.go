package run

import (
	"fmt"
	"slices"

	"example.com/piworkflows/launch"
)

// change is one application of a command: a copy of the row that the command
// changes, with room for what no command exceeds, so that a step and its events
// cost one allocation.
type change struct {
	r      Run
	p      *Plan
	visits func(node string) (uint32, error)
	now    launch.Now
	stored bool // step is set
	n      int  // events used
	closed *Interval
	step   Step
	events [2]Event
}

// Apply applies one command to a run under the plan that is pinned for it.
// visits returns how often the run has entered a node so far; it is asked at
// most once, for a node other than the current one, and its error is returned
// as it is. A refused command returns the run unchanged.
func Apply(r Run, c Command, p *Plan, visits func(node string) (uint32, error), now launch.Now) (Result, error) {
	if r.Status.Terminal() {
		return Result{Run: r}, r.refuse(launch.ErrEnded, "the run has ended as %s; start a new one", r.Status)
	}
	if c == nil || !known(statusNames, r.Status) {
		return Result{Run: r}, r.refuse(launch.ErrInternal, "no command, or a run without a status")
	}
	ch := &change{r: r, p: p, visits: visits, now: now}
	if err := c.apply(ch); err != nil {
		return Result{Run: r}, err
	}
	res := Result{Interval: ch.closed}
	if ch.n > 0 {
		ch.r.Revision++
		res.Events = ch.events[:ch.n:ch.n]
	}
	res.Run = ch.r
	if ch.stored {
		res.Step = &ch.step
	}
	return res, nil
}

func (r *Run) refuse(kind launch.Kind, format string, args ...any) error {
	e := launch.Refuse(kind, format, args...)
	e.Run = r.ID
	return e
}

func (ch *change) event(kind EventKind) *Event {
	e := &ch.events[ch.n]
	*e = ch.r.At(kind)
	ch.n++
	return e
}

func (ch *change) end(s Status, failure launch.SafeError) {
	ch.stopClock()
	ch.r.Status, ch.r.Failure, ch.r.Ended, ch.r.Due = s, failure, ch.now.Wall, 0
	ch.event(Ended)
}

// at checks that a command names the current execution of a running run (rule
// run/exact), and returns its node.
func (ch *change) at(node string, visit, attempt uint32) (*Node, error) {
	r := &ch.r
	if r.Status != Running {
		return nil, r.refuse(launch.ErrStale, "the run is %s, not running; stop this attempt", r.Status)
	}
	if node != r.Node || visit != r.Visit || attempt != r.Attempt {
		return nil, r.refuse(launch.ErrStale, "the run is at node %s, visit %d, attempt %d; stop the attempt that you name", r.Node, r.Visit, r.Attempt)
	}
	n := ch.p.Node(r.Node)
	if n == nil {
		return nil, r.refuse(launch.ErrSourceChanged, "the plan has no node %s; use the plan that is pinned for the run", r.Node)
	}
	return n, nil
}

func (c Settle) apply(ch *change) error {
	r := &ch.r
	n, err := ch.at(c.Node, c.Visit, c.Attempt)
	if err != nil {
		return err
	}
	if err := c.check(n); err != nil {
		return err
	}
	ch.stopClock()
	ch.stored = true
	ch.step = Step{Run: r.ID, Node: r.Node, Visit: r.Visit, Attempt: r.Attempt,
		Outcome: c.Outcome, Output: c.Output, Failure: c.Failure, Began: r.Began, Spent: r.Active.Spent, Happened: c.Happened, At: ch.now.Wall}
	ch.event(Settled).Outcome = c.Outcome
	r.Steps++
	if c.Outcome == OK {
		r.Progress++
	}
	if c.Receipt {
		r.Progress++
	}
	if !c.Happened && n.retries(c.Outcome, r.Retry) && r.Steps < ch.p.MaxSteps {
		ch.retry(n)
		return nil
	}
	return ch.route(c)
}

// retries reports whether a visit with that many declared retries behind it is
// tried again after an outcome (rule run/retry).
func (n *Node) retries(o Outcome, retry uint32) bool {
	return n.Retry != nil && retry < n.Retry.Max && slices.Contains(n.Retry.On, o)
}

// retry begins the next attempt of the visit, at once or after the backoff.
func (ch *change) retry(n *Node) {
	r := &ch.r
	wait := n.Retry.Backoff
	for range r.Retry {
		if wait = min(2*wait, MaxBackoff); wait == MaxBackoff {
			break
		}
	}
	r.Retry++
	ch.attempt(n, r.Attempt+1)
	if wait > 0 {
		r.Status, r.Due = Waiting, ch.now.Wall.Add(wait)
	}
	ch.event(Retried)
}

// attempt begins an attempt of node n, of which nothing has run.
func (ch *change) attempt(n *Node, attempt uint32) {
	r := &ch.r
	r.Attempt, r.Began, r.Active, r.Seen, r.Asked = attempt, ch.now.Wall, Active{}, r.Settings, false
	r.Budget = n.Budget
}

func (c *Settle) check(n *Node) error {
	if c.Happened && (n.Kind != Action || c.Outcome == OK) {
		return n.refuse("only an action that is not ok has happened all the same")
	}
	if c.Receipt && n.Kind != Action {
		return n.refuse("only an action has an effect receipt")
	}
	if c.Outcome == OK {
		if !c.Failure.IsZero() {
			return n.refuse("outcome ok comes without a failure")
		}
		return n.CheckOutput(c.Output)
	}
	if !known(outcomeNames, c.Outcome) {
		return n.refuse("outcome must be one of %q", outcomeNames[1:])
	}
	if len(c.Output) != 0 {
		return n.refuse("outcome %s comes without an output", c.Outcome)
	}
	if c.Outcome == Cancelled {
		if !c.Failure.IsZero() {
			return n.refuse("outcome cancelled comes without a failure")
		}
		return nil
	}
	return checkFailure(c.Failure)
}

// route goes on to the next node or ends the run (rules run/route and
// run/step-limit).
func (ch *change) route(c Settle) error {
	r := &ch.r
	next := ch.p.Route(r.Node, c.Outcome, c.Output)
	if next == "" {
		switch c.Outcome {
		case OK:
			ch.end(Completed, launch.SafeError{})
		case TimedOut:
			ch.end(RunTimedOut, c.Failure)
		case Cancelled:
			ch.end(RunCancelled, launch.SafeError{})
		default:
			ch.end(RunFailed, c.Failure)
		}
		return nil
	}
	n := ch.p.Node(next)
	if n == nil {
		return r.refuse(launch.ErrInvalid, "node %s leads to a node that the plan lacks; validate the plan", r.Node)
	}
	if r.Steps >= ch.p.MaxSteps {
		ch.end(RunFailed, launch.NewSafeError(launch.CodeStepLimit, fmt.Sprintf(
			"the run settled %d nodes without ending and its workflow allows %d; end the loop earlier or declare more steps", r.Steps, ch.p.MaxSteps)))
		return nil
	}
	if next == r.Node {
		r.Visit++
	} else {
		seen, err := ch.visits(next)
		if err != nil {
			return err
		}
		r.Node, r.Visit = next, seen+1
	}
	r.Retry = 0
	ch.attempt(n, 1)
	ch.event(Entered)
	return nil
}

func (c Wait) apply(ch *change) error {
	n, err := ch.at(c.Node, c.Visit, c.Attempt)
	if err != nil {
		return err
	}
	if !n.Kind.Asks() {
		return n.refuse("a node of kind %s opens no request", n.Kind)
	}
	if ch.r.Asked {
		return ch.r.refuse(launch.ErrConflict, "this attempt has opened its request already")
	}
	ch.r.Asked = true
	return Park{Status: Waiting}.apply(ch)
}

func (Elapse) apply(ch *change) error {
	r := &ch.r
	if r.Due != 0 && !ch.now.Passed(r.Due) {
		return r.refuse(launch.ErrNotAllowed, "the retry is due at %s", r.Due)
	}
	r.Due = 0
	return nil
}

func (Reattempt) apply(ch *change) error {
	if ch.r.Status != Running {
		return ch.r.refuse(launch.ErrWrongKind, "the run is %s; unpark it first", ch.r.Status)
	}
	ch.stopClock()
	r := &ch.r
	if r.Asked {
		return r.refuse(launch.ErrNotAllowed, "the attempt has a request, which keeps it")
	}
	r.Attempt, r.Began, r.Active, r.Seen = r.Attempt+1, ch.now.Wall, Active{}, r.Settings
	ch.event(Reattempted)
	return nil
}

func (c Park) apply(ch *change) error {
	if !c.Status.Parked() {
		return ch.r.refuse(launch.ErrInvalid, "a run parks as waiting or attention")
	}
	ch.stopClock()
	if ch.r.Status != c.Status {
		ch.r.Status = c.Status
		ch.event(Parked)
	}
	return nil
}

func (Unpark) apply(ch *change) error {
	ch.stopClock()
	if ch.r.Status != Running {
		ch.r.Status, ch.r.Due = Running, 0
		ch.event(Unparked)
	}
	return nil
}

func (c End) apply(ch *change) error {
	switch c.Status {
	case RunFailed, RunTimedOut:
		if err := checkFailure(c.Failure); err != nil {
			return err
		}
	case RunCancelled:
		if !c.Failure.IsZero() {
			return ch.r.refuse(launch.ErrInvalid, "a cancelled run has no failure")
		}
	default:
		return ch.r.refuse(launch.ErrInvalid, "a run ends from outside as failed, timed_out or cancelled; only its last node completes it")
	}
	ch.end(c.Status, c.Failure)
	return nil
}

func checkFailure(f launch.SafeError) error {
	if !f.Code.OfRun() {
		return launch.Refuse(launch.ErrInvalid, "the failure needs a code of a failed run")
	}
	return f.Check()
}
