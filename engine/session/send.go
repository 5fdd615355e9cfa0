package session

import (
	"slices"

	"example.com/piworkflows/launch"
)

func (c Try) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if c.Token == (launch.Digest{}) {
		s.refuse(launch.ErrInvalid, "attempt token is not set")
		return
	}
	se := s.sess()
	if s.Why = se.Boundary(s.now); s.Why != "" {
		return
	}
	if !se.Fresh {
		s.Why = "a newer report is needed"
		return
	}
	if se.Quiet != 0 && !s.now.Passed(se.Quiet) {
		s.Why = "another process may still execute an unanswered send"
		return
	}
	m := s.nextMessage(c.Ready)
	if m == nil {
		return
	}
	if m.Turn.End == Lost { // it left no trace, so its next send opens a turn anew
		m.Turn = Turn{}
	}
	m.Attempts++
	first := c.Token
	if m.Attempt.Epoch != 0 {
		first = m.Attempt.First
	}
	m.Attempt = Attempt{Token: c.Token, First: first, Epoch: c.Epoch, Deadline: max(m.Attempt.Deadline, s.now.Wall.Add(SendDeadline))}
	se.Fresh = false
	s.about(EvAttempted, m, Event{})
	send := *m
	s.Send = &send
}

// nextMessage returns the message to send now. While an attempt is unsettled,
// only that message may be asked for again, and only if the bridge has not
// said that it took it.
func (s *step) nextMessage(ready func(*Message) bool) *Message {
	var due []*Message
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		if m.Attempt.Epoch != 0 {
			if m.Attempt.Taken || m.State != Pending || !ready(m) {
				s.Why = "an earlier send is not settled"
				return nil
			}
			return m
		}
		if m.State == Pending && ready(m) {
			due = append(due, m)
		}
	}
	if len(due) == 0 {
		return nil
	}
	return slices.MinFunc(due, order)
}

func (c Answer) apply(s *step) {
	m := s.World.Message(c.Message)
	if m == nil {
		s.refuse(launch.ErrNotFound, "no such message; its answer is ignored")
		return
	}
	if c.Token == (launch.Digest{}) || m.Attempt.Token != c.Token {
		s.refuse(launch.ErrStale, "the answer belongs to another attempt; it is ignored").Fence = launch.TokenChanged
		return
	}
	s.sess().Fresh = false
	switch c.Verdict {
	case Taken, Present:
		m.Attempt.Taken = true
		m.Updated = s.now.Wall
	case Occupied, Refused:
		open := m.Attempt.First != m.Attempt.Token
		if open { // an earlier ask of the same message is still unanswered
			m.Attempt.Token = m.Attempt.First
		} else {
			m.Attempt = Attempt{}
		}
		s.about(EvRefused, m, Event{Unanswered: open, Reason: launch.SafeText(c.Reason, 256)})
		s.settled(m, c.Verdict == Refused)
	default:
		s.refuse(launch.ErrInvalid, "a send is taken, present, occupied or refused")
	}
}

// settled handles a message whose attempt came to nothing.
func (s *step) settled(m *Message, counts bool) {
	if m.State == Cancelled {
		m.Watched = m.Attempt.Epoch != 0
		return
	}
	if counts {
		m.Refusals++
	}
	if m.State == Pending && m.Refusals >= MaxRefusals {
		s.block(m, "refused or lost too often")
	}
}

func (s *step) block(m *Message, why string) {
	m.State = Blocked
	s.about(EvBlocked, m, Event{Reason: why})
}

func (c Report) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if len(c.Evidence) > launch.MaxList {
		s.refuse(launch.ErrInvalid, "the report answers about %d messages; the bound is %d", len(c.Evidence), launch.MaxList)
		return
	}
	se := s.sess()
	if c.Pending && !se.Pending {
		se.PendingSince = s.now.Wall
	} else if !c.Pending {
		se.PendingSince = 0
	}
	se.Idle, se.Pending, se.Reported, se.Fresh = c.Idle, c.Pending, true, true
	free := se.Free(s.now)
	if c.Idle && !c.Pending && se.Active.Turn == "" && se.Input { // input that started no turn
		se.Input = false
		s.free("user input settled")
	}
	named := make(map[string]Evidence, len(c.Evidence))
	for _, e := range c.Evidence {
		named[e.Message] = e
		if m := s.World.Message(e.Message); m != nil && e.Present {
			s.present(m, e)
		}
	}
	if free {
		s.closeByReport(named)
		for _, e := range c.Evidence {
			if m := s.World.Message(e.Message); m != nil && !e.Present {
				s.absent(m)
			}
		}
	}
}

// present records that the branch shows a message (rule session/evidence).
func (s *step) present(m *Message, e Evidence) {
	m.Attempt = Attempt{}
	if !m.Seen || m.State != Sent {
		m.Seen, m.State = true, Sent
		s.about(EvSent, m, Event{})
		for i := range s.World.Messages { // any issue satisfies the subject
			if o := &s.World.Messages[i]; o.Subject == m.Subject && o.ID != m.ID {
				s.cancel(o, "another issue is on the branch")
			}
		}
	}
	if e.Durable || !s.sess().Durable || m.Turn.Closed != 0 || !m.Kind.StartsTurn() {
		s.confirm(m)
	}
}

func (s *step) confirm(m *Message) {
	if m.Durable {
		return
	}
	m.Durable = true
	m.Watched = m.Turn.Open() || (m.Kind.StartsTurn() && m.Turn.Opened == 0)
	s.about(EvConfirmed, m, Event{})
}

// closeByReport ends the open turn of a free session, and records the turn of
// a message that the branch shows and that opened none.
func (s *step) closeByReport(named map[string]Evidence) {
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		e, ok := named[m.ID]
		if !ok && !m.Turn.Open() {
			continue
		}
		end, why := Lost, "the session is free and shows no reply"
		if e.Present && e.Replied {
			end, why = Completed, "the session is free and shows the reply"
		}
		switch {
		case m.Turn.Open():
			s.closeTurn(m, end, why)
		case e.Present && m.Kind.StartsTurn() && m.Turn.Opened == 0:
			m.Turn = Turn{ID: "seen:" + m.ID, Opened: s.now.Wall}
			s.about(EvTurnOpened, m, Event{Turn: m.Turn.ID})
			s.closeTurn(m, end, why)
		}
		if e.Present {
			s.confirm(m)
		}
	}
}

// absent handles a message that a free session's branch does not show.
func (s *step) absent(m *Message) {
	switch {
	case m.Attempt.Epoch != 0: // never seen: the attempt proves nothing before its deadline
		if s.now.Passed(m.Attempt.Deadline) {
			m.Attempt = Attempt{}
			s.about(EvUncarried, m, Event{Reason: "the send left no trace"})
			s.settled(m, true)
		}
	case m.State == Sent && !m.Durable: // seen once, lost since
		m.Watched = false
		if m.Issue >= MaxIssues {
			s.about(EvUncarried, m, Event{Reason: "lost from the branch"})
			m.Watched = true
			s.block(m, "lost from the branch too often")
			return
		}
		s.about(EvUncarried, m, Event{Reason: "lost from the branch"})
		again := *m
		Queue{Message{
			Kind: again.Kind, Subject: again.Subject, Issue: again.Issue + 1, Run: again.Run, Intent: again.Intent,
			Body: again.Body, Eligible: again.Eligible,
		}}.apply(s)
	}
}
