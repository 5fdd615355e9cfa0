package session

import (
	"cmp"
	"slices"

	"example.com/piworkflows/launch"
)

type step struct {
	Change
	now launch.Now
	err error
}

// Apply applies one command and returns what it leads to, or a launch.Refusal.
// It never changes its argument.
func Apply(w World, c Command, now launch.Now) (Change, error) {
	s := &step{now: now}
	s.World = World{Session: w.Session, Messages: slices.Clone(w.Messages)}
	c.apply(s)
	if s.err != nil {
		return Change{World: w}, s.err
	}
	if s.World.Session != w.Session {
		s.World.Session.Updated = now.Wall
	}
	return s.Change, nil
}

func (s *step) sess() *Session { return &s.World.Session }

func (s *step) refuse(kind launch.Kind, format string, args ...any) *launch.Refusal {
	r := launch.Refuse(kind, format, args...)
	s.err = r
	return r
}

func (s *step) emit(e Event) {
	e.Epoch = s.sess().Epoch
	s.Events = append(s.Events, e)
}

func (s *step) about(kind EventKind, m *Message, e Event) {
	m.Updated = s.now.Wall
	e.Kind, e.Message, e.Of, e.Issue, e.Run, e.Intent = kind, m.ID, m.Kind, m.Issue, m.Run, m.Intent
	s.emit(e)
}

// current refuses a caller of an older connection (rule session/epoch).
func (s *step) current(epoch uint64) bool {
	if epoch == s.sess().Epoch && s.sess().Connected() {
		return true
	}
	s.refuse(launch.ErrStale, "the session was connected again (epoch %d, the caller's is %d); stay away until the next session start", s.sess().Epoch, epoch).Fence = launch.EpochChanged
	return false
}

func (c Connect) apply(s *step) {
	se := s.sess()
	for field, v := range map[string]string{"host": c.Host, "process": c.Process} {
		if s.err = launch.CheckKey(field, v); s.err != nil {
			return
		}
	}
	if se.Process != "" && se.Process != c.Process {
		for i := range s.World.Messages {
			if a := s.World.Messages[i].Attempt; a.Epoch != 0 && !a.Taken {
				se.Quiet = max(se.Quiet, a.Deadline)
			}
		}
	}
	se.Epoch++
	se.Host, se.Process, se.Durable = c.Host, c.Process, c.Durable
	s.forget()
	if se.Created == 0 {
		se.Created = s.now.Wall
	}
	s.emit(Event{Kind: EvConnected})
}

// forget drops what only a live connection knows.
func (s *step) forget() {
	se := s.sess()
	se.Reported, se.Fresh, se.Idle, se.Pending, se.PendingSince, se.Input, se.Active = false, false, false, false, 0, false, Active{}
}

func (c Disconnect) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	se := s.sess()
	if c.Shutdown && se.Held && se.HeldEpoch == c.Epoch {
		s.free("the session shut down")
	}
	s.forget()
	se.Host = ""
	s.emit(Event{Kind: EvDisconnected})
}

func (s *step) free(why string) {
	if se := s.sess(); se.Held {
		se.Held, se.HeldEpoch = false, 0
		s.emit(Event{Kind: EvFreed, Reason: why})
	}
}

func (Free) apply(s *step) { s.free("a person started something") }

func (c Input) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	se := s.sess()
	se.Input, se.Fresh = true, false
	se.HeldEpoch = 0 // user input after the abort: a later shutdown is no mere disconnect
	if se.Active.Turn != "" {
		se.Active.UserInput = true
		if m := s.World.Message(se.Open); m != nil && se.Active.Message == m.ID {
			m.Turn.UserInput = true
		}
		return
	}
	if !se.Pending {
		se.Pending, se.PendingSince = true, s.now.Wall
	}
}

func (c TurnStarted) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if s.err = launch.CheckKey("turn", c.Turn); s.err != nil {
		return
	}
	se := s.sess()
	if se.Active.Turn == c.Turn { // a retry, or a repeated report
		if m := s.World.Message(c.Message); m != nil && m.Turn.ID == c.Turn {
			s.Own = Owned
		}
		return
	}
	se.Active = Active{Turn: c.Turn, UserInput: se.Input}
	se.Idle, se.Pending, se.PendingSince, se.Fresh = false, false, 0, false
	m := s.World.Message(c.Message)
	switch {
	case m == nil || !m.Kind.StartsTurn():
		s.closeOpen(Lost, "another turn began")
	case m.Turn.ID == c.Turn && m.Turn.Open(): // the same turn, on a new connection
		s.Own, se.Active.Message = Owned, m.ID
	case m.Turn.Opened != 0: // a message opens one turn
		s.closeOpen(Lost, "another turn began")
		s.Own = Settled
	case c.Withdrawn || m.State == Cancelled:
		s.closeOpen(Lost, "another turn began")
		s.Abort = m.ID
	default:
		s.closeOpen(Lost, "another turn began")
		m.Turn = Turn{ID: c.Turn, Opened: s.now.Wall, UserInput: se.Input}
		se.Open, se.Active.Message = m.ID, m.ID
		s.Own = Owned
		s.about(EvTurnOpened, m, Event{Turn: c.Turn})
	}
}

