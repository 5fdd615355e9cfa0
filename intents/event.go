package intents

// EventKind says what happened to an intent.
type EventKind uint8

// The event kinds.
const (
	_            EventKind = iota
	EvRequested            // it became durable
	EvJoined               // a further source event was added to it
	EvEligible             // a fallback or result message may serve it from now on
	EvIneligible           // no more
	EvClaimed              // a message attempts to carry it
	EvSettled              // that attempt did not carry it
	EvResolved             // a message served it
	EvWithdrawn            // it will not be served
)

var eventNames = []string{"", "requested", "joined", "eligible", "ineligible", "claimed", "settled", "resolved", "withdrawn"}

// EventKinds returns all event kinds in order.
func EventKinds() []EventKind { return all[EventKind](eventNames) }

// String returns the wire name.
func (k EventKind) String() string { return name(eventNames, uint8(k)) }

// MarshalText writes the wire name and refuses the zero value.
func (k EventKind) MarshalText() ([]byte, error) { return write("event kind", eventNames, uint8(k)) }

// UnmarshalText reads the wire name.
func (k *EventKind) UnmarshalText(b []byte) error {
	return read("event kind", eventNames, b, (*uint8)(k))
}

// Event is one committed fact about an intent.
type Event struct {
	Kind        EventKind  `json:"kind"`
	Intent      string     `json:"intent"`                // id
	Cause       Cause      `json:"cause,omitzero"`        // of the event requested or joined
	SourceEvent string     `json:"sourceEvent,omitempty"` // requested or joined; links a repetition to this intent
	Handoff     bool       `json:"handoff,omitempty"`     // eligible as a hand-over
	Natural     bool       `json:"natural,omitempty"`     // claimed by a step or checkpoint message of the run
	Resolution  Resolution `json:"resolution,omitzero"`
	Message     string     `json:"message,omitempty"` // claimed or resolved by
	Reason      Reason     `json:"reason,omitzero"`   // of the withdrawal
}

// Replay folds the events of one intent into whether it is eligible and how it
// ended, which must equal its row.
func Replay(events []Event) (eligible bool, resolution Resolution, reason Reason) {
	for _, e := range events {
		switch e.Kind {
		case EvEligible:
			eligible = true
		case EvIneligible:
			eligible = false
		case EvResolved:
			resolution = e.Resolution
		case EvWithdrawn:
			reason = e.Reason
		}
	}
	return eligible && resolution == 0 && reason == 0, resolution, reason
}
