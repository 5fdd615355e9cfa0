package store

import (
	"errors"
	"strconv"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Next is where a run stands for the worker that holds it; engine.Next says what
// each field means.
type Next struct {
	Node                  string
	Visit, Attempt, Retry uint32
	Ended, Parked         bool // nothing to run
	Recovering            bool // the effect of this visit was reserved before this attempt
	Ambiguous             bool // that effect is ambiguous
	Reserve               bool // its effect needs an approval
	Budget                time.Duration
	Seen                  uint32
	Candidate             []byte
}

// next is the run's current execution.
func (x *tx) next(r *runRow) Next {
	next := Next{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt, Retry: r.Retry, Seen: r.Seen}
	if left, limited := r.Left(); limited {
		next.Budget = max(left, 1)
	}
	return next
}

// run returns the record of a run, or nil.
func (x *tx) run(id launch.RunID) (*runRow, error) {
	return x.runs.load(x, runRow{run.Run{ID: id}}, func(r *runRow) bool { return r.ID == id })
}

// record returns the record of a run that has one.
func (x *tx) record(l *launchRow) (*runRow, error) {
	r, err := x.run(l.ID)
	if err == nil && r == nil {
		err = launch.Refuse(launch.ErrInternal, "the record of run %s is missing; run verify and restore a backup", l.ID)
	}
	return r, err
}

// applyRun applies a command to a run and keeps what it leaves.
func (x *tx) applyRun(l *launchRow, r *runRow, c run.Command, p *run.Plan) error {
	res, err := run.Apply(r.Run, c, p, func(node string) (uint32, error) { return x.visits(l.ID, node) }, x.now)
	if err != nil {
		return err
	}
	r.Run = res.Run
	if res.Step != nil {
		x.steps.insert(stepRow{*res.Step})
	}
	if res.Interval != nil {
		x.spent.insert(intervalRow{*res.Interval})
	}
	for _, e := range res.Events {
		x.nodeEvent(l, e)
	}
	return nil
}

// visits returns how often a run has settled or entered a node so far.
func (x *tx) visits(id launch.RunID, node string) (uint32, error) {
	key, _ := runBytes(id)
	latest := stepRow{run.Step{Run: id}}
	var n uint32
	err := x.rows.Scan(stepsLatest, []Value{{Kind: Blob, Blob: key[:]}, {Kind: Text, Text: node}}, 1, &latest, func() bool {
		n = latest.Visit
		return false
	})
	for _, e := range x.steps {
		if e.cur.Run == id && e.cur.Node == node {
			n = max(n, e.cur.Visit)
		}
	}
	return n, err
}

// effect returns the effect of an action's visit, or nil.
func (x *tx) effect(k effect.Key) (*effectRow, error) {
	return x.effects.load(x, effectRow{Effect: effect.Effect{Key: k}}, func(r *effectRow) bool { return r.Key == k })
}

// current returns the effect of the node at which a run stands, or nil.
func (x *tx) current(l *launchRow) (*effectRow, error) {
	r, err := x.record(l)
	if err != nil {
		return nil, err
	}
	return x.effect(effect.ActionKey(l.ID, r.Node, r.Visit, r.Retry))
}

// enter makes the current node of a running run ready for its worker: an
// action's effect is reserved before its code starts (rule effect/reserve).
func (x *tx) enter(l *launchRow, r *runRow, p *run.Plan) (Next, error) {
	if err := x.applyRun(l, r, run.StartClock{}, p); err != nil {
		return Next{}, err
	}
	next := x.next(r)
	n := p.Node(r.Node)
	if n == nil {
		return next, launch.Refuse(launch.ErrSourceChanged, "the plan has no node %s; use the definition that is pinned for the run", r.Node)
	}
	if n.Kind != run.Action {
		return next, nil
	}
	key := effect.ActionKey(l.ID, r.Node, r.Visit, r.Retry)
	have, err := x.effect(key)
	if err != nil {
		return next, err
	}
	if next.Reserve = have == nil && n.Approval != ""; next.Reserve {
		return next, nil
	}
	fingerprint := launch.DigestOf(append(l.Digest[:], r.Node...))
	var existing *effect.Effect
	if have != nil {
		existing = &have.Effect
		next.Recovering = true
		if have.State.Final() {
			return x.settleLost(l, r, p, have)
		}
		if next.Ambiguous = have.State == effect.Ambiguous; next.Ambiguous {
			return next, nil
		}
		fingerprint = have.Fingerprint
	}
	return next, x.reserve(l, have, existing, effect.Reservation{
		Key: key, Fingerprint: fingerprint, Policy: n.Policy, Token: l.Claim.Token, Attempt: r.Attempt,
	})
}

// reserve keeps an effect's reservation.
func (x *tx) reserve(l *launchRow, have *effectRow, existing *effect.Effect, want effect.Reservation) error {
	e, adopted, err := effect.Reserve(existing, want, x.now.Wall)
	if err != nil {
		return err
	}
	switch {
	case !adopted:
		x.effects.insert(effectRow{Effect: e})
	case have.Effect == e: // the same reservation again
		return nil
	default:
		have.Effect = e
	}
	x.effectEvent(l, &e)
	return nil
}

// settleLost settles the current node by the receipt that its lost worker left
// (rule effect/receipt): what the effect came to is known, its output is not.
func (x *tx) settleLost(l *launchRow, r *runRow, p *run.Plan, e *effectRow) (Next, error) {
	settle := r.settle()
	settle.Receipt = true
	if e.State == effect.Applied && e.Output != nil {
		if n := p.Node(r.Node); n != nil && n.CheckOutput(e.Output) == nil {
			settle.Outcome, settle.Output = run.OK, e.Output
			return x.settleNode(l, r, p, settle)
		}
	}
	what, who := "did not take effect", "a receipt says that came after its worker was lost"
	if settle.Happened = e.State == effect.Applied; settle.Happened {
		what = "took effect and its output is lost"
	}
	if e.Evidence != "" {
		who = "a person found out"
	}
	settle.Outcome = run.Failed
	settle.Failure = launch.NewSafeError(launch.CodeNodeFailed, "node "+r.Node+" "+what+", as "+who+"; look at what it did, then restart the run")
	return x.settleNode(l, r, p, settle)
}

// Claim takes a launch for this host. Answer: [Claimed], whose State tells
// whether the host holds it now: a changed definition fails the launch, or
// parks it for attention, in the same transaction.
type Claim struct {
	Run      launch.RunID
	Runner   string
	Token    launch.Digest // hash of the claim's token
	Lease    time.Duration
	Digest   launch.Digest // of the host's definition
	Source   string        // of the host
	Plan     *run.Plan
	Capacity int // live claims in the file that this host respects
	// Begin starts the run in the same transaction, which is right when
	// activation needs no user code. A run that has a record always begins.
	Begin bool
	// Lost is set to take over a lost lease of that generation first.
	Lost       bool
	Generation uint64
}

// Claimed is the answer to [Claim] and [Activate].
type Claimed struct {
	State      launch.State
	Generation uint64
	Input      []byte
	Next       Next // with State running
}

func (c Claim) run(x *tx) (Claimed, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Claimed{}, err
	}
	if l.State.Terminal() {
		return Claimed{}, launch.Refuse(launch.ErrEnded, "run %s has already ended: %s", l.ID, l.State)
	}
	if err := c.mine(x, l); err != nil {
		return Claimed{}, err
	}
	live, err := x.claims()
	if err != nil {
		return Claimed{}, err
	}
	if c.Lost && l.State.Claimed() {
		live-- // its own lost claim
	}
	if live >= c.Capacity {
		return Claimed{}, launch.Refuse(launch.ErrFull, "all %d slots are taken; run %s waits for one", c.Capacity, l.ID)
	}
	if c.Lost {
		if err := x.recover(l, c.Generation); err != nil {
			return Claimed{}, err
		}
		if l.State == launch.Failed || l.Ready == 0 {
			return Claimed{State: l.State}, nil
		}
	}
	var progress uint64
	if l.HasRecord() {
		r, err := x.record(l)
		if err != nil {
			return Claimed{}, err
		}
		progress = r.Progress
	}
	command := launch.ClaimCommand{
		Authority: launch.Authority{Runner: c.Runner, Token: c.Token}, Lease: c.Lease, Digest: c.Digest, Progress: progress,
	}
	if err := x.applyLaunch(l, command); err != nil {
		return Claimed{}, err
	}
	if l.State == launch.Starting && (c.Begin || l.HasRecord()) {
		return x.begin(l, c.Plan)
	}
	return Claimed{State: l.State, Generation: l.Generation, Input: l.Input}, nil
}

