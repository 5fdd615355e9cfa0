package store

import (
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
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
	if err != nil || m == nil || m.Run != l.ID || m.Request == "" {
		return "", err
	}
	// The turn of an attempt that timed out may still act; one whose request was
	// answered before it began is of no consequence.
	q, err := x.request(m.Request)
	if err != nil || q == nil || q.State != request.Expired {
		return "", err
	}
	return "its last turn is being stopped", nil
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
