package session

import "example.com/piworkflows/launch"

// Bounds of what happens in a chain without a person (rule session/budget).
const (
	// MaxStartsPerTurn bounds the runs that the model starts in one result or
	// fallback turn.
	MaxStartsPerTurn = 1
	// MaxRecoveries bounds the runs that the model starts in such turns of one
	// chain, other than corrections of a launch that failed.
	MaxRecoveries = 2
	// MaxCorrections bounds the launches that fail one after another, each
	// corrected by the model, before no further turn is owed.
	MaxCorrections = 10
)

// Chain counts what the model did in a chain of runs without user input. A
// person's prompt or command begins a new chain.
type Chain struct {
	ID         launch.RunID // first run of the chain
	Stopped    bool         // a person cancelled a run of it
	Recoveries uint8
	Failures   uint8 // launches that failed in a row
}

// Start counts a start that the model makes in the open turn, which joins the
// chain, or refuses it. correction is set when the turn tells of a launch that
// failed. The rule session/budget is decided in the same call that starts.
func (c Chain) Start(t Turn, correction bool) (Chain, error) {
	switch {
	case c.Stopped:
		return c, launch.Refuse(launch.ErrOverBudget, "a person stopped this chain of runs; only a person starts another")
	case t.Starts >= MaxStartsPerTurn:
		return c, launch.Refuse(launch.ErrOverBudget, "this turn has already started a run; a person has to start another")
	case !correction && c.Recoveries >= MaxRecoveries:
		return c, launch.Refuse(launch.ErrOverBudget, "this chain of runs has used its %d automatic starts; a person has to start another", MaxRecoveries)
	}
	if !correction {
		c.Recoveries++
	}
	return c, nil
}

// LaunchFailed counts a launch that failed and reports whether a turn for it is
// still within the budget.
func (c Chain) LaunchFailed() (Chain, bool) {
	if c.Failures > MaxCorrections {
		return c, false
	}
	c.Failures++
	return c, c.Failures <= MaxCorrections
}

// Ran forgets launch failures because a run of the chain came to run.
func (c Chain) Ran() Chain {
	c.Failures = 0
	return c
}