// mine refuses a host that is not the owning one, and an activation before its
// boundary (rules scheduler/owner and scheduler/boundary).
func (c *Claim) mine(x *tx, l *launchRow) error {
	if l.Mode == launch.Headless {
		if l.Source != c.Source {
			return launch.Refuse(launch.ErrNotAllowed, "run %s belongs to another source; its own host claims it", l.ID)
		}
		return nil
	}
	s, err := x.session(l.Session)
	if err != nil {
		return err
	}
	if s.Host != c.Runner {
		return launch.Refuse(launch.ErrNotAllowed, "run %s belongs to a session that is not connected to this host", l.ID)
	}
	why, err := x.waits(l, s)
	if err == nil && why != "" {
		err = launch.Refuse(launch.ErrNotAllowed, "run %s waits: %s", l.ID, why)
	}
	return err
}

// waits says why an interactive run may not go on in its session now, or returns
// an empty string: the first activation waits for the boundary, and nothing new
// starts while a turn of the run is being stopped.
func (x *tx) waits(l *launchRow, s *sessionRow) (string, error) {
	if !l.HasRecord() {
		return s.Boundary(x.now), nil
	}
	if s.Abort == "" || !s.Connected() {
		return "", nil
	}
	m, err := x.message(s.Abort)
	if err != nil || m == nil || m.Run != l.ID {
		return "", err
	}
	return "its last turn is being stopped", nil
}

