package session

import (
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
	s.watch()
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
	e.Kind, e.Message, e.Of, e.Issue, e.Run, e.Intent, e.Request = kind, m.ID, m.Kind, m.Issue, m.Run, m.Intent, m.Request
	s.emit(e)
}

// issues calls f for each issue of a subject.
func (s *step) issues(subject string, f func(*Message)) {
	for i := range s.World.Messages {
		if m := &s.World.Messages[i]; m.Subject == subject {
			f(m)
		}
	}
}

// watch watches all issues of a subject while a report can change one of them
// (rule session/watched).
func (s *step) watch() {
	for i := range s.World.Messages {
		m := &s.World.Messages[i]
		m.Watched = m.live()
		if !m.Watched {
			s.issues(m.Subject, func(o *Message) { m.Watched = m.Watched || o.live() })
		}
	}
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
	if s.err = launch.CheckKey("host", c.Host); s.err != nil {
		return
	}
	if s.err = launch.CheckKey("process", c.Process); s.err != nil {
		return
	}
	if c.After != 0 && c.After < se.Epoch && se.Process != c.Process {
		s.refuse(launch.ErrStale, "another process has connected since; stay away until the next session start, or until a person acts").Fence = launch.EpochChanged
		return
	}
	if se.Process != c.Process {
		for i := range s.World.Messages {
			if a := s.World.Messages[i].Attempt; a.Epoch != 0 && !a.Taken {
				se.Quiet = max(se.Quiet, a.Deadline)
			}
		}
		s.rest() // the other process tells no more
		se.Input = false
	}
	se.Epoch++
	se.Host, se.Process, se.Durable = c.Host, c.Process, c.Durable
	s.forget()
	if se.Created == 0 {
		se.Created = s.now.Wall
	}
	s.emit(Event{Kind: EvConnected})
}

// forget drops what only a report on the live connection tells. What the agent
// is doing stays: the same process repeats what was not confirmed.
func (s *step) forget() {
	se := s.sess()
	se.Reported, se.Fresh, se.Idle, se.Pending, se.PendingSince = false, false, false, false, 0
}

func (c Disconnect) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	se := s.sess()
	if c.Shutdown {
		if se.HeldEpoch == c.Epoch {
			s.free("the session shut down", se.HeldRun)
		}
		s.rest()
		se.Input = false
	}
	s.forget()
	se.Host = ""
	s.emit(Event{Kind: EvDisconnected})
}

// rest records that the agent does nothing any more.
func (s *step) rest() { s.sess().Active, s.sess().Abort = Active{}, "" }

// free lifts a hold. released is the run that was held by the same abort and
// goes on with the session, or empty.
func (s *step) free(why string, released launch.RunID) {
	if se := s.sess(); se.Held {
		se.Held, se.HeldEpoch, se.HeldRun = false, 0, ""
		s.emit(Event{Kind: EvFreed, Run: released, Reason: why})
	}
}

func (Free) apply(s *step) { s.free("a person started something", "") }

func (c Input) apply(s *step) {
	if !s.current(c.Epoch) {
		return
	}
	se := s.sess()
	se.Input, se.Fresh = true, false
	se.HeldEpoch, se.HeldRun = 0, "" // user input after the abort: a later shutdown is no mere disconnect
	if se.Active.Turn == "" {
		se.Pending, se.PendingSince = true, s.now.Wall
		return
	}
	se.Active.UserInput = true
	if m := s.World.Message(se.Active.Message); m != nil && m.Turn.Open() {
		m.Turn.UserInput = true
		m.Updated = s.now.Wall
	}
}
