package sessiontest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Entry is one applied command: the world that it was given and what it led to.
type Entry struct {
	Before  session.World
	Command session.Command
	Now     launch.Now
	Change  session.Change // World is the world after it
	Err     error
}

// CheckEntry checks every invariant of entries.
func CheckEntry(e Entry) error {
	return errors.Join(RefusalKeeps(e), EpochCurrent(e), SentByEvidence(e), AttemptAllowed(e), AttemptInOrder(e),
		AttemptProven(e), IssuedWhenLost(e), TurnOwned(e), AbortNamesTurn(e), HoldKept(e))
}

func (e Entry) broken(name, format string, args ...any) error {
	return fmt.Errorf("%s: %T: %s", name, e.Command, fmt.Sprintf(format, args...))
}

// pairs calls f with each message before and after the command; before is nil
// for a new one.
func (e Entry) pairs(f func(before, after *session.Message) error) error {
	for i := range e.Change.World.Messages {
		after := &e.Change.World.Messages[i]
		if err := f(e.Before.Message(after.ID), after); err != nil {
			return err
		}
	}
	return nil
}

// shows reports whether the command is a report that says so of a message.
func (e Entry) shows(id string, present bool) bool {
	r, ok := e.Command.(session.Report)
	if !ok {
		return false
	}
	found, shown := false, false
	for _, v := range r.Evidence {
		found = found || v.Message == id
		shown = shown || v.Message == id && v.Present
	}
	return found && shown == present
}

// RefusalKeeps: a refused command changes nothing, and says nothing happened.
func RefusalKeeps(e Entry) error {
	if e.Err == nil {
		return nil
	}
	if len(e.Change.Events) != 0 || e.Change.Send != nil || e.Change.Abort != "" || !reflect.DeepEqual(e.Before, e.Change.World) {
		return e.broken("RefusalKeeps", "it was refused (%v), and yet something changed", e.Err)
	}
	return nil
}

// EpochCurrent: only a connection raises the epoch, by one; a command of a
// connection is accepted only with the epoch of the live one.
func EpochCurrent(e Entry) error {
	if e.Err != nil {
		return nil
	}
	before, after := e.Before.Session, e.Change.World.Session
	want, of := before.Epoch, before.Epoch
	switch c := e.Command.(type) {
	case session.Connect:
		want++
	case session.Disconnect:
		of = c.Epoch
	case session.Input:
		of = c.Epoch
	case session.TurnStarted:
		of = c.Epoch
	case session.TurnSettled:
		of = c.Epoch
	case session.Report:
		of = c.Epoch
	case session.Try:
		of = c.Epoch
	default:
		return e.epochs(want)
	}
	if _, ok := e.Command.(session.Connect); !ok && (of != before.Epoch || !before.Connected()) {
		return e.broken("EpochCurrent", "epoch %d was accepted, current is %d, connected: %v", of, before.Epoch, before.Connected())
	}
	if after.Epoch != want {
		return e.broken("EpochCurrent", "the epoch went from %d to %d", before.Epoch, after.Epoch)
	}
	return e.epochs(want)
}

func (e Entry) epochs(want uint64) error {
	for _, ev := range e.Change.Events {
		if ev.Epoch != want {
			return e.broken("EpochCurrent", "event %s has epoch %d, the session %d", ev.Kind, ev.Epoch, want)
		}
	}
	return nil
}

// SentByEvidence: a message becomes sent, or is shown on the branch, only by a
// report that shows it; it stops being sent only when its issues are used up.
func SentByEvidence(e Entry) error {
	return e.pairs(func(b, a *session.Message) error {
		var was session.Message
		if b != nil {
			was = *b
		}
		switch {
		case a.State == session.Sent && was.State != session.Sent || a.Seen && !was.Seen:
			if !e.shows(a.ID, true) {
				return e.broken("SentByEvidence", "%s was shown by nothing", a.Subject)
			}
		case was.State == session.Sent && a.State != session.Sent:
			if a.State != session.Blocked || a.Issue != session.MaxIssues {
				return e.broken("SentByEvidence", "%s was sent and is %s", a.Subject, a.State)
			}
		case was.Durable && !a.Durable:
			return e.broken("SentByEvidence", "%s was confirmed and is no more", a.Subject)
		case a.Durable && !was.Durable && !a.Seen:
			return e.broken("SentByEvidence", "%s is confirmed and was never seen", a.Subject)
		}
		return nil
	})
}

