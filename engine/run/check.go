package run

import (
	"time"

	"example.com/piworkflows/launch"
)

// Check reports whether a stored run row can have been made by this package: it
// is the row invariant "run/row".
func Check(r Run) error {
	bad := func(what string) error { return r.refuse(launch.ErrInternal, "run/row: %s", what) }
	switch {
	case launch.CheckKey("run id", string(r.ID)) != nil:
		return bad("bad run id")
	case r.Revision == 0 || !known(statusNames, r.Status):
		return bad("no revision or status")
	case !validPath(r.Node) || r.Visit == 0 || r.Attempt == 0:
		return bad("no node, visit or attempt")
	case r.Progress > 2*uint64(r.Steps):
		return bad("more progress than settled executions can make")
	case r.Revision <= uint64(r.Steps):
		return bad("fewer revisions than settled executions")
	case r.Status == Completed && (r.Steps == 0 || r.Progress == 0):
		return bad("completed without an accepted output")
	case r.Status.Terminal() != (r.Ended != 0):
		return bad("an end time goes with a terminal status")
	case (r.Status == RunFailed || r.Status == RunTimedOut) != !r.Failure.IsZero():
		return bad("a failure goes with failed and timed_out")
	case r.Retry >= r.Attempt:
		return bad("more retries than attempts")
	case r.Seen > r.Settings:
		return bad("sees settings that do not exist")
	case r.Due != 0 && (!r.Status.Parked() || r.Asked):
		return bad("only a parked run without a request is due")
	case r.Active.bad(r.Budget) || r.Active.Opened != 0 && r.Status.Terminal():
		return bad("active time that no intervals make")
	case len(r.Input) > launch.MaxInput || !validJSON(r.Input):
		return bad("input is not JSON in bounds")
	}
	return nil
}

// bad reports whether an attempt with that budget cannot have this active time.
func (a *Active) bad(budget time.Duration) bool {
	open := a.Opened != 0
	switch {
	case budget == 0:
		return *a != Active{}
	case budget < 0 || budget > MaxBudget || a.From < 0 || a.Spent < a.From:
		return true
	}
	return a.N == 0 && (open || a.Spent != 0) || !open && (a.From != 0 || a.At != 0 || a.Clock != "")
}

// CheckWalk reports whether the steps of a run, in the order in which they were
// settled, walk the plan and lead to the row: it is the trace invariant
// "run/walk". It implies one result for each attempt and at most one accepted
// output for each visit.
func CheckWalk(p *Plan, r Run, steps []Step) error {
	bad := func(i int, what string) error {
		return r.refuse(launch.ErrInternal, "run/walk: step %d: %s", i+1, what)
	}
	if int(r.Steps) != len(steps) {
		return bad(len(steps), "the row counts another number of steps")
	}
	visits := map[string]uint32{p.Start: 1}
	node := p.Start
	var attempt, retry uint32 // of the visit, so far
	for i, s := range steps {
		n := p.Node(node)
		switch {
		case s.Run != r.ID:
			return bad(i, "is of another run")
		case n == nil:
			return bad(i, "follows the end of the walk")
		case s.Node != node || s.Visit != visits[node]:
			return bad(i, "is not at the node and visit that follow")
		case s.Attempt <= attempt:
			return bad(i, "is of an attempt that was over")
		}
		c := Settle{Outcome: s.Outcome, Output: s.Output, Failure: s.Failure, Happened: s.Happened}
		if err := c.check(n); err != nil {
			return bad(i, err.Error())
		}
		if !s.Happened && n.retries(s.Outcome, retry) && uint32(i+1) < p.MaxSteps {
			attempt, retry = s.Attempt, retry+1
			continue
		}
		attempt, retry = 0, 0
		if node = p.Route(node, s.Outcome, s.Output); node != "" {
			visits[node]++
		}
	}
	visit := visits[node]
	ended := false
	if n := len(steps); n > 0 && (node == "" || r.Steps >= p.MaxSteps) { // ended by its last step
		if !r.Status.Terminal() {
			return bad(n-1, "the walk is over and the run is not")
		}
		node, visit, ended = steps[n-1].Node, steps[n-1].Visit, true
	}
	if r.Node != node || r.Visit != visit || !ended && (r.Attempt <= attempt || r.Retry != retry) {
		return bad(len(steps)-1, "the row is not where the walk leads")
	}
	return nil
}
