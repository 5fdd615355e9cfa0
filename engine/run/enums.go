package run

import "example.com/piworkflows/launch"

// Kind says what a node does.
type Kind uint8

// The node kinds. The set grows; a reader refuses a kind that it does not know.
const (
	_          Kind = iota
	Compute         // a pure function that may run again at any time
	Action          // a function with effects on the outside world
	Agent           // a request that the session's model answers by submitting an output
	Assistant       // a request that the session's model answers with visible text
	Checkpoint      // a request that the model or a person answers
	Decision        // a request that only a verified person decides
	Notify          // one durable message to the session
)

var kindNames = []string{Compute: "compute", Action: "action", Agent: "agent", Assistant: "assistant",
	Checkpoint: "checkpoint", Decision: "decision", Notify: "notify"}

// Asks reports whether a node of this kind opens a request and waits for it.
func (k Kind) Asks() bool { return k >= Agent && k <= Decision }

// Prompts reports whether the request of a node of this kind is put to the
// model of a session, which a headless run has not.
func (k Kind) Prompts() bool { return k == Agent || k == Assistant }

// Policy says what happens to an action whose effect was reserved but not
// settled when its worker was lost.
type Policy uint8

// The policies. Nodes that are no actions have none (zero).
const (
	_            Policy = iota
	Repeatable          // run it again: the outside world takes repeats of one key as one
	Observed            // ask the author's observer whether it happened, else run it again
	Unrepeatable        // a person has to find out
)

var policyNames = []string{Repeatable: "repeatable", Observed: "observed", Unrepeatable: "unrepeatable"}

// On says what an edge looks at.
type On uint8

// The edge forms (rule run/graph).
const (
	_         On = iota
	Plain        // taken on outcome ok, whatever the output
	OnOutput     // taken on outcome ok, by the output's value
	OnOutcome    // taken by the outcome
)

var onNames = []string{Plain: "plain", OnOutput: "output", OnOutcome: "outcome"}

// Outcome is how one execution of a node ended.
type Outcome uint8

// The outcomes.
const (
	_         Outcome = iota
	OK                // it returned an output that was accepted
	Failed            // it returned an error
	TimedOut          // its time was used up
	Cancelled         // someone ended it
)

var outcomeNames = []string{OK: "ok", Failed: "failed", TimedOut: "timed_out", Cancelled: "cancelled"}

// Outcomes returns all outcomes in their order.
func Outcomes() []Outcome { return []Outcome{OK, Failed, TimedOut, Cancelled} }

// Status is where a run stands.
type Status uint8

// The statuses. A parked run is waiting or needs attention.
const (
	_            Status = iota
	Running             // its current node is due or runs
	Waiting             // parked until something outside happens
	Attention           // parked until a person acts
	Completed           // ended: the last node was ok
	RunFailed           // ended: see its failure
	RunTimedOut         // ended: a node's time was used up
	RunCancelled        // ended by someone
)

var statusNames = []string{Running: "running", Waiting: "waiting", Attention: "attention",
	Completed: "completed", RunFailed: "failed", RunTimedOut: "timed_out", RunCancelled: "cancelled"}

// Terminal reports whether a run with this status has ended for ever.
func (s Status) Terminal() bool { return s >= Completed && s <= RunCancelled }

// Parked reports whether a run with this status waits for someone outside.
func (s Status) Parked() bool { return s == Waiting || s == Attention }

// EventKind names what happened to a run.
type EventKind uint8

// The event kinds.
const (
	_           EventKind = iota
	Entered               // a node was entered: a new visit
	Settled               // an execution ended with an outcome
	Reattempted           // the visit is executed again after an interruption
	Parked                // the run waits or needs attention
	Unparked              // the run goes on
	Ended                 // the run reached its terminal status
	Retried               // the visit is executed again as its node declares
	Configured            // the settings changed
)

var eventNames = []string{Entered: "entered", Settled: "settled", Reattempted: "reattempted",
	Parked: "parked", Unparked: "unparked", Ended: "ended", Retried: "retried", Configured: "configured"}

// String returns the wire name.
func (k Kind) String() string      { return nameOf(kindNames, k) }
func (p Policy) String() string    { return nameOf(policyNames, p) }  // see [Kind.String]
func (o On) String() string        { return nameOf(onNames, o) }      // see [Kind.String]
func (o Outcome) String() string   { return nameOf(outcomeNames, o) } // see [Kind.String]
func (s Status) String() string    { return nameOf(statusNames, s) }  // see [Kind.String]
func (k EventKind) String() string { return nameOf(eventNames, k) }   // see [Kind.String]

// MarshalText returns the wire name and refuses a value outside the set.
func (k Kind) MarshalText() ([]byte, error)      { return encode("node kind", kindNames, k) }
func (p Policy) MarshalText() ([]byte, error)    { return encode("effect policy", policyNames, p) } // see [Kind.MarshalText]
func (o On) MarshalText() ([]byte, error)        { return encode("edge form", onNames, o) }         // see [Kind.MarshalText]
func (o Outcome) MarshalText() ([]byte, error)   { return encode("outcome", outcomeNames, o) }      // see [Kind.MarshalText]
func (s Status) MarshalText() ([]byte, error)    { return encode("status", statusNames, s) }        // see [Kind.MarshalText]
func (k EventKind) MarshalText() ([]byte, error) { return encode("event kind", eventNames, k) }     // see [Kind.MarshalText]

// UnmarshalText reads a wire name and refuses a name outside the set.
func (k *Kind) UnmarshalText(b []byte) error      { return decode("node kind", kindNames, b, k) }
func (p *Policy) UnmarshalText(b []byte) error    { return decode("effect policy", policyNames, b, p) } // see [Kind.UnmarshalText]
func (o *On) UnmarshalText(b []byte) error        { return decode("edge form", onNames, b, o) }         // see [Kind.UnmarshalText]
func (o *Outcome) UnmarshalText(b []byte) error   { return decode("outcome", outcomeNames, b, o) }      // see [Kind.UnmarshalText]
func (s *Status) UnmarshalText(b []byte) error    { return decode("status", statusNames, b, s) }        // see [Kind.UnmarshalText]
func (k *EventKind) UnmarshalText(b []byte) error { return decode("event kind", eventNames, b, k) }     // see [Kind.UnmarshalText]

func known[E ~uint8](names []string, e E) bool { return e > 0 && int(e) < len(names) }

func nameOf[E ~uint8](names []string, e E) string {
	if !known(names, e) {
		return "unknown"
	}
	return names[e]
}

func encode[E ~uint8](what string, names []string, e E) ([]byte, error) {
	if !known(names, e) {
		return nil, launch.Refuse(launch.ErrInvalid, "%s %d is not one of the set", what, uint8(e))
	}
	return []byte(names[e]), nil
}

func decode[E ~uint8](what string, names []string, b []byte, into *E) error {
	for e := 1; e < len(names); e++ {
		if names[e] == string(b) {
			*into = E(e)
			return nil
		}
	}
	return launch.Refuse(launch.ErrInvalid, "%s is not one of %q", what, names[1:])
}