var errNoPlan = launch.Refuse(launch.ErrInvalid, "the plan is not set; pass the one that is pinned for the run")

// begin takes a starting launch to running: the run record exists, and the
// current node is ready for its worker.
func (x *tx) begin(l *launchRow, p *run.Plan) (Claimed, error) {
	if p == nil {
		return Claimed{}, errNoPlan
	}
	input := l.Input
	first := !l.HasRecord()
	var r *runRow
	if first {
		begun, err := run.Begin(l.ID, p, input, x.now.Wall)
		if err != nil {
			return Claimed{}, err
		}
		r = x.runs.insert(runRow{begun})
		if p.Settings != nil {
			x.settings.insert(settingsRow{Run: l.ID, Revision: 1, Value: p.Settings.Defaults, By: launch.Host, At: x.now.Wall})
		}
	} else {
		var err error
		if r, err = x.record(l); err != nil {
			return Claimed{}, err
		}
		input = r.Input
	}
	if err := x.applyLaunch(l, launch.StartCommand{Authority: authority(l)}); err != nil {
		return Claimed{}, err
	}
	if !first {
		next, err := x.goOnFrom(l, r, p)
		return Claimed{State: l.State, Generation: l.Generation, Input: input, Next: next}, err
	}
	x.nodeEvent(l, r.At(run.Entered))
	next, err := x.enter(l, r, p)
	return Claimed{State: l.State, Generation: l.Generation, Input: input, Next: next}, err
}

// goOnFrom goes on with a run that was parked. A request keeps its attempt, and
// a retry has a new one already; everything else was interrupted.
func (x *tx) goOnFrom(l *launchRow, r *runRow, p *run.Plan) (Next, error) {
	retrying := r.Status == run.Waiting
	if err := x.applyRun(l, r, run.Unpark{}, p); err != nil {
		return Next{}, err
	}
	q, err := x.asked(r)
	if err != nil {
		return Next{}, err
	}
	if q != nil {
		return x.takeOver(l, r, q, p)
	}
	if !retrying {
		if err := x.applyRun(l, r, run.Reattempt{}, p); err != nil {
			return Next{}, err
		}
	}
	return x.enter(l, r, p)
}

