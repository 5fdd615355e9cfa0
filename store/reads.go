package store

import (
	"context"
	"time"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Reads see one consistent snapshot, change no byte, and grant no authority.

func (s *Store) view(ctx context.Context, fn func(*tx) error) error {
	return s.engine.View(ctx, func(rows Rows) error {
		wall, mono := s.clock.Now()
		return fn(&tx{rows: rows, now: launch.Now{Wall: wall, Mono: mono, Clock: s.mono}})
	})
}

// Launch returns the durable record of a run. Its private input is left out.
func (s *Store) Launch(ctx context.Context, id launch.RunID) (l launch.Launch, err error) {
	err = s.view(ctx, func(x *tx) error {
		row, err := x.launch(id)
		if err != nil {
			return err
		}
		l = row.Launch
		l.Input = nil
		return nil
	})
	return l, err
}

// Facts returns what the view of a run is made of (see package view).
func (s *Store) Facts(ctx context.Context, id launch.RunID) (f view.Facts, err error) {
	err = s.view(ctx, func(x *tx) error {
		f, err = x.viewFacts(id)
		return err
	})
	return f, err
}

// Displayed returns the run that a session shows: its live one, else the one
// that was started last; empty when it never had one.
func (s *Store) Displayed(ctx context.Context, k launch.SessionKey) (id launch.RunID, err error) {
	err = s.view(ctx, func(x *tx) error {
		se, err := x.session(k)
		if err == nil {
			id = se.Display
		}
		return err
	})
	return id, err
}

func (x *tx) viewFacts(id launch.RunID) (f view.Facts, err error) {
	l, err := x.launch(id)
	if err != nil {
		return f, err
	}
	f.Now, f.Launch = x.now, l.Launch
	f.Launch.Input = nil
	if l.HasRecord() {
		r, err := x.record(l)
		if err != nil {
			return f, err
		}
		record := r.Run
		record.Input = nil
		f.Run = &record
		e, err := x.current(l)
		if err != nil {
			return f, err
		}
		if e != nil {
			f.Effect = &e.Effect
		}
		q, err := x.asked(r)
		if err != nil {
			return f, err
		}
		if q != nil {
			request := q.Request
			request.Candidate, request.Answer = nil, nil
			f.Request = &request
		}
	}
	if l.Mode == launch.Headless {
		return f, nil
	}
	w, err := x.world(l.Session)
	if err != nil {
		return f, err
	}
	f.Session = &w.Session
	for i := range w.Messages {
		if m := w.Messages[i]; m.Run == id {
			m.Body = nil
			f.Messages = append(f.Messages, m)
		}
	}
	owed, err := x.pending(l.Session, func(i *intents.Intent) bool { return i.Run == id })
	for _, i := range owed {
		f.Intents = append(f.Intents, i.Intent)
	}
	return f, err
}

// Output returns the latest accepted output of a node in a run.
func (s *Store) Output(ctx context.Context, id launch.RunID, node string) (output []byte, ok bool, err error) {
	key, valid := runBytes(id)
	if !valid {
		return nil, false, errNoRun
	}
	err = s.view(ctx, func(x *tx) error {
		var step stepRow
		return x.rows.Scan(stepsLatest, []Value{{Kind: Blob, Blob: key[:]}, {Kind: Text, Text: node}}, launch.MaxList, &step, func() bool {
			if step.Outcome == run.OK {
				output, ok = step.Output, true
			}
			return !ok
		})
	})
	return output, ok, err
}

// Work is a launch that the scheduler looks at.
type Work struct {
	Run        launch.RunID
	Workflow   string
	Source     string
	Mode       launch.Mode
	Session    launch.SessionKey
	Group      string
	State      launch.State
	Generation uint64
	Runner     string        // of a claim
	Due        launch.Time   // of a claim: its expiry; else since when it waits
	Lease      time.Duration // of a claim
	Claim      launch.Claim
}

func workOf(l *launch.Launch) Work {
	w := Work{Run: l.ID, Workflow: l.Workflow, Source: l.Source, Mode: l.Mode, Session: l.Session, Group: l.Group,
		State: l.State, Generation: l.Generation, Runner: l.Claim.Runner, Due: l.Ready, Lease: l.Claim.Lease, Claim: l.Claim}
	if l.State.Claimed() {
		w.Due = l.Claim.Expiry
	}
	return w
}

func (x *tx) due(prefix []Value, limit int) (all []Work, err error) {
	var row launchRow
	err = x.rows.Scan(launchesDue, prefix, limit, &row, func() bool {
		all = append(all, workOf(&row.Launch))
		return true
	})
	return all, err
}

// Claims returns the claimed launches of the file by expiry, at most limit.
func (s *Store) Claims(ctx context.Context, limit int) (all []Work, err error) {
	err = s.view(ctx, func(x *tx) error {
		all, err = x.due(claimedRows, limit)
		return err
	})
	return all, err
}

// Ready returns the headless launches that wait for a claim, oldest first, at
// most limit, and the count of live claims in the file.
func (s *Store) Ready(ctx context.Context, limit int) (all []Work, live int, err error) {
	err = s.view(ctx, func(x *tx) error {
		if all, err = x.due(waitingRows, limit); err != nil {
			return err
		}
		live, err = x.claims()
		return err
	})
	return all, live, err
}

// Reserved returns the live interactive launch of a session, if there is one,
// and why nothing may activate there now (empty when it may).
func (s *Store) Reserved(ctx context.Context, k launch.SessionKey) (w Work, ok bool, waits string, err error) {
	err = s.view(ctx, func(x *tx) error {
		l, err := x.reservation(k)
		if err != nil || l == nil {
			return err
		}
		se, err := x.session(k)
		if err != nil {
			return err
		}
		w, ok = workOf(&l.Launch), true
		waits, err = x.waits(l, se)
		return err
	})
	return w, ok, waits, err
}

// Deadline returns the earliest stored deadline: of an open request, or of a
// declared retry; 0 when there is none.
func (s *Store) Deadline(ctx context.Context) (at launch.Time, err error) {
	err = s.view(ctx, func(x *tx) error {
		var q requestRow
		var r runRow
		if err := x.rows.Scan(requestsDeadline, nil, 1, &q, func() bool { at = q.Deadline; return false }); err != nil {
			return err
		}
		return x.rows.Scan(runsDue, nil, 1, &r, func() bool {
			if at == 0 || r.Due < at {
				at = r.Due
			}
			return false
		})
	})
	return at, err
}

// Asked is what a coordinator needs to know of a session between sends.
type Asked struct {
	Session session.Session
	Names   []string    // message ids that reports are asked about, at most launch.MaxList
	Unsent  int         // pending messages among them
	Next    launch.Time // earliest deadline after which to look again, or 0
	// Sample is in how long to sample the active time of the turn that is open;
	// 0 when there is no budget that it spends.
	Sample time.Duration
	// Over is the message of that turn when its budget is used up, so that the
	// next sample ends the attempt; else empty.
	Over string
}

// SampleEvery is how often the active time of an open turn is sampled.
const SampleEvery = 10 * time.Second

// Asked returns what is watched in a session.
func (s *Store) Asked(ctx context.Context, k launch.SessionKey) (a Asked, err error) {
	err = s.view(ctx, func(x *tx) error {
		w, err := x.world(k)
		if err != nil {
			return err
		}
		a.Session = w.Session
		look := func(t launch.Time) {
			if t > x.now.Wall && (a.Next == 0 || t < a.Next) {
				a.Next = t
			}
		}
		look(w.Session.Quiet)
		if w.Session.Pending {
			look(w.Session.PendingSince.Add(session.PendingGrace))
		}
		for i := range w.Messages {
			m := &w.Messages[i]
			a.Names = append(a.Names, m.ID)
			if m.State == session.Pending {
				a.Unsent++
			}
			if m.Attempt.Epoch != 0 && m.Attempt.Deadline <= x.now.Wall {
				look(x.now.Wall.Add(session.PendingGrace)) // unanswered, and no report has settled it yet
			}
			look(m.Attempt.Deadline)
		}
		return x.sampling(k, &a)
	})
	return a, err
}

// sampling says in how long the turn that is open in a session is to be sampled.
func (x *tx) sampling(k launch.SessionKey, a *Asked) error {
	s, err := x.session(k)
	if err != nil || !s.Connected() {
		return err
	}
	m, q, err := x.openTurn(s)
	if err != nil || q == nil {
		return err
	}
	l, err := x.launch(q.Run)
	if err != nil || l.Paused || l.State.Terminal() {
		return err
	}
	r, err := x.record(l)
	if err != nil || r.Budget == 0 || !r.Asked || r.Node != q.Node || r.Visit != q.Visit || r.Attempt != q.Attempt {
		return err
	}
	a.Sample = 1
	if r.Active.Opened == 0 || r.Active.Clock != x.now.Clock { // this host does not sample it yet
		return nil
	}
	left, _ := r.Left()
	since := x.now.Mono.Sub(r.Active.At)
	if a.Sample = max(min(SampleEvery, left)-since, 1); left <= since {
		a.Over = m.ID
	}
	return nil
}

// Intents returns the pending intents of a session, oldest first.
func (s *Store) Intents(ctx context.Context, k launch.SessionKey) (all []intents.Intent, err error) {
	err = s.view(ctx, func(x *tx) error {
		rows, err := x.pending(k, func(*intents.Intent) bool { return true })
		for _, r := range rows {
			all = append(all, r.Intent)
		}
		return err
	})
	return all, err
}

// Intent returns one intent.
func (s *Store) Intent(ctx context.Context, id string) (i intents.Intent, err error) {
	err = s.view(ctx, func(x *tx) error {
		if err := launch.CheckKey("intent", id); err != nil {
			return err
		}
		r, err := x.intent(id)
		if err == nil && r == nil {
			err = launch.Refuse(launch.ErrNotFound, "no such intent; check the id")
		}
		if err == nil {
			i = r.Intent
		}
		return err
	})
	return i, err
}

// Request returns one request, without the answers that were given to it.
func (s *Store) Request(ctx context.Context, id string) (q request.Request, err error) {
	err = s.view(ctx, func(x *tx) error {
		if err := launch.CheckKey("request id", id); err != nil {
			return err
		}
		r, err := x.request(id)
		if err == nil && r == nil {
			err = launch.Refuse(launch.ErrNotFound, "no such request; check the request id")
		}
		if err == nil {
			q = r.Request
			q.Candidate, q.Answer = nil, nil
		}
		return err
	})
	return q, err
}

// Message returns one message.
func (s *Store) Message(ctx context.Context, id string) (m session.Message, err error) {
	err = s.view(ctx, func(x *tx) error {
		if err := launch.CheckKey("message", id); err != nil {
			return err
		}
		r, err := x.message(id)
		if err == nil && r == nil {
			err = launch.Refuse(launch.ErrNotFound, "no such message; check the id")
		}
		if err == nil {
			m = r.Message
		}
		return err
	})
	return m, err
}

// RunEvents returns the stored events of a run after the n-th, which is 0 or
// the number of the last event that an earlier call returned; at most
// launch.MaxList rows of them.
func (s *Store) RunEvents(ctx context.Context, id launch.RunID, after uint64) ([]Record, error) {
	key, ok := runBytes(id)
	if !ok {
		return nil, errNoRun
	}
	return s.events(ctx, key, after)
}

// SessionEvents is RunEvents for the stream of a session.
func (s *Store) SessionEvents(ctx context.Context, k launch.SessionKey, after uint64) ([]Record, error) {
	return s.events(ctx, sessionStream(k), after)
}

func (s *Store) events(ctx context.Context, key [16]byte, after uint64) (all []Record, err error) {
	err = s.view(ctx, func(x *tx) error {
		for range launch.MaxList {
			row := eventRow{Stream: key, N: after + 1}
			found, err := x.rows.Get(&row)
			if err != nil || !found {
				return err
			}
			records, err := decodeEvents(row)
			if err != nil {
				return err
			}
			all = append(all, records...)
			after += uint64(len(records))
		}
		return nil
	})
	return all, err
}
