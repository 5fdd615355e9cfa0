package sessiontest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/session/sessiontest"
	"example.com/piworkflows/launch"
)

// complains checks that err is what the named invariant says, or nothing when
// no name is given.
func complains(t *testing.T, why, name string, err error) {
	t.Helper()
	if name == "" && err != nil {
		t.Errorf("%s: refused: %v", why, err)
	}
	if name != "" && (err == nil || !strings.HasPrefix(err.Error(), name+": ")) {
		t.Errorf("%s: got %v, want a complaint of %s", why, err, name)
	}
}

var token = launch.DigestOf([]byte("token"))

const now = launch.Time(1e18)

// message returns a sound message in that state.
func message(s session.State) session.Message {
	m := session.Message{
		ID: session.MessageID("a", 1), Session: sessiontest.Session, Kind: session.Step, Subject: "a", Issue: 1, Run: "run",
		State: s, Eligible: 1, Attempts: 1, Watched: true, Created: 1, Updated: 1,
	}
	switch s {
	case session.Sent:
		m.Seen = true
	case session.Cancelled:
		m.Eligible, m.Watched = 0, false
	}
	return m
}

func attempt() session.Attempt {
	return session.Attempt{Token: token, First: token, Epoch: 1, Deadline: now}
}

// sound is a connected session with sound messages.
func sound(list ...session.Message) session.World {
	w := session.World{
		Session:  session.Session{Key: sessiontest.Session, Epoch: 2, Host: "host", Process: "pid", Reported: true, Fresh: true, Idle: true},
		Messages: list,
	}
	for _, m := range list {
		if m.Turn.Open() {
			w.Session.Open = m.ID
		}
	}
	return w
}

func second(m session.Message) session.Message {
	m.Issue, m.ID = 2, session.MessageID(m.Subject, 2)
	return m
}

func other(m session.Message) session.Message {
	m.Subject, m.ID = "b", session.MessageID("b", 1)
	return m
}

func ended(launch.RunID) bool { return true }
func live(launch.RunID) bool  { return false }