// Activate starts a claimed launch whose activation check has passed. Answer:
// [Claimed].
type Activate struct {
	Run launch.RunID
	launch.Authority
	Plan *run.Plan
}

func (c Activate) run(x *tx) (Claimed, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Claimed{}, err
	}
	if err := launch.Owns(l.Launch, c.Authority, x.now); err != nil {
		return Claimed{}, err
	}
	if l.State != launch.Starting {
		return Claimed{}, launch.Refuse(launch.ErrNotAllowed, "run %s is %s, not starting", l.ID, l.State)
	}
	return x.begin(l, c.Plan)
}

// Propose is a worker's result of one execution. Answer: [Next]. The host's
// checks are those of packages launch, run and effect; a refused proposal
// changes nothing.
type Propose struct {
	Run launch.RunID
	launch.Authority
	Plan           *run.Plan
	Node           string
	Visit, Attempt uint32
	Outcome        run.Outcome
	Output         []byte
	Failure        launch.SafeError
	Unknown        bool // the action may or may not have taken effect
	Observed       bool // the outcome is what the author's observer found
	Applied        bool // it took effect although the outcome is failed
	Ask            *Ask // instead of an outcome: the node opens its request
	Notice         string
	Verdict        Verdict // instead of an outcome: of the node's validation code
}

// Ask is what a node asks; see engine.Ask.
type Ask struct {
	Title, Task string
	Subject     launch.Digest
}

// Verdict is what validation code says of an answer.
type Verdict uint8

// The verdicts.
const (
	_         Verdict = iota
	Accepted          // it stands, as Output
	Rejected          // the model has to correct it, for the reason in Failure
	NoVerdict         // the code failed or was stopped
)

func (c Propose) run(x *tx) (Next, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Next{}, err
	}
	if err := launch.Owns(l.Launch, c.Authority, x.now); err != nil {
		return Next{}, err
	}
	if l.State != launch.Running {
		return Next{}, launch.Refuse(launch.ErrNotAllowed, "run %s is %s, not running; activate it first", l.ID, l.State)
	}
	if c.Plan == nil {
		return Next{}, errNoPlan
	}
	r, err := x.record(l)
	if err != nil {
		return Next{}, err
	}
	n := c.Plan.Node(c.Node)
	if n == nil {
		return Next{}, launch.Refuse(launch.ErrInvalid, "the plan has no node of that name")
	}
	if c.Node != r.Node || c.Visit != r.Visit || c.Attempt != r.Attempt {
		return Next{}, launch.Refuse(launch.ErrStale, "run %s is at node %s, visit %d, attempt %d; stop the attempt that you name", l.ID, r.Node, r.Visit, r.Attempt)
	}
	switch {
	case c.Verdict != 0:
		return x.verdict(l, r, c.Plan, &c)
	case c.Ask != nil:
		return x.open(l, r, c.Plan, n, &c)
	case n.Kind.Asks() && (r.Asked || c.Outcome == run.OK):
		return Next{}, launch.Refuse(launch.ErrNotAllowed, "node %s asks; only the answer to its request settles it", c.Node)
	}
	receipt := false
	unapproved := n.Approval != "" && c.Outcome == run.Failed // its code has not begun
	if n.Kind == run.Action {
		e, err := x.effect(effect.ActionKey(l.ID, c.Node, c.Visit, r.Retry))
		if err != nil {
			return Next{}, err
		}
		if e == nil && !unapproved {
			return Next{}, launch.Refuse(launch.ErrConflict, "node %s has no reserved effect; its code must not have run", c.Node)
		}
		if e != nil {
			if receipt, err = x.settle(l, e, c.verdict()); err != nil {
				return Next{}, err
			}
			if e.State == effect.Ambiguous {
				return x.askPerson(l, r, c.Plan)
			}
		}
	}
	if n.Kind == run.Notify && c.Outcome == run.OK {
		if c.Notice == "" || len(c.Notice) > launch.MaxOptions {
			return x.failNode(l, r, c.Plan, "must say 1 to "+strconv.Itoa(launch.MaxOptions)+" bytes")
		}
		if err := x.notify(l, n, c.Visit, c.Notice); err != nil {
			return Next{}, err
		}
	}
	settle := run.Settle{Node: c.Node, Visit: c.Visit, Attempt: c.Attempt, Outcome: c.Outcome, Output: c.Output, Failure: c.Failure, Receipt: receipt, Happened: c.Applied}
	if err := x.applyRun(l, r, settle, c.Plan); err != nil {
		return Next{}, err
	}
	return x.goOn(l, r, c.Authority, c.Plan)
}

