package session

import "example.com/piworkflows/launch"

func (c TurnStarted) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if s.err = launch.CheckKey("turn", c.Turn); s.err != nil {
		return
	}
	se := s.sess()
	m := s.World.Message(c.Message)
	if m != nil && !m.Kind.StartsTurn() {
		m = nil
	}
	again := se.Active.Turn == c.Turn // a retry, or a repeated report
	if again && se.Active.Message != "" && se.Active.Message != c.Message {
		s.refuse(launch.ErrConflict, "the turn was reported as opened by another message; repeat the first report")
		return
	}
	if !again {
		s.rest()
		se.Active = Active{Turn: c.Turn, UserInput: se.Input}
		se.Idle, se.Pending, se.PendingSince, se.Fresh = false, false, 0, false
	}
	own := m != nil && m.Turn.ID == c.Turn && m.Turn.Open()
	if !own {
		s.closeOpen("another turn began")
	}
	switch {
	case m == nil:
	case own:
		s.Own, se.Active.Message = Owned, m.ID
		se.Active.UserInput = se.Active.UserInput || m.Turn.UserInput
	case c.Withdrawn || m.Eligible == 0: // nobody needs it any more
		s.Abort, se.Abort = m.ID, m.ID
	case m.Turn.Opened != 0: // a message opens one turn
		s.Own = Settled
	default:
		m.Turn = Turn{ID: c.Turn, Opened: s.now.Wall, UserInput: se.Active.UserInput}
		se.Open, se.Active.Message = m.ID, m.ID
		s.Own = Owned
		s.about(EvTurnOpened, m, Event{Turn: c.Turn})
	}
}

// closeOpen ends the open turn as lost, if there is one.
func (s *step) closeOpen(why string) {
	if m := s.World.Message(s.sess().Open); m != nil {
		s.closeTurn(m, Lost, why)
	}
}

func (s *step) closeTurn(m *Message, end End, why string) {
	se := s.sess()
	m.Turn.Closed, m.Turn.End = s.now.Wall, end
	s.about(EvTurnClosed, m, Event{Turn: m.Turn.ID, End: end, Reason: why})
	if se.Open == m.ID {
		se.Open = ""
	}
	if se.Active.Message == m.ID {
		se.Active.Message = ""
	}
}

func (c TurnSettled) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if s.err = launch.CheckKey("turn", c.Turn); s.err != nil {
		return
	}
	if c.End != Completed && c.End != Aborted && c.End != Error {
		s.refuse(launch.ErrInvalid, "a turn ends completed, aborted or with an error")
		return
	}
	se := s.sess()
	active := se.Active.Turn == c.Turn
	input := active && se.Active.UserInput
	m := s.turnOwner(c.Turn)
	switch {
	case m == nil && !active: // an end that was reported before, or lost
		return
	case m == nil:
	case m.Turn.Open():
		input = input || m.Turn.UserInput
		s.closeTurn(m, c.End, "settled")
		if m.Seen {
			s.confirm(m)
		}
	case m.Turn.End == Lost:
		s.about(EvLateEnd, m, Event{Turn: c.Turn, End: c.End})
	case m.Turn.End != c.End:
		s.refuse(launch.ErrConflict, "the turn ended %s and is now reported as %s; repeat the first report or nothing", m.Turn.End, c.End)
		return
	case !active: // a matching repeat
		return
	}
	if active {
		s.rest()
	}
	se.Fresh = false
	if input {
		se.Input = false
	}
	switch {
	case c.End == Aborted && c.ByPerson && !se.Held:
		se.Held, se.HeldEpoch, se.HeldRun = true, c.Epoch, ""
		if m != nil && m.Kind.EndsWithRun() && m.Turn.End == Aborted {
			se.HeldRun = m.Run
		}
		s.emit(Event{Kind: EvHeld, Run: se.HeldRun, Turn: c.Turn})
	case input && c.End != Aborted:
		s.free("user input settled", "")
	}
}

func (s *step) turnOwner(turn string) *Message {
	for i := range s.World.Messages {
		if m := &s.World.Messages[i]; m.Turn.ID == turn {
			return m
		}
	}
	return nil
}

func (c StopTurn) apply(s *step) {
	if m := s.World.Message(c.Message); m != nil && m.Turn.Open() && s.sess().Active.Message == m.ID {
		s.sess().Abort = m.ID
	}
}

func (c CountStart) apply(s *step) {
	if m := s.World.Message(s.sess().Open); m != nil {
		m.Turn.Starts++
		m.Updated = s.now.Wall
	}
}
