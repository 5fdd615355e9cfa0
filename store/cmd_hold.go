package store

import (
	"cmp"

	"example.com/piworkflows/engine/follow"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Cancel ends a run. Answer: [Cancellation]; that the run had ended before is
// an answer, not an error. A person's cancel also stops the run's chain.
type Cancel struct {
	Run     launch.RunID
	Actor   launch.Actor
	Session launch.SessionKey // where the call comes from; a model sees only its own runs
	Epoch   uint64            // of that connection; 0 = none
}

// Cancellation says who won.
type Cancellation struct {
	Won   bool         // this call ended the run
	State launch.State // how it stands now
	Error launch.SafeError
	Live  launch.RunID // a live run of the same chain, when the named one had ended
}

func (c Cancel) run(x *tx) (Cancellation, error) {
	l, err := x.visible(c.Run, c.Session, c.Actor, c.Epoch)
	if err != nil {
		return Cancellation{}, err
	}
	if !l.State.Terminal() {
		if err := x.cancel(l, c.Actor); err != nil {
			return Cancellation{}, err
		}
		return Cancellation{Won: true, State: l.State}, nil
	}
	a := Cancellation{State: l.State, Error: l.Error}
	if l.Mode == launch.Headless {
		return a, nil
	}
	live, err := x.reservation(l.Session)
	if err != nil {
		return a, err
	}
	if live != nil && live.Chain == l.Chain {
		a.Live = live.ID
	}
	if c.Actor == launch.Person {
		return a, x.follow(l, "stopped", follow.PersonCancelsEnded())
	}
	return a, nil
}

// cancel ends a live run.
func (x *tx) cancel(l *launchRow, by launch.Actor) error {
	if err := x.endRecord(l); err != nil {
		return err
	}
	return x.applyLaunch(l, launch.CancelCommand{Actor: by})
}

// visible returns a run that the caller may know of.
func (x *tx) visible(id launch.RunID, from launch.SessionKey, actor launch.Actor, epoch uint64) (*launchRow, error) {
	l, err := x.launch(id)
	if err != nil {
		return nil, err
	}
	if actor == launch.Model && (l.Mode != launch.Interactive || l.Session != from) {
		return nil, errNoRun
	}
	if epoch != 0 {
		s, err := x.session(from)
		if err != nil {
			return nil, err
		}
		if s.Epoch != epoch || !s.Connected() {
			r := launch.Refuse(launch.ErrStale, "the session was connected again; this connection changes nothing")
			r.Fence = launch.EpochChanged
			return nil, r
		}
	}
	return l, nil
}

// Pause holds a run until a person resumes it. Answer: the launch's state.
type Pause struct {
	Run     launch.RunID
	Actor   launch.Actor      // Model or Person; 0 means Person
	Session launch.SessionKey // where the call comes from; a model sees only its own runs
	Epoch   uint64            // of that connection; 0 = none
}

func (c Pause) run(x *tx) (launch.State, error) {
	c.Actor = cmp.Or(c.Actor, launch.Person)
	l, err := x.visible(c.Run, c.Session, c.Actor, c.Epoch)
	if err != nil {
		return 0, err
	}
	if l.Mode == launch.Interactive { // the pause outlives a hold that is lifted
		s, err := x.session(l.Session)
		if err != nil {
			return 0, err
		}
		if s.HeldRun == l.ID {
			s.HeldRun = ""
		}
	}
	err = x.applyLaunch(l, launch.PauseCommand{Actor: c.Actor})
	return l.State, err
}

// Resume ends a pause or attention on behalf of a person, and lifts the
// session's hold. Answer: the launch's state.
type Resume struct {
	Run     launch.RunID
	Actor   launch.Actor // Person, which 0 means too
	Session launch.SessionKey
	Epoch   uint64
}

func (c Resume) run(x *tx) (launch.State, error) {
	c.Actor = cmp.Or(c.Actor, launch.Person)
	l, err := x.visible(c.Run, c.Session, c.Actor, c.Epoch)
	if err != nil {
		return 0, err
	}
	if l.Attention == launch.EffectAmbiguous {
		e, err := x.current(l)
		if err != nil {
			return l.State, err
		}
		if e == nil || !e.Observable() {
			return l.State, launch.Refuse(launch.ErrUnsettledEffect, "run %s has an external effect that may or may not have happened; find out, then resolve the effect or cancel the run", l.ID)
		}
	}
	if err := x.resume(l, c.Actor); err != nil || l.Mode == launch.Headless {
		return l.State, err
	}
	_, err = x.apply(l.Session, session.Free{})
	return l.State, err
}

// resume ends a pause or attention. A run that still waits goes on waiting. A
// person's resume lets its request count its prompts anew; a hold that is lifted
// does not.
func (x *tx) resume(l *launchRow, actor launch.Actor) error {
	if !l.HasRecord() {
		return x.applyLaunch(l, launch.ResumeCommand{Actor: actor})
	}
	r, err := x.record(l)
	if err != nil {
		return err
	}
	q, err := x.asked(r)
	if err != nil {
		return err
	}
	pending := q != nil && q.State == request.Pending
	if err := x.applyLaunch(l, launch.ResumeCommand{Actor: actor, Waiting: r.Due != 0 || pending}); err != nil {
		return err
	}
	switch {
	case l.State == launch.Running: // its worker never stopped, and spends time again
		return x.applyRun(l, r, run.StartClock{}, nil)
	case !pending:
		return nil
	}
	if actor == launch.Person {
		if err := x.applyRequest(q, request.Resume{}); err != nil {
			return err
		}
	}
	return x.contain(l.Session, l.ID, x.promptAgain(q.ID, actor == launch.Person))
}
