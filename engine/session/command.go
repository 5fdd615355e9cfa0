package session

import "example.com/piworkflows/launch"

// Command is one of the commands below.
type Command interface{ apply(*step) }

// Connect registers a bridge. It raises the epoch and fences every older one.
type Connect struct {
	Host    string
	Process string
	Durable bool
	// After is the epoch of the process's last connection, when it connects
	// again by itself, and zero when it takes the session.
	After uint64
}

// Disconnect ends a connection. Shutdown says that the session announced it,
// which lifts a hold that an abort on this connection caused.
type Disconnect struct {
	Epoch    uint64
	Shutdown bool
}

// Input reports that a person's input arrived and has not started a turn yet,
// or steers the current one.
type Input struct{ Epoch uint64 }

// TurnStarted reports that the agent began to work, with the message that
// opened the turn if one did. A retry repeats it with the same key.
type TurnStarted struct {
	Epoch   uint64
	Turn    string
	Message string
	// Withdrawn says that the message's intent is withdrawn, so that its turn
	// has to be stopped.
	Withdrawn bool
}

// TurnSettled reports that the agent came to rest after a turn.
type TurnSettled struct {
	Epoch    uint64
	Turn     string
	End      End  // Completed, Aborted or Error
	ByPerson bool // with Aborted: the person did it, not the host
}

// Evidence answers about one message that the host named.
type Evidence struct {
	Message string
	Present bool
	Durable bool
	// Replied says that a finished assistant entry follows the message.
	Replied bool
}

// Report is the session's state and what its active branch shows. A message
// that it shows and misses in one is shown.
type Report struct {
	Epoch uint64
	// Asked is when the bridge was asked for it, zero for now. What it misses
	// counts as of then: a send may have been carried out since.
	Asked    launch.Time
	Idle     bool
	Pending  bool
	Evidence []Evidence
}

// Try records the next send that is due, if one may be made now. Ready tells
// of a pending message whether it is eligible as of this transaction.
type Try struct {
	Epoch uint64
	Token launch.Digest
	Ready func(*Message) bool
}

// Verdict is a bridge's answer to a send.
type Verdict uint8

// The verdicts.
const (
	_        Verdict = iota
	Taken            // appended
	Present          // it was there already
	Occupied         // the session was not free; counts for nothing
	Refused          // anything else
)

// Answer records the bridge's answer to an attempt, whoever is connected now.
type Answer struct {
	Message string
	Token   launch.Digest
	Verdict Verdict
	Reason  string // bounded and safe
}

// StopTurn asks for the end of a message's turn, if it is the active one. The
// turn stays open until it is settled.
type StopTurn struct{ Message string }

// Queue adds a message, unless an issue of its subject is unsent or on the
// branch already. A cancelled issue is opened again. The world must hold every
// issue of the subject that there is, watched or not.
type Queue struct{ Message Message }

// Cancel ends the unsent messages of a subject that needs none any more, so
// that none is made again.
type Cancel struct {
	Subject string
	Reason  string
}

// EndRun ends what ends with a run: its open step or checkpoint turn, as lost,
// and its unsent step, checkpoint and decision messages.
type EndRun struct{ Run launch.RunID }

// Abandon gives the session up: its open turn ends as lost, and nothing of what
// is unsent or unconfirmed is sent any more (rule session/abandon).
type Abandon struct{}

// Reopen makes a blocked message pending again.
type Reopen struct{ Message string }

// Free lifts a hold because a person started, resumed or restarted something.
type Free struct{}

// CountStart records that the model started a run in the open turn.
type CountStart struct{}
