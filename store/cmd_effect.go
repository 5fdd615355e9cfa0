package store

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Reserve reserves the effect of an action that needs an approval, before its
// code starts: the decision was accepted with an approving choice, of exactly
// this proposal, and no other effect has used it (rule effect/approval). Answer:
// nothing.
type Reserve struct {
	Run launch.RunID
	launch.Authority
	Plan           *run.Plan
	Node           string
	Visit, Attempt uint32
	Fingerprint    launch.Digest // of what the action is about to ask of the outside
}

func (c Reserve) run(x *tx) (struct{}, error) {
	none := struct{}{}
	l, err := x.launch(c.Run)
	if err != nil {
		return none, err
	}
	if err := launch.Owns(l.Launch, c.Authority, x.now); err != nil {
		return none, err
	}
	if c.Plan == nil {
		return none, errNoPlan
	}
	r, err := x.record(l)
	if err != nil {
		return none, err
	}
	if r.Status != run.Running || r.Node != c.Node || r.Visit != c.Visit || r.Attempt != c.Attempt {
		return none, launch.Refuse(launch.ErrStale, "run %s is not at the attempt that you name; stop it", l.ID)
	}
	n := c.Plan.Node(c.Node)
	if n == nil || n.Kind != run.Action || n.Approval == "" {
		return none, launch.Refuse(launch.ErrNotAllowed, "node %s needs no approval; its effect is reserved already", r.Node)
	}
	key := effect.ActionKey(l.ID, r.Node, r.Visit, r.Retry)
	if err := x.approve(l, n, key, c.Fingerprint); err != nil {
		return none, err
	}
	have, err := x.effect(key)
	if err != nil {
		return none, err
	}
	var existing *effect.Effect
	if have != nil {
		existing = &have.Effect
	}
	return none, x.reserve(l, have, existing, effect.Reservation{
		Key: key, Fingerprint: c.Fingerprint, Policy: n.Policy, Token: l.Claim.Token, Attempt: r.Attempt,
	})
}

// approve uses the latest decision of the approving node for an effect.
func (x *tx) approve(l *launchRow, n *run.Node, key effect.Key, fingerprint launch.Digest) error {
	step, err := x.latest(l.ID, n.Approval)
	if err != nil {
		return err
	}
	if step == nil {
		return launch.Refuse(launch.ErrNotAllowed, "node %s has not decided yet; let a person decide first", n.Approval)
	}
	q, err := x.request(request.ID(l.ID, step.Node, step.Visit, step.Attempt))
	if err != nil {
		return err
	}
	if q == nil {
		return launch.Refuse(launch.ErrInternal, "the request of node %s is missing; run verify and restore a backup", n.Approval)
	}
	if !n.Approves(step.Output) {
		return launch.Refuse(launch.ErrNotAllowed, "the decision of node %s does not approve node %s", n.Approval, n.Path)
	}
	if q.Subject != fingerprint {
		return launch.Refuse(launch.ErrConflict, "node %s is about to do something else than what was approved at node %s; ask again with the changed proposal", n.Path, n.Approval)
	}
	return x.applyRequest(q, request.Use{Effect: key.ID()})
}

// latest returns the latest accepted step of a node, or nil.
func (x *tx) latest(id launch.RunID, node string) (*run.Step, error) {
	key, _ := runBytes(id)
	var step stepRow
	found := false
	err := x.rows.Scan(stepsLatest, []Value{{Kind: Blob, Blob: key[:]}, {Kind: Text, Text: node}}, launch.MaxList, &step, func() bool {
		found = step.Outcome == run.OK
		return !found
	})
	if err != nil || !found {
		return nil, err
	}
	return &step.Step, nil
}

