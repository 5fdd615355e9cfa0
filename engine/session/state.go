package session

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"example.com/piworkflows/launch"
)

// Bounds of delivery.
const (
	// SendDeadline is how long after its record an attempt may still be executed.
	SendDeadline = 10 * time.Second
	// PendingGrace is after how long the same pending input counts as forgotten.
	PendingGrace = 30 * time.Second
	// MaxRefusals is how many refusals block a message.
	MaxRefusals = 5
	// MaxIssues is how many times one subject is sent under a new id.
	MaxIssues = 3
)

// Kind is what a message is.
type Kind uint8

// The kinds.
const (
	_            Kind = iota
	Step              // a prompt of a run's request
	Checkpoint        // a checkpoint request
	Result            // the post-workflow message
	Fallback          // the factual message of an intent
	FollowUp          // queued user work
	Decision          // a human decision, shown
	Notification      // a notify visit
	Notice            // cancelled by a person, parked for attention, and the like
)

var kinds = [...]struct {
	name            string
	turn, withRun   bool // starts a turn; ends with its run
	workflowStarted bool // serves a post-workflow or launch intent
}{
	Step: {"step", true, true, false}, Checkpoint: {"checkpoint", true, true, false},
	Result: {"result", true, false, true}, Fallback: {"fallback", true, false, true},
	FollowUp: {"followUp", true, false, false}, Decision: {"decision", false, true, false},
	Notification: {"notification", false, false, false}, Notice: {"notice", false, false, false},
}

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k >= Step && k <= Notice }

// String returns the wire name.
func (k Kind) String() string {
	if !k.Valid() {
		return "none"
	}
	return kinds[k].name
}

// StartsTurn reports whether a message of this kind starts a model turn.
func (k Kind) StartsTurn() bool { return k.Valid() && kinds[k].turn }

// EndsWithRun reports whether the end of the run ends the message and its turn.
func (k Kind) EndsWithRun() bool { return k.Valid() && kinds[k].withRun }

// Recovers reports whether a start made in a turn of this kind joins the chain.
func (k Kind) Recovers() bool { return k.Valid() && kinds[k].workflowStarted }

// State is where a message stands.
type State uint8

// The message states.
const (
	_         State = iota
	Pending         // to be sent
	Sent            // seen on the branch
	Cancelled       // not to be sent any more
	Blocked         // refused or lost too often; a call re-opens it
)

// String returns the wire name.
func (s State) String() string {
	return [...]string{"none", "pending", "sent", "cancelled", "blocked"}[min(int(s), 4)]
}

// End is how a turn ended.
type End uint8

// The ends.
const (
	_         End = iota
	Completed     // the model finished
	Aborted       // someone stopped it
	Error         // the provider failed
	Lost          // nobody saw its end
)

// String returns the wire name.
func (e End) String() string {
	return [...]string{"none", "completed", "aborted", "error", "lost"}[min(int(e), 4)]
}

// MessageID returns the id of the n-th issue of a subject, n from 1: "message:"
// and the lower-hex SHA-256 of n in decimal, a colon, and the subject.
func MessageID(subject string, issue uint8) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(int(issue)) + ":" + subject))
	return "message:" + hex.EncodeToString(sum[:])
}

// Attempt is one recorded send that is not settled. The zero value means none.
type Attempt struct {
	Token launch.Digest // SHA-256 of a random token that only the sender knows
	// First is the token of the first ask. It differs from Token when the same
	// message was asked for again; then no refusal settles the attempt.
	First    launch.Digest
	Epoch    uint64
	Deadline launch.Time // of the latest ask
	Taken    bool        // the bridge answered that it appended the message
}

// Message is one issue of a subject.
type Message struct {
	ID      string
	Session launch.SessionKey
	Kind    Kind
	Subject string
	Issue   uint8
	Run     launch.RunID
	Intent  string // the intent that it carries, or empty
	Request string // the request that it puts, or empty
	State   State
	Body    []byte // JSON; what was sent last or is to be sent
	// Eligible is since when it may be sent: its place in the order. It becomes
	// zero when its subject needs no message any more.
	Eligible launch.Time
	Attempts uint32
	Refusals uint8
	Attempt  Attempt
	// Seen says that a report showed the message on the branch and no later one
	// showed it missing; Durable that the entry was on disk, its turn over, or
	// the bridge cannot tell.
	Seen, Durable bool
	// Watched says that reports are asked about the message (rule
	// session/watched).
	Watched bool
	Turn    Turn
	Created launch.Time
	Updated launch.Time
}

