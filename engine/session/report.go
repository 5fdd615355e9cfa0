package session

import "example.com/piworkflows/launch"

func (c Report) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if len(c.Evidence) > launch.MaxList {
		s.refuse(launch.ErrInvalid, "the report answers about %d messages; the bound is %d", len(c.Evidence), launch.MaxList)
		return
	}
	free := s.observe(c)
	shown := make(map[string]Evidence, len(c.Evidence))
	for _, e := range c.Evidence {
		if m := s.World.Message(e.Message); m != nil && e.Present {
			shown[m.ID] = e
			s.present(m, e)
		}
	}
	if !free {
		return
	}
	s.settleTurns(shown)
	asked := s.now
	if c.Asked != 0 {
		asked.Wall = min(asked.Wall, c.Asked)
	}
	for _, e := range c.Evidence {
		m := s.World.Message(e.Message)
		if m != nil && !shown[m.ID].Present {
			s.absent(m, asked)
		}
	}
}

// observe takes over what the session is doing, and reports whether it is free.
func (s *step) observe(c Report) bool {
	se := s.sess()
	if c.Idle && !se.Reported { // an end would have been repeated before this report
		s.rest()
	}
	se.Pending = c.Pending || c.Idle && se.Active.Turn != ""
	switch {
	case !c.Idle || !se.Pending:
		se.PendingSince = 0
	case se.PendingSince == 0 || se.PendingSince > s.now.Wall:
		se.PendingSince = s.now.Wall
	}
	se.Idle, se.Reported, se.Fresh = c.Idle, true, true
	free := se.Free(s.now)
	if free && se.Active.Turn != "" { // nobody will tell its end
		s.rest()
		se.Pending = c.Pending
	}
	if c.Idle && !c.Pending && se.Active.Turn == "" && se.Input { // input that started no turn
		se.Input = false
		s.free("user input settled", "")
	}
	return free
}

// present records that the branch shows a message (rule session/evidence). Any
// issue on the branch satisfies its subject.
func (s *step) present(m *Message, e Evidence) {
	m.Attempt = Attempt{}
	if !m.Seen || m.State != Sent {
		m.Seen, m.State = true, Sent
		s.about(EvSent, m, Event{})
	}
	s.issues(m.Subject, func(o *Message) { s.cancel(o, "another issue is on the branch") })
	if e.Durable || !s.sess().Durable || m.Turn.Closed != 0 {
		s.confirm(m)
	}
}

func (s *step) confirm(m *Message) {
	if m.Durable {
		return
	}
	m.Durable = true
	s.about(EvConfirmed, m, Event{})
	s.issues(m.Subject, func(o *Message) {
		if !o.Durable {
			o.Eligible = 0
		}
	})
}

// settleTurns ends the open turn of a free session, and records the turn of a
// message that the branch shows and that opened none.
func (s *step) settleTurns(shown map[string]Evidence) {
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		e, ok := shown[m.ID]
		if ok && m.Kind.StartsTurn() && m.Turn.Opened == 0 {
			m.Turn = Turn{ID: "seen:" + m.ID, Opened: s.now.Wall}
			s.about(EvTurnOpened, m, Event{Turn: m.Turn.ID})
		}
		if m.Turn.Open() {
			end, why := Lost, "the session is free and shows no reply"
			if e.Replied {
				end, why = Completed, "the session is free and shows the reply"
			}
			s.closeTurn(m, end, why)
		}
		if ok && m.Turn.Closed != 0 {
			s.confirm(m)
		}
	}
}

// absent handles a message that the branch of a free session did not show when
// the bridge was asked.
func (s *step) absent(m *Message, asked launch.Now) {
	switch {
	case m.Attempt.Epoch != 0: // never seen: proves nothing before the deadline
		if asked.Passed(m.Attempt.Deadline) {
			m.Attempt = Attempt{}
			s.uncarried(m, "the send left no trace")
			s.failed(m)
		}
	case m.State == Sent && m.Seen: // seen once, lost since
		m.Seen = false
		if m.Durable {
			return
		}
		s.uncarried(m, "lost from the branch")
		served := m.Eligible == 0
		s.issues(m.Subject, func(o *Message) { served = served || o.served() })
		if !served {
			s.issue(Message{Kind: m.Kind, Subject: m.Subject, Run: m.Run, Intent: m.Intent, Request: m.Request, Body: m.Body, Eligible: m.Eligible})
		}
	}
}

// uncarried tells that a message did not get through, and whether another issue
// of its subject may have.
func (s *step) uncarried(m *Message, why string) {
	e := Event{Reason: why}
	s.issues(m.Subject, func(o *Message) {
		e.Unanswered = e.Unanswered || o.Attempt.Epoch != 0 || o.State == Sent && o.Seen
	})
	s.about(EvUncarried, m, e)
}
