package session

import (
	"cmp"
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
	if m.Turn.Closed != 0 { // it left no trace, so its next send opens a turn anew
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

// order is the order of delivery (rule session/order).
func order(a, b *Message) int {
	return cmp.Or(cmp.Compare(a.Eligible, b.Eligible), cmp.Compare(a.Intent, b.Intent), cmp.Compare(a.ID, b.ID))
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
		if m.Attempt.Taken {
			s.refuse(launch.ErrConflict, "the bridge has answered that it took the message; the first answer stands")
			return
		}
		open := m.Attempt.First != m.Attempt.Token
		if open { // an earlier ask may have been carried out; nobody answers this one again
			m.Attempt.Token = launch.DigestOf(c.Token[:])
		} else {
			m.Attempt = Attempt{}
		}
		s.about(EvRefused, m, Event{Unanswered: open, Reason: launch.SafeText(c.Reason, 256)})
		if c.Verdict == Refused {
			s.failed(m)
		}
	default:
		s.refuse(launch.ErrInvalid, "a send is taken, present, occupied or refused")
	}
}

// failed counts an attempt that came to nothing (rule session/refusals).
func (s *step) failed(m *Message) {
	if m.State != Pending {
		return
	}
	if m.Refusals++; m.Refusals >= MaxRefusals {
		s.block(m, "refused or lost too often")
	}
}