// ResolveEffect is a person's finding about an effect that may or may not have
// happened: an ambiguous one, or one that its run left behind when it ended. The
// first finding stands. The run goes on, unless it is held or has ended. Answer:
// [Resolved].
type ResolveEffect struct {
	Run      launch.RunID
	Effect   string // its id; see [view.View]
	Verdict  effect.Verdict
	Evidence string // what the person found out, 1 to effect.MaxEvidence bytes
	Output   []byte // with applied: the node's output as JSON, or nil for none
	Actor    launch.Actor
	Session  launch.SessionKey // where the call comes from
	Epoch    uint64            // of that connection; 0 = none
}

// Resolved is the answer to [ResolveEffect].
type Resolved struct {
	Node    string
	State   effect.State
	Changed bool // false: the same finding was recorded before
	Launch  launch.State
}

func (c ResolveEffect) run(x *tx) (Resolved, error) {
	if c.Actor != launch.Person {
		return Resolved{}, launch.Refuse(launch.ErrNotAllowed, "only a person settles an effect that may or may not have happened: in Pi with /workflow resolve")
	}
	l, err := x.visible(c.Run, c.Session, c.Actor, c.Epoch)
	if err != nil {
		return Resolved{}, err
	}
	if c.Output != nil {
		switch err := launch.CheckSize("output", len(c.Output), launch.MaxOutput); {
		case err != nil:
			return Resolved{}, err
		case c.Verdict != effect.SaysApplied || !json.Valid(c.Output) || !utf8.Valid(c.Output):
			return Resolved{}, launch.Refuse(launch.ErrInvalid, "an output goes with an effect that was applied, as one JSON value in UTF-8")
		}
	}
	e, current, err := x.named(l, c.Effect)
	if err != nil {
		return Resolved{}, err
	}
	want := effect.Applied
	if c.Verdict == effect.SaysRejected {
		want = effect.Rejected
	}
	if e.State == want {
		if c.Output != nil && !bytes.Equal(e.Output, c.Output) {
			return Resolved{}, launch.Refuse(launch.ErrAlreadyDecided, "the effect of node %s is settled as %s, without that output; the first finding stands", e.Key.Path, want)
		}
		return Resolved{Node: e.Key.Path, State: e.State, Launch: l.State}, nil
	}
	found := effect.Resolve{Verdict: c.Verdict, Evidence: c.Evidence}
	safe := launch.SafeText(c.Evidence, effect.MaxEvidence)
	if safe == "" { // nothing but blanks
		found.Evidence = ""
	}
	if l.State.Terminal() { // its worker tells nothing any more
		if _, err := x.settle(l, e, effect.Recover{Ended: true}); err != nil {
			return Resolved{}, err
		}
	}
	if _, err := x.settle(l, e, found); err != nil {
		return Resolved{}, err
	}
	e.Evidence, e.Output = safe, c.Output
	if current && !l.State.Terminal() {
		err = x.applyLaunch(l, launch.WakeCommand{Answered: true})
		err = x.contain(l.Session, l.ID, unlessHeld(err))
	}
	return Resolved{Node: e.Key.Path, State: e.State, Changed: true, Launch: l.State}, err
}

// named returns the effect with that id: that of the run's current execution, or
// one that is not settled.
func (x *tx) named(l *launchRow, id string) (e *effectRow, current bool, err error) {
	if l.HasRecord() {
		if e, err = x.current(l); err != nil || e != nil && e.Key.ID().String() == id {
			return e, true, err
		}
		open := effectRow{Effect: effect.Effect{Key: effect.Key{Run: l.ID}}}
		key, _ := runBytes(l.ID)
		if err := x.rows.Scan(effectsUnsettled, []Value{{Kind: Blob, Blob: key[:]}}, launch.MaxList, &open, func() bool {
			return open.Key.ID().String() != id
		}); err != nil {
			return nil, false, err
		}
		if open.Key.Path != "" && open.Key.ID().String() == id {
			e, err = x.effect(open.Key)
			return e, false, err
		}
	}
	return nil, false, launch.Refuse(launch.ErrNotFound, "run %s has no unsettled effect of that id; its status names it", l.ID)
}
