package store

import (
	"strconv"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Propose is a worker's result of one execution. Answer: [Next]. The host's
// checks are those of packages launch, run and effect; a refused proposal
// changes nothing.
type Propose struct {
	Run launch.RunID
	launch.Authority
	Plan           *run.Plan
	Node           string
	Visit, Attempt uint32
	Outcome        run.Outcome
	Output         []byte
	Failure        launch.SafeError
	Unknown        bool // the action may or may not have taken effect
	Observed       bool // the outcome is what the author's observer found
	Applied        bool // it took effect although the outcome is failed
	Ask            *Ask // instead of an outcome: the node opens its request
	Notice         string
	Verdict        Verdict // instead of an outcome: of the node's validation code
}

// Ask is what a node asks; see engine.Ask.
type Ask struct {
	Title, Task string
	Subject     launch.Digest
}

// Verdict is what validation code says of an answer.
type Verdict uint8

// The verdicts.
const (
	_         Verdict = iota
	Accepted          // it stands, as Output
	Rejected          // the model has to correct it, for the reason in Failure
	NoVerdict         // the code failed or was stopped
)

func (c Propose) run(x *tx) (Next, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Next{}, err
	}
	if err := launch.Owns(l.Launch, c.Authority, x.now); err != nil {
		return Next{}, err
	}
	if l.State != launch.Running {
		return Next{}, launch.Refuse(launch.ErrNotAllowed, "run %s is %s, not running; activate it first", l.ID, l.State)
	}
	if c.Plan == nil {
		return Next{}, errNoPlan
	}
	r, err := x.record(l)
	if err != nil {
		return Next{}, err
	}
	n := c.Plan.Node(c.Node)
	if n == nil {
		return Next{}, launch.Refuse(launch.ErrInvalid, "the plan has no node of that name")
	}
	if c.Node != r.Node || c.Visit != r.Visit || c.Attempt != r.Attempt {
		return Next{}, launch.Refuse(launch.ErrStale, "run %s is at node %s, visit %d, attempt %d; stop the attempt that you name", l.ID, r.Node, r.Visit, r.Attempt)
	}
	switch {
	case c.Verdict != 0:
		return x.verdict(l, r, c.Plan, &c)
	case c.Ask != nil:
		return x.open(l, r, c.Plan, n, &c)
	case n.Kind.Asks() && (r.Asked || c.Outcome == run.OK):
		return Next{}, launch.Refuse(launch.ErrNotAllowed, "node %s asks; only the answer to its request settles it", c.Node)
	}
	receipt := false
	unapproved := n.Approval != "" && c.Outcome == run.Failed // its code has not begun
	if n.Kind == run.Action {
		e, err := x.effect(effect.ActionKey(l.ID, c.Node, c.Visit, r.Retry))
		if err != nil {
			return Next{}, err
		}
		if e == nil && !unapproved {
			return Next{}, launch.Refuse(launch.ErrConflict, "node %s has no reserved effect; its code must not have run", c.Node)
		}
		if e != nil {
			if receipt, err = x.settle(l, e, c.verdict()); err != nil {
				return Next{}, err
			}
			if e.State == effect.Ambiguous {
				return x.askPerson(l, r, c.Plan)
			}
		}
	}
	if n.Kind == run.Notify && c.Outcome == run.OK {
		if c.Notice == "" || len(c.Notice) > launch.MaxOptions {
			return x.failNode(l, r, c.Plan, "must say 1 to "+strconv.Itoa(launch.MaxOptions)+" bytes")
		}
		if err := x.notify(l, n, c.Visit, c.Notice); err != nil {
			return Next{}, err
		}
	}
	settle := run.Settle{Node: c.Node, Visit: c.Visit, Attempt: c.Attempt, Outcome: c.Outcome, Output: c.Output, Failure: c.Failure, Receipt: receipt, Happened: c.Applied}
	if err := x.applyRun(l, r, settle, c.Plan); err != nil {
		return Next{}, err
	}
	return x.goOn(l, r, c.Authority, c.Plan)
}

// verdict is what the proposal says of the action's effect.
func (c *Propose) verdict() effect.Command {
	switch {
	case c.Observed && !c.Unknown:
		return effect.Observation{Found: c.Outcome == run.OK || c.Applied}
	case c.Unknown:
		return effect.Settle{Token: c.Token, Verdict: effect.SaysUnknown}
	case c.Outcome == run.OK || c.Applied:
		return effect.Settle{Token: c.Token, Verdict: effect.SaysApplied}
	}
	return effect.Settle{Token: c.Token, Verdict: effect.SaysRejected}
}

// Receipt records what became of an action whose worker has lost its run
// meanwhile: it settles the effect under the reservation's own token and moves
// nothing else (rule effect/receipt). Answer: whether it was recorded.
type Receipt struct {
	Run     launch.RunID
	Token   launch.Digest
	Node    string
	Visit   uint32
	Retry   uint32
	Applied bool
}

func (c Receipt) run(x *tx) (bool, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return false, err
	}
	e, err := x.effect(effect.ActionKey(l.ID, c.Node, c.Visit, c.Retry))
	if err != nil || e == nil {
		return false, err
	}
	verdict := effect.SaysRejected
	if c.Applied {
		verdict = effect.SaysApplied
	}
	return x.settle(l, e, effect.Settle{Token: c.Token, Verdict: verdict})
}