func TestBrokenRowsAreFound(t *testing.T) {
	for s := session.Pending; s <= session.Blocked; s++ {
		complains(t, "a sound "+s.String()+" row", "", sessiontest.CheckRows(sound(message(s)), live))
	}
	pending, sent := message(session.Pending), message(session.Sent)
	for _, c := range []struct {
		why, name string
		of        session.Message
		spoil     func(*session.Message)
		more      []session.Message
	}{
		{"an id of another subject", "MessageIdentity", pending, func(m *session.Message) { m.ID = "message:x" }, nil},
		{"issue 0", "MessageIdentity", pending, func(m *session.Message) { m.Issue = 0 }, nil},
		{"an issue beyond the bound", "MessageIdentity", pending, func(m *session.Message) {
			m.Issue, m.ID = session.MaxIssues+1, session.MessageID("a", session.MaxIssues+1)
		}, nil},
		{"the same id twice", "MessageIdentity", sent, nil, []session.Message{sent}},
		{"a message of another session", "MessageIdentity", pending, func(m *session.Message) { m.Session = "other" }, nil},

		{"two unsent issues", "OneUnsent", pending, nil, []session.Message{second(message(session.Blocked))}},
		{"an unsent issue beside one on the branch", "OneUnsent", pending, nil, []session.Message{second(sent)}},
		{"unsent messages of two subjects", "", pending, nil, []session.Message{other(pending)}},
		{"an unsent issue beside a lost one", "", func() session.Message { m := sent; m.Seen = false; return m }(), nil, []session.Message{second(pending)}},

		{"lost and needed", "LostIsServed", sent, func(m *session.Message) { m.Seen = false }, nil},
		{"lost and needed no more", "", sent, func(m *session.Message) { m.Seen, m.Eligible, m.Watched = false, 0, false }, nil},

		{"an unsettled attempt", "", pending, func(m *session.Message) { m.Attempt = attempt() }, nil},
		{"an attempt without a deadline", "OneAttempt", pending, func(m *session.Message) { m.Attempt = attempt(); m.Attempt.Deadline = 0 }, nil},
		{"an attempt without its first token", "OneAttempt", pending, func(m *session.Message) { m.Attempt = attempt(); m.Attempt.First = launch.Digest{} }, nil},
		{"a taken attempt without anything else", "OneAttempt", pending, func(m *session.Message) { m.Attempt.Taken = true }, nil},
		{"an attempt of an epoch to come", "OneAttempt", pending, func(m *session.Message) { m.Attempt = attempt(); m.Attempt.Epoch = 3 }, nil},
		{"an attempt of what was seen", "OneAttempt", sent, func(m *session.Message) { m.Attempt = attempt() }, nil},
		{"an attempt that is not counted", "OneAttempt", pending, func(m *session.Message) { m.Attempt, m.Attempts = attempt(), 0 }, nil},
		{"two attempts", "OneAttempt", pending, func(m *session.Message) { m.Attempt = attempt() },
			[]session.Message{func() session.Message { m := other(pending); m.Attempt = attempt(); return m }()}},

		{"an open turn", "", sent, func(m *session.Message) { m.Turn = session.Turn{ID: "t", Opened: 1} }, nil},
		{"two open turns", "OneOpenTurn", sent, func(m *session.Message) { m.Turn = session.Turn{ID: "t", Opened: 1} },
			[]session.Message{func() session.Message { m := other(sent); m.Turn = session.Turn{ID: "u", Opened: 1}; return m }()}},
		{"a passive message with a turn", "OneOpenTurn", sent, func(m *session.Message) {
			m.Kind, m.Turn = session.Notice, session.Turn{ID: "t", Opened: 1, Closed: 2, End: session.Completed}
		}, nil},
		{"a closed turn without an end", "OneOpenTurn", sent, func(m *session.Message) { m.Turn = session.Turn{ID: "t", Opened: 1, Closed: 2} }, nil},
		{"an end of a turn that is open", "OneOpenTurn", sent, func(m *session.Message) { m.Turn = session.Turn{ID: "t", Opened: 1, End: session.Lost} }, nil},
		{"a turn without a key", "OneOpenTurn", sent, func(m *session.Message) { m.Turn = session.Turn{Opened: 1} }, nil},

		{"pending and not watched", "Watched", pending, func(m *session.Message) { m.Watched = false }, nil},
		{"blocked and not watched", "Watched", message(session.Blocked), func(m *session.Message) { m.Watched = false }, nil},
		{"not confirmed and not watched", "Watched", sent, func(m *session.Message) { m.Watched = false }, nil},
		{"its turn unknown and not watched", "Watched", sent, func(m *session.Message) { m.Durable, m.Watched = true, false }, nil},
		{"its turn open and not watched", "Watched", message(session.Cancelled), func(m *session.Message) { m.Turn = session.Turn{ID: "t", Opened: 1} }, nil},
		{"cancelled on its way and not watched", "Watched", message(session.Cancelled), func(m *session.Message) { m.Attempt = attempt() }, nil},
		{"cancelled for good and watched", "Watched", message(session.Cancelled), func(m *session.Message) { m.Watched = true }, nil},
		{"served and watched", "Watched", sent, func(m *session.Message) {
			m.Durable, m.Turn = true, session.Turn{ID: "t", Opened: 1, Closed: 2, End: session.Completed}
		}, nil},
		{"lost, needed no more, and watched", "Watched", sent, func(m *session.Message) { m.Seen, m.Eligible = false, 0 }, nil},
		{"the lost issue of a pending one not watched", "Watched", sent, func(m *session.Message) { m.Seen, m.Eligible, m.Watched = false, 0, false },
			[]session.Message{second(pending)}},

		{"no state", "MessageFields", pending, func(m *session.Message) { m.State, m.Watched = 0, false }, nil},
		{"no kind", "MessageFields", pending, func(m *session.Message) { m.Kind = 0 }, nil},
		{"pending without a place in the order", "MessageFields", pending, func(m *session.Message) { m.Eligible = 0 }, nil},
		{"cancelled with a place in the order", "MessageFields", message(session.Cancelled), func(m *session.Message) { m.Eligible = 1 }, nil},
		{"pending on the branch", "MessageFields", pending, func(m *session.Message) { m.Seen = true }, nil},
		{"confirmed and cancelled", "MessageFields", message(session.Cancelled), func(m *session.Message) { m.Durable = true }, nil},
		{"refused too often and pending", "MessageFields", pending, func(m *session.Message) { m.Refusals = session.MaxRefusals }, nil},
		{"refused beyond the bound", "MessageFields", message(session.Blocked), func(m *session.Message) { m.Refusals = session.MaxRefusals + 1 }, nil},
	} {
		m := c.of
		if c.spoil != nil {
			c.spoil(&m)
		}
		complains(t, c.why, c.name, sessiontest.CheckRows(sound(append([]session.Message{m}, c.more...)...), live))
	}

	w := sound(sent)
	w.Session.Open = sent.ID
	complains(t, "the session names a turn that is not open", "OneOpenTurn", sessiontest.OneOpenTurn(w))
	w = sound(sent)
	w.Session.Active = session.Active{Turn: "t", Message: sent.ID}
	complains(t, "the active turn belongs to a message without an open one", "OneOpenTurn", sessiontest.OneOpenTurn(w))

	notice := sent
	notice.Kind, notice.State, notice.Seen = session.Notification, session.Pending, false
	open := sent
	open.Turn = session.Turn{ID: "t", Opened: 1}
	complains(t, "a step of an ended run is pending", "EndedRun", sessiontest.EndedRun(sound(pending), ended))
	complains(t, "a step turn of an ended run is open", "EndedRun", sessiontest.EndedRun(sound(open), ended))
	complains(t, "a notification survives its run", "", sessiontest.EndedRun(sound(notice), ended))
	complains(t, "what was sent stays", "", sessiontest.EndedRun(sound(sent), ended))
}