// AttemptAllowed: an attempt is recorded only by a try that finds the epoch
// current, the branch reported since the last answer, the session free and not
// held, no turn open, the deadlines of another process over, and the message
// pending, needed and not on the branch.
func AttemptAllowed(e Entry) error {
	s := e.Before.Session
	return e.pairs(func(b, a *session.Message) error {
		if a.Attempt.Epoch == 0 || b != nil && a.Attempts == b.Attempts {
			return nil
		}
		c, ok := e.Command.(session.Try)
		switch {
		case !ok || b == nil:
			return e.broken("AttemptAllowed", "it recorded an attempt of %s", a.Subject)
		case c.Epoch != s.Epoch || !s.Connected():
			return e.broken("AttemptAllowed", "epoch %d tried, current is %d", c.Epoch, s.Epoch)
		case !s.Reported || !s.Fresh:
			return e.broken("AttemptAllowed", "%s was tried without a new report", a.Subject)
		case s.Held:
			return e.broken("AttemptAllowed", "%s was tried in a held session", a.Subject)
		case s.Open != "" || s.Active.Turn != "":
			return e.broken("AttemptAllowed", "%s was tried in a turn", a.Subject)
		case !s.Idle || s.Pending && (s.PendingSince == 0 || !e.Now.Passed(s.PendingSince.Add(session.PendingGrace))):
			return e.broken("AttemptAllowed", "%s was tried in a session that is not free", a.Subject)
		case s.Quiet != 0 && !e.Now.Passed(s.Quiet):
			return e.broken("AttemptAllowed", "%s was tried before the deadlines of another process", a.Subject)
		case b.State != session.Pending || b.Attempt.Taken:
			return e.broken("AttemptAllowed", "%s was tried while it was %s, taken: %v", a.Subject, b.State, b.Attempt.Taken)
		case !c.Ready(b):
			return e.broken("AttemptAllowed", "%s was tried while it was not eligible", a.Subject)
		case a.Attempt.Deadline < e.Now.Wall.Add(session.SendDeadline) || a.Attempt.Deadline < b.Attempt.Deadline:
			return e.broken("AttemptAllowed", "the deadline of %s is too early", a.Subject)
		}
		return nil
	})
}

// AttemptInOrder: the message that is tried is the first of the eligible ones,
// or the one whose attempt is unsettled.
func AttemptInOrder(e Entry) error {
	c, ok := e.Command.(session.Try)
	if !ok || e.Change.Send == nil {
		return nil
	}
	got := e.Change.Send
	unsettled := e.Before.Message(got.ID).Attempt.Epoch != 0
	for i := range e.Before.Messages {
		m := &e.Before.Messages[i]
		if m.ID == got.ID {
			continue
		}
		if m.Attempt.Epoch != 0 {
			return e.broken("AttemptInOrder", "%s was tried while an attempt of %s is unsettled", got.Subject, m.Subject)
		}
		first := cmp.Or(cmp.Compare(m.Eligible, got.Eligible), cmp.Compare(m.Intent, got.Intent), cmp.Compare(m.ID, got.ID)) < 0
		if !unsettled && first && m.State == session.Pending && c.Ready(m) {
			return e.broken("AttemptInOrder", "%s was tried before %s", got.Subject, m.Subject)
		}
	}
	return nil
}

// AttemptProven: an attempt is settled only by the refusal of its only ask, which
// was not answered otherwise, by a report that shows the message, or by a report of a free session, asked for
// after the deadline, that names it as absent.
func AttemptProven(e Entry) error {
	return e.pairs(func(b, a *session.Message) error {
		if b == nil || b.Attempt.Epoch == 0 || a.Attempt.Epoch != 0 {
			return nil
		}
		switch c := e.Command.(type) {
		case session.Answer:
			if c.Message == b.ID && c.Token == b.Attempt.Token && c.Token == b.Attempt.First && !b.Attempt.Taken && c.Verdict >= session.Occupied {
				return nil
			}
		case session.Report:
			asked := e.Now
			if c.Asked != 0 {
				asked.Wall = min(asked.Wall, c.Asked)
			}
			free := e.Change.World.Session.Free(e.Now)
			if e.shows(b.ID, true) || e.shows(b.ID, false) && free && asked.Passed(b.Attempt.Deadline) {
				return nil
			}
		}
		return e.broken("AttemptProven", "nothing proves what became of the attempt of %s", b.Subject)
	})
}

