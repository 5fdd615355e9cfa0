package store

import (
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Start reserves a run. Answer: [Started], which is an acknowledgement: the
// launch is durable with its final id.
//
// Refused are a busy session (a live run, or a pending eligible post-workflow
// intent of another run whose message is not blocked), a chain that is over its
// budget, a request key used with other content, and bad input. A refusal
// leaves no row.
type Start struct {
	launch.Request
	Epoch    uint64            // of the connection that the start came through; 0 = none
	From     launch.SessionKey // of that connection; empty means Session
	ToolCall string            // recorded, never a key
	// Revision is the execution revision of the Parent that is restarted, whose
	// input the new run has (rule launch/restart).
	Revision uint64
}

// Started is the answer to [Start].
type Started struct {
	Run     launch.RunID
	Created bool // false: the request key was known and the first answer adopted
	State   launch.State
}

func (c Start) run(x *tx) (Started, error) {
	var parent *launchRow
	if c.Parent != "" {
		var err error
		if parent, err = c.source(x); err != nil {
			return Started{}, err
		}
	}
	if c.RequestKey != "" {
		l, err := x.firstLaunch(launchesByKey, Value{Kind: Text, Text: c.Scope}, Value{Kind: Text, Text: c.RequestKey})
		if err != nil {
			return Started{}, err
		}
		if l != nil {
			return Started{Run: l.ID, State: l.State}, launch.Adopt(&l.Launch, &c.Request)
		}
	}
	if c.ToolCall != "" {
		if err := launch.CheckKey("tool call id", c.ToolCall); err != nil {
			return Started{}, err
		}
	}
	if parent != nil {
		if err := c.restartable(x, parent); err != nil {
			return Started{}, err
		}
	}
	turn, err := c.admit(x)
	if err != nil {
		return Started{}, err
	}
	l, events, err := launch.Reserve(c.Request, x.now)
	if err != nil {
		return Started{}, err
	}
	if !json.Valid(c.Input) || !utf8.Valid(c.Input) {
		return Started{}, launch.Refuse(launch.ErrInvalid, "input is not one valid JSON value in UTF-8")
	}
	if used, err := x.launches.load(x, launchRow{launch.Launch{ID: l.ID}}, func(r *launchRow) bool { return r.ID == l.ID }); err != nil {
		return Started{}, err
	} else if used != nil {
		return Started{}, launch.Refuse(launch.ErrConflict, "run id %s is taken and is never used again; make a new one", l.ID)
	}
	if turn != nil {
		if err := turn(&l); err != nil {
			return Started{}, err
		}
	}
	row := x.launches.insert(launchRow{l})
	for _, e := range events {
		x.launchEvent(row, e, c.ToolCall)
	}
	if parent != nil && c.Actor == launch.Person {
		err := x.eachIntent(parent, func(*intents.Intent) intents.Command { return intents.Withdraw{Reason: intents.ReasonRestarted} })
		if err := x.contain(parent.Session, parent.ID, err); err != nil {
			return Started{}, err
		}
	}
	return Started{Run: l.ID, Created: true, State: l.State}, nil
}

// source returns the run that a restart names, and takes its input over.
func (c *Start) source(x *tx) (*launchRow, error) {
	l, err := x.visible(c.Parent, cmp.Or(c.From, c.Session), c.Actor, c.Epoch)
	if err != nil {
		return nil, err
	}
	switch {
	case l.Workflow != c.Workflow:
		return nil, launch.Refuse(launch.ErrInvalid, "run %s is of workflow %s; a restart keeps the workflow", l.ID, l.Workflow)
	case !l.HasRecord():
		return nil, launch.Refuse(launch.ErrNotAllowed, "run %s never ran; start its workflow with an input instead", l.ID)
	}
	r, err := x.record(l)
	if err != nil {
		return nil, err
	}
	c.Input = r.Input
	return l, nil
}

// restartable refuses the restart of a run that has not ended, at another
// revision than the caller saw, or with an effect that nobody has settled.
func (c *Start) restartable(x *tx, l *launchRow) error {
	r, err := x.record(l)
	if err != nil {
		return err
	}
	refuse := func(kind launch.Kind, format string, args ...any) error {
		e := launch.Refuse(kind, format, args...)
		e.Run, e.State = l.ID, l.State
		return e
	}
	switch {
	case !l.State.Terminal():
		return refuse(launch.ErrNotAllowed, "run %s is %s; only a run that has ended is restarted, so cancel it first", l.ID, l.State)
	case c.Revision != r.Revision:
		return refuse(launch.ErrStale, "run %s is at revision %d, the restart names %d; look at its status and repeat", l.ID, r.Revision, c.Revision)
	}
	open, err := x.unsettled(l.ID)
	if err != nil {
		return err
	}
	if open != nil {
		return refuse(launch.ErrUnsettledEffect, "the effect of node %s of run %s may or may not have happened; a person resolves it first (effect %s)", open.Key.Path, l.ID, open.Key.ID())
	}
	return nil
}

// unsettled returns an effect of a run that is not settled, or nil.
func (x *tx) unsettled(id launch.RunID) (*effectRow, error) {
	key, _ := runBytes(id)
	e := effectRow{Effect: effect.Effect{Key: effect.Key{Run: id}}}
	found := false
	err := x.rows.Scan(effectsUnsettled, []Value{{Kind: Blob, Blob: key[:]}}, 1, &e, func() bool { found = true; return false })
	if err != nil || !found {
		return nil, err
	}
	return x.effect(e.Key)
}

// admit decides whether a session may start a run now. The function that it
// returns completes the launch.
func (c *Start) admit(x *tx) (func(*launch.Launch) error, error) {
	if c.Mode != launch.Interactive {
		return nil, nil
	}
	if err := launch.CheckSessionKey(c.Session); err != nil {
		return nil, err
	}
	w, err := x.world(c.Session)
	if err != nil {
		return nil, err
	}
	se := &w.Session
	if c.Epoch != 0 && cmp.Or(c.From, c.Session) == c.Session && (c.Epoch != se.Epoch || !se.Connected()) {
		r := launch.Refuse(launch.ErrStale, "the session was connected again; this connection starts nothing")
		r.Fence = launch.EpochChanged
		return nil, r
	}
	if busy, err := x.reservation(c.Session); err != nil {
		return nil, err
	} else if busy != nil {
		r := launch.Refuse(launch.ErrSessionBusy, "run %s of this session is %s; wait for it or cancel it", busy.ID, busy.State)
		r.Run, r.State = busy.ID, busy.State
		return nil, r
	}
	c.InitiatingTurn = se.Active.Turn
	open := w.Message(se.Open)
	if c.Parent == "" {
		if err := c.postWorkflow(x, &w, open); err != nil {
			return nil, err
		}
	}
	chain, joined, err := c.join(x, se, open)
	if err != nil {
		return nil, err
	}
	return func(l *launch.Launch) error {
		s, err := x.session(c.Session)
		if err != nil {
			return err
		}
		s.Display = l.ID
		if joined {
			l.Chain = chain.ID
			if err := x.setChain(c.Session, chain); err != nil {
				return err
			}
			if _, err := x.apply(c.Session, session.CountStart{}); err != nil {
				return err
			}
		}
		if c.Actor == launch.Person {
			_, err := x.apply(c.Session, session.Free{})
			return err
		}
		return nil
	}, nil
}

// postWorkflow refuses a start while the model has not yet been told how an
// earlier run of the session ended.
func (c *Start) postWorkflow(x *tx, w *session.World, open *session.Message) error {
	owed, err := x.pending(c.Session, func(i *intents.Intent) bool {
		post := i.Cause == intents.Completed || i.Cause == intents.Failed || i.Cause == intents.TimedOut
		return i.Eligible() && post && (open == nil || open.Intent != i.ID)
	})
	if err != nil {
		return err
	}
	for _, i := range owed {
		blocked := false
		for n := range w.Messages {
			m := &w.Messages[n]
			blocked = blocked || m.Intent == i.ID && m.State == session.Blocked
		}
		if !blocked {
			r := launch.Refuse(launch.ErrSessionBusy, "run %s has ended and its outcome is about to be reported here; wait for that message", i.Run)
			r.Run = i.Run
			return r
		}
	}
	return nil
}

// join says which chain a start of the model belongs to (rule session/budget).
func (c *Start) join(x *tx, se *session.Session, open *session.Message) (chain session.Chain, joined bool, err error) {
	if c.Actor != launch.Model || open == nil || !open.Kind.Recovers() || open.Turn.UserInput || se.Active.UserInput {
		return chain, false, nil
	}
	source, err := x.launch(open.Run)
	if err != nil {
		return chain, false, err
	}
	chain, err = x.chain(source.Chain)
	if err != nil {
		return chain, false, err
	}
	correction := false
	if open.Intent != "" {
		i, err := x.intent(open.Intent)
		if err != nil {
			return chain, false, err
		}
		correction = i != nil && i.Cause == intents.LaunchFailed
	}
	chain, err = chain.Start(open.Turn, correction)
	return chain, err == nil, err
}

// Renew extends a lease. Answer: [Renewed].
type Renew struct {
	Run launch.RunID
	launch.Authority
	Lease time.Duration
}

// Renewed is what a worker learns with its renewal.
type Renewed struct{ Paused bool }

func (c Renew) run(x *tx) (Renewed, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Renewed{}, err
	}
	if err := x.applyLaunch(l, launch.RenewCommand{Authority: c.Authority, Lease: c.Lease}); err != nil {
		return Renewed{}, err
	}
	if l.State == launch.Running {
		r, err := x.record(l)
		if err != nil {
			return Renewed{}, err
		}
		if r.Active.Opened != 0 {
			return Renewed{Paused: l.Paused}, x.applyRun(l, r, run.SampleClock{}, nil)
		}
	}
	return Renewed{Paused: l.Paused}, nil
}

// FailActivation ends a starting launch whose activation failed. Answer: the
// launch's state.
type FailActivation struct {
	Run launch.RunID
	launch.Authority
	Error launch.SafeError
}

func (c FailActivation) run(x *tx) (launch.State, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return 0, err
	}
	if l.HasRecord() {
		return l.State, launch.Refuse(launch.ErrNotAllowed, "run %s has run before; its activation is not checked again", l.ID)
	}
	err = x.applyLaunch(l, launch.FailCommand{Authority: c.Authority, Error: c.Error})
	return l.State, err
}
