package store

import (
	"example.com/piworkflows/engine/follow"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// stopClock closes the active interval of a run's attempt.
func (x *tx) stopClock(l *launchRow) error {
	r, err := x.run(l.ID)
	if err != nil || r == nil || r.Active.Opened == 0 || r.Status.Terminal() {
		return err
	}
	return x.applyRun(l, r, run.StopClock{}, nil)
}

// turnOpened notes that a turn of a request began.
func (x *tx) turnOpened(id string) error {
	q, err := x.request(id)
	if err != nil || q == nil {
		return err
	}
	if err := x.applyRequest(q, request.TurnOpened{}); err != nil {
		return err
	}
	return x.clock(q, run.StartClock{})
}

// clock applies a clock command to the attempt of an open request, unless its
// run is held.
func (x *tx) clock(q *requestRow, c run.Command) error {
	if q.State != request.Pending {
		return nil
	}
	l, err := x.launch(q.Run)
	if err != nil || l.State.Terminal() || l.Paused {
		return err
	}
	r, err := x.record(l)
	if err != nil || !r.Asked || r.Node != q.Node || r.Visit != q.Visit || r.Attempt != q.Attempt {
		return err
	}
	return x.applyRun(l, r, c, nil)
}

// turnClosed notes how a turn of a request ended, and takes what it said as the
// response that the request may be waiting for.
func (x *tx) turnClosed(c follow.TurnClosed) error {
	q, err := x.request(c.Request)
	if err != nil || q == nil {
		return err
	}
	closed := request.TurnClosed{End: c.End}
	if x.reply != nil {
		closed.PromptEntry, closed.ResponseEntry = x.reply.PromptEntry, x.reply.ReplyEntry
	}
	if err := x.applyRequest(q, closed); err != nil {
		return err
	}
	if err := x.clock(q, run.StopClock{}); err != nil {
		return err
	}
	if q.Kind == run.Assistant && c.End == session.Completed && q.State == request.Pending && x.reply != nil && x.reply.Usable && !x.typed(c) {
		if _, err = x.respond(request.Act{Request: q.ID, Action: request.ActRespond, Actor: launch.Model, Session: q.Session,
			Key: "turn:" + launch.DigestOf([]byte(c.Turn)).String(), Payload: encode(x.reply.Text)}); err != nil {
			return err
		}
	}
	l, err := x.launch(q.Run)
	if err != nil || l.State.Terminal() {
		return err
	}
	r, err := x.record(l)
	if err != nil {
		return err
	}
	return x.timeUp(r, q)
}

// timeUp ends an attempt that has used up its budget and whose request is still
// open, so that nobody is asked again to no purpose. While a turn of it is open
// that is for [Sample], which stops the turn.
func (x *tx) timeUp(r *runRow, q *requestRow) error {
	left, limited := r.Left()
	if !limited || left > 0 || q.State != request.Pending || q.ID != request.ID(r.ID, r.Node, r.Visit, r.Attempt) {
		return nil
	}
	if q.Session != "" {
		s, err := x.session(q.Session)
		if err != nil {
			return err
		}
		if _, open, err := x.openTurn(s); err != nil || open == q {
			return err
		}
	}
	return x.applyRequest(q, request.Expire{Why: launch.CodeTimedOut})
}

// typed reports whether the person typed into a turn, as far as the host knows.
func (x *tx) typed(c follow.TurnClosed) bool {
	m := x.messages.find(func(m *messageRow) bool { return m.Request == c.Request && m.Turn.ID == c.Turn })
	return m != nil && m.Turn.UserInput
}

// Lapse handles what is due at this moment: requests whose deadline has passed
// and retries whose backoff is over, at most [MaxLapse] of each. Answer: how
// many there were.
type Lapse struct{}

// MaxLapse bounds what one [Lapse] handles.
const MaxLapse = 100

func (c Lapse) run(x *tx) (int, error) {
	var due []string
	var q requestRow
	if err := x.rows.Scan(requestsDeadline, nil, MaxLapse, &q, func() bool {
		if x.now.Passed(q.Deadline) {
			due = append(due, q.ID)
		}
		return x.now.Passed(q.Deadline)
	}); err != nil {
		return 0, err
	}
	var retries []launch.RunID
	var r runRow
	if err := x.rows.Scan(runsDue, nil, MaxLapse, &r, func() bool {
		if x.now.Passed(r.Due) {
			retries = append(retries, r.ID)
			r.ID = "" // which reading the next row would keep
			return true
		}
		return false
	}); err != nil {
		return 0, err
	}
	for _, id := range due {
		q, err := x.request(id)
		if err != nil || q == nil {
			return 0, err
		}
		if err := x.applyRequest(q, request.Expire{Why: launch.CodeRequestExpired}); err != nil {
			return 0, err
		}
	}
	for _, key := range retries {
		l, err := x.launchOf(key)
		if err != nil {
			return 0, err
		}
		r, err := x.record(l)
		if err != nil {
			return 0, err
		}
		if err := x.applyRun(l, r, run.Elapse{}, nil); err != nil {
			return 0, err
		}
		if err := x.contain(l.Session, l.ID, unlessHeld(x.applyLaunch(l, launch.WakeCommand{}))); err != nil {
			return 0, err
		}
	}
	return len(due) + len(retries), nil
}

// Sample records the active time of the turn that is open in a session, and
// ends the attempt whose budget is used up: the request is over, the session is
// owed a turn, and only then the turn is stopped (rule run/active). Answer:
// [Sampled].
type Sample struct {
	Session launch.SessionKey
	Epoch   uint64
}

// Sampled is the answer to [Sample].
type Sampled struct {
	TimedOut bool // this call ended the attempt
}

func (c Sample) run(x *tx) (Sampled, error) {
	s, err := x.session(c.Session)
	if err != nil {
		return Sampled{}, err
	}
	if s.Epoch != c.Epoch || !s.Connected() {
		r := launch.Refuse(launch.ErrStale, "the session was connected again; this connection samples nothing")
		r.Fence = launch.EpochChanged
		return Sampled{}, r
	}
	m, q, err := x.openTurn(s)
	if err != nil || q == nil {
		return Sampled{}, err
	}
	l, err := x.launch(q.Run)
	if err != nil || l.Paused || l.State.Terminal() {
		return Sampled{}, err
	}
	r, err := x.record(l)
	if err != nil {
		return Sampled{}, err
	}
	for _, command := range [...]run.Command{run.StartClock{}, run.SampleClock{}} {
		if err := x.clock(q, command); err != nil {
			return Sampled{}, err
		}
	}
	left, limited := r.Left()
	if !limited || left > 0 {
		return Sampled{}, nil
	}
	if err := x.applyRequest(q, request.Expire{Why: launch.CodeTimedOut}); err != nil {
		return Sampled{}, err
	}
	owe := follow.Owe{Source: intents.Source{Kind: intents.OnStepTimedOut, Actor: launch.Timer, ActiveTurn: true}}
	if err := x.follow(l, "stepTimedOut", []follow.Command{owe}); err != nil {
		return Sampled{}, err
	}
	_, err = x.apply(c.Session, session.StopTurn{Message: m.ID})
	return Sampled{TimedOut: true}, err
}

// openTurn returns the message whose turn is open in a session and the pending
// request that it puts; both nil when there is none.
func (x *tx) openTurn(s *sessionRow) (*messageRow, *requestRow, error) {
	if s.Open == "" {
		return nil, nil, nil
	}
	m, err := x.message(s.Open)
	if err != nil || m == nil || m.Request == "" {
		return nil, nil, err
	}
	q, err := x.request(m.Request)
	if err != nil || q == nil || q.State != request.Pending {
		return nil, nil, err
	}
	return m, q, nil
}