// verdict is what the proposal says of the action's effect.
func (c *Propose) verdict() effect.Command {
	switch {
	case c.Observed && !c.Unknown:
		return effect.Observation{Found: c.Outcome == run.OK || c.Applied}
	case c.Unknown:
		return effect.Settle{Token: c.Token, Verdict: effect.SaysUnknown}
	case c.Outcome == run.OK || c.Applied:
		return effect.Settle{Token: c.Token, Verdict: effect.SaysApplied}
	}
	return effect.Settle{Token: c.Token, Verdict: effect.SaysRejected}
}

// settle applies a verdict to an effect and reports whether it became final.
func (x *tx) settle(l *launchRow, e *effectRow, c effect.Command) (bool, error) {
	res, err := effect.Apply(e.Effect, c, x.now.Wall)
	if err != nil {
		return false, err
	}
	e.Effect = res.Effect
	if res.Changed {
		x.effectEvent(l, &e.Effect)
	}
	return res.Changed && e.State.Final(), nil
}

// askPerson parks a run whose effect is ambiguous.
func (x *tx) askPerson(l *launchRow, r *runRow, p *run.Plan) (Next, error) {
	if err := x.applyRun(l, r, run.Park{Status: run.Attention}, p); err != nil {
		return Next{}, err
	}
	err := x.applyLaunch(l, launch.ParkCommand{Authority: authority(l), Why: launch.ParkAttention, Attention: launch.EffectAmbiguous})
	return Next{Parked: true}, err
}

// goOn carries a run's new state over to its launch.
func (x *tx) goOn(l *launchRow, r *runRow, a launch.Authority, p *run.Plan) (Next, error) {
	switch {
	case r.Status == run.Completed:
		return Next{Ended: true}, x.applyLaunch(l, launch.FinishCommand{Authority: a})
	case r.Status == run.RunCancelled:
		return Next{Ended: true}, x.applyLaunch(l, launch.CancelCommand{Actor: launch.Host})
	case r.Status.Terminal():
		return Next{Ended: true}, x.applyLaunch(l, launch.FailCommand{Authority: a, Error: r.Failure})
	case r.Status == run.Waiting: // for its next retry
		return Next{Parked: true}, x.applyLaunch(l, launch.ParkCommand{Authority: a, Why: launch.ParkWaiting})
	case l.Paused:
		return Next{Parked: true}, x.applyLaunch(l, launch.ParkCommand{Authority: a, Why: launch.ParkPaused})
	}
	return x.enter(l, r, p)
}

// Receipt records what became of an action whose worker has lost its run
// meanwhile: it settles the effect under the reservation's own token and moves
// nothing else (rule effect/receipt). Answer: whether it was recorded.
type Receipt struct {
	Run     launch.RunID
	Token   launch.Digest
	Node    string
	Visit   uint32
	Retry   uint32
	Applied bool
}

func (c Receipt) run(x *tx) (bool, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return false, err
	}
	e, err := x.effect(effect.ActionKey(l.ID, c.Node, c.Visit, c.Retry))
	if err != nil || e == nil {
		return false, err
	}
	verdict := effect.SaysRejected
	if c.Applied {
		verdict = effect.SaysApplied
	}
	return x.settle(l, e, effect.Settle{Token: c.Token, Verdict: verdict})
}