// IssuedWhenLost: a further issue is made only by a report of a free session
// that names an issue of its subject that was sent and is absent, and only if
// that one was neither confirmed nor unneeded; or when the subject is queued.
func IssuedWhenLost(e Entry) error {
	return e.pairs(func(b, a *session.Message) error {
		if b != nil || a.Issue == 1 {
			return nil
		}
		if c, ok := e.Command.(session.Queue); ok && c.Message.Subject == a.Subject {
			return nil
		}
		for i := range e.Before.Messages {
			m := &e.Before.Messages[i]
			if m.Subject == a.Subject && m.State == session.Sent && !m.Durable && m.Eligible != 0 && e.shows(m.ID, false) && e.Change.World.Session.Free(e.Now) {
				return nil
			}
		}
		return e.broken("IssuedWhenLost", "issue %d of %s was made although none was lost", a.Issue, a.Subject)
	})
}

// TurnOwned: a turn opens only by the start report that is answered as owned,
// for a turn-starting message that is needed and has no turn, or together with
// its end by a report of a free session that shows its message. The first end
// of a turn stands.
func TurnOwned(e Entry) error {
	c, started := e.Command.(session.TurnStarted)
	if e.Change.Own == session.Owned {
		m := e.Change.World.Message(c.Message)
		if !started || m == nil || !m.Turn.Open() || m.Turn.ID != c.Turn || !m.Kind.StartsTurn() {
			return e.broken("TurnOwned", "an answer of ownership without an open turn of %s", c.Message)
		}
	}
	return e.pairs(func(b, a *session.Message) error {
		var was session.Turn
		if b != nil {
			was = b.Turn
		}
		switch {
		case was.Opened == 0 && a.Turn.Open():
			if !started || e.Change.Own != session.Owned || c.Message != a.ID || c.Withdrawn || b.Eligible == 0 {
				return e.broken("TurnOwned", "a turn of %s opened", a.Subject)
			}
		case was.Opened == 0 && a.Turn.Opened != 0:
			if !e.shows(a.ID, true) {
				return e.broken("TurnOwned", "a turn of %s was recorded although no report shows it", a.Subject)
			}
		case was.Closed != 0 && a.Turn.Opened != 0 && (a.Turn.Closed != was.Closed || a.Turn.End != was.End || a.Turn.ID != was.ID):
			return e.broken("TurnOwned", "the turn of %s ended %s and is now %+v", a.Subject, was.End, a.Turn)
		case was.Opened != 0 && a.Turn.Opened == 0 && (was.Closed == 0 || a.Attempts == b.Attempts):
			return e.broken("TurnOwned", "the turn of %s is forgotten", a.Subject)
		}
		return nil
	})
}

// AbortNamesTurn: an abort names the message whose turn was just reported and
// is not owned.
func AbortNamesTurn(e Entry) error {
	if e.Change.Abort == "" {
		return nil
	}
	c, ok := e.Command.(session.TurnStarted)
	if !ok || c.Message != e.Change.Abort || e.Change.Own == session.Owned {
		return e.broken("AbortNamesTurn", "it aborts the turn of %s", e.Change.Abort)
	}
	return nil
}

// HoldKept: a hold begins only when a person aborts a turn, and ends only when
// user input settles, a person starts something, or the session shuts down on
// the connection of the abort.
func HoldKept(e Entry) error {
	b, a := e.Before.Session, e.Change.World.Session
	switch c := e.Command.(type) {
	case session.TurnSettled:
		m := e.Before.Message(b.Open)
		input := b.Active.Turn == c.Turn && b.Active.UserInput || m != nil && m.Turn.ID == c.Turn && m.Turn.UserInput
		if !b.Held && a.Held && c.End == session.Aborted && c.ByPerson || b.Held && !a.Held && c.End != session.Aborted && input {
			return nil
		}
	case session.Free:
		if !a.Held {
			return nil
		}
	case session.Report:
		if !a.Held && b.Input && c.Idle && !c.Pending {
			return nil
		}
	case session.Disconnect:
		if !a.Held && c.Shutdown && b.HeldEpoch == c.Epoch {
			return nil
		}
	}
	if a.Held != b.Held {
		return e.broken("HoldKept", "held went from %v to %v", b.Held, a.Held)
	}
	return nil
}
