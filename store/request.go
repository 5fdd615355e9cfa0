package store

import (
	"errors"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

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
		if l.Paused { // its next try is after the resume
			break
		}
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