// entry is a command that changed something about a message, as if it were
// accepted.
func entry(c session.Command, before session.World, change func(*session.World)) sessiontest.Entry {
	after := session.World{Session: before.Session, Messages: append([]session.Message(nil), before.Messages...)}
	change(&after)
	return sessiontest.Entry{Before: before, Command: c, Now: launch.Now{Wall: now}, Change: session.Change{World: after}}
}

func TestBrokenEntriesAreFound(t *testing.T) {
	pending, sent := message(session.Pending), message(session.Sent)
	a := pending.ID
	asked := pending
	asked.Attempt = attempt()
	opened := sent
	opened.Turn = session.Turn{ID: "t", Opened: 1}
	closed := opened
	closed.Turn.Closed, closed.Turn.End = 2, session.Completed
	lost := sent
	lost.Seen = false
	any := func(*session.Message) bool { return true }
	try := session.Try{Epoch: 2, Token: token, Ready: any}
	shows := session.Report{Epoch: 2, Idle: true, Evidence: []session.Evidence{{Message: a, Present: true}}}
	misses := session.Report{Epoch: 2, Idle: true, Evidence: []session.Evidence{{Message: a}}}
	started := session.TurnStarted{Epoch: 2, Turn: "t", Message: a}
	first := func(f func(m *session.Message)) func(*session.World) {
		return func(w *session.World) { f(&w.Messages[0]) }
	}
	tried := first(func(m *session.Message) {
		m.Attempts++
		m.Attempt = session.Attempt{Token: token, First: token, Epoch: 2, Deadline: now.Add(session.SendDeadline)}
	})
	of := func(m session.Message, f func(*session.Session)) session.World {
		w := sound(m)
		f(&w.Session)
		return w
	}
	nothing := func(*session.World) {}

	for _, c := range []struct {
		why, name string
		check     func(sessiontest.Entry) error
		e         sessiontest.Entry
	}{
		{"refused and changed", "RefusalKeeps", sessiontest.RefusalKeeps, func() sessiontest.Entry {
			e := entry(try, sound(pending), tried)
			e.Err = errors.New("refused")
			return e
		}()},
		{"refused and told", "RefusalKeeps", sessiontest.RefusalKeeps, func() sessiontest.Entry {
			e := entry(try, sound(pending), nothing)
			e.Err, e.Change.Events = errors.New("refused"), []session.Event{{Kind: session.EvSent}}
			return e
		}()},

		{"a report raised the epoch", "EpochCurrent", sessiontest.EpochCurrent, entry(shows, sound(pending), func(w *session.World) { w.Session.Epoch++ })},
		{"a connection did not", "EpochCurrent", sessiontest.EpochCurrent, entry(session.Connect{}, sound(pending), nothing)},
		{"an older connection was accepted", "EpochCurrent", sessiontest.EpochCurrent, entry(session.Input{Epoch: 1}, sound(pending), nothing)},
		{"nobody was connected", "EpochCurrent", sessiontest.EpochCurrent, entry(try, of(pending, func(s *session.Session) { s.Host = "" }), nothing)},
		{"an event of another epoch", "EpochCurrent", sessiontest.EpochCurrent, func() sessiontest.Entry {
			e := entry(session.Free{}, sound(pending), nothing)
			e.Change.Events = []session.Event{{Kind: session.EvFreed, Epoch: 1}}
			return e
		}()},

		{"shown by a report", "", sessiontest.SentByEvidence, entry(shows, sound(asked), first(func(m *session.Message) { *m = sent }))},
		{"sent by an answer", "SentByEvidence", sessiontest.SentByEvidence, entry(session.Answer{}, sound(asked), first(func(m *session.Message) { *m = sent }))},
		{"sent by a report that misses it", "SentByEvidence", sessiontest.SentByEvidence, entry(misses, sound(asked), first(func(m *session.Message) { *m = sent }))},
		{"sent and pending again", "SentByEvidence", sessiontest.SentByEvidence, entry(misses, sound(sent), first(func(m *session.Message) { *m = pending }))},
		{"blocked before its issues are used up", "SentByEvidence", sessiontest.SentByEvidence, entry(misses, sound(sent), first(func(m *session.Message) { m.State = session.Blocked }))},
		{"confirmed and no more", "SentByEvidence", sessiontest.SentByEvidence, entry(shows, sound(func() session.Message { m := sent; m.Durable = true; return m }()), first(func(m *session.Message) { m.Durable = false }))},
		{"confirmed and never seen", "SentByEvidence", sessiontest.SentByEvidence, entry(shows, sound(pending), first(func(m *session.Message) { m.Durable = true }))},

		{"an allowed attempt", "", sessiontest.AttemptAllowed, entry(try, sound(pending), tried)},
		{"an attempt by a report", "AttemptAllowed", sessiontest.AttemptAllowed, entry(shows, sound(pending), tried)},
		{"of an older epoch", "AttemptAllowed", sessiontest.AttemptAllowed, entry(session.Try{Epoch: 1, Ready: any}, sound(pending), tried)},
		{"before the first report", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Reported = false }), tried)},
		{"on an old report", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Fresh = false }), tried)},
		{"while held", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Held = true }), tried)},
		{"in a turn", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Active.Turn = "t" }), tried)},
		{"with an open turn", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Open = "m" }), tried)},
		{"while busy", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Idle = false }), tried)},
		{"while input is pending", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Pending, s.PendingSince = true, now }), tried)},
		{"while another process may send", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, of(pending, func(s *session.Session) { s.Quiet = now + 1 }), tried)},
		{"of a blocked message", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, sound(message(session.Blocked)), tried)},
		{"of one that was taken", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, sound(func() session.Message { m := asked; m.Attempt.Taken = true; return m }()), tried)},
		{"of one that is not eligible", "AttemptAllowed", sessiontest.AttemptAllowed, entry(session.Try{Epoch: 2, Ready: func(*session.Message) bool { return false }}, sound(pending), tried)},
		{"with too early a deadline", "AttemptAllowed", sessiontest.AttemptAllowed, entry(try, sound(pending), func(w *session.World) { tried(w); w.Messages[0].Attempt.Deadline-- })},

		{"the later of two", "AttemptInOrder", sessiontest.AttemptInOrder, func() sessiontest.Entry {
			later := other(pending)
			later.Eligible = 2
			e := entry(try, sound(pending, later), nothing)
			e.Change.Send = &later
			return e
		}()},
		{"another one while an attempt is unsettled", "AttemptInOrder", sessiontest.AttemptInOrder, func() sessiontest.Entry {
			sooner := other(pending)
			sooner.Eligible = -1
			e := entry(try, sound(asked, sooner), nothing)
			e.Change.Send = &sooner
			return e
		}()},
		{"the unsettled one again, though later", "", sessiontest.AttemptInOrder, func() sessiontest.Entry {
			sooner := other(pending)
			sooner.Eligible = -1
			e := entry(try, sound(asked, sooner), nothing)
			e.Change.Send = &asked
			return e
		}()},

		{"absent after the deadline", "", sessiontest.AttemptProven, entry(misses, sound(asked), first(func(m *session.Message) { *m = pending }))},
		{"absent before it", "AttemptProven", sessiontest.AttemptProven, func() sessiontest.Entry {
			e := entry(misses, sound(asked), first(func(m *session.Message) { *m = pending }))
			e.Now.Wall--
			return e
		}()},
		{"absent when the clock is distrusted", "AttemptProven", sessiontest.AttemptProven, func() sessiontest.Entry {
			e := entry(misses, sound(asked), first(func(m *session.Message) { *m = pending }))
			e.Now.Distrust = true
			return e
		}()},
		{"absent in a report of a busy session", "AttemptProven", sessiontest.AttemptProven, entry(misses, of(asked, func(s *session.Session) { s.Idle = false }), first(func(m *session.Message) { *m = pending }))},
		{"settled by time", "AttemptProven", sessiontest.AttemptProven, entry(session.Connect{}, sound(asked), first(func(m *session.Message) { *m = pending }))},
		{"settled by the refusal of another ask", "AttemptProven", sessiontest.AttemptProven, entry(session.Answer{Message: a, Token: launch.DigestOf(nil), Verdict: session.Refused}, sound(asked), first(func(m *session.Message) { *m = pending }))},
		{"settled by a refusal although asked twice", "AttemptProven", sessiontest.AttemptProven, entry(session.Answer{Message: a, Token: token, Verdict: session.Refused},
			sound(func() session.Message { m := asked; m.Attempt.First = launch.DigestOf(nil); return m }()), first(func(m *session.Message) { *m = pending }))},

		{"issued again when lost", "", sessiontest.IssuedWhenLost, entry(misses, sound(sent), func(w *session.World) { w.Messages = append(w.Messages, second(pending)) })},
		{"although shown", "IssuedWhenLost", sessiontest.IssuedWhenLost, entry(shows, sound(sent), func(w *session.World) { w.Messages = append(w.Messages, second(pending)) })},
		{"although not needed", "IssuedWhenLost", sessiontest.IssuedWhenLost, entry(misses, sound(func() session.Message { m := lost; m.Eligible = 0; return m }()), func(w *session.World) { w.Messages = append(w.Messages, second(pending)) })},
		{"although only pending", "IssuedWhenLost", sessiontest.IssuedWhenLost, entry(misses, sound(pending), func(w *session.World) { w.Messages = append(w.Messages, second(pending)) })},

		{"a turn opened by a report of input", "TurnOwned", sessiontest.TurnOwned, entry(session.Input{Epoch: 2}, sound(sent), first(func(m *session.Message) { *m = opened }))},
		{"a turn that nobody was told to own", "TurnOwned", sessiontest.TurnOwned, entry(started, sound(sent), first(func(m *session.Message) { *m = opened }))},
		{"an ownership without a turn", "TurnOwned", sessiontest.TurnOwned, func() sessiontest.Entry {
			e := entry(started, sound(sent), nothing)
			e.Change.Own = session.Owned
			return e
		}()},
		{"a turn recorded though the branch does not show it", "TurnOwned", sessiontest.TurnOwned, entry(misses, sound(sent), first(func(m *session.Message) { *m = closed }))},
		{"an end that changed", "TurnOwned", sessiontest.TurnOwned, entry(started, sound(closed), first(func(m *session.Message) { m.Turn.End = session.Lost }))},
		{"a turn that is forgotten", "TurnOwned", sessiontest.TurnOwned, entry(shows, sound(closed), first(func(m *session.Message) { m.Turn = session.Turn{} }))},

		{"an abort by a report", "AbortNamesTurn", sessiontest.AbortNamesTurn, func() sessiontest.Entry {
			e := entry(shows, sound(sent), nothing)
			e.Change.Abort = a
			return e
		}()},
		{"an abort of another turn", "AbortNamesTurn", sessiontest.AbortNamesTurn, func() sessiontest.Entry {
			e := entry(started, sound(sent), nothing)
			e.Change.Abort = "other"
			return e
		}()},

		{"held by nothing", "HoldKept", sessiontest.HoldKept, entry(shows, sound(pending), func(w *session.World) { w.Session.Held = true })},
		{"held by the host's abort", "HoldKept", sessiontest.HoldKept, entry(session.TurnSettled{Epoch: 2, Turn: "t", End: session.Aborted}, sound(pending), func(w *session.World) { w.Session.Held = true })},
		{"freed by a connection", "HoldKept", sessiontest.HoldKept, entry(session.Connect{}, of(pending, func(s *session.Session) { s.Held = true }), func(w *session.World) { w.Session.Held = false })},
		{"freed by a later shutdown", "HoldKept", sessiontest.HoldKept, entry(session.Disconnect{Epoch: 2, Shutdown: true}, of(pending, func(s *session.Session) { s.Held, s.HeldEpoch = true, 1 }), func(w *session.World) { w.Session.Held = false })},
		{"freed by a report without input", "HoldKept", sessiontest.HoldKept, entry(shows, of(pending, func(s *session.Session) { s.Held = true }), func(w *session.World) { w.Session.Held = false })},
		{"freed by a turn without input", "HoldKept", sessiontest.HoldKept, entry(session.TurnSettled{Epoch: 2, Turn: "t", End: session.Completed}, of(pending, func(s *session.Session) { s.Held, s.Active.Turn = true, "t" }), func(w *session.World) { w.Session.Held = false })},
	} {
		complains(t, c.why, c.name, c.check(c.e))
	}
}

