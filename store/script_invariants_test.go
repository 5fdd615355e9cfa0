package store_test

import (
	"errors"
	"fmt"
	"strings"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/enginetest"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/session/sessiontest"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/intents/intentstest"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
	"example.com/piworkflows/store"
)

// rowInvariants checks what has to hold in the tables after every commit.
func rowInvariants(a store.All) error {
	errs := []error{launchtest.CheckRows(a.Launches)}
	bad := func(name, format string, v ...any) { errs = append(errs, fmt.Errorf(name+": "+format, v...)) }

	launches := map[launch.RunID]*launch.Launch{}
	for i := range a.Launches {
		launches[a.Launches[i].ID] = &a.Launches[i]
	}
	records := map[launch.RunID]launch.RecordStatus{}
	for i := range a.Runs {
		r := &a.Runs[i]
		records[r.ID] = recordStatus(r.Status)
		errs = append(errs, run.Check(*r))
	}
	for _, l := range launches {
		errs = append(errs, launchtest.RecordAgrees(l, records[l.ID]))
	}
	for _, e := range a.Effects {
		errs = append(errs, effect.Check(e))
	}

	state := func(id launch.RunID) launch.State { return launches[id].State }
	errs = append(errs, intentstest.OnePerSource(a.Intents), intentstest.Uncarried(a.Intents, state))
	for _, i := range a.Intents {
		errs = append(errs, i.Check(), intentstest.Resolution(i), intentstest.Identity(i))
		if l := launches[i.Run]; l == nil || l.Mode != launch.Interactive || l.Session != i.Session {
			bad("IntentOfSession", "%s belongs to no interactive run of its session", i.ID)
		} else if i.Pending() && i.Facts.Handoff && l.Park != launch.ParkAttention {
			bad("HandoffTakenBack", "%s is a hand-over and its run is %s", i.ID, l.State)
		}
	}
	for id, l := range launches {
		errs = append(errs, intentstest.Handoff(a.Intents, id, intents.RunFacts{State: l.State, Attention: l.Park == launch.ParkAttention}))
	}
	errs = append(errs, sessionInvariants(a, launches), requestInvariants(a, launches), eventInvariants(a))
	return errors.Join(errs...)
}

func recordStatus(s run.Status) launch.RecordStatus {
	switch s {
	case run.Running:
		return launch.RecordRunning
	case run.Waiting:
		return launch.RecordWaiting
	case run.Attention:
		return launch.RecordAttention
	case run.Completed:
		return launch.RecordDone
	case run.RunCancelled:
		return launch.RecordCancelled
	}
	return launch.RecordFailed
}

// sessionInvariants checks each session with its messages.
func sessionInvariants(a store.All, launches map[launch.RunID]*launch.Launch) error {
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	worlds := map[launch.SessionKey]*session.World{}
	for _, s := range a.Sessions {
		worlds[s.Key] = &session.World{Session: s}
	}
	for _, m := range a.Messages {
		w := worlds[m.Session]
		if w == nil {
			bad("SessionOfMessage: %s belongs to no session", m.ID)
			continue
		}
		w.Messages = append(w.Messages, m)
		if m.Turn.Opened != 0 && !m.Kind.StartsTurn() {
			bad("PassiveOwnsNoTurn: %s %s has a turn", m.Kind, m.ID)
		}
	}
	ended := func(id launch.RunID) bool { return launches[id] != nil && launches[id].State.Terminal() }
	for _, w := range worlds {
		errs = append(errs, sessiontest.CheckRows(*w, ended))
	}
	// An eligible intent has a message that can serve it, or the coordinator
	// would never be done with it.
	for _, i := range a.Intents {
		if !i.Eligible() {
			continue
		}
		served := false
		for n := range a.Messages {
			m := &a.Messages[n]
			served = served || m.Intent == i.ID && m.State != session.Cancelled
		}
		if !served {
			bad("EligibleIsServed: %s is eligible and no message carries it", i.ID)
		}
	}
	return errors.Join(errs...)
}

// requestInvariants checks runs, requests and effects against each other; and a
// candidate is checked under a claim, or that is due, or a person holds it.
func requestInvariants(a store.All, launches map[launch.RunID]*launch.Launch) error {
	errs := []error{enginetest.OneResult(a.Steps), enginetest.OneOpen(a.Runs, a.Requests), enginetest.Answered(a.Requests, a.Receipts),
		enginetest.IntervalsDisjoint(a.Runs, a.Steps, a.Spent), enginetest.KeyUnique(a.Effects), enginetest.ApprovalUsedOnce(a.Requests, a.Effects)}
	for _, q := range a.Requests {
		errs = append(errs, request.Check(q), enginetest.ByMatrix(q))
		l := launches[q.Run]
		if q.State == request.Validating && l != nil && !l.State.Claimed() && l.Ready == 0 && !l.Paused && l.Park != launch.ParkAttention {
			errs = append(errs, fmt.Errorf("ValidatingGoesOn: %s is validating and nobody will go on", q.ID))
		}
	}
	return errors.Join(errs...)
}

// eventInvariants: the events of a stream are contiguous from 1, as many as
// its row counts; no follow-on was left out.
func eventInvariants(a store.All) error {
	next := map[[16]byte]uint64{}
	for _, e := range a.Events { // in the order of stream and number
		next[e.Stream]++
		if e.N != next[e.Stream] {
			return fmt.Errorf("EventsContiguous: event %d follows %d", e.N, next[e.Stream]-1)
		}
		if e.Kind == "store.violation" {
			return fmt.Errorf("NoViolation: a follow-on was left out: %s", e.Data)
		}
	}
	for _, l := range a.Launches {
		if got := next[store.StreamOfRun(l.ID)]; got != l.Events {
			return fmt.Errorf("EventsCounted: run %s counts %d events and has %d", l.ID, l.Events, got)
		}
	}
	for _, s := range a.Sessions {
		if got := next[store.StreamOfSession(s.Key)]; got != s.Events {
			return fmt.Errorf("EventsCounted: session %s counts %d events and has %d", s.Key, s.Events, got)
		}
	}
	return replayAgrees(a)
}

// replayAgrees: replaying the stored events of a run gives the state and
// generation of its launch, and the status of its record.
func replayAgrees(a store.All) error {
	type last struct {
		state      launch.State
		generation uint64
		status     run.Status
		ended      bool
	}
	of := map[[16]byte]*last{}
	for _, e := range a.Events {
		l := of[e.Stream]
		if l == nil {
			l = new(last)
			of[e.Stream] = l
		}
		if strings.HasPrefix(e.Kind, "launch.") {
			if l.ended {
				return fmt.Errorf("OneEnd: a launch's event %d after its end", e.N)
			}
			l.state, l.generation = launch.State(e.State), e.Generation
			l.ended = l.state.Terminal()
		}
		if strings.HasPrefix(e.Kind, "run.") {
			l.status = run.Status(e.State)
		}
	}
	for _, l := range a.Launches {
		got := of[store.StreamOfRun(l.ID)]
		if got == nil || got.state != l.State || got.generation != l.Generation {
			return fmt.Errorf("ReplayAgrees: events of run %s give %+v, the row is %s, generation %d", l.ID, got, l.State, l.Generation)
		}
	}
	for _, r := range a.Runs {
		if got := of[store.StreamOfRun(r.ID)]; got == nil || got.status != r.Status {
			return fmt.Errorf("ReplayAgrees: events of run %s give %+v, its record is %s", r.ID, got, r.Status)
		}
	}
	return nil
}
