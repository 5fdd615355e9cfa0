package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// offer has the commit that makes something due record the attempt as well, as
// long as the connection waits (rule delivery/offer).
func (n *Conn) offer() *store.Offer {
	if !n.ready.Load() || n.changed.Load() || n.refused > 0 || n.newToken() != nil {
		return nil
	}
	return n.c.o.Store.Offer(store.Try{Session: n.key, Epoch: n.epoch, Token: n.token}, n.wake)
}

// newToken makes a token for the next attempt unless there is one.
func (n *Conn) newToken() error {
	if n.token != (launch.Digest{}) {
		return nil
	}
	token, err := n.c.o.Store.NewToken()
	if err == nil {
		n.token = token.Hash()
	}
	return err
}

// look asks the bridge for a report and records it.
func (n *Conn) look(names []string) (bool, error) {
	before := n.seen.Load()
	wall, _ := n.c.o.Store.Clock().Now()
	report, err := n.session.Look(n.ctx, names)
	if err != nil {
		n.changed.Store(true)
		return false, err
	}
	r := session.Report{Epoch: n.epoch, Asked: wall, Idle: report.Idle, Pending: report.Pending}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	for _, e := range report.Evidence {
		if asked[e.Message] {
			r.Evidence = append(r.Evidence, session.Evidence(e))
		}
	}
	n.record.Lock()
	defer n.record.Unlock()
	if n.seen.Load() != before { // something was reported meanwhile: look at what is now
		n.changed.Store(true)
		return true, nil
	}
	if _, err := store.Do(n.ctx, n.c.o.Store, store.Observe{Session: n.key, Saw: r}); err != nil {
		n.changed.Store(true)
		return false, err
	}
	n.c.o.Reported(n.key)
	return true, nil
}

// try records the next send that is due, and carries it out.
func (n *Conn) try(s *session.Session) (bool, error) {
	if err := n.newToken(); err != nil {
		return false, err
	}
	send, err := store.Do(n.ctx, n.c.o.Store, store.Try{Session: n.key, Epoch: n.epoch, Token: n.token})
	if err != nil {
		return false, err
	}
	if send.Message == nil {
		// What an idle session waits for ends by itself; no deadline tells when
		// if the clock is distrusted.
		if s.Idle && !s.Held && send.Why != "" {
			n.arm(maxPause)
		}
		return false, nil
	}
	return n.send(&send)
}

// send asks the bridge for a send that was recorded, and records the answer.
func (n *Conn) send(s *store.Send) (bool, error) {
	token := n.token
	n.token = launch.Digest{}
	n.said.Store(false)
	m, err := message(s, n.epoch)
	if err != nil {
		n.backOff(false)
		return false, err
	}
	answer, err := n.session.Send(n.ctx, m)
	if err == nil {
		record := session.Answer{Message: m.ID, Token: token, Verdict: answer.Verdict, Reason: answer.Reason}
		_, err = store.Do(context.WithoutCancel(n.ctx), n.c.o.Store, store.Answer{Session: n.key, Answer: record})
		if errors.Is(err, launch.ErrStale) { // the attempt is settled already
			return true, nil
		}
	}
	switch {
	case err != nil: // the answer is lost: ask again for the same message, a little later
		n.backOff(false)
		return false, err
	case answer.Verdict == Occupied || answer.Verdict == Refused:
		n.backOff(answer.Verdict == Occupied)
	default:
		n.refused = 0
	}
	return true, nil
}

// message is what a bridge is asked to append.
func message(s *store.Send, epoch uint64) (Message, error) {
	var body store.Body
	if err := json.Unmarshal(s.Message.Body, &body); err != nil {
		return Message{}, launch.Refuse(launch.ErrInternal, "the stored body of a message cannot be read")
	}
	inner, ok := bytes.CutPrefix(body.Details, []byte("{"))
	if !ok {
		return Message{}, launch.Refuse(launch.ErrInternal, "the stored details of a message are no object")
	}
	details := append(make([]byte, 0, len(inner)+len(s.Message.ID)+20), `{"messageId":"`...)
	details = append(append(details, s.Message.ID...), '"') // an id needs no escapes
	if len(inner) > 1 {
		details = append(details, ',')
	}
	details = append(details, inner...)
	return Message{
		ID: s.Message.ID, Others: s.Others, Intent: s.Message.Intent, Epoch: epoch, Deadline: s.Message.Attempt.Deadline,
		TriggerTurn: s.Message.Kind.StartsTurn(), CustomType: body.CustomType, Content: body.Content, Details: details,
	}, nil
}

// backOff makes the next try wait, longer after each refusal in a row.
func (n *Conn) backOff(occupied bool) {
	_, n.last = n.c.o.Store.Clock().Now()
	n.occupied = occupied
	n.refused++
}
