package intentstest

import (
	"fmt"
	"slices"
	"time"

	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Session is the session of every [World].
const Session = launch.SessionKey("kit@0123456789abcdef0123456789abcdef")

// World is the dumb twin of a store of intents: one session, its runs one after
// another, and their intents. [World.Apply] does what a store does in one
// transaction. The zero value is an empty world.
type World struct {
	Runs    []Run            // the last one may be live; the others have ended
	Intents []intents.Intent // in the order of their creation
	Links   map[string]bool  // source events that were dealt with

	now    launch.Time
	tokens uint64
}

// Run is what a world knows of a run.
type Run struct {
	ID       launch.RunID
	State    launch.State
	Held     bool // parked for attention
	Revision uint64
}

// Facts returns the run as eligibility is checked against it.
func (r Run) Facts() intents.RunFacts { return intents.RunFacts{State: r.State, Attention: r.Held} }

// Step is one of [Reserve], [Start], [Resume], [Happen], [Ensure] and [Do].
type Step interface{ step() }

// Reserve begins a new run, refused while one is live.
type Reserve struct{}

// Start lets a queued run begin.
type Start struct{ Run launch.RunID }

// Resume ends attention, and takes an unsent hand-over back.
type Resume struct{ Run launch.RunID }

// Happen is a source event of a run.
type Happen struct {
	Run           launch.RunID
	Source        intents.Source
	Revision      uint64 // of the event; an old one repeats what happened then
	Node, Attempt string
	Reason        string
}

// Ensure asks for an intent directly.
type Ensure struct{ New intents.New }

// Do applies a command to an intent. The world fills in the run of a claim.
type Do struct {
	Intent  string
	Command intents.Command
}

func (Reserve) step() {}
func (Start) step()   {}
func (Resume) step()  {}
func (Happen) step()  {}
func (Ensure) step()  {}
func (Do) step()      {}

// Apply carries out one step, returns what happened, and checks every invariant
// of this package on the way: err is a refusal of the step, broken a violation.
// A refused step changes nothing but the clock, which each step moves by a second.
func (w *World) Apply(s Step) (events []intents.Event, err, broken error) {
	w.now = max(w.now, launch.Time(time.Hour)).Add(time.Second)
	next := World{Runs: slices.Clone(w.Runs), Intents: slices.Clone(w.Intents), now: w.now, tokens: w.tokens,
		Links: make(map[string]bool, len(w.Links)+1)}
	for k := range w.Links {
		next.Links[k] = true
	}
	if events, err = next.apply(s); err != nil {
		return nil, err, nil
	}
	broken = w.compare(next, s, events)
	*w = next
	return events, nil, broken
}

func (w *World) apply(s Step) ([]intents.Event, error) {
	switch s := s.(type) {
	case Reserve:
		return nil, w.reserve()
	case Start:
		r, err := w.run(s.Run)
		if err == nil && r.State != launch.Queued {
			err = launch.Refuse(launch.ErrWrongKind, "only a queued run starts")
		}
		if err == nil {
			r.State, r.Revision = launch.Running, r.Revision+1
		}
		return nil, err
	case Resume:
		return w.resume(s)
	case Happen:
		return w.happen(s)
	case Ensure:
		return w.ensure(s)
	case Do:
		return w.do(s)
	}
	return nil, launch.Refuse(launch.ErrInvalid, "unknown step %T", s)
}

func (w *World) reserve() error {
	if n := len(w.Runs); n > 0 && w.Runs[n-1].State.Live() {
		return launch.Refuse(launch.ErrSessionBusy, "a run is live")
	}
	id := launch.NewRunID("kit", fmt.Sprintf("%026d", int64(w.now)/int64(time.Second)))
	w.Runs = append(w.Runs, Run{ID: id, State: launch.Queued})
	// Keep the population small: forget what ended long ago.
	if len(w.Runs) > 4 {
		old := w.Runs[0].ID
		w.Intents = slices.DeleteFunc(w.Intents, func(i intents.Intent) bool { return i.Run == old })
		w.Runs = w.Runs[1:]
	}
	return nil
}

func (w *World) resume(s Resume) ([]intents.Event, error) {
	r, err := w.run(s.Run)
	if err != nil {
		return nil, err
	}
	if !r.Held {
		return nil, launch.Refuse(launch.ErrWrongKind, "the run does not wait for a person")
	}
	r.State, r.Held, r.Revision = launch.Running, false, r.Revision+1
	var all []intents.Event
	for n, i := range w.Intents {
		if i.Run == s.Run && i.Pending() && i.Facts.Handoff {
			next, events, err := intents.Apply(i, intents.MakeIneligible{}, w.time())
			if err != nil {
				return nil, err
			}
			w.Intents[n], all = next, append(all, events...)
		}
	}
	return all, nil
}

func (w *World) happen(s Happen) ([]intents.Event, error) {
	r, err := w.run(s.Run)
	if err != nil {
		return nil, err
	}
	event, err := intents.SourceEvent(s.Run, s.Revision, s.Source.Kind.String())
	if err != nil {
		return nil, err
	}
	if w.Links[event] {
		return nil, nil
	}
	observed, err := r.move(s)
	if err != nil {
		return nil, err
	}
	n := intents.New{
		Identity: intents.Identity{Session: Session, Run: s.Run, SourceEvent: event, Node: s.Node, Attempt: s.Attempt},
		Workflow: "kit", Chain: w.Runs[0].ID,
		Facts: intents.Facts{Observed: observed, Reason: s.Reason},
	}
	if s.Source.Kind == intents.OnActivationFailed {
		n.Node, n.Attempt = "", ""
	}
	owed, err := intents.Owe(s.Source, n, w.pending(s), w.now)
	if err != nil {
		return nil, err
	}
	w.Links[event] = true
	w.put(owed.Changed...)
	return owed.Events, nil
}

// pending are the intents that an event may concern; a world is one chain.
func (w *World) pending(s Happen) []intents.Intent {
	var list []intents.Intent
	for _, i := range w.Intents {
		if i.Pending() && (i.Run == s.Run || s.Source.Kind == intents.OnCancel) {
			list = append(list, i)
		}
	}
	return list
}

// move changes the run as the event says, or refuses an event that cannot be.
func (r *Run) move(s Happen) (intents.Observed, error) {
	impossible := s.Revision != r.Revision || !r.State.Live()
	park := launch.NotParked
	to := r.State
	switch s.Source.Kind {
	case intents.OnCancel:
		to = launch.Cancelled
	case intents.OnActivationFailed:
		to = launch.Failed
		impossible = impossible || r.State != launch.Queued
	case intents.OnEnded:
		to = launch.Failed
		if s.Source.Outcome == intents.Completed {
			to = launch.Done
		}
		impossible = impossible || r.State == launch.Queued || s.Source.Outcome != intents.Completed &&
			s.Source.Outcome != intents.Failed && s.Source.Outcome != intents.TimedOut
	case intents.OnAttention:
		to, park = launch.Parked, launch.ParkAttention
		impossible = impossible || r.State != launch.Running
	default:
		impossible = impossible || r.State != launch.Running
	}
	if impossible || s.Source.Headless {
		return 0, launch.Refuse(launch.ErrWrongKind, "that cannot happen to a run that is %s", r.State)
	}
	r.State, r.Held, r.Revision = to, park == launch.ParkAttention, r.Revision+1
	return intents.Observe(to, park), nil
}

func (w *World) ensure(s Ensure) ([]intents.Event, error) {
	id, err := intents.ID(s.New.Identity)
	if err != nil {
		return nil, err
	}
	var existing *intents.Intent
	for n, i := range w.Intents {
		if i.ID == id {
			existing = &w.Intents[n]
		} else if existing == nil && i.Run == s.New.Run && i.Pending() && !i.Carried() {
			err = launch.Refuse(launch.ErrWrongKind, "the run has a pending intent; join it")
		}
	}
	r, runErr := w.run(s.New.Run)
	switch {
	case runErr != nil:
		return nil, runErr
	case existing == nil && err != nil:
		return nil, err
	case existing == nil && w.Links[s.New.SourceEvent]:
		return nil, launch.Refuse(launch.ErrConflict, "the source event was dealt with")
	case existing == nil && s.New.Withdraw == 0 && (r.Held || r.State.Terminal() != s.New.Eligible):
		return nil, launch.Refuse(launch.ErrWrongKind, "eligible must agree with the run")
	}
	i, events, _, err := intents.Ensure(existing, s.New, w.now)
	if err == nil {
		w.put(i)
		w.Links[i.SourceEvent] = true
	}
	return events, err
}

func (w *World) do(s Do) ([]intents.Event, error) {
	n := slices.IndexFunc(w.Intents, func(i intents.Intent) bool { return i.ID == s.Intent })
	if n < 0 {
		return nil, launch.Refuse(launch.ErrNotFound, "no such intent")
	}
	i := w.Intents[n]
	r, err := w.run(i.Run)
	if err != nil {
		return nil, err
	}
	switch c := s.Command.(type) {
	case intents.Claim:
		c.Run = r.Facts()
		s.Command = c
	case intents.MakeEligible:
		if c.Handoff != r.Held || !c.Handoff && !r.State.Terminal() {
			return nil, launch.Refuse(launch.ErrWrongKind, "eligible must agree with the run")
		}
	case intents.MakeIneligible:
		if r.Held {
			return nil, launch.Refuse(launch.ErrWrongKind, "the run waits for a person")
		}
	}
	next, events, err := intents.Apply(i, s.Command, w.time())
	if err != nil {
		return nil, err
	}
	w.Intents[n] = next
	return w.merge(next, events)
}

// merge joins the two uncarried intents that a settlement may leave.
func (w *World) merge(i intents.Intent, events []intents.Event) ([]intents.Event, error) {
	if !i.Pending() || i.Carried() {
		return events, nil
	}
	for _, other := range w.Intents {
		if other.ID != i.ID && other.Run == i.Run && other.Pending() && !other.Carried() {
			older, newer, more, err := intents.Merge(i, other, w.now)
			w.put(older, newer)
			return append(events, more...), err
		}
	}
	return events, nil
}

// compare checks the invariants on the step from w to next.
func (w *World) compare(next World, s Step, events []intents.Event) error {
	if h, ok := s.(Happen); ok {
		event, _ := intents.SourceEvent(h.Run, h.Revision, h.Source.Kind.String())
		if !w.Links[event] {
			if err := Owed(h.Source, event, events); err != nil {
				return err
			}
		}
	}
	for _, before := range w.Intents {
		for _, after := range next.Intents {
			if before.ID != after.ID {
				continue
			}
			if err := Immutable(before, after); err != nil {
				return err
			}
		}
		if d, ok := s.(Do); ok && d.Intent == before.ID {
			if c, ok := d.Command.(intents.Claim); ok {
				r, _ := w.run(before.Run)
				c.Run = r.Facts()
				if err := Attempt(before, c); err != nil {
					return err
				}
			}
		}
	}
	return next.check()
}

// check checks the row invariants.
func (w *World) check() error {
	for _, i := range w.Intents {
		for _, err := range []error{Resolution(i), Identity(i), i.Check()} {
			if err != nil {
				return err
			}
		}
	}
	if err := OnePerSource(w.Intents); err != nil {
		return err
	}
	for _, r := range w.Runs {
		if err := Handoff(w.Intents, r.ID, r.Facts()); err != nil {
			return err
		}
	}
	return Uncarried(w.Intents, func(id launch.RunID) launch.State {
		r, err := w.run(id)
		if err != nil {
			return 0
		}
		return r.State
	})
}

func (w *World) time() launch.Now { return launch.Now{Wall: w.now} }

func (w *World) run(id launch.RunID) (*Run, error) {
	n := slices.IndexFunc(w.Runs, func(r Run) bool { return r.ID == id })
	if n < 0 {
		return nil, launch.Refuse(launch.ErrNotFound, "no such run")
	}
	return &w.Runs[n], nil
}

func (w *World) put(changed ...intents.Intent) {
	for _, c := range changed {
		if n := slices.IndexFunc(w.Intents, func(i intents.Intent) bool { return i.ID == c.ID }); n >= 0 {
			w.Intents[n] = c
		} else {
			w.Intents = append(w.Intents, c)
		}
	}
}
