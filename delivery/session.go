package delivery

import (
	"context"
	"encoding/json"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
)

// Session is what a bridge implements for one connected conversation. Look, Send
// and Abort are called one at a time, with a context that ends with the
// connection; Fenced may come at any time, also from inside a method of [Conn].
// A session may be a [Viewer] too.
//
// Whatever the bridge hands over, reports through [Conn] and answers of Look
// alike, it hands over in the order in which it was observed. It does not call
// [Conn.Changed] from inside Look.
type Session interface {
	// Look reports whether the session is idle and whether input waits in it,
	// and says of each named message whether the active branch shows it. It
	// judges by structured metadata, never by text. Names it was not asked for
	// are ignored. An error means "ask again later".
	Look(ctx context.Context, names []string) (Report, error)

	// Send executes the send of m as one synchronous step: it looks whether the
	// epoch is current, the deadline has not passed, the session is idle with
	// nothing pending, no user input is being waited for and the person has not
	// stopped a turn; whether m.ID, one of m.Others or m.Intent is on the
	// active branch; and only then appends. What was there already is Present.
	// What it did not do for a busy session is Occupied, anything else Refused
	// with a reason. An error means that the answer is lost: the message may or
	// may not have been appended, and Send is called again with the same id.
	Send(ctx context.Context, m Message) (Answer, error)

	// Abort stops the turn that the message opened, if it is the active one,
	// and does nothing to any other turn. The person is not told.
	Abort(ctx context.Context, message string) error

	// Fenced says that another connection took the session over. The bridge
	// stays away until the session starts again or a person acts.
	Fenced()
}

// Viewer is a [Session] that shows the person how the session's run stands. It
// is for the eye alone: nothing follows from it, and no rule needs it.
type Viewer interface {
	// Show tells the run on display and its status: once after the first Changed,
	// when the session has had a run, and again when either is another. What
	// changes several times before it can be told is told once. It must not wait.
	Show(run launch.RunID, status view.Status)
}

// Hello introduces a bridge.
type Hello struct {
	Session launch.SessionKey
	// Process identifies the agent's process, such as pid and start time. A
	// connection by another process is a takeover.
	Process string
	// Durable says that Look can tell whether an entry is on disk. When it
	// cannot, an entry counts as durable as soon as the branch shows it.
	Durable bool
	// After is the epoch of the process's last connection to the session, when
	// its bridge connects again by itself, so that it takes the session from no
	// process that has come since. Zero when the session starts or a person
	// asks.
	After uint64
}

// Report is a session's state and what its active branch shows.
type Report struct {
	Idle     bool // no agent activity, nothing about to start
	Pending  bool // a person's input waits
	Evidence []Evidence
}

// Evidence answers about one message that the coordinator named.
type Evidence struct {
	Message string
	Present bool // on the active branch
	Durable bool // on disk, as far as the bridge can tell
	Replied bool // a finished assistant entry follows it
}

// Message is a custom message to append.
type Message struct {
	ID     string
	Others []string // ids of the other issues of the same subject
	Intent string   // id of the intent that it carries, or empty
	Epoch  uint64
	// Deadline is a wall-clock time after which the message must not be
	// appended any more.
	Deadline    launch.Time
	TriggerTurn bool
	CustomType  string
	Content     string
	// Details is the structured metadata by which the message is recognised: a
	// JSON object that holds at least messageId.
	Details json.RawMessage
}

// Verdict is the outcome of a send.
type Verdict = session.Verdict

// The verdicts.
const (
	Taken    = session.Taken    // appended
	Present  = session.Present  // it was on the branch already
	Occupied = session.Occupied // the session was not free; this counts for nothing
	Refused  = session.Refused  // anything else; five of them block the message
)

// Answer is a bridge's answer to a send.
type Answer struct {
	Verdict Verdict
	Reason  string // one safe line, with Occupied and Refused
}

// Ownership is the answer to a turn-start report.
type Ownership = session.Ownership

// The ownerships.
const (
	None    = session.None    // the turn belongs to nobody
	Owned   = session.Owned   // it belongs to the message that opened it: "active"
	Settled = session.Settled // that message's turn is over already
)

// End is how a turn ended.
type End = session.End

// The ends that a bridge reports.
const (
	Completed = session.Completed
	Aborted   = session.Aborted
	Error     = session.Error
)
