package intents

import "example.com/piworkflows/launch"

// Cause is why an intent exists. It never changes.
type Cause uint8

// The causes.
const (
	_                     Cause = iota
	AgentCancelled              // the model cancelled the run in its active turn
	TimedOut                    // a step timed out in its active turn, or the run did
	Failed                      // the run failed
	LaunchFailed                // the launch never became a run
	ControllerInterrupted       // the host cancelled the run in its active turn
	ClaimLost                   // another runner took over while a turn was open
	Completed                   // the run completed
)

var causeNames = []string{"", "agentCancelled", "timedOut", "failed", "launchFailed", "controllerInterrupted", "claimLost", "completed"}

// Causes returns all causes in order.
func Causes() []Cause { return all[Cause](causeNames) }

// String returns the wire name.
func (c Cause) String() string { return name(causeNames, uint8(c)) }

// MarshalText writes the wire name and refuses the zero value.
func (c Cause) MarshalText() ([]byte, error) { return write("cause", causeNames, uint8(c)) }

// UnmarshalText reads the wire name.
func (c *Cause) UnmarshalText(b []byte) error { return read("cause", causeNames, b, (*uint8)(c)) }

// Resolution is the kind of message that served an intent.
type Resolution uint8

// The resolutions.
const (
	_                Resolution = iota
	ByWorkflowPrompt            // a step prompt of the run
	ByPresentation              // a checkpoint or result message
	ByFallback                  // a factual message, see [Fallback]
)

var resolutionNames = []string{"", "workflowPrompt", "presentation", "fallback"}

// Resolutions returns all resolutions in order.
func Resolutions() []Resolution { return all[Resolution](resolutionNames) }

// String returns the wire name.
func (r Resolution) String() string { return name(resolutionNames, uint8(r)) }

// MarshalText writes the wire name and refuses the zero value.
func (r Resolution) MarshalText() ([]byte, error) {
	return write("resolution", resolutionNames, uint8(r))
}

// UnmarshalText reads the wire name.
func (r *Resolution) UnmarshalText(b []byte) error {
	return read("resolution", resolutionNames, b, (*uint8)(r))
}

// Reason is why an intent was withdrawn.
type Reason uint8

// The reasons.
const (
	_                  Reason = iota
	ReasonCancelled           // a person cancelled the run or its chain
	ReasonRestarted           // a person restarted the source run
	ReasonChainStopped        // stored withdrawn: its chain was stopped before
	ReasonOverBudget          // stored withdrawn: its chain's budget is used up
	ReasonJoined              // its facts were added to a newer intent of the run
	ReasonAbandoned           // its session was abandoned
)

var reasonNames = []string{"", "cancelled", "restarted", "chain stopped", "over budget", "joined", "abandoned"}

// Reasons returns all reasons in order.
func Reasons() []Reason { return all[Reason](reasonNames) }

// String returns the wire name.
func (r Reason) String() string { return name(reasonNames, uint8(r)) }

// MarshalText writes the wire name and refuses the zero value.
func (r Reason) MarshalText() ([]byte, error) {
	return write("withdrawal reason", reasonNames, uint8(r))
}

// UnmarshalText reads the wire name.
func (r *Reason) UnmarshalText(b []byte) error {
	return read("withdrawal reason", reasonNames, b, (*uint8)(r))
}

// Observed is the state that a run was seen in, in the words of its status.
type Observed uint8

// The observed states.
const (
	_                 Observed = iota
	ObservedQueued             // reserved, or due to go on
	ObservedRunning            // a runner holds it
	ObservedWaiting            // for a request, or for a person's attention
	ObservedPaused             // by a person
	ObservedAmbiguous          // an external effect may or may not have happened
	ObservedCompleted          // ended
	ObservedFailed             // ended
	ObservedTimedOut           // ended
	ObservedCancelled          // ended
)

var observedNames = []string{"", "queued", "running", "waiting", "paused", "ambiguous", "completed", "failed", "timed_out", "cancelled"}

// AllObserved returns all observed states in order.
func AllObserved() []Observed { return all[Observed](observedNames) }

// Observe returns how a launch in that state, parked for that reason, is seen.
// A launch that failed because its run timed out is [ObservedTimedOut], which
// only the caller can know.
func Observe(s launch.State, p launch.Park) Observed {
	switch s {
	case launch.Queued, launch.Starting:
		return ObservedQueued
	case launch.Running:
		return ObservedRunning
	case launch.Done:
		return ObservedCompleted
	case launch.Failed:
		return ObservedFailed
	case launch.Cancelled:
		return ObservedCancelled
	case launch.Parked:
		switch p {
		case launch.ParkWaiting, launch.ParkAttention:
			return ObservedWaiting
		case launch.ParkPaused:
			return ObservedPaused
		}
		return ObservedQueued
	}
	return 0
}

// Terminal reports whether a run seen so has ended.
func (o Observed) Terminal() bool { return o >= ObservedCompleted && o <= ObservedCancelled }

// String returns the wire name.
func (o Observed) String() string { return name(observedNames, uint8(o)) }

// MarshalText writes the wire name and refuses the zero value.
func (o Observed) MarshalText() ([]byte, error) {
	return write("observedState", observedNames, uint8(o))
}

// UnmarshalText reads the wire name.
func (o *Observed) UnmarshalText(b []byte) error {
	return read("observedState", observedNames, b, (*uint8)(o))
}

// The enums of this package are their index in a list of wire names, whose
// first entry stands for the zero value.

func all[E ~uint8](names []string) []E {
	list := make([]E, 0, len(names)-1)
	for i := 1; i < len(names); i++ {
		list = append(list, E(i))
	}
	return list
}

func valid(names []string, v uint8) bool { return v > 0 && int(v) < len(names) }

func name(names []string, v uint8) string {
	if !valid(names, v) {
		return "none"
	}
	return names[v]
}

func write(field string, names []string, v uint8) ([]byte, error) {
	if !valid(names, v) {
		return nil, invalid(field, "%s is not set", field)
	}
	return []byte(names[v]), nil
}

func read(field string, names []string, b []byte, into *uint8) error {
	for i, n := range names {
		if i > 0 && n == string(b) {
			*into = uint8(i)
			return nil
		}
	}
	return invalid(field, "%s is not one of the %d known names", field, len(names)-1)
}

func invalid(field, format string, args ...any) *launch.Refusal {
	r := launch.Refuse(launch.ErrInvalid, format, args...)
	r.Field = field
	return r
}
