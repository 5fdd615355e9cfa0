package launch

import "time"

// State is where a launch stands. The zero value means "no launch".
type State uint8

// The states, in the order of a launch's life.
const (
	_         State = iota
	Queued          // reserved durably; nothing has run
	Starting        // claimed; the engine is being built or rebuilt
	Running         // a worker holds the claim and runs nodes
	Parked          // no claim; [Park] says why
	Done            // ended: completed
	Failed          // ended: failed or timed out; [SafeError] says why
	Cancelled       // ended: cancelled
)

// States returns all states in order.
func States() []State {
	return []State{Queued, Starting, Running, Parked, Done, Failed, Cancelled}
}

// String returns the wire name.
func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Parked:
		return "parked"
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Cancelled:
		return "cancelled"
	}
	return "none"
}

// Terminal reports whether the launch has ended.
func (s State) Terminal() bool { return s >= Done && s <= Cancelled }

// Live reports whether the launch keeps its session's reservation.
func (s State) Live() bool { return s >= Queued && s <= Parked }

// Claimed reports whether a runner holds a claim in this state.
func (s State) Claimed() bool { return s == Starting || s == Running }

// Mode says who owns a run.
type Mode uint8

// The modes.
const (
	_           Mode = iota
	Interactive      // owned by a session, whose one reservation it takes
	Headless         // owned by nobody; reserves no session and owes no turn
)

// String returns the wire name.
func (m Mode) String() string {
	switch m {
	case Interactive:
		return "interactive"
	case Headless:
		return "headless"
	}
	return "none"
}

// Actor is on whose behalf a command comes.
type Actor uint8

// The actors.
const (
	_      Actor = iota
	Model        // the model of a session, through a tool
	Person       // a person, through a verified channel
	Host         // the embedding program
	Worker       // a runner that holds a claim
	Timer        // a deadline
)

// String returns the wire name.
func (a Actor) String() string {
	switch a {
	case Model:
		return "model"
	case Person:
		return "person"
	case Host:
		return "host"
	case Worker:
		return "worker"
	case Timer:
		return "timer"
	}
	return "none"
}

// Park is why a launch is parked. It is a field and changes without a
// transition. The zero value means "not parked".
type Park uint8

// The reasons. Only ParkDue leads to a claim by itself.
const (
	NotParked     Park = iota
	ParkDue            // due to resume: host closing, lost lease, resume, answer, timer
	ParkWaiting        // a request is open
	ParkPaused         // it is paused (rule launch/pause)
	ParkAttention      // waits for a person; [Launch].Attention says why
)

// String returns the wire name.
func (p Park) String() string {
	switch p {
	case ParkDue:
		return "due"
	case ParkWaiting:
		return "waiting"
	case ParkPaused:
		return "paused"
	case ParkAttention:
		return "attention"
	}
	return ""
}

// Attention is the reason of a launch that is parked for attention.
type Attention uint8

// The reasons for attention.
const (
	NoAttention       Attention = iota
	NoProgress                  // a second lease was lost without saved progress
	SourceChanged               // the definition differs from the pinned one
	EffectAmbiguous             // an external effect may or may not have happened
	PromptsLost                 // a request was put to the model too often without a whole turn
	attentionSentinel           // number of reasons
)

// String returns the wire name.
func (a Attention) String() string {
	switch a {
	case NoProgress:
		return "no_progress"
	case SourceChanged:
		return "source_changed"
	case EffectAmbiguous:
		return "effect_ambiguous"
	case PromptsLost:
		return "prompts_lost"
	}
	return ""
}

// Claim is a runner's ownership of a launch. The zero value means "unclaimed".
type Claim struct {
	Runner string        // unique per process start
	Token  Digest        // SHA-256 of a random token that only the runner knows
	Expiry Time          // when others may take over
	Lease  time.Duration // the length that the expiry was made with
}

// Lease defaults and bounds.
const (
	DefaultLease = 30 * time.Second // length of a claim
	DefaultRenew = 10 * time.Second // how often a runner renews
	MinLease     = time.Second
	MaxLease     = time.Hour
)

// Expired reports whether others may take the claim over (rules launch/expiry
// and launch/clock): its time has come, or its expiry lies further ahead than
// a full lease can explain.
func (c Claim) Expired(now Now) bool {
	if now.Distrust {
		return false
	}
	return now.Wall >= c.Expiry || c.Expiry > now.Wall.Add(c.Lease+ClockTolerance)
}

// Launch is the durable queue record of one run.
type Launch struct {
	ID             RunID
	Workflow       string
	Source         string // identity of the host's source, compared for headless runs
	Digest         Digest // of the pinned definition
	Mode           Mode
	Session        SessionKey // empty when headless
	Group          string     // origin for fairness of headless runs; may be empty
	Input          []byte     // private; nil from running on
	Options        []byte     // launch options, JSON, at most MaxOptions bytes
	Scope          string     // of the request key: the session, or a name the host gives
	RequestKey     string     // empty = two equal starts are two launches
	Content        Digest     // of the input; survives clearing
	InitiatingTurn string     // the turn that made the start, or empty
	Parent         RunID      // the run that this one restarts, or empty
	Chain          RunID      // first run of the chain

	State       State
	Park        Park
	Attention   Attention
	Paused      bool // it parks at the next boundary and stays so (rule launch/pause)
	HostPause   bool // the pause is the host's alone, which may lift it
	Claim       Claim
	Generation  uint64 // of the last claim; never reused
	Activations uint32 // how often it was claimed
	Expiries    uint8  // returns to queued by expiry
	Strikes     uint8  // lost leases without saved progress, since there was any
	Progress    uint64 // the run record's progress when last claimed
	Ready       Time   // since when it waits for a claim; 0 = nothing due
	Error       SafeError

	Created, Updated, Started, Finished Time

	Events uint64 // number of events in the run's stream
}

// HasRecord reports whether the run has a record of its own, which it has from
// its first running on.
func (l *Launch) HasRecord() bool { return l.Started != 0 }

// EventKind says what happened to a launch.
type EventKind uint8

// The event kinds. Renewals have none.
const (
	_           EventKind = iota
	EvReserved            // the launch became durable
	EvClaimed             // a runner took it
	EvStarted             // the engine is built; the run record exists
	EvReleased            // a runner gave it back politely
	EvRecovered           // a lost lease was taken away
	EvParked              // it gave up its slot; or its reason changed
	EvPaused              // a pause was asked for
	EvResumed             // a pause or attention was ended
	EvWoken               // its request was answered or its timer is due
	EvDone                // ended: completed
	EvFailed              // ended: failed
	EvCancelled           // ended: cancelled
)

// String returns the wire name.
func (k EventKind) String() string {
	names := [...]string{"none", "reserved", "claimed", "started", "released", "recovered", "parked", "paused", "resumed", "woken", "done", "failed", "cancelled"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Event is one committed fact about a launch. From equals To when the state
// did not change.
type Event struct {
	Kind       EventKind
	From, To   State
	Generation uint64
	Runner     string
	Actor      Actor
	Park       Park
	Attention  Attention
	Code       Code // of a failure
}

// Replay folds a launch's events into its state, generation and failure code,
// which must equal the launch's row.
func Replay(events []Event) (state State, generation uint64, code Code) {
	for _, e := range events {
		state, generation = e.To, e.Generation
		if e.Code != "" {
			code = e.Code
		}
	}
	return state, generation, code
}