// Release gives a run back politely, as a closing host does. Answer: the
// launch's state.
type Release struct {
	Run launch.RunID
	launch.Authority
}

func (c Release) run(x *tx) (launch.State, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return 0, err
	}
	rec, err := x.proof(l, false)
	if err != nil {
		return l.State, err
	}
	err = x.applyLaunch(l, launch.ReleaseCommand{Authority: c.Authority, Record: rec})
	return l.State, err
}

// Recover takes a lost lease away without claiming the run. Answer: the
// launch's state.
type Recover struct {
	Run        launch.RunID
	Generation uint64
}

func (c Recover) run(x *tx) (launch.State, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return 0, err
	}
	err = x.recover(l, c.Generation)
	return l.State, err
}

func (x *tx) recover(l *launchRow, generation uint64) error {
	// Decide first whether the lease is lost at all, so that nothing of the run
	// is touched otherwise.
	if _, _, err := launch.Apply(l.Launch, launch.RecoverCommand{Generation: generation, Record: launch.Record{Status: launch.RecordUnreadable}}, x.now); err != nil {
		return err
	}
	rec, err := x.proof(l, true)
	if err != nil {
		return err
	}
	return x.applyLaunch(l, launch.RecoverCommand{Generation: generation, Record: rec})
}

// proof is what the run's record says about it once its worker is gone. An
// action that may have taken effect and may not run again becomes ambiguous.
func (x *tx) proof(l *launchRow, lost bool) (launch.Record, error) {
	if !l.HasRecord() {
		return launch.Record{}, nil
	}
	r, err := x.run(l.ID)
	var refused *launch.Refusal
	if errors.As(err, &refused) && refused.Kind == launch.ErrInternal || err == nil && (r == nil || run.Check(r.Run) != nil) {
		return launch.Record{Status: launch.RecordUnreadable}, nil
	}
	if err != nil {
		return launch.Record{}, err
	}
	rec := launch.Record{Progress: r.Progress}
	if r.Active.Opened != 0 && !r.Status.Terminal() {
		if err := x.applyRun(l, r, run.StopClock{Lost: lost}, nil); err != nil {
			return rec, err
		}
	}
	switch r.Status {
	case run.Running:
		rec.Status = launch.RecordRunning
		if r.Asked { // its answer is validated, or was settled and is taken over
			break
		}
		ambiguous, err := x.interrupted(l, r)
		if err != nil {
			return rec, err
		}
		if ambiguous {
			rec.Status = launch.RecordAttention
		}
	case run.Waiting:
		rec.Status = launch.RecordWaiting
	case run.Attention:
		rec.Status = launch.RecordAttention
	case run.Completed:
		rec.Status = launch.RecordDone
	case run.RunCancelled:
		rec.Status = launch.RecordCancelled
	default:
		rec.Status, rec.Error = launch.RecordFailed, r.Failure
	}
	return rec, nil
}

// interrupted asks what becomes of the current node's effect, and parks the
// record when only a person can tell.
func (x *tx) interrupted(l *launchRow, r *runRow) (bool, error) {
	e, err := x.effect(effect.ActionKey(l.ID, r.Node, r.Visit, r.Retry))
	if err != nil || e == nil {
		return false, err
	}
	if _, err := x.settle(l, e, effect.Recover{}); err != nil {
		return false, err
	}
	if e.State != effect.Ambiguous {
		return false, nil
	}
	return true, x.applyRun(l, r, run.Park{Status: run.Attention}, nil)
}

// endRecord ends the record of a run that is cancelled.
func (x *tx) endRecord(l *launchRow) error {
	if !l.HasRecord() {
		return nil
	}
	r, err := x.run(l.ID)
	if err != nil || r == nil || r.Status.Terminal() {
		return err
	}
	return x.applyRun(l, r, run.End{Status: run.RunCancelled}, nil)
}