func TestBrokenTracesAreFound(t *testing.T) {
	a := session.MessageID("a", 1)
	events := []session.Event{
		{Kind: session.EvConnected, Epoch: 2}, {Kind: session.EvQueued, Message: a}, {Kind: session.EvAttempted, Message: a},
		{Kind: session.EvTurnOpened, Message: a}, {Kind: session.EvSent, Message: a}, {Kind: session.EvTurnClosed, Message: a, End: session.Error},
		{Kind: session.EvConfirmed, Message: a}, {Kind: session.EvHeld},
	}
	m := message(session.Sent)
	m.Durable, m.Turn = true, session.Turn{ID: "t", Opened: 1, Closed: 2, End: session.Error}
	w := sound(m)
	w.Session.Held = true
	complains(t, "events that tell it all", "", sessiontest.ReplayAgrees(events, w))
	for n := range events {
		if k := events[n].Kind; k == session.EvQueued || k == session.EvAttempted || k == session.EvTurnOpened {
			continue // what follows tells it as well
		}
		left := append(append([]session.Event(nil), events[:n]...), events[n+1:]...)
		complains(t, "without the event "+events[n].Kind.String(), "ReplayAgrees", sessiontest.ReplayAgrees(left, w))
	}

	file := []sessiontest.Line{
		{ID: 1}, {ID: 2, Parent: 1, Message: "m1", Intent: "i", Turn: true}, {ID: 3, Parent: 1, Message: "m1", Intent: "i", Turn: true},
		{ID: 4, Parent: 3, Message: "n"}, {ID: 5, Parent: 4, Reply: true},
	}
	complains(t, "the same on two branches", "", sessiontest.OncePerPath(file))
	complains(t, "a message twice on a path", "OncePerPath", sessiontest.OncePerPath(append(file, sessiontest.Line{ID: 6, Parent: 5, Message: "m1"})))
	complains(t, "an intent with two turns on a path", "OncePerPath", sessiontest.OncePerPath(append(file, sessiontest.Line{ID: 6, Parent: 5, Message: "m2", Intent: "i", Turn: true})))
	complains(t, "a passive message about it", "", sessiontest.OncePerPath(append(file, sessiontest.Line{ID: 6, Parent: 5, Message: "m2", Intent: "i"})))
}

// A send that the bridge is said to have taken, and that it never shows, must
// be given up; one that cannot be is found.
func TestStuckIsFound(t *testing.T) {
	for _, c := range []struct {
		why  string
		wait time.Duration
		name string
	}{
		{"given up after its deadline", 0, ""},
		{"its deadline is out of reach", 365 * 24 * time.Hour, "Quiesce"},
	} {
		w := sessiontest.NewWorld()
		for _, s := range []sessiontest.Step{
			{Op: sessiontest.Open}, {Op: sessiontest.Queue, Kind: session.Fallback},
			{Op: sessiontest.Look}, {Op: sessiontest.Record}, {Op: sessiontest.Try}, {Op: sessiontest.Lose},
		} {
			if err := w.Do(s); err != nil {
				t.Fatal(err)
			}
		}
		a := &w.Rows.Messages[0].Attempt
		a.Taken, a.Deadline = true, a.Deadline.Add(c.wait)
		complains(t, c.why, c.name, w.Quiesce())
	}
}
