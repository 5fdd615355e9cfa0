package store

import (
	"unicode/utf8"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Connect registers a bridge's connection. Answer: its epoch.
type Connect struct {
	Session launch.SessionKey
	session.Connect
}

func (c Connect) run(x *tx) (uint64, error) {
	if err := launch.CheckSessionKey(c.Session); err != nil {
		return 0, err
	}
	if err := x.stopTurnClock(c.Session, true); err != nil {
		return 0, err
	}
	ch, err := x.apply(c.Session, c.Connect)
	return ch.World.Session.Epoch, err
}

// Observe carries what a bridge saw to its session: session.Disconnect, Input,
// TurnStarted, TurnSettled or Report. Answer: [Seen].
type Observe struct {
	Session launch.SessionKey
	Saw     session.Command
	Reply   *Reply // of a settled turn, or nil
}

// Reply is what a settled turn said.
type Reply struct {
	PromptEntry string // id of the session entry that opened the turn, or empty
	ReplyEntry  string // id of the final assistant entry, or empty
	Text        string // of that entry
	// Usable says that the text is whole and that no entry of the person follows
	// the message that opened the turn, so that it may answer a request.
	Usable bool
}

func (r *Reply) check() error {
	for _, k := range [...]struct{ field, value string }{{"prompt entry", r.PromptEntry}, {"reply entry", r.ReplyEntry}} {
		if k.value != "" {
			if err := launch.CheckKey(k.field, k.value); err != nil {
				return err
			}
		}
	}
	if !utf8.ValidString(r.Text) {
		return launch.Refuse(launch.ErrInvalid, "reply is not valid UTF-8")
	}
	return launch.CheckSize("reply", len(r.Text), launch.MaxOutput)
}

// stopTurnClock closes the active interval of the turn that is open in a
// session, because nobody samples it any more.
func (x *tx) stopTurnClock(k launch.SessionKey, lost bool) error {
	s, err := x.session(k)
	if err != nil {
		return err
	}
	_, q, err := x.openTurn(s)
	if err != nil || q == nil {
		return err
	}
	return x.clock(q, run.StopClock{Lost: lost})
}

// Seen is the answer to [Observe].
type Seen struct {
	Own   session.Ownership // of a started turn
	Abort string            // message whose turn the bridge has to stop, or empty
}

func (c Observe) run(x *tx) (Seen, error) {
	if err := launch.CheckSessionKey(c.Session); err != nil {
		return Seen{}, err
	}
	var named []string
	saw := c.Saw
	switch s := saw.(type) {
	case session.Input:
	case session.Disconnect:
		row, err := x.session(c.Session)
		if err != nil {
			return Seen{}, err
		}
		if row.Epoch == s.Epoch {
			if err := x.stopTurnClock(c.Session, false); err != nil {
				return Seen{}, err
			}
		}
	case session.TurnSettled:
		if c.Reply != nil {
			if err := c.Reply.check(); err != nil {
				return Seen{}, err
			}
			x.reply = c.Reply
		}
	case session.TurnStarted:
		named = []string{s.Message}
		withdrawn, err := x.withdrawn(s.Message)
		if err != nil {
			return Seen{}, err
		}
		s.Withdrawn = withdrawn
		saw = s
	case session.Report:
		if len(s.Evidence) > launch.MaxList {
			return Seen{}, launch.Refuse(launch.ErrInvalid, "the report answers about %d messages; the bound is %d", len(s.Evidence), launch.MaxList)
		}
		for _, e := range s.Evidence {
			named = append(named, e.Message)
		}
	default:
		return Seen{}, launch.Refuse(launch.ErrNotAllowed, "a bridge does not report that")
	}
	ch, err := x.apply(c.Session, saw, named...)
	return Seen{Own: ch.Own, Abort: ch.Abort}, err
}

// withdrawn reports whether the message's intent may not be served any more.
func (x *tx) withdrawn(message string) (bool, error) {
	if message == "" || launch.CheckKey("message", message) != nil {
		return false, nil
	}
	m, err := x.message(message)
	if err != nil || m == nil || m.Intent == "" || natural(&m.Message) { // which serves its request too
		return false, err
	}
	i, err := x.intent(m.Intent)
	return i != nil && i.WithdrawnAt != 0, err
}

// Try records the next send that is due in a session, before the bridge is
// asked. Answer: [Send].
type Try struct {
	Session launch.SessionKey
	Epoch   uint64
	Token   launch.Digest
}

// Send is the answer to [Try]: a message to send now, or why there is none.
type Send struct {
	Message *session.Message // nil when nothing is to be sent now
	Others  []string         // ids of other issues of its subject
	Why     string
}

func (c Try) run(x *tx) (Send, error) {
	w, err := x.world(c.Session)
	if err != nil {
		return Send{}, err
	}
	ready := map[string]bool{}
	for i := range w.Messages {
		m := &w.Messages[i]
		if m.State != session.Pending {
			continue
		}
		if err := x.name(m); err != nil {
			return Send{}, err
		}
		if ready[m.ID], err = x.ready(m); err != nil {
			return Send{}, err
		}
	}
	ch, err := x.apply(c.Session, session.Try{Epoch: c.Epoch, Token: c.Token, Ready: func(m *session.Message) bool { return ready[m.ID] }})
	if err != nil || ch.Send == nil {
		return Send{Why: ch.Why}, err
	}
	row, err := x.message(ch.Send.ID)
	if err != nil {
		return Send{}, err
	}
	if row.Intent != "" {
		if err := x.carry(row); err != nil {
			return Send{}, err
		}
	}
	m := row.Message
	send := Send{Message: &m}
	for issue := uint8(1); issue <= session.MaxIssues; issue++ {
		if id := session.MessageID(row.Subject, issue); id != row.ID {
			send.Others = append(send.Others, id)
		}
	}
	return send, nil
}

// name lets a step or checkpoint message that is not on its way name the pending
// intent of its run, if there is one now (rule intents/eligible).
func (x *tx) name(m *session.Message) error {
	if !natural(m) || m.Attempt.Epoch != 0 {
		return nil
	}
	owed, err := x.pending(m.Session, func(i *intents.Intent) bool { return i.Run == m.Run && !i.Carried() })
	if err != nil {
		return err
	}
	row, err := x.message(m.ID)
	if err != nil {
		return err
	}
	row.Intent = ""
	if len(owed) > 0 {
		row.Intent = owed[0].ID
	}
	m.Intent = row.Intent
	return nil
}

// natural reports whether a message serves an intent besides its own subject.
func natural(m *session.Message) bool { return m.Kind == session.Step || m.Kind == session.Checkpoint }

// ready looks again at whether a pending message may be sent, against its
// intent and run as they are now (rule intents/eligible). What would start a turn
// of a paused run waits until the run is resumed.
func (x *tx) ready(m *session.Message) (bool, error) {
	if natural(m) {
		l, err := x.launch(m.Run)
		if err != nil || l.Paused || l.Park == launch.ParkPaused {
			return false, err
		}
	}
	if m.Intent == "" {
		return true, nil
	}
	i, err := x.intent(m.Intent)
	if err != nil || i == nil {
		return false, err
	}
	if i.Carried() && i.DeliveryClaimToken != m.Attempt.First {
		return false, nil
	}
	if natural(m) {
		return i.Pending(), nil
	}
	facts, err := x.runFacts(m.Run)
	return err == nil && intents.StillEligible(i.Intent, facts), err
}

func (x *tx) runFacts(id launch.RunID) (intents.RunFacts, error) {
	l, err := x.launch(id)
	if err != nil {
		return intents.RunFacts{}, err
	}
	return intents.RunFacts{State: l.State, Attention: l.Park == launch.ParkAttention}, nil
}

// carry claims the intent of a message for the attempt that was just recorded,
// and writes the text from the intent as it is now. Asking again for the same
// message keeps the claim of its first unanswered ask.
func (x *tx) carry(m *messageRow) error {
	i, err := x.intent(m.Intent)
	if err != nil {
		return err
	}
	facts, err := x.runFacts(m.Run)
	if err != nil {
		return err
	}
	claim := intents.Claim{TokenHash: m.Attempt.First, Deadline: m.Attempt.Deadline, Message: m.ID, Run: facts, Natural: natural(&m.Message)}
	if err := x.applyIntent(i, claim); err != nil || claim.Natural {
		return err
	}
	m.Body, err = fallbackBody(i.Intent)
	return err
}

// Answer records a bridge's answer to a send. It needs the attempt's token.
// Answer: nothing.
type Answer struct {
	Session launch.SessionKey
	session.Answer
}

func (c Answer) run(x *tx) (struct{}, error) {
	_, err := x.apply(c.Session, c.Answer, c.Message)
	return struct{}{}, err
}

// Reopen makes a blocked message pending again. Answer: nothing.
type Reopen struct {
	Session launch.SessionKey
	Message string
}

func (c Reopen) run(x *tx) (struct{}, error) {
	if err := launch.CheckKey("message", c.Message); err != nil {
		return struct{}{}, err
	}
	_, err := x.apply(c.Session, session.Reopen{Message: c.Message}, c.Message)
	return struct{}{}, err
}

// Abandon gives up a session that will never return: its live run is cancelled
// by the host, its pending intents are withdrawn as abandoned, and its unsent
// messages are cancelled (rule session/abandon). Whatever of this is done
// already is left as it is. Answer: nothing.
type Abandon struct{ Session launch.SessionKey }

func (c Abandon) run(x *tx) (struct{}, error) {
	if err := launch.CheckSessionKey(c.Session); err != nil {
		return struct{}{}, err
	}
	s, err := x.session(c.Session)
	if err != nil {
		return struct{}{}, err
	}
	if s.Events == 0 && s.Display == "" {
		return struct{}{}, launch.Refuse(launch.ErrNotFound, "no such session; check the session key")
	}
	live, err := x.reservation(c.Session)
	if err == nil && live != nil {
		err = x.cancel(live, launch.Host)
	}
	if err != nil {
		return struct{}{}, err
	}
	owed, err := x.pending(c.Session, func(*intents.Intent) bool { return true })
	if err != nil {
		return struct{}{}, err
	}
	for _, i := range owed {
		if err := x.applyIntent(i, intents.Withdraw{Reason: intents.ReasonAbandoned}); err != nil {
			return struct{}{}, err
		}
	}
	_, err = x.apply(c.Session, session.Abandon{})
	return struct{}{}, err
}
