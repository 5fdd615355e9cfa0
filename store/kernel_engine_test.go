package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/enginetest"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// This file holds what [TestKernelProperty] checks of runs, requests and effects.

// engineRows checks the runs against their plans after every commit, and what
// has to be gone.
func engineRows(k *kernel, a store.All) error {
	errs := []error{nothingLeft(a), nothingDue(a), requestsReplay(a), clockRuns(a)}
	of := map[launch.RunID][]run.Step{}
	for _, s := range a.Steps {
		of[s.Run] = append(of[s.Run], s)
	}
	for _, r := range a.Runs {
		p := graphs[k.plan(r.ID)]
		errs = append(errs, enginetest.RetriesDeclared(p, of[r.ID]))
		steps, err := settled(a, r.ID, of[r.ID])
		if err == nil {
			err = enginetest.WalksPlan(p, r, steps)
		}
		errs = append(errs, err, settingsAgree(a, r))
	}
	return errors.Join(errs...)
}

// settled puts the steps of a run in the order in which its events say that they
// were settled.
func settled(a store.All, id launch.RunID, steps []run.Step) (all []run.Step, err error) {
	stream := store.StreamOfRun(id)
	for _, e := range a.Events {
		if e.Stream != stream || e.Kind != "run.settled" {
			continue
		}
		var d struct {
			Node           string
			Visit, Attempt uint32
			Outcome        string
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return nil, err
		}
		n := len(all)
		for _, s := range steps {
			if s.Node == d.Node && s.Visit == d.Visit && s.Attempt == d.Attempt && s.Outcome.String() == d.Outcome {
				all = append(all, s)
			}
		}
		if len(all) != n+1 {
			return nil, fmt.Errorf("StepsReplay: event %d of run %s has no step", e.N, id)
		}
	}
	if len(all) != len(steps) {
		return nil, fmt.Errorf("StepsReplay: run %s has %d steps and %d events of them", id, len(steps), len(all))
	}
	return all, nil
}

// requestsReplay: the last event of each request says the state of its row.
func requestsReplay(a store.All) error {
	type place struct {
		stream [16]byte
		at     string
	}
	last := map[place]uint8{}
	for _, e := range a.Events {
		if !strings.HasPrefix(e.Kind, "request.") {
			continue
		}
		var d struct {
			Node           string
			Visit, Attempt uint32
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return err
		}
		last[place{e.Stream, fmt.Sprint(d.Node, d.Visit, d.Attempt)}] = e.State
	}
	if len(last) != len(a.Requests) {
		return fmt.Errorf("RequestsReplay: events tell of %d requests, there are %d", len(last), len(a.Requests))
	}
	for _, q := range a.Requests {
		if got := request.State(last[place{store.StreamOfRun(q.Run), fmt.Sprint(q.Node, q.Visit, q.Attempt)}]); got != q.State {
			return fmt.Errorf("RequestsReplay: the events of %s say %s, it is %s", q.ID, got, q.State)
		}
	}
	return nil
}

// settingsAgree: a run's settings have as many revisions as it counts, each an
// object.
func settingsAgree(a store.All, r run.Run) error {
	n := uint32(0)
	for _, s := range a.Settings {
		if s.Run != r.ID {
			continue
		}
		if n++; s.Revision != n || s.Value == "" || s.Value[0] != '{' {
			return fmt.Errorf("SettingsAgree: revision %d of run %s is %q", s.Revision, r.ID, s.Value)
		}
	}
	if n != r.Settings || r.Seen > r.Settings {
		return fmt.Errorf("SettingsAgree: run %s is at revision %d, sees %d, and has %d", r.ID, r.Settings, r.Seen, n)
	}
	return nil
}

// nothingLeft: a run that has ended has no step, checkpoint or decision message
// that could still be sent, and no request that is over has one.
func nothingLeft(a store.All) error {
	ended, over := map[launch.RunID]bool{}, map[string]bool{}
	for _, r := range a.Runs {
		ended[r.ID] = r.Status.Terminal()
	}
	for _, q := range a.Requests {
		over[q.ID] = q.State.Over()
	}
	for i := range a.Messages {
		m := &a.Messages[i]
		asks := m.Kind == session.Step || m.Kind == session.Checkpoint || m.Kind == session.Decision
		if asks && (m.State == session.Pending || m.State == session.Blocked) && m.Attempt.Epoch == 0 && (ended[m.Run] || over[m.Request]) {
			return fmt.Errorf("NothingLeft: %s %s of run %s is %s, and what it asks is over", m.Kind, m.ID, m.Run, m.State)
		}
	}
	return nil
}

// nothingDue: whatever the model has to be told again of a request, or a person
// has to look at, was queued or parked in the transaction that made it due.
func nothingDue(a store.All) error {
	launches, open := byRun(a.Launches), map[string]bool{}
	for _, s := range a.Sessions {
		open[s.Open] = true
	}
	for _, q := range a.Requests {
		l := launches[q.Run]
		if l.Mode == launch.Headless || l.State.Terminal() {
			continue
		}
		s := request.Situation{Held: l.Paused || l.Park == launch.ParkPaused || l.Park == launch.ParkAttention}
		for i := range a.Messages {
			if m := &a.Messages[i]; m.Request == q.ID {
				s.Unsent = s.Unsent || m.State == session.Pending || m.State == session.Blocked
				s.Open = s.Open || open[m.ID]
			}
		}
		if due := q.Next(s); due != request.Nothing {
			return fmt.Errorf("NothingDue: %s of run %s (latest turn %s): %d is due and nobody does it", q.ID, q.Run, q.Latest, due)
		}
	}
	return nil
}

