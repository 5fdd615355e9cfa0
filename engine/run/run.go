package run

import (
	"time"

	"example.com/piworkflows/launch"
)

// Run is the row that says where a run stands. Its bytes are shared, never
// changed.
type Run struct {
	ID       launch.RunID
	Revision uint64 // rises by one with each accepted change, from 1
	Status   Status
	Node     string           // path of the current or, when ended, last node
	Visit    uint32           // of Node, from 1
	Attempt  uint32           // of Visit, from 1
	Retry    uint32           // declared retries of Visit so far
	Asked    bool             // Attempt has opened its request
	Due      launch.Time      // of a run that waits for a retry: when its backoff is over
	Began    launch.Time      // start of Attempt; never rewritten
	Budget   time.Duration    // active time of Attempt; 0 = unlimited
	Active   Active           // of Attempt
	Settings uint32           // revision of the settings; 0 = there are none
	Seen     uint32           // revision that Attempt sees
	Steps    uint32           // settled executions
	Progress uint64           // accepted outputs and effect receipts
	Input    []byte           // the workflow's input, normalized JSON
	Failure  launch.SafeError // of a failed or timed-out run
	Started  launch.Time
	Ended    launch.Time // of a terminal run
}

// Step is the immutable row of one settled execution. Run, Node, Visit and
// Attempt are its key.
type Step struct {
	Run     launch.RunID
	Node    string
	Visit   uint32
	Attempt uint32
	Outcome Outcome
	Output  []byte           // with OK
	Failure launch.SafeError // with Failed and TimedOut
	Began   launch.Time      // start of the attempt
	Spent   time.Duration    // of its budget
	// Happened is that of the settlement; see [Settle].
	Happened bool
	At       launch.Time
}

// Event says what one accepted command changed. It is comparable and holds no
// private value.
type Event struct {
	Kind    EventKind `json:"kind"`
	Node    string    `json:"node"`
	Visit   uint32    `json:"visit"`
	Attempt uint32    `json:"attempt"`
	Outcome Outcome   `json:"outcome,omitempty"` // of Settled
	Status  Status    `json:"status"`            // of the run, after the command
}

// Command is one of [Settle], [Wait], [Elapse], [Reattempt], [Park], [Unpark], [Configure],
// [StartClock], [SampleClock], [StopClock] and [End].
type Command interface{ apply(*change) error }

// Settle stores how the current execution ended and goes where the plan leads.
type Settle struct {
	Node    string // with Visit and Attempt, rule run/exact
	Visit   uint32
	Attempt uint32
	Outcome Outcome
	Output  []byte           // with OK, rule run/output
	Failure launch.SafeError // with Failed and TimedOut
	Receipt bool             // an effect's receipt is stored with it
	// Happened says that an action took effect although its outcome is not ok: its
	// output is lost. It is never retried.
	Happened bool
}

// Wait makes the run wait for the request that its current execution opens.
type Wait struct {
	Node    string // with Visit and Attempt, rule run/exact
	Visit   uint32
	Attempt uint32
}

// Elapse records that the backoff of a retry is over.
type Elapse struct{}

// Reattempt starts a new attempt of the current visit after an interruption.
type Reattempt struct{}

// Park makes the run wait ([Waiting]) or ask for a person ([Attention]).
type Park struct{ Status Status }

// Unpark lets a parked run go on with its current attempt.
type Unpark struct{}

// End ends the run without settling its node: [RunCancelled], or [RunFailed]
// and [RunTimedOut] with a failure.
type End struct {
	Status  Status
	Failure launch.SafeError
}

// Result is what an accepted command leaves to store, in one transaction. The
// clock commands change the row without raising its revision.
type Result struct {
	Run      Run
	Step     *Step     // with [Settle]
	Interval *Interval // that the command closed
	Events   []Event
}

// Begin returns the row of a new run that has entered the start node of a
// valid plan, at visit 1 and attempt 1. Its one event is r.At([Entered]).
func Begin(id launch.RunID, p *Plan, input []byte, now launch.Time) (Run, error) {
	start := p.Node(p.Start)
	if err := launch.CheckKey("run id", string(id)); err != nil {
		return Run{}, err
	}
	if err := launch.CheckSize("input", len(input), launch.MaxInput); err != nil {
		return Run{}, err
	}
	if !validJSON(input) {
		return Run{}, launch.Refuse(launch.ErrInvalid, "input is not one valid JSON value in UTF-8")
	}
	if start == nil {
		return Run{}, launch.Refuse(launch.ErrInvalid, "the plan has no start node; validate it first")
	}
	r := Run{ID: id, Revision: 1, Status: Running, Node: p.Start, Visit: 1, Attempt: 1, Input: input, Started: now,
		Began: now, Budget: start.Budget}
	if p.Settings != nil {
		r.Settings, r.Seen = 1, 1
	}
	return r, nil
}

// At returns the event of that kind at the run's current execution.
func (r Run) At(kind EventKind) Event {
	return Event{Kind: kind, Node: r.Node, Visit: r.Visit, Attempt: r.Attempt, Status: r.Status}
}
