package intents

import (
	"slices"

	"example.com/piworkflows/launch"
)

// SourceKind is what happened to a run or its turn.
type SourceKind uint8

// The source kinds.
const (
	_                  SourceKind = iota
	OnCancel                      // the run was cancelled
	OnPause                       // the run was paused
	OnEscape                      // a person aborted a turn
	OnShutdown                    // the session shut down
	OnActivationFailed            // a queued launch failed to activate
	OnStepTimedOut                // an agent step timed out
	OnTakenOver                   // another runner took the run over
	OnAttention                   // the run was parked for attention
	OnEnded                       // the run completed, failed or timed out
)

var sourceNames = []string{"", "cancel", "pause", "escape", "shutdown", "activationFailed", "stepTimedOut", "takenOver", "attention", "ended"}

// SourceKinds returns all source kinds in order.
func SourceKinds() []SourceKind { return all[SourceKind](sourceNames) }

// String returns the wire name.
func (k SourceKind) String() string { return name(sourceNames, uint8(k)) }

// Source is an event that may owe a session a turn.
type Source struct {
	Kind     SourceKind
	Actor    launch.Actor // who caused it
	Headless bool         // the run belongs to no session
	// ActiveTurn means that a turn of that very run is open.
	ActiveTurn bool
	// Outcome of OnEnded: Completed, Failed or TimedOut.
	Outcome Cause
}

// Decision is what a source event owes. The zero value owes nothing and leaves
// pending intents as they are.
type Decision struct {
	Owe           bool  // ensure an intent, or join the event to the run's pending one
	Cause         Cause // of an intent of the event's own
	Eligible      bool  // at once: the owed intent, and whatever is pending for the run
	Handoff       bool  // what becomes eligible is a hand-over to a person
	NoticeIfNone  bool  // a passive notice when nothing is pending for the run
	WithdrawChain bool  // withdraw the pending intents of the run's chain
}

// Match is a condition on a flag of a [Source].
type Match uint8

// The conditions.
const (
	Any Match = iota
	Yes
	No
)

func (m Match) matches(v bool) bool { return m == Any || (m == Yes) == v }

// Row is one line of the policy. An empty condition matches everything.
type Row struct {
	Kinds      []SourceKind
	Actors     []launch.Actor
	Headless   Match
	ActiveTurn Match
	Outcome    Cause

	Then Decision
	Why  string
}

func (r *Row) matches(s Source) bool {
	return (len(r.Kinds) == 0 || slices.Contains(r.Kinds, s.Kind)) &&
		(len(r.Actors) == 0 || slices.Contains(r.Actors, s.Actor)) &&
		r.Headless.matches(s.Headless) && r.ActiveTurn.matches(s.ActiveTurn) &&
		(r.Outcome == 0 || r.Outcome == s.Outcome)
}

var policy = []Row{
	{Kinds: []SourceKind{OnCancel}, Actors: []launch.Actor{launch.Person},
		Then: Decision{WithdrawChain: true},
		Why:  "a person who ends a run wants no turn from it, nor from its chain"},
	{Kinds: []SourceKind{OnPause}, Actors: []launch.Actor{launch.Person},
		Why: "a person holds the run; what is pending waits for the resume"},
	{Kinds: []SourceKind{OnEscape},
		Why: "a person took the floor; what is pending waits"},
	{Kinds: []SourceKind{OnShutdown},
		Why: "a closing session takes no further turn; what is pending waits for its return"},
	{Headless: Yes,
		Why: "no session is owed a turn"},
	{Kinds: []SourceKind{OnActivationFailed},
		Then: Decision{Owe: true, Cause: LaunchFailed, Eligible: true},
		Why:  "the start was acknowledged, so its failure must be told"},
	{Kinds: []SourceKind{OnCancel}, Actors: []launch.Actor{launch.Model}, ActiveTurn: Yes,
		Then: Decision{Owe: true, Cause: AgentCancelled, Eligible: true},
		Why:  "the abort takes the answer away from the model that cancelled"},
	{Kinds: []SourceKind{OnCancel}, ActiveTurn: Yes,
		Then: Decision{Owe: true, Cause: ControllerInterrupted, Eligible: true},
		Why:  "the host ends a turn that the model did not end"},
	{Kinds: []SourceKind{OnCancel},
		Then: Decision{Eligible: true},
		Why:  "no turn is aborted and the caller has the answer; what was pending cannot wait for the run any more"},
	{Kinds: []SourceKind{OnStepTimedOut}, ActiveTurn: Yes,
		Then: Decision{Owe: true, Cause: TimedOut},
		Why:  "the turn is aborted; a recovery prompt of the run may serve it"},
	{Kinds: []SourceKind{OnTakenOver}, ActiveTurn: Yes,
		Then: Decision{Owe: true, Cause: ClaimLost},
		Why:  "the run goes on elsewhere; time alone proves no failure"},
	{Kinds: []SourceKind{OnAttention},
		Then: Decision{Eligible: true, Handoff: true, NoticeIfNone: true},
		Why:  "no prompt of the run will come before a person acts"},
	{Kinds: []SourceKind{OnEnded}, Outcome: Completed,
		Then: Decision{Owe: true, Cause: Completed, Eligible: true},
		Why:  "the post-workflow turn: look whether the task is really done"},
	{Kinds: []SourceKind{OnEnded}, Outcome: Failed,
		Then: Decision{Owe: true, Cause: Failed, Eligible: true},
		Why:  "the post-workflow turn: explain or correct the failure"},
	{Kinds: []SourceKind{OnEnded}, Outcome: TimedOut,
		Then: Decision{Owe: true, Cause: TimedOut, Eligible: true},
		Why:  "the post-workflow turn: explain or correct the timeout"},
	{Why: "nothing is taken away from anybody: no turn was aborted and no run ended"},
}

// PolicyRows returns a copy of the table that [Policy] reads.
func PolicyRows() []Row {
	rows := slices.Clone(policy)
	for i := range rows {
		rows[i].Kinds = slices.Clone(rows[i].Kinds)
		rows[i].Actors = slices.Clone(rows[i].Actors)
	}
	return rows
}

// Policy returns what a source event owes (rule intents/policy): the decision
// of the first row that matches. The last row matches everything.
func Policy(s Source) Decision {
	for i := range policy {
		if policy[i].matches(s) {
			return policy[i].Then
		}
	}
	return Decision{}
}
