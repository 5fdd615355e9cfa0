package session

import "example.com/piworkflows/launch"

// EventKind says what happened in a session.
type EventKind uint8

// The event kinds.
const (
	_              EventKind = iota
	EvConnected              // a bridge connected; older epochs are fenced
	EvDisconnected           // the connection ended
	EvHeld                   // the person stopped a turn
	EvFreed                  // the hold is lifted
	EvTurnOpened             // a turn that a message owns began
	EvTurnClosed             // it ended
	EvLateEnd                // an end came for a turn that was closed as lost
	EvQueued                 // a message waits to be sent
	EvAttempted              // a send was recorded
	EvRefused                // the bridge refused it
	EvUncarried              // a send is proven not to have happened
	EvSent                   // the message was seen on the branch
	EvConfirmed              // its entry is durable, or its turn is over
	EvBlocked                // it is not tried any more
	EvReopened               // a call re-opened it
	EvCancelled              // it is not needed any more
)

// String returns the wire name.
func (k EventKind) String() string {
	names := [...]string{"none", "connected", "disconnected", "held", "freed", "turnOpened", "turnClosed", "lateEnd",
		"queued", "attempted", "refused", "uncarried", "sent", "confirmed", "blocked", "reopened", "cancelled"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Event is one committed fact about a session or one of its messages.
type Event struct {
	Kind    EventKind
	Epoch   uint64
	Message string // id, or empty
	Of      Kind   // kind of the message
	Issue   uint8
	Run     launch.RunID
	Intent  string
	Request string
	Turn    string
	End     End
	Reason  string // bounded and safe
	// Unanswered says that an earlier ask of the same message, or another issue
	// of its subject, may still have been carried out.
	Unanswered bool
}

// Ownership is the answer to a turn-start report.
type Ownership uint8

// The answers.
const (
	None    Ownership = iota // the turn belongs to nobody
	Owned                    // the turn belongs to the message: "active"
	Settled                  // that message's turn is already over
)

// String returns the wire name.
func (o Ownership) String() string {
	return [...]string{"none", "active", "settled"}[min(int(o), 2)]
}

// Change is what a command leads to.
type Change struct {
	World  World
	Events []Event
	Own    Ownership // of TurnStarted
	Abort  string    // of TurnStarted: message whose turn must not go on, or empty
	Send   *Message  // of Try: the message to send now, or nil
	Why    string    // of Try without Send: what is waited for
}