// closeOpen ends the open turn, if there is one.
func (s *step) closeOpen(end End, why string) {
	se := s.sess()
	if se.Open == "" {
		return
	}
	if m := s.World.Message(se.Open); m != nil && m.Turn.Open() {
		s.closeTurn(m, end, why)
	}
	se.Open = ""
}

func (s *step) closeTurn(m *Message, end End, why string) {
	m.Turn.Closed, m.Turn.End = s.now.Wall, end
	s.about(EvTurnClosed, m, Event{Turn: m.Turn.ID, End: end, Reason: why})
	if s.sess().Open == m.ID {
		s.sess().Open = ""
	}
	if m.Durable {
		m.Watched = false
	}
}

func (c TurnSettled) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	if c.End != Completed && c.End != Aborted && c.End != Error {
		s.refuse(launch.ErrInvalid, "a turn ends completed, aborted or with an error")
		return
	}
	se := s.sess()
	owner := s.turnOwner(c.Turn)
	if se.Active.Turn != c.Turn {
		// A repeated or late report. Matching repeats are adopted.
		if owner != nil && owner.Turn.End != Lost && owner.Turn.End != c.End {
			s.refuse(launch.ErrConflict, "the turn ended %s and is now reported as %s; repeat the first report or nothing", owner.Turn.End, c.End)
		} else if owner != nil && owner.Turn.End == Lost {
			s.about(EvLateEnd, owner, Event{Turn: c.Turn, End: c.End})
		}
		return
	}
	input := se.Active.UserInput
	se.Active, se.Fresh = Active{}, false
	if input {
		se.Input = false
	}
	if owner != nil && owner.Turn.Open() {
		s.closeTurn(owner, c.End, "settled")
		if owner.Seen {
			s.confirm(owner)
		}
	}
	switch {
	case c.End == Aborted && c.ByPerson:
		if !se.Held {
			s.emit(Event{Kind: EvHeld, Turn: c.Turn})
		}
		se.Held, se.HeldEpoch = true, c.Epoch
	case input && c.End != Aborted:
		s.free("user input settled")
	}
}

func (s *step) turnOwner(turn string) *Message {
	for i := range s.World.Messages {
		if m := &s.World.Messages[i]; turn != "" && m.Turn.ID == turn {
			return m
		}
	}
	return nil
}

func (c CountStart) apply(s *step) {
	if m := s.World.Message(s.sess().Open); m != nil {
		m.Turn.Starts++
		m.Updated = s.now.Wall
	}
}

func (c Queue) apply(s *step) {
	m := c.Message
	for i := range s.World.Messages {
		if o := &s.World.Messages[i]; o.Subject == m.Subject && (o.State == Pending || o.State == Blocked) {
			o.Eligible = m.Eligible
			return
		}
	}
	if !m.Kind.Valid() {
		s.refuse(launch.ErrInternal, "message of no kind")
		return
	}
	m.Issue = max(m.Issue, 1)
	m.ID = MessageID(m.Subject, m.Issue)
	m.Session, m.State, m.Watched = s.sess().Key, Pending, true
	m.Created, m.Updated = s.now.Wall, s.now.Wall
	s.World.Messages = append(s.World.Messages, m)
	s.about(EvQueued, &s.World.Messages[len(s.World.Messages)-1], Event{})
}

func (c Cancel) apply(s *step) {
	for i := range s.World.Messages {
		if m := &s.World.Messages[i]; m.Subject == c.Subject {
			s.cancel(m, c.Reason)
		}
	}
}

// cancel ends an unsent message. One that may be on its way stays watched.
func (s *step) cancel(m *Message, why string) {
	if m.State != Pending && m.State != Blocked {
		return
	}
	m.State = Cancelled
	m.Watched = m.Attempt.Epoch != 0
	s.about(EvCancelled, m, Event{Reason: why})
}

func (c EndRun) apply(s *step) {
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		if m.Run != c.Run || !m.Kind.EndsWithRun() {
			continue
		}
		if m.Turn.Open() {
			s.closeTurn(m, Lost, "the run ended")
		}
		s.cancel(m, "the run ended")
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
		m.State, m.Refusals, m.Watched = Pending, 0, true
		s.about(EvReopened, m, Event{})
	}
}

// order is the order of delivery (rule session/order).
func order(a, b *Message) int {
	return cmp.Or(cmp.Compare(a.Eligible, b.Eligible), cmp.Compare(a.Intent, b.Intent), cmp.Compare(a.ID, b.ID))
}
