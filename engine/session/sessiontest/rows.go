package sessiontest

import (
	"errors"
	"fmt"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// CheckRows checks every invariant of rows on a session and all its messages,
// watched or not. ended tells of a run whether it has ended.
func CheckRows(w session.World, ended func(launch.RunID) bool) error {
	return errors.Join(MessageIdentity(w), OneUnsent(w), LostIsServed(w), OneAttempt(w), OneOpenTurn(w), Watched(w), MessageFields(w), EndedRun(w, ended))
}

// MessageIdentity: a message's id is the digest of its subject and issue, issues
// are within the bound, and no id exists twice.
func MessageIdentity(w session.World) error {
	seen := map[string]bool{}
	for i := range w.Messages {
		m := &w.Messages[i]
		switch {
		case m.Issue < 1 || m.Issue > session.MaxIssues:
			return fmt.Errorf("MessageIdentity: %s has issue %d of at most %d", m.Subject, m.Issue, session.MaxIssues)
		case m.ID != session.MessageID(m.Subject, m.Issue):
			return fmt.Errorf("MessageIdentity: %s is not the id of issue %d of %s", m.ID, m.Issue, m.Subject)
		case seen[m.ID]:
			return fmt.Errorf("MessageIdentity: issue %d of %s exists twice", m.Issue, m.Subject)
		case m.Session != w.Session.Key:
			return fmt.Errorf("MessageIdentity: %s belongs to session %s", m.Subject, m.Session)
		}
		seen[m.ID] = true
	}
	return nil
}

// OneUnsent: a subject has at most one issue that is pending or blocked, and
// none while the branch shows one.
func OneUnsent(w session.World) error {
	unsent, shown := map[string]int{}, map[string]bool{}
	for i := range w.Messages {
		m := &w.Messages[i]
		if m.State == session.Pending || m.State == session.Blocked {
			unsent[m.Subject]++
		}
		if m.State == session.Sent && m.Seen {
			shown[m.Subject] = true
		}
	}
	for subject, n := range unsent {
		if n > 1 || shown[subject] {
			return fmt.Errorf("OneUnsent: %s has %d unsent issues, on the branch: %v", subject, n, shown[subject])
		}
	}
	return nil
}

// LostIsServed: while a subject needs a message, what was lost of it before it
// was confirmed is made up for by an issue that is unsent or on the branch.
func LostIsServed(w session.World) error {
	served := map[string]bool{}
	for i := range w.Messages {
		m := &w.Messages[i]
		if m.State == session.Pending || m.State == session.Blocked || m.State == session.Sent && m.Seen {
			served[m.Subject] = true
		}
	}
	for i := range w.Messages {
		m := &w.Messages[i]
		if m.State == session.Sent && !m.Seen && !m.Durable && m.Eligible != 0 && !served[m.Subject] {
			return fmt.Errorf("LostIsServed: issue %d of %s was lost and nothing makes up for it", m.Issue, m.Subject)
		}
	}
	return nil
}

// OneAttempt: at most one message of a session has an unsettled attempt, whose
// fields are set together, and which is not on the branch.
func OneAttempt(w session.World) error {
	n := 0
	for i := range w.Messages {
		m := &w.Messages[i]
		a, none := m.Attempt, launch.Digest{}
		if a == (session.Attempt{}) {
			continue
		}
		n++
		switch {
		case a.Epoch == 0 || a.Token == none || a.First == none || a.Deadline == 0:
			return fmt.Errorf("OneAttempt: the attempt of %s has only some of its fields", m.Subject)
		case a.Epoch > w.Session.Epoch:
			return fmt.Errorf("OneAttempt: the attempt of %s is of epoch %d, the session is at %d", m.Subject, a.Epoch, w.Session.Epoch)
		case m.State == session.Sent:
			return fmt.Errorf("OneAttempt: %s was seen and has an unsettled attempt", m.Subject)
		case m.Attempts == 0:
			return fmt.Errorf("OneAttempt: an attempt of %s is not counted", m.Subject)
		case n > 1:
			return errors.New("OneAttempt: two messages have an unsettled attempt")
		}
	}
	return nil
}

// OneOpenTurn: at most one turn is open, the session names it, and passive
// messages own none. A closed turn has an end and an open one has not.
func OneOpenTurn(w session.World) error {
	open := ""
	for i := range w.Messages {
		m := &w.Messages[i]
		t := m.Turn
		switch {
		case t != (session.Turn{}) && !m.Kind.StartsTurn():
			return fmt.Errorf("OneOpenTurn: the %s %s owns a turn", m.Kind, m.Subject)
		case (t.Opened == 0) != (t.ID == "") || t.Opened == 0 && t.Closed != 0 || (t.Closed == 0) != (t.End == 0):
			return fmt.Errorf("OneOpenTurn: the turn of %s has only some of its fields: %+v", m.Subject, t)
		case t.Open() && open != "":
			return fmt.Errorf("OneOpenTurn: %s and %s have an open turn", open, m.ID)
		case t.Open():
			open = m.ID
		}
	}
	if w.Session.Open != open {
		return fmt.Errorf("OneOpenTurn: the session names %q, open is %q", w.Session.Open, open)
	}
	if owner := w.Session.Active.Message; owner != "" && owner != open {
		return fmt.Errorf("OneOpenTurn: the active turn belongs to %q, open is %q", owner, open)
	}
	return nil
}

// Watched: a message is watched exactly while a report can change it or
// another issue of its subject. That is: it is to be sent, may be on its way,
// has an open turn, or is on the branch and not confirmed or without a known
// turn.
func Watched(w session.World) error {
	need := map[string]bool{}
	for i := range w.Messages {
		m := &w.Messages[i]
		unsent := m.State == session.Pending || m.State == session.Blocked
		sent := m.State == session.Sent
		turnUnknown := m.Kind.StartsTurn() && m.Turn.Opened == 0
		if unsent || m.Attempt.Epoch != 0 || m.Turn.Open() ||
			sent && m.Seen && (!m.Durable || turnUnknown) {
			need[m.Subject] = true
		}
	}
	for i := range w.Messages {
		if m := &w.Messages[i]; m.Watched != need[m.Subject] {
			return fmt.Errorf("Watched: issue %d of %s is %s and watched is %v", m.Issue, m.Subject, m.State, m.Watched)
		}
	}
	return nil
}

// MessageFields: the fields of a message fit its state.
func MessageFields(w session.World) error {
	for i := range w.Messages {
		m := &w.Messages[i]
		unsent := m.State == session.Pending || m.State == session.Blocked
		switch {
		case m.State < session.Pending || m.State > session.Blocked || !m.Kind.Valid():
			return fmt.Errorf("MessageFields: %s has state %d and kind %d", m.Subject, m.State, m.Kind)
		case unsent && m.Eligible == 0:
			return fmt.Errorf("MessageFields: %s is %s and has no place in the order", m.Subject, m.State)
		case m.State == session.Cancelled && m.Eligible != 0:
			return fmt.Errorf("MessageFields: %s is cancelled and in the order", m.Subject)
		case m.Seen && m.State != session.Sent:
			return fmt.Errorf("MessageFields: %s is on the branch and %s", m.Subject, m.State)
		case m.Durable && m.State != session.Sent:
			return fmt.Errorf("MessageFields: %s is confirmed and %s", m.Subject, m.State)
		case m.Refusals > session.MaxRefusals || m.Refusals == session.MaxRefusals && m.State == session.Pending:
			return fmt.Errorf("MessageFields: %s was refused %d times and is %s", m.Subject, m.Refusals, m.State)
		}
	}
	return nil
}

// EndedRun: a run that has ended has no unsent step, checkpoint or decision
// message, and no open step or checkpoint turn.
func EndedRun(w session.World, ended func(launch.RunID) bool) error {
	for i := range w.Messages {
		m := &w.Messages[i]
		if !m.Kind.EndsWithRun() || !ended(m.Run) {
			continue
		}
		if m.State == session.Pending || m.State == session.Blocked || m.Turn.Open() {
			return fmt.Errorf("EndedRun: run %s has ended; its %s is %s, its turn open: %v", m.Run, m.Kind, m.State, m.Turn.Open())
		}
	}
	return nil
}
