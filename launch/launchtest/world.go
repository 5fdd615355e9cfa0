package launchtest

import (
	"fmt"
	"time"

	"example.com/piworkflows/launch"
)

// Secret stands in every input that [Draw] makes, so that [SecretHidden] can
// look for it.
const Secret = "private-marker-7d1f"

// Op is one operation on a world, as data: time passes, then a start (Request)
// or a command for a run is answered.
type Op struct {
	Wait    time.Duration // by how much both clocks advance first
	Jump    time.Duration // and the wall clock alone, forward or backward
	Request *launch.Request
	Run     launch.RunID
	Command launch.Command
}

// String names the operation for a failure report.
func (op Op) String() string {
	if op.Request != nil {
		return fmt.Sprintf("+%v%+v reserve %s key %q", op.Wait, op.Jump, op.Request.ID, op.Request.RequestKey)
	}
	return fmt.Sprintf("+%v%+v %s %s %+v", op.Wait, op.Jump, op.Command.Kind(), op.Run, op.Command)
}

// World is a model of a host and its launches: two sessions, headless runs,
// runners with their tokens and a manual clock. It answers operations as a
// store must: the reservation and the request key are checked, everything else
// is [launch.Reserve] and [launch.Apply]. Read its fields, change them only
// through Do.
type World struct {
	Launches []launch.Launch
	Records  []launch.Record // of the launch of the same index
	Trace    Trace
	Now      launch.Now // of the last operation

	mono  launch.Mono
	watch launch.Watch
	held  map[launch.RunID][]launch.Authority // every claim there ever was, in order
}

// NewWorld returns a world without launches.
func NewWorld() *World {
	w := &World{Now: launch.Now{Wall: 1_700_000_000_000_000_000}, held: map[launch.RunID][]launch.Authority{}}
	w.watch.Observe(w.Now.Wall, w.mono, launch.DefaultLease)
	return w
}

// Find returns the index of a run in Launches, or -1.
func (w *World) Find(id launch.RunID) int {
	for i := range w.Launches {
		if w.Launches[i].ID == id {
			return i
		}
	}
	return -1
}

// Do answers one operation and records it in the trace. An adopted start
// returns no events.
func (w *World) Do(op Op) ([]launch.Event, error) {
	w.mono = w.mono.Add(op.Wait)
	w.Now = w.watch.Observe(w.Now.Wall.Add(op.Wait+op.Jump), w.mono, launch.DefaultLease)
	e := Entry{Request: op.Request, Command: op.Command, Now: w.Now}
	if op.Request != nil {
		w.reserve(&e)
	} else {
		w.apply(&e, op.Run)
	}
	w.Trace = append(w.Trace, e)
	return e.Events, e.Err
}

func (w *World) reserve(e *Entry) {
	r := e.Request
	for i := range w.Launches {
		if l := &w.Launches[i]; r.RequestKey != "" && l.RequestKey == r.RequestKey && l.Scope == r.Scope {
			e.Before, e.After, e.Err = *l, *l, launch.Adopt(l, r)
			return
		}
	}
	for i := range w.Launches {
		if l := &w.Launches[i]; r.Mode == launch.Interactive && l.Session == r.Session && l.State.Live() {
			e.Err = &launch.Refusal{Kind: launch.ErrSessionBusy, Run: l.ID, State: l.State, Message: "the session has run " + string(l.ID) + "; cancel or await it"}
			return
		}
	}
	if w.Find(r.ID) >= 0 {
		e.Err = launch.Refuse(launch.ErrConflict, "run id is taken; make a new one")
		return
	}
	if e.After, e.Events, e.Err = launch.Reserve(*r, e.Now); e.Err == nil {
		w.Launches = append(w.Launches, e.After)
		w.Records = append(w.Records, launch.Record{})
	}
}

func (w *World) apply(e *Entry, id launch.RunID) {
	i := w.Find(id)
	if i < 0 {
		e.After, e.Events, e.Err = launch.Apply(launch.Launch{}, e.Command, e.Now)
		return
	}
	e.Before = w.Launches[i]
	e.After, e.Events, e.Err = launch.Apply(e.Before, e.Command, e.Now)
	if e.Err != nil {
		return
	}
	w.Launches[i] = e.After
	if c := e.After.Claim; c.Runner != "" && e.After.Generation > e.Before.Generation {
		w.held[id] = append(w.held[id], launch.Authority{Runner: c.Runner, Token: c.Token, Generation: e.After.Generation})
	}
	w.follow(e, &w.Records[i])
}

// follow keeps the run's own record in step with its launch.
func (w *World) follow(e *Entry, r *launch.Record) {
	switch c := e.Command.(type) {
	case launch.ClaimCommand:
		r.Progress = max(r.Progress, c.Progress)
	case launch.ReleaseCommand:
		r.Progress = max(r.Progress, c.Record.Progress)
	case launch.RecoverCommand:
		r.Progress = max(r.Progress, c.Record.Progress)
	}
	l := &e.After
	switch {
	case !l.HasRecord():
		r.Status = launch.NoRecord
	case l.State == launch.Done:
		r.Status = launch.RecordDone
	case l.State == launch.Failed:
		r.Status = launch.RecordFailed
	case l.State == launch.Cancelled:
		r.Status = launch.RecordCancelled
	case l.Park == launch.ParkWaiting:
		r.Status = launch.RecordWaiting
	case l.Attention == launch.EffectAmbiguous:
		r.Status = launch.RecordAttention
	case l.State != launch.Parked || l.Park == launch.ParkDue:
		r.Status = launch.RecordRunning
	}
}
