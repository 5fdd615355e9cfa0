package store

import (
	"crypto/sha256"
	"encoding/json"
	"strconv"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

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
	Request string            // id of the request concerned, or empty
	Node    string            // path of the node concerned, or empty
	Launch  launch.EventKind  // of a launch's event, else zero
	Of      session.EventKind // of a session's event, else zero
	Turn    intents.EventKind // of an intent's event, else zero
	Timer   bool              // a deadline was stored with it
}

func sessionStream(k launch.SessionKey) (s [16]byte) {
	sum := sha256.Sum256([]byte(k))
	copy(s[:], sum[:])
	return s
}

// stream returns the facts that this command adds to a stream, whose next one
// has the number n.
func (x *tx) stream(key [16]byte, n uint64) *stream {
	for i := range x.events {
		if x.events[i].key == key {
			return &x.events[i]
		}
	}
	i := len(x.events)
	if i < cap(x.events) {
		x.events = x.events[:i+1]
	} else {
		x.events = append(x.events, stream{})
	}
	s := &x.events[i]
	s.key, s.first, s.facts = key, n, s.facts[:0] // the memory of an earlier command
	return s
}

// runEvent adds a fact to a run's stream.
func (x *tx) runEvent(l *launchRow, e Event, state uint8, generation uint64, data []byte) {
	l.Events++
	key, _ := x.keys.get(l.ID)
	x.stream(key, l.Events).add(e.Kind, state, generation, data)
	e.Run, e.Session, e.N, e.At = l.ID, l.Session, l.Events, x.now.Wall
	x.out = append(x.out, e)
}

// sessionEvent adds a fact to a session's stream.
func (x *tx) sessionEvent(s *sessionRow, e Event, state uint8, data []byte) {
	s.Events++
	x.stream(sessionStream(s.Key), s.Events).add(e.Kind, state, s.Epoch, data)
	e.Session, e.N, e.At = s.Key, s.Events, x.now.Wall
	x.out = append(x.out, e)
}

// launchData is the JSON of a launch's event beyond kind, state and generation.
type launchData struct{ Runner, Actor, Park, Attention, Code, ToolCall string }

// append adds the object without its empty members, or nothing.
func (d *launchData) append(b []byte) []byte {
	sep := byte('{')
	for _, m := range [...]struct{ name, value string }{
		{"runner", d.Runner}, {"actor", d.Actor}, {"park", d.Park}, {"attention", d.Attention}, {"code", d.Code}, {"toolCall", d.ToolCall},
	} {
		if m.value != "" {
			b = append(append(append(b, sep, '"'), m.name...), '"', ':')
			b, sep = appendJSON(b, m.value), ','
		}
	}
	if sep == '{' {
		return b
	}
	return append(b, '}')
}

// appendJSON adds s as a JSON string.
func appendJSON(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return append(b, encode(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // plain structs of strings and numbers always encode
		return nil
	}
	return b
}

func name0(set bool, s interface{ String() string }) string {
	if !set {
		return ""
	}
	return s.String()
}

func (x *tx) launchEvent(l *launchRow, e launch.Event, toolCall string) {
	d := launchData{Runner: e.Runner, Actor: name0(e.Actor != 0, e.Actor), Park: e.Park.String(), Attention: e.Attention.String(), Code: string(e.Code), ToolCall: toolCall}
	x.data = d.append(x.data[:0])
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
	x.runEvent(l, Event{Kind: "launch." + e.Kind.String(), From: from, To: e.To.String(), Why: why, Launch: e.Kind}, uint8(e.To), e.Generation, x.data)
}

// nodeData adds the JSON of a fact about a node or its effect.
func nodeData(b []byte, node string, visit, attempt uint32, outcome string) []byte {
	b = append(b, `{"node":"`...) // a path needs no escapes
	b = append(append(b, node...), `","visit":`...)
	b = strconv.AppendUint(b, uint64(visit), 10)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendUint(b, uint64(attempt), 10)
	if outcome != "" {
		b = append(append(append(b, `,"outcome":"`...), outcome...), '"')
	}
	return append(b, '}')
}

func (x *tx) nodeEvent(l *launchRow, e run.Event) {
	outcome := name0(e.Outcome != 0, e.Outcome)
	x.data = nodeData(x.data[:0], e.Node, e.Visit, e.Attempt, outcome)
	x.runEvent(l, Event{Kind: "run." + e.Kind.String(), To: e.Status.String(), Why: outcome, Node: e.Node, Timer: e.Kind == run.Retried}, uint8(e.Status), l.Generation, x.data)
}

// requestEvent records what happened to a request. A progress update and a prompt
// change nothing that a scheduler waits for.
func (x *tx) requestEvent(l *launchRow, q *requestRow, e request.Event) {
	x.data = nodeData(x.data[:0], q.Node, q.Visit, q.Attempt, name0(e.By != 0, e.By))
	x.runEvent(l, Event{Kind: "request." + e.Kind.String(), To: q.State.String(), Node: q.Node, Request: q.ID,
		Why: name0(e.By != 0, e.By), Timer: e.Kind == request.EvOpened && q.Deadline != 0}, uint8(q.State), l.Generation, x.data)
}

func (x *tx) effectEvent(l *launchRow, e *effect.Effect) {
	x.data = nodeData(x.data[:0], e.Key.Path, e.Key.Visit, e.Attempt, "")
	x.runEvent(l, Event{Kind: "effect." + e.State.String(), To: e.State.String(), Node: e.Key.Path}, uint8(e.State), l.Generation, x.data)
}

func (x *tx) intentEvent(s *sessionRow, i *intents.Intent, e intents.Event) {
	why := e.Reason.String()
	if e.Reason == 0 {
		why = i.Cause.String()
	}
	x.sessionEvent(s, Event{Kind: "intent." + e.Kind.String(), Run: i.Run, Intent: i.ID, Message: e.Message, Why: why, Turn: e.Kind}, 0, encode(e))
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
	x.sessionEvent(s, Event{Kind: "session." + e.Kind.String(), Run: e.Run, Message: e.Message, Intent: e.Intent, To: to, Why: why, Of: e.Kind}, state, encode(d))
}
