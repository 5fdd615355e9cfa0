package sessiontest

import (
	"fmt"
	"slices"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Quiesce lets nothing go wrong any more: one process is connected, its agent
// finishes what it does, the person has freed the session and types nothing,
// every intent is eligible, and the clock runs evenly. In bounded steps every
// message must then be sent, cancelled or blocked, and after a call to re-open
// the blocked ones, sent or cancelled. It returns what is broken or stuck.
func (w *World) Quiesce() error {
	w.distrust = 0
	for _, a := range slices.Clone(w.agents) {
		if a != w.actor() {
			w.kill(a)
		}
	}
	a := w.actor()
	if a == nil {
		w.serial++
		a = w.open(fmt.Sprintf("pid-%d", w.serial))
	}
	if w.live() == nil {
		w.connect(a, true)
	}
	a.typed = false
	w.asks, w.replies, w.awaited, w.seen = nil, nil, launch.Digest{}, nil
	for _, i := range w.intents {
		i.waits = false
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			for b := w.blocked(); b != nil; b = w.blocked() {
				w.Apply(session.Reopen{Message: b.ID}, b.ID)
			}
		}
		if err := w.run(a); err != nil {
			return err
		}
		if err := w.stuck(reopen); err != nil {
			return err
		}
	}
	return nil
}

// run looks and sends until nothing is left to do. Each round takes 2 seconds:
// a wait of PendingGrace, one deadline and one turn a message, five times over.
func (w *World) run(a *agent) error {
	for range 60 + 30*len(w.Rows.Messages) {
		if err := w.check(); err != nil {
			return err
		}
		w.Apply(session.Free{})
		for a.run != nil {
			w.advance(a)
		}
		w.look()
		if w.seen != nil {
			w.record()
			if w.try() {
				w.carryOut(0, false)
				w.answer(0)
			}
		}
		w.pass(2 * time.Second)
	}
	return w.check()
}

// stuck returns what is left to do although nothing is in the way.
func (w *World) stuck(reopened bool) error {
	s := w.Rows.Session
	if s.Open != "" || s.Active.Turn != "" {
		return fmt.Errorf("Quiesce: the turn of %q is open for ever", s.Open)
	}
	blocked, unsaved := map[string]bool{}, map[string]bool{} // unsaved: in a session without a reply
	for _, m := range w.Rows.Messages {
		blocked[m.Subject] = blocked[m.Subject] || m.State == session.Blocked
		unsaved[m.Subject] = unsaved[m.Subject] || !m.Kind.StartsTurn() && m.State == session.Sent && m.Seen
	}
	for _, m := range w.Rows.Messages {
		switch {
		case m.State == session.Pending || reopened && m.State == session.Blocked:
			return fmt.Errorf("Quiesce: %s is %s for ever: %+v", m.Subject, m.State, m)
		case m.Attempt.Epoch != 0:
			return fmt.Errorf("Quiesce: an attempt of %s is unsettled for ever", m.Subject)
		case m.Watched && !blocked[m.Subject] && !unsaved[m.Subject]:
			return fmt.Errorf("Quiesce: %s is %s and watched for ever: %+v", m.Subject, m.State, m)
		}
	}
	for id, i := range w.intents {
		if !i.ended && !blocked[i.subject] && w.subject[i.subject] != 0 {
			return fmt.Errorf("Quiesce: intent %s is pending for ever", id)
		}
	}
	return nil
}