// unsent reports whether the message waits to be sent, or for a call to be.
func (m *Message) unsent() bool { return m.State == Pending || m.State == Blocked }

// live reports whether a report can still change the message.
func (m *Message) live() bool {
	switch {
	case m.unsent() || m.Attempt.Epoch != 0 || m.Turn.Open():
		return true
	case m.State != Sent || !m.Seen: // of what is lost and needed another issue is live
		return false
	}
	return !m.Durable || m.Kind.StartsTurn() && m.Turn.Opened == 0
}

// Turn is the model turn that a message opened. The zero value means none.
type Turn struct {
	ID        string // the bridge's key of the turn
	Opened    launch.Time
	Closed    launch.Time
	End       End
	UserInput bool  // a person typed in it
	Starts    uint8 // runs that the model started in it
}

// Open reports whether the turn is under way.
func (t Turn) Open() bool { return t.Opened != 0 && t.Closed == 0 }

// Active is the agent activity of a session that is under way.
type Active struct {
	Turn      string // the bridge's key, empty when none
	Message   string // the message that owns it, or empty
	UserInput bool
}

// Session is what is known of one session.
type Session struct {
	Key     launch.SessionKey
	Epoch   uint64
	Host    string // the runner whose connection is live, or empty
	Process string // the agent process behind the connection
	Durable bool   // the bridge can tell whether an entry is on disk

	Reported bool // the branch was reported on this connection
	Fresh    bool // the latest report is later than the last answer and event
	Idle     bool
	// Pending says that something is awaited in the session: input that lies
	// there, or the end of a turn although it is idle. PendingSince is since
	// when it is idle so, or zero while it is busy.
	Pending      bool
	PendingSince launch.Time
	Input        bool // a person's input has not settled yet
	Active       Active
	Open         string // message whose turn is open, or empty
	// Abort is the message whose turn, the active one, has to be stopped, or
	// empty (rule session/abort).
	Abort string

	Held      bool
	HeldEpoch uint64 // the connection on which the abort came, if no input came after it
	// HeldRun is the run whose own turn that abort ended, so that it is held too.
	HeldRun launch.RunID

	// Display is the run that was started last in the session.
	Display launch.RunID

	// Quiet is until when nothing is sent after another process took over,
	// because the old one may still execute an unanswered send.
	Quiet launch.Time

	Created, Updated launch.Time
	Events           uint64
}

// Connected reports whether a bridge is connected.
func (s *Session) Connected() bool { return s.Host != "" }

// Free reports whether the session is idle and nothing is pending, or has been
// idle with the same thing pending for too long (rule session/free).
func (s *Session) Free(now launch.Now) bool {
	if !s.Connected() || !s.Reported || !s.Idle {
		return false
	}
	if !s.Pending && s.Active.Turn == "" {
		return true
	}
	return s.PendingSince != 0 && now.Passed(s.PendingSince.Add(PendingGrace))
}

// Boundary says why nothing may activate or start a turn in this session now,
// or returns an empty string.
func (s *Session) Boundary(now launch.Now) string {
	switch {
	case !s.Connected():
		return "the session is not connected"
	case !s.Reported:
		return "the branch is not reported yet"
	case s.Held:
		return "the session is held by the person"
	case s.Active.Turn != "" || s.Open != "":
		return "a turn is under way"
	case !s.Free(now):
		return "the session is busy"
	}
	return ""
}

// World is what is stored of one session: its row and the messages that the
// command concerns, which include every watched one.
type World struct {
	Session  Session
	Messages []Message
}

// Message returns the message with that id, or nil.
func (w *World) Message(id string) *Message {
	for i := range w.Messages {
		if w.Messages[i].ID == id {
			return &w.Messages[i]
		}
	}
	return nil
}
