package session_test

import (
	"testing"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

func TestFreeAndBoundary(t *testing.T) {
	now := launch.Now{Wall: start}
	good := session.Session{Epoch: 1, Host: "host", Process: "pid", Reported: true, Idle: true}
	for _, c := range []struct {
		why      string
		spoil    func(*session.Session)
		free     bool
		boundary string
	}{
		{"idle", func(s *session.Session) {}, true, ""},
		{"not connected", func(s *session.Session) { s.Host = "" }, false, "the session is not connected"},
		{"not reported", func(s *session.Session) { s.Reported = false }, false, "the branch is not reported yet"},
		{"held", func(s *session.Session) { s.Held = true }, true, "the session is held by the person"},
		{"a turn is active", func(s *session.Session) { s.Active.Turn = "t" }, false, "a turn is under way"},
		{"a turn is open", func(s *session.Session) { s.Open = "m" }, true, "a turn is under way"},
		{"busy", func(s *session.Session) { s.Idle = false }, false, "the session is busy"},
		{"pending, nobody knows since when", func(s *session.Session) { s.Pending = true }, false, "the session is busy"},
		{"pending since a moment ago", func(s *session.Session) { s.Pending, s.PendingSince = true, start }, false, "the session is busy"},
		{"pending for too long", func(s *session.Session) { s.Pending, s.PendingSince = true, start.Add(-session.PendingGrace) }, true, ""},
	} {
		s := good
		c.spoil(&s)
		if free, boundary := s.Free(now), s.Boundary(now); free != c.free || boundary != c.boundary {
			t.Errorf("%s: free %v, boundary %q; want %v, %q", c.why, free, boundary, c.free, c.boundary)
		}
	}
}
