package sessiontest

import (
	"fmt"

	"example.com/piworkflows/engine/session"
)

// ReplayAgrees: folding all events of a session yields its epoch, hold and open
// turn, and the state, confirmation and end of turn of every message.
func ReplayAgrees(events []session.Event, w session.World) error {
	type told struct {
		state   session.State
		durable bool
		end     session.End
	}
	messages := map[string]*told{}
	epoch, held, open := uint64(0), false, ""
	for _, e := range events {
		m := messages[e.Message]
		if m == nil {
			m = &told{}
			messages[e.Message] = m
		}
		switch e.Kind {
		case session.EvConnected:
			epoch = e.Epoch
		case session.EvHeld:
			held = true
		case session.EvFreed:
			held = false
		case session.EvTurnOpened:
			open, m.end = e.Message, 0
		case session.EvTurnClosed:
			open, m.end = "", e.End
		case session.EvQueued, session.EvReopened:
			m.state = session.Pending
		case session.EvAttempted:
			m.end = 0
		case session.EvSent:
			m.state = session.Sent
		case session.EvConfirmed:
			m.durable = true
		case session.EvBlocked:
			m.state = session.Blocked
		case session.EvCancelled:
			m.state = session.Cancelled
		}
	}
	if s := w.Session; s.Epoch != epoch || s.Held != held || s.Open != open {
		return fmt.Errorf("ReplayAgrees: events say epoch %d, held %v, open %q; the session is at %d, %v, %q", epoch, held, open, s.Epoch, s.Held, s.Open)
	}
	for i := range w.Messages {
		m := &w.Messages[i]
		var want told
		if t := messages[m.ID]; t != nil {
			want = *t
		}
		if got := (told{m.State, m.Durable, m.Turn.End}); got != want {
			return fmt.Errorf("ReplayAgrees: events say %s, confirmed %v, turn %s of issue %d of %s; it is %s, %v, %s",
				want.state, want.durable, want.end, m.Issue, m.Subject, got.state, got.durable, got.end)
		}
	}
	return nil
}

// Line is an entry of a session file, or of what an agent process remembers of
// it. The zero Parent is the root.
type Line struct {
	ID, Parent int
	Message    string // id of the workflow message, or empty
	Intent     string // that the message carries, or empty
	Turn       bool   // the message starts a turn
	Reply      bool   // a finished assistant entry
}

// OncePerPath: no branch path of a file holds a message id twice, nor two
// turn-starting messages that carry the same intent.
func OncePerPath(file []Line) error {
	at := make(map[int]Line, len(file))
	for _, l := range file {
		at[l.ID] = l
	}
	for _, leaf := range file {
		messages, intents := map[string]bool{}, map[string]bool{}
		for l, ok := leaf, true; ok; l, ok = at[l.Parent] {
			switch {
			case l.Message != "" && messages[l.Message]:
				return fmt.Errorf("OncePerPath: message %s is twice on the path to line %d", l.Message, leaf.ID)
			case l.Turn && l.Intent != "" && intents[l.Intent]:
				return fmt.Errorf("OncePerPath: intent %s has two turns on the path to line %d", l.Intent, leaf.ID)
			}
			messages[l.Message] = l.Message != ""
			intents[l.Intent] = intents[l.Intent] || l.Turn
		}
	}
	return nil
}