// clockRuns: the active interval of an attempt with a budget is open while a
// worker runs it and nobody holds it, and closed while it waits for no turn.
func clockRuns(a store.All) error {
	launches, turns := byRun(a.Launches), map[launch.RunID]bool{}
	for _, s := range a.Sessions {
		for i := range a.Messages {
			if m := &a.Messages[i]; m.ID == s.Open && m.Request != "" {
				turns[m.Run] = true
			}
		}
	}
	for _, r := range a.Runs {
		l := launches[r.ID]
		works, open := l.State == launch.Running && !l.Paused, r.Active.Opened != 0
		if works && r.Budget > 0 && !open || open && (l.Paused || !works && !turns[r.ID]) {
			return fmt.Errorf("ClockRuns: run %s is %s (paused %v), its attempt has %v and its interval is open: %v", r.ID, l.State, l.Paused, r.Budget, open)
		}
	}
	return nil
}

// engineChanges checks what may change in one commit.
func engineChanges(before, after store.All) error {
	var errs []error
	runs := map[launch.RunID]run.Run{}
	for _, r := range after.Runs {
		runs[r.ID] = r
	}
	for _, r := range before.Runs {
		errs = append(errs, enginetest.RunFixed(r, runs[r.ID]), enginetest.SpentRises(r, runs[r.ID]))
	}
	requests := map[string]request.Request{}
	for _, q := range after.Requests {
		requests[q.ID] = q
	}
	for _, q := range before.Requests {
		errs = append(errs, enginetest.Bound(q, requests[q.ID]), enginetest.Final(q, requests[q.ID]), enginetest.PromptBounds(q, requests[q.ID]))
	}
	effects := map[effect.Key]effect.Effect{}
	for _, e := range after.Effects {
		effects[e.Key] = e
	}
	for _, e := range before.Effects {
		errs = append(errs, enginetest.EffectFixed(e, effects[e.Key]))
	}
	type key struct {
		session      launch.SessionKey
		request, key string
	}
	receipts := map[key]request.Receipt{}
	for _, r := range after.Receipts {
		receipts[key{r.Session, r.Request, r.Key}] = r
	}
	for _, r := range before.Receipts {
		errs = append(errs, enginetest.ReceiptFixed(r, receipts[key{r.Session, r.Request, r.Key}]))
	}
	return errors.Join(errs...)
}

// refusedKeeps: a refused action leaves every table but the receipts as it was;
// one whose payload does not fit leaves the reason besides.
func refusedKeeps(answer any, before, after store.All) error {
	a, ok := answer.(store.Response)
	if !ok || a.Refused == nil {
		return nil
	}
	before.Receipts, after.Receipts = nil, nil
	if a.Outcome == request.Rejected {
		for i, q := range before.Requests {
			if q.ID == a.Request && q.Rejection != after.Requests[i].Rejection || len(after.Events) > len(before.Events) {
				return rejectedKeeps(before, after)
			}
		}
	}
	if !reflect.DeepEqual(before, after) {
		return fmt.Errorf("RefusedKeeps: %s was refused (%v) and something changed", a.Request, a.Refused)
	}
	return nil
}

// rejectedKeeps: a rejection leaves its reason and one event of its run.
func rejectedKeeps(before, after store.All) error {
	if len(after.Events) != len(before.Events)+1 {
		return fmt.Errorf("RefusedKeeps: a rejection left %d events", len(after.Events)-len(before.Events))
	}
	b, a := before, after
	b.Requests, a.Requests, b.Events, a.Events, b.Launches, a.Launches = nil, nil, nil, nil, nil, nil
	if !reflect.DeepEqual(b, a) {
		return errors.New("RefusedKeeps: a rejection changed more than its request")
	}
	for i, l := range before.Launches {
		if !reflect.DeepEqual(withoutEvents(l), withoutEvents(after.Launches[i])) {
			return errors.New("RefusedKeeps: a rejection changed a launch")
		}
	}
	for i, q := range before.Requests {
		if q.Rejection = after.Requests[i].Rejection; !reflect.DeepEqual(q, after.Requests[i]) {
			return errors.New("RefusedKeeps: a rejection changed more than the reason")
		}
	}
	return nil
}

// note counts what a command led to.
func (k *kernel) note(answer any, events []store.Event, after store.All) {
	note := func(is bool, what string) {
		if is {
			k.seen[what]++
		}
	}
	for _, e := range events {
		k.seen[e.Kind]++
	}
	switch a := answer.(type) {
	case store.Response:
		note(true, "outcome "+a.Outcome.String())
	case store.Sampled:
		note(a.TimedOut, "timed out in its turn")
	case store.Resolved:
		note(a.Changed, "resolved by a person")
	}
	was := map[string]request.Request{}
	for _, q := range k.before.Requests {
		was[q.ID] = q
	}
	for _, q := range after.Requests {
		old := was[q.ID]
		note(q.State == request.Accepted && old.State != q.State, q.Kind.String()+" by "+q.ByAction.String())
		note(q.Why != "" && old.Why == "", string(q.Why))
		note(q.Reminders > old.Reminders, "reminded")
		note(q.Resumed > old.Resumed, "resumed")
	}
	note(len(after.Spent) > len(k.before.Spent), "interval")
	if n := len(after.Launches); n > len(k.before.Launches) {
		for _, l := range after.Launches {
			note(l.Parent != "" && byRun(k.before.Launches)[l.ID] == nil, "restarted")
		}
	}
	if n := len(after.Messages); n > len(k.before.Messages) {
		for i := range after.Messages {
			note(after.Messages[i].Kind == session.Notification, "notified")
		}
	}
}
