package store

import (
	"errors"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

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
	if err := x.applyLaunch(l, launch.RecoverCommand{Generation: generation, Record: rec}); err != nil || rec.Status != launch.RecordWaiting {
		return err
	}
	r, err := x.record(l)
	if err != nil {
		return err
	}
	q, err := x.asked(r)
	if err != nil || q == nil {
		return err
	}
	return x.contain(l.Session, l.ID, x.promptAgain(q.ID, false))
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
			rejected, err := x.unjudged(l, r, lost)
			if rejected {
				rec.Status = launch.RecordWaiting
			}
			return rec, err
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

// unjudged rejects a candidate whose check was lost with its worker once more
// than it is tried (rule request/validating), so that its run waits on.
func (x *tx) unjudged(l *launchRow, r *runRow, lost bool) (bool, error) {
	q, err := x.asked(r)
	if err != nil || !lost || q.State != request.Validating || q.Tries < request.MaxTries {
		return false, err
	}
	if err := x.applyRequest(q, request.NoVerdict{}); err != nil {
		return false, err
	}
	return true, x.applyRun(l, r, run.Park{Status: run.Waiting}, nil)
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
