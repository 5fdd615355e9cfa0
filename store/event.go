package store

import (
	"crypto/sha256"
	"encoding/json"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// EventKind is what a stored event is about and what happened: the aggregate
// in the upper bits, its own event kind in the lower five. The state column of
// an event row is the aggregate's state afterwards: launch.State, run.Status,
// effect.State, 0 for intents, session.State of a message.
type EventKind uint16

// The aggregates.
const (
	aboutLaunch EventKind = (iota + 1) << 5
	aboutRun
	aboutEffect
	aboutIntent
	aboutSession
	aboutStore
)

// evViolation is a follow-on that contradicted and was left out.
const evViolation = aboutStore | 1

// evChain is a change of a chain's budget.
const evChain = aboutStore | 2

// String returns "aggregate.what", as in "launch.claimed".
func (k EventKind) String() string {
	of := k & 31
	switch k &^ 31 {
	case aboutLaunch:
		return "launch." + launch.EventKind(of).String()
	case aboutRun:
		return "run." + run.EventKind(of).String()
	case aboutEffect:
		return "effect." + effect.State(of).String()
	case aboutIntent:
		return "intent." + intents.EventKind(of).String()
	case aboutSession:
		return "session." + session.EventKind(of).String()
	}
	switch k {
	case evViolation:
		return "store.violation"
	case evChain:
		return "chain.changed"
	}
	return "unknown"
}

// Event is one committed fact, as an observer sees it. It never holds private
// input, prompts, outputs or tokens.
type Event struct {
	Kind    string            // "aggregate.what", see EventKind
	Run     launch.RunID      // empty when the fact concerns no run
	Session launch.SessionKey // empty when it concerns no session
	N       uint64            // position in the stream of the run or session, from 1
	At      launch.Time       // of the transaction
	From    string            // state before, empty when none
	To      string            // state after
	Why     string            // one safe line, may be empty
	Message string            // id of the message concerned, or empty
	Intent  string            // id of the intent concerned, or empty
	Node    string            // path of the node concerned, or empty
	Launch  launch.EventKind  // of a launch's event, else zero
	Of      session.EventKind // of a session's event, else zero
	Turn    intents.EventKind // of an intent's event, else zero
}

func sessionStream(k launch.SessionKey) (s [16]byte) {
	sum := sha256.Sum256([]byte(k))
	copy(s[:], sum[:])
	return s
}

// runEvent appends an event to a run's stream.
func (x *tx) runEvent(l *launchRow, e Event, kind EventKind, state uint8, generation uint64, data string) {
	l.Events++
	key, _ := runBytes(l.ID)
	x.events = append(x.events, eventRow{Stream: key, N: l.Events, At: x.now.Wall, Kind: kind, State: state, Generation: generation, Data: data})
	e.Kind, e.Run, e.Session, e.N, e.At = kind.String(), l.ID, l.Session, l.Events, x.now.Wall
	x.out = append(x.out, e)
}

// sessionEvent appends an event to a session's stream.
func (x *tx) sessionEvent(s *sessionRow, e Event, kind EventKind, state uint8, data string) {
	s.Events++
	x.events = append(x.events, eventRow{Stream: sessionStream(s.Key), N: s.Events, At: x.now.Wall, Kind: kind, State: state, Generation: s.Epoch, Data: data})
	e.Kind, e.Session, e.N, e.At = kind.String(), s.Key, s.Events, x.now.Wall
	x.out = append(x.out, e)
}

// launchData is the JSON of a launch's event beyond kind, state and generation.
type launchData struct {
	Runner    string `json:"runner,omitempty"`
	Actor     string `json:"actor,omitempty"`
	Park      string `json:"park,omitempty"`
	Attention string `json:"attention,omitempty"`
	Code      string `json:"code,omitempty"`
	ToolCall  string `json:"toolCall,omitempty"`
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // plain structs of strings and numbers always encode
		return ""
	}
	return string(b)
}

func name0(set bool, s interface{ String() string }) string {
	if !set {
		return ""
	}
	return s.String()
}

func (x *tx) launchEvent(l *launchRow, e launch.Event, toolCall string) {
	d := launchData{Runner: e.Runner, Actor: name0(e.Actor != 0, e.Actor), Park: e.Park.String(), Attention: e.Attention.String(), Code: string(e.Code), ToolCall: toolCall}
	data := ""
	if d != (launchData{}) {
		data = encode(d)
	}
	why := d.Park
	switch {
	case e.Code != "":
		why = string(e.Code) + ": " + l.Error.Message
	case e.Attention != 0:
		why = "attention: " + d.Attention
	case why == "" && e.Actor != 0:
		why = "by " + d.Actor
	}
	from := ""
	if e.From != 0 {
		from = e.From.String()
	}
	x.runEvent(l, Event{From: from, To: e.To.String(), Why: why, Launch: e.Kind},
		aboutLaunch|EventKind(e.Kind), uint8(e.To), e.Generation, data)
}

// nodeData is the JSON of an event of a run or effect.
type nodeData struct {
	Node    string `json:"node"`
	Visit   uint32 `json:"visit"`
	Attempt uint32 `json:"attempt,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

func (x *tx) nodeEvent(l *launchRow, e run.Event) {
	outcome := name0(e.Outcome != 0, e.Outcome)
	x.runEvent(l, Event{To: e.Status.String(), Why: outcome, Node: e.Node}, aboutRun|EventKind(e.Kind), uint8(e.Status), l.Generation,
		encode(nodeData{e.Node, e.Visit, e.Attempt, outcome}))
}

func (x *tx) effectEvent(l *launchRow, e *effect.Effect) {
	x.runEvent(l, Event{To: e.State.String(), Node: e.Key.Path}, aboutEffect|EventKind(e.State), uint8(e.State), l.Generation,
		encode(nodeData{e.Key.Path, e.Key.Visit, e.Attempt, ""}))
}

func (x *tx) intentEvent(s *sessionRow, i *intents.Intent, e intents.Event) {
	why := e.Reason.String()
	if e.Reason == 0 {
		why = i.Cause.String()
	}
	x.sessionEvent(s, Event{Run: i.Run, Intent: i.ID, Message: e.Message, Why: why, Turn: e.Kind}, aboutIntent|EventKind(e.Kind), 0, encode(e))
}

// messageData is the JSON of a session's event.
type messageData struct {
	Message string       `json:"message,omitempty"`
	Of      string       `json:"of,omitempty"`
	Issue   uint8        `json:"issue,omitempty"`
	Run     launch.RunID `json:"run,omitempty"`
	Intent  string       `json:"intent,omitempty"`
	Turn    string       `json:"turn,omitempty"`
	End     string       `json:"end,omitempty"`
	Reason  string       `json:"reason,omitempty"`
}

func (x *tx) messageEvent(s *sessionRow, m *session.Message, e session.Event) {
	d := messageData{Message: e.Message, Issue: e.Issue, Run: e.Run, Intent: e.Intent, Turn: e.Turn, Reason: e.Reason,
		Of: name0(e.Of != 0, e.Of), End: name0(e.End != 0, e.End)}
	state, to := uint8(0), ""
	if m != nil {
		state, to = uint8(m.State), m.State.String()
	}
	why := e.Reason
	if d.End != "" {
		why = d.End
	}
	x.sessionEvent(s, Event{Run: e.Run, Message: e.Message, Intent: e.Intent, To: to, Why: why, Of: e.Kind}, aboutSession|EventKind(e.Kind), state, encode(d))
}
