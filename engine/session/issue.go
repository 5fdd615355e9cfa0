package session

import "example.com/piworkflows/launch"

func (c Queue) apply(s *step) {
	if !c.Message.Kind.Valid() {
		s.refuse(launch.ErrInternal, "message of no kind")
		return
	}
	served := false
	s.issues(c.Message.Subject, func(m *Message) {
		if m.unsent() {
			m.Eligible = c.Message.Eligible
		}
		served = served || m.served()
	})
	if !served {
		s.issue(c.Message)
	}
}

// served reports whether the subject needs no other issue than this one.
func (m *Message) served() bool {
	return m.unsent() || m.State == Sent && (m.Seen || m.Durable)
}

// issue makes the next issue of a subject (rule session/issues). A cancelled
// issue has not used its number; the bound blocks the last one.
func (s *step) issue(m Message) {
	if m.Eligible == 0 {
		m.Eligible = s.now.Wall
	}
	var last *Message
	s.issues(m.Subject, func(o *Message) {
		if o.State != Cancelled && (last == nil || o.Issue > last.Issue) {
			last = o
		}
	})
	m.Issue = 1
	if last != nil {
		if last.Issue >= MaxIssues {
			last.Eligible = m.Eligible
			s.block(last, "lost from the branch too often")
			return
		}
		m.Issue = last.Issue + 1
	}
	m.ID = MessageID(m.Subject, m.Issue)
	at := s.World.Message(m.ID)
	if at == nil {
		s.World.Messages = append(s.World.Messages, Message{
			ID: m.ID, Session: s.sess().Key, Kind: m.Kind, Subject: m.Subject, Issue: m.Issue,
			Run: m.Run, Intent: m.Intent, Request: m.Request, Created: s.now.Wall,
		})
		at = &s.World.Messages[len(s.World.Messages)-1]
	}
	at.State, at.Eligible, at.Body, at.Refusals = Pending, m.Eligible, m.Body, 0
	s.about(EvQueued, at, Event{})
}

func (c Cancel) apply(s *step) {
	s.issues(c.Subject, func(m *Message) {
		s.cancel(m, c.Reason)
		if !m.Durable {
			m.Eligible = 0
		}
	})
}

// cancel ends an unsent message. An attempt that may be on its way stays
// unsettled.
func (s *step) cancel(m *Message, why string) {
	if m.unsent() {
		m.State, m.Eligible = Cancelled, 0
		s.about(EvCancelled, m, Event{Reason: why})
	}
}

func (c EndRun) apply(s *step) {
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		if m.Run != c.Run || !m.Kind.EndsWithRun() {
			continue
		}
		if m.Turn.Open() {
			StopTurn{Message: m.ID}.apply(s) // the record first, then the abort
			s.closeTurn(m, Lost, "the run ended")
		}
		s.cancel(m, "the run ended")
		m.Eligible = 0
	}
}

func (Abandon) apply(s *step) {
	const why = "the session was abandoned"
	s.closeOpen(why)
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		s.cancel(m, why)
		if !m.Durable {
			m.Eligible = 0
		}
	}
}

func (c Reopen) apply(s *step) {
	m := s.World.Message(c.Message)
	switch {
	case m == nil:
		s.refuse(launch.ErrNotFound, "no such message in this session; check the message id")
	case m.State != Blocked:
		s.refuse(launch.ErrNotAllowed, "the message is %s, not blocked; there is nothing to re-open", m.State)
	default:
		m.State, m.Refusals = Pending, 0
		s.about(EvReopened, m, Event{})
	}
}

func (s *step) block(m *Message, why string) {
	m.State = Blocked
	s.about(EvBlocked, m, Event{Reason: why})
}
