package store

import (
	"errors"

	"example.com/piworkflows/engine/follow"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Respond carries one action to one request: submit, update, respond, answer or
// decide. Answer: [Response]. What is refused is answered too, because it leaves
// an audit receipt, and nothing else (rule request/refused). An accepted answer
// makes its run runnable in the same transaction.
//
// Errors leave nothing: a connection that is not current, and ids or keys out of
// their bounds.
type Respond struct {
	request.Act
	Epoch uint64 // of the connection that the action came through; 0 = none
}

// Response is the answer to [Respond].
type Response struct {
	Outcome  request.Outcome
	Request  string
	Run      launch.RunID // of a request that the caller may know of
	Node     string
	State    request.State
	Revision uint64
	Refused  error // a launch.Refusal, or nil when the action stands
}

func (c Respond) run(x *tx) (Response, error) {
	for _, k := range [...]struct{ field, value string }{{"request id", c.Request}, {"action key", c.Key}} {
		if err := launch.CheckKey(k.field, k.value); err != nil {
			return Response{}, err
		}
	}
	if c.Session != "" {
		if err := launch.CheckSessionKey(c.Session); err != nil {
			return Response{}, err
		}
	}
	if c.Epoch != 0 {
		s, err := x.session(c.Session)
		if err != nil {
			return Response{}, err
		}
		if s.Epoch != c.Epoch || !s.Connected() {
			r := launch.Refuse(launch.ErrStale, "the session was connected again; this connection changes nothing")
			r.Fence = launch.EpochChanged
			return Response{}, r
		}
	}
	return x.respond(c.Act)
}

// respond lets package request decide, and keeps what follows.
func (x *tx) respond(a request.Act) (Response, error) {
	q, err := x.request(a.Request)
	if err != nil {
		return Response{}, err
	}
	var known *request.Request
	if q != nil && (a.Actor != launch.Model || q.Session == a.Session) {
		known = &q.Request
	}
	key := receiptRow{request.Receipt{Request: a.Request, Key: a.Key}}
	if a.Actor == launch.Model {
		key.Session = a.Session
	}
	had, err := x.receipts.load(x, key, func(r *receiptRow) bool {
		return r.Session == key.Session && r.Request == a.Request && r.Key == a.Key
	})
	if err != nil {
		return Response{}, err
	}
	var before *request.Receipt
	if had != nil {
		before = &had.Receipt
	}
	reply := request.Respond(known, a, before, x.now)
	if reply.Receipt != nil && had == nil {
		receipt := *reply.Receipt
		receipt.Session = key.Session
		x.receipts.insert(receiptRow{receipt})
	}
	out := Response{Outcome: reply.Outcome, Request: a.Request, Refused: reply.Err}
	if known == nil {
		if a.Actor == launch.Model {
			out.Refused, err = x.instead(a, reply.Err)
		}
		return out, err
	}
	if reply.Changed {
		if err := x.setRequest(q, reply.Request, reply.Events); err != nil {
			return Response{}, err
		}
	}
	out.Run, out.Node, out.State, out.Revision = q.Run, q.Node, q.State, q.Revision
	return out, nil
}

// instead names the request that is open in a model's own session, so that a
// wrong id can be corrected.
func (x *tx) instead(a request.Act, refused error) (error, error) {
	l, err := x.reservation(a.Session)
	if err != nil || l == nil || !l.HasRecord() {
		return refused, err
	}
	r, err := x.record(l)
	if err != nil {
		return refused, err
	}
	q, err := x.asked(r)
	if err != nil || q == nil || q.State.Over() {
		return refused, err
	}
	return launch.Refuse(launch.ErrNotFound, "no such request here; the one that is open in this session is %s, of kind %s", q.ID, q.Kind), nil
}

// request returns a request, or nil.
func (x *tx) request(id string) (*requestRow, error) {
	return x.requests.load(x, requestRow{request.Request{ID: id}}, func(r *requestRow) bool { return r.ID == id })
}

// asked returns the request of the run's current attempt, or nil.
func (x *tx) asked(r *runRow) (*requestRow, error) {
	if !r.Asked {
		return nil, nil
	}
	q, err := x.request(request.ID(r.ID, r.Node, r.Visit, r.Attempt))
	if err == nil && q == nil {
		err = launch.Refuse(launch.ErrInternal, "the request of run %s is missing; run verify and restore a backup", r.ID)
	}
	return q, err
}

// applyRequest applies a command to a request and keeps what follows.
func (x *tx) applyRequest(q *requestRow, c request.Command) error {
	next, events, err := request.Apply(q.Request, c, x.now)
	if err != nil {
		return err
	}
	return x.setRequest(q, next, events)
}

// setRequest keeps a changed request and carries out what follows: once an
// answer came its turn spends no more; once it is over no message of it is sent
// any more, and its run is due.
func (x *tx) setRequest(q *requestRow, next request.Request, events []request.Event) error {
	was := q.State
	q.Request = next
	l, err := x.launch(q.Run)
	if err != nil {
		return err
	}
	for _, e := range events {
		x.requestEvent(l, q, e)
		if err := x.settleReceipt(q, e); err != nil {
			return err
		}
	}
	if q.State == was {
		return nil
	}
	if was == request.Pending { // its turn may go on, and is no work on it
		if err := x.stopClock(l); err != nil {
			return err
		}
	}
	switch q.State {
	case request.Accepted, request.Expired, request.Cancelled:
		if err := x.dropMessages(l, q); err != nil || q.State == request.Cancelled {
			return err
		}
	case request.Pending: // rejected: the run waits on
		return nil
	}
	err = x.applyLaunch(l, launch.WakeCommand{Answered: q.State == request.Accepted})
	return x.contain(l.Session, l.ID, unlessHeld(err))
}

// settleReceipt gives the action whose candidate was decided about its outcome,
// so that its repeat is answered by it.
func (x *tx) settleReceipt(q *requestRow, e request.Event) error {
	if e.Verdict == 0 {
		return nil
	}
	key := receiptRow{request.Receipt{Request: q.ID, Key: e.Key.Key}}
	if e.Key.Actor == launch.Model {
		key.Session = q.Session
	}
	had, err := x.receipts.load(x, key, func(r *receiptRow) bool {
		return r.Session == key.Session && r.Request == key.Request && r.Key == key.Key
	})
	if err != nil || had == nil {
		return err
	}
	had.Outcome = e.Verdict
	switch e.Verdict {
	case request.Rejected:
		had.Receipt.Kind, had.Reason = launch.ErrInvalid, q.Rejection
	case request.Conflict:
		had.Receipt.Kind, had.Reason = launch.ErrEnded, "the request was over before the answer was checked: "+q.State.String()
	}
	return nil
}

// unlessHeld drops the refusal of a wake that comes to nothing by right: the
// run is held or attended to, is due already, or its worker is at it.
func unlessHeld(err error) error {
	if errors.Is(err, launch.ErrPaused) || errors.Is(err, launch.ErrNotAllowed) || errors.Is(err, launch.ErrEnded) {
		return nil
	}
	return err
}

// dropMessages ends the unsent messages of a request that is over.
func (x *tx) dropMessages(l *launchRow, q *requestRow) error {
	if l.Mode == launch.Headless {
		return nil
	}
	subject := q.Message()
	if subject == "" {
		return nil
	}
	_, err := x.apply(l.Session, session.Cancel{Subject: subject, Reason: "the request is " + q.State.String()})
	return x.contain(l.Session, l.ID, err)
}

// open opens the request that an execution proposes and parks its run, in one
// transaction (rule run/wait).
func (x *tx) open(l *launchRow, r *runRow, p *run.Plan, n *run.Node, c *Propose) (Next, error) {
	q, err := request.Open(request.Opening{
		Run: l.ID, Node: n, Visit: c.Visit, Attempt: c.Attempt, Session: l.Session,
		Title: c.Ask.Title, Task: c.Ask.Task, Subject: c.Ask.Subject,
	}, x.now.Wall)
	switch {
	case n.Kind.Prompts() && l.Mode == launch.Headless:
		return x.failNode(l, r, p, "asks the model of a session, which a headless run has not; start it in a session")
	case errors.Is(err, launch.ErrInvalid):
		return x.failNode(l, r, p, "cannot ask: "+err.(*launch.Refusal).Message)
	case err != nil:
		return Next{}, err
	}
	if err := x.applyRun(l, r, run.Wait{Node: c.Node, Visit: c.Visit, Attempt: c.Attempt}, p); err != nil {
		return Next{}, err
	}
	row := x.requests.insert(requestRow{q})
	x.requestEvent(l, row, request.Event{Kind: request.EvOpened})
	if err := x.tell(l, row); err != nil {
		return Next{}, err
	}
	return Next{Parked: true}, x.applyLaunch(l, launch.ParkCommand{Authority: c.Authority, Why: launch.ParkWaiting})
}

// failNode settles the current node as failed.
func (x *tx) failNode(l *launchRow, r *runRow, p *run.Plan, why string) (Next, error) {
	settle := r.settle()
	settle.Outcome, settle.Failure = run.Failed, launch.NewSafeError(launch.CodeNodeFailed, "node "+r.Node+" "+why)
	return x.settleNode(l, r, p, settle)
}

// settleNode settles the current node under the launch's own claim and goes on.
func (x *tx) settleNode(l *launchRow, r *runRow, p *run.Plan, settle run.Settle) (Next, error) {
	if err := x.applyRun(l, r, settle, p); err != nil {
		return Next{}, err
	}
	return x.goOn(l, r, authority(l), p)
}

// settle is a settlement of the run's current execution, without an outcome.
func (r *runRow) settle() run.Settle {
	return run.Settle{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt}
}

func authority(l *launchRow) launch.Authority {
	return launch.Authority{Runner: l.Claim.Runner, Token: l.Claim.Token, Generation: l.Generation}
}

// takeOver goes on with a claimed run whose current attempt has a request: its
// answer or its end settles the node, a candidate is validated, and what is
// still open is waited for.
func (x *tx) takeOver(l *launchRow, r *runRow, q *requestRow, p *run.Plan) (Next, error) {
	settle := r.settle()
	switch q.State {
	case request.Accepted:
		settle.Outcome, settle.Output = run.OK, q.Answer
		if err := x.applyRequest(q, request.Take{}); err != nil {
			return Next{}, err
		}
		if n := p.Node(r.Node); n != nil {
			if err := n.CheckOutput(settle.Output); err != nil {
				return x.failNode(l, r, p, "has an accepted answer that its definition does not take")
			}
		}
		return x.settleNode(l, r, p, settle)
	case request.Expired:
		settle.Outcome = run.TimedOut
		if q.Why == launch.CodeSubmissionMissing {
			settle.Outcome = run.Failed
		}
		settle.Failure = launch.NewSafeError(q.Why, "node "+r.Node+" "+expiredText(q.Why))
		return x.settleNode(l, r, p, settle)
	case request.Validating:
		if err := x.applyRequest(q, request.Try{}); err != nil {
			return Next{}, err
		}
		if q.State == request.Validating {
			next := x.next(r)
			next.Candidate = q.Candidate
			return next, x.applyRun(l, r, run.StartClock{}, p)
		}
	}
	if err := x.applyRun(l, r, run.StopClock{}, p); err != nil { // of the check
		return Next{}, err
	}
	if err := x.timeUp(r, q); err != nil {
		return Next{}, err
	}
	if q.State == request.Expired {
		return x.takeOver(l, r, q, p)
	}
	return x.await(l, r, q, p)
}

func expiredText(why launch.Code) string {
	switch why {
	case launch.CodeSubmissionMissing:
		return "was put to the model and reminded of, and no usable answer was submitted; look at the session, then restart the run"
	case launch.CodeRequestExpired:
		return "was not answered before its deadline; restart the run, or declare a default answer"
	}
	return "used up its active time before its request was answered; restart the run, or declare a larger budget"
}

// await parks a claimed run that still waits for its request.
func (x *tx) await(l *launchRow, r *runRow, q *requestRow, p *run.Plan) (Next, error) {
	if err := x.applyRun(l, r, run.Park{Status: run.Waiting}, p); err != nil {
		return Next{}, err
	}
	if err := x.applyLaunch(l, launch.ParkCommand{Authority: authority(l), Why: launch.ParkWaiting}); err != nil {
		return Next{}, err
	}
	return Next{Parked: true}, x.promptAgain(q.ID, false)
}

// verdict carries out what a node's validation code said of a candidate. One that
// comes after the request is over says nothing: the run goes on with how it ended.
func (x *tx) verdict(l *launchRow, r *runRow, p *run.Plan, c *Propose) (Next, error) {
	q, err := x.asked(r)
	if err != nil {
		return Next{}, err
	}
	if q != nil && q.State.Over() {
		return x.takeOver(l, r, q, p)
	}
	if q == nil || q.State != request.Validating {
		return Next{}, launch.Refuse(launch.ErrConflict, "no answer of node %s is being validated", c.Node)
	}
	var said request.Command = request.NoVerdict{}
	switch c.Verdict {
	case Accepted:
		said = request.Verdict{Accepted: true, Output: c.Output}
	case Rejected:
		said = request.Verdict{Reason: c.Failure.Message}
	}
	if err := x.applyRequest(q, said); err != nil {
		return Next{}, err
	}
	return x.takeOver(l, r, q, p)
}

// endRequest cancels the request of a run that has ended (rule request/end).
func (x *tx) endRequest(l *launchRow) error {
	r, err := x.run(l.ID)
	if errors.Is(err, launch.ErrInternal) { // an unreadable record ends, whatever it asked
		return nil
	}
	if err != nil || r == nil {
		return err
	}
	q, err := x.asked(r)
	if err != nil || q == nil || q.State.Over() {
		return err
	}
	return x.applyRequest(q, request.End{})
}

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
