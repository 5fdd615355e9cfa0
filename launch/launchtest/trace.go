package launchtest

import (
	"errors"
	"fmt"
	"reflect"

	"example.com/piworkflows/launch"
)

// Entry is one answered command. A start has a Request and no Command; an
// adopted start has the launch that it adopted as Before and After and no
// events. A refused command has Err set.
type Entry struct {
	Before  launch.Launch // zero for a start that was not adopted
	Request *launch.Request
	Command launch.Command
	Now     launch.Now
	After   launch.Launch
	Events  []launch.Event
	Err     error
}

// Trace is what happened, in commit order.
type Trace []Entry

// Check checks every invariant of traces and joins what is broken.
func (tr Trace) Check() error {
	return errors.Join(tr.LegalEdges(), tr.GenerationsIncrease(), tr.WritesAuthorized(), tr.RefusalChangesNothing(),
		tr.RequestKeyUnique(), tr.OneStartPerGeneration(), tr.CancelFinal(), tr.PauseHolds(), tr.AttentionHolds(), tr.RelaunchBounded(), tr.ReplayAgrees())
}

// Kind returns the kind of the command.
func (e *Entry) Kind() launch.CommandKind {
	if e.Command == nil {
		return launch.CmdReserve
	}
	return e.Command.Kind()
}

// changed reports whether the entry changed its launch.
func (e *Entry) changed() bool {
	return e.Err == nil && (len(e.Events) > 0 || !reflect.DeepEqual(e.Before, e.After))
}

func (e *Entry) broken(name string, at int, format string, args ...any) error {
	return fmt.Errorf("%s: entry %d, %s of run %s: %s", name, at, e.Kind(), e.After.ID, fmt.Sprintf(format, args...))
}

// LegalEdges: every change of state is in the table and by a command that may
// take it; events lead from the state before to the state after without a gap;
// a run has one event that ends it and none after.
func (tr Trace) LegalEdges() error {
	ended := map[launch.RunID]bool{}
	for i := range tr {
		e := &tr[i]
		if e.Err != nil {
			continue
		}
		at := e.Before.State
		for _, ev := range e.Events {
			switch {
			case ev.From != at:
				return e.broken("LegalEdges", i, "event %s begins at %s, the launch is %s", ev.Kind, ev.From, at)
			case ev.From != ev.To && !launch.Legal(ev.From, ev.To, e.Kind()):
				return e.broken("LegalEdges", i, "%s -> %s is not in the table", ev.From, ev.To)
			case ended[e.After.ID]:
				return e.broken("LegalEdges", i, "event %s after the end", ev.Kind)
			}
			at = ev.To
			ended[e.After.ID] = at.Terminal()
		}
		if at != e.After.State {
			return e.broken("LegalEdges", i, "the events lead to %s, the launch is %s", at, e.After.State)
		}
	}
	return nil
}

// GenerationsIncrease: each claim has a generation above every earlier one of
// its run, no other command changes it, and events carry it.
func (tr Trace) GenerationsIncrease() error {
	last := map[launch.RunID]uint64{}
	for i := range tr {
		e := &tr[i]
		if e.Err != nil {
			continue
		}
		if old, ok := last[e.Before.ID]; ok && e.Before.Generation != old {
			return e.broken("GenerationsIncrease", i, "it begins at generation %d after %d", e.Before.Generation, old)
		}
		claims := 0
		for _, ev := range e.Events {
			if ev.Kind == launch.EvClaimed {
				claims++
			}
			if ev.Generation != e.After.Generation {
				return e.broken("GenerationsIncrease", i, "event %s has generation %d, the launch %d", ev.Kind, ev.Generation, e.After.Generation)
			}
		}
		if grown := e.After.Generation > e.Before.Generation; claims > 1 || grown != (claims == 1) || e.After.Generation < e.Before.Generation {
			return e.broken("GenerationsIncrease", i, "%d claims lead from generation %d to %d", claims, e.Before.Generation, e.After.Generation)
		}
		last[e.After.ID] = e.After.Generation
	}
	return nil
}

// authority returns what a worker's command shows, and whether an expired
// claim is enough for it.
func authority(c launch.Command) (a launch.Authority, expiredToo, ok bool) {
	switch c := c.(type) {
	case launch.StartCommand:
		return c.Authority, false, true
	case launch.ParkCommand:
		return c.Authority, false, true
	case launch.FinishCommand:
		return c.Authority, false, true
	case launch.FailCommand:
		return c.Authority, false, true
	case launch.RenewCommand:
		return c.Authority, true, true
	case launch.ReleaseCommand:
		return c.Authority, true, true
	}
	return launch.Authority{}, false, false
}

// WritesAuthorized: every accepted command of a worker matched runner, token
// and generation of a claim, which had not expired unless the command renews
// or releases it; every lease that was taken away had expired.
func (tr Trace) WritesAuthorized() error {
	for i := range tr {
		e := &tr[i]
		if e.Err != nil {
			continue
		}
		claim := e.Before.Claim
		if a, expiredToo, ok := authority(e.Command); ok {
			held := launch.Authority{Runner: claim.Runner, Token: claim.Token, Generation: e.Before.Generation}
			switch {
			case !e.Before.State.Claimed() || a != held:
				return e.broken("WritesAuthorized", i, "accepted from %s, generation %d, while %s holds generation %d", a.Runner, a.Generation, held.Runner, held.Generation)
			case !expiredToo && claim.Expired(e.Now):
				return e.broken("WritesAuthorized", i, "accepted at %s under a lease that ended %s", e.Now.Wall, claim.Expiry)
			}
		}
		if c, ok := e.Command.(launch.RecoverCommand); ok && (c.Generation != e.Before.Generation || !claim.Expired(e.Now)) {
			return e.broken("WritesAuthorized", i, "took a live lease away")
		}
	}
	return nil
}

// RefusalChangesNothing: a refused command leaves its launch as it was, has no
// events and is a [launch.Refusal] of a known kind; nothing changes a launch
// between two commands.
func (tr Trace) RefusalChangesNothing() error {
	last := map[launch.RunID]launch.Launch{}
	for i := range tr {
		e := &tr[i]
		if l, ok := last[e.Before.ID]; ok && !reflect.DeepEqual(l, e.Before) {
			return e.broken("RefusalChangesNothing", i, "its launch changed since the last command")
		}
		if e.Err == nil {
			last[e.After.ID] = e.After
			continue
		}
		if e.Before.ID != "" {
			last[e.Before.ID] = e.Before
		}
		var r *launch.Refusal
		switch {
		case len(e.Events) > 0 || !reflect.DeepEqual(e.Before, e.After):
			return e.broken("RefusalChangesNothing", i, "refused (%v) and changed", e.Err)
		case !errors.As(e.Err, &r) || r.Kind < 1 || int(r.Kind) > len(launch.Kinds()) || r.Message == "":
			return e.broken("RefusalChangesNothing", i, "refused without a kind and a message: %v", e.Err)
		case (r.Kind == launch.ErrStale || r.Kind == launch.ErrExpired) != (r.Fence != launch.FenceNone):
			return e.broken("RefusalChangesNothing", i, "refused as %s with fence %q", r.Kind, r.Fence)
		}
	}
	return nil
}

// RequestKeyUnique: a request key of a scope names one run for ever, also after
// the run has ended; a run id is used once.
func (tr Trace) RequestKeyUnique() error {
	runs, reserved := map[[2]string]launch.RunID{}, map[launch.RunID]bool{}
	for i := range tr {
		e := &tr[i]
		if e.Request == nil || e.Err != nil {
			continue
		}
		if len(e.Events) > 0 {
			if reserved[e.After.ID] {
				return e.broken("RequestKeyUnique", i, "the run id was used before")
			}
			reserved[e.After.ID] = true
		}
		if e.Request.RequestKey == "" {
			continue
		}
		k := [2]string{e.Request.Scope, e.Request.RequestKey}
		if first, ok := runs[k]; ok && first != e.After.ID {
			return e.broken("RequestKeyUnique", i, "key %q named run %s before", k, first)
		}
		runs[k] = e.After.ID
	}
	return nil
}

// OneStartPerGeneration: a claim starts its run at most once.
func (tr Trace) OneStartPerGeneration() error {
	type claim struct {
		run        launch.RunID
		generation uint64
	}
	started := map[claim]bool{}
	for i := range tr {
		e := &tr[i]
		for _, ev := range e.Events {
			if ev.Kind != launch.EvStarted {
				continue
			}
			k := claim{e.After.ID, ev.Generation}
			if started[k] {
				return e.broken("OneStartPerGeneration", i, "generation %d started twice", ev.Generation)
			}
			started[k] = true
		}
	}
	return nil
}

// CancelFinal: after a cancel nothing changes the launch.
func (tr Trace) CancelFinal() error {
	cancelled := map[launch.RunID]bool{}
	for i := range tr {
		e := &tr[i]
		if cancelled[e.After.ID] && e.changed() {
			return e.broken("CancelFinal", i, "accepted after the cancel")
		}
		for _, ev := range e.Events {
			if ev.Kind == launch.EvCancelled {
				cancelled[e.After.ID] = true
			}
		}
	}
	return nil
}

// PauseHolds: a launch that a person, the model or its own run paused does not
// become starting before a person resumes it; one that only the host paused not
// before a person or the host does.
func (tr Trace) PauseHolds() error {
	paused := map[launch.RunID]launch.Actor{} // Person for whatever only a person ends
	for i := range tr {
		e := &tr[i]
		if e.Err != nil {
			continue
		}
		id := e.After.ID
		if _, seen := paused[id]; !seen { // the trace may begin in the middle
			switch {
			case e.Before.HostPause:
				paused[id] = launch.Host
			case e.Before.Paused || e.Before.Park == launch.ParkPaused:
				paused[id] = launch.Person
			}
		}
		switch c := e.Command.(type) {
		case launch.PauseCommand:
			if c.Actor != launch.Host {
				paused[id] = launch.Person
			} else if paused[id] == 0 {
				paused[id] = launch.Host
			}
		case launch.ParkCommand:
			if c.Why == launch.ParkPaused {
				paused[id] = launch.Person
			}
		case launch.ResumeCommand:
			if c.Actor != launch.Person && (c.Actor != launch.Host || paused[id] != launch.Host) {
				return e.broken("PauseHolds", i, "the %s resumed what is not its own pause", c.Actor)
			}
			paused[id] = 0
		}
		for _, ev := range e.Events {
			if paused[id] != 0 && ev.From != ev.To && ev.To == launch.Starting {
				return e.broken("PauseHolds", i, "starting while it is paused for the %s", paused[id])
			}
		}
	}
	return nil
}

// AttentionHolds: a launch that is parked for attention stays so until it ends,
// a person resumes it, or an answer wakes it, which a changed definition does
// not care for; asking for attention changes nothing but parked launches.
func (tr Trace) AttentionHolds() error {
	for i := range tr {
		e := &tr[i]
		if e.Err != nil {
			continue
		}
		if _, ok := e.Command.(launch.AttendCommand); ok && (e.Before.State != launch.Parked || e.After.Park != launch.ParkAttention) {
			return e.broken("AttentionHolds", i, "attention for a launch that is %s made it %s (%s)", e.Before.State, e.After.State, e.After.Park)
		}
		if e.Before.Park != launch.ParkAttention || e.After.State.Terminal() || e.After.Attention == e.Before.Attention {
			continue
		}
		resume, _ := e.Command.(launch.ResumeCommand)
		if resume.Actor != launch.Person && !(e.answered() && e.Before.Attention != launch.SourceChanged) {
			return e.broken("AttentionHolds", i, "it ended attention (%s)", e.Before.Attention)
		}
	}
	return nil
}

// answered reports whether the entry is an answer that ended attention.
func (e *Entry) answered() bool {
	c, _ := e.Command.(launch.WakeCommand)
	return c.Answered && e.Before.Park == launch.ParkAttention
}

// RelaunchBounded: without saved progress a run is relaunched by itself at most
// once, and a launch returns to queued by expiry at most twice. Progress that
// was saved, a person's resume, or an answer that ended attention allows one
// more; the host's lifting of its own pause does not.
func (tr Trace) RelaunchBounded() error {
	type run struct {
		progress uint64 // at the last claim
		lost     bool   // the last lease was lost without progress, and nothing allowed one more since
		relaunch int    // automatic ones without progress
		toQueued int    // by expiry
	}
	runs := map[launch.RunID]*run{}
	for i := range tr {
		e := &tr[i]
		if e.Err != nil || len(e.Events) == 0 {
			continue
		}
		r := runs[e.After.ID]
		if r == nil {
			r = &run{}
			runs[e.After.ID] = r
		}
		switch c := e.Command.(type) {
		case launch.ClaimCommand:
			if e.Events[0].Kind != launch.EvClaimed {
				continue
			}
			if c.Progress > r.progress {
				r.relaunch, r.lost = 0, false
			}
			if r.lost {
				r.relaunch++
			}
			if r.relaunch > 1 {
				return e.broken("RelaunchBounded", i, "relaunched %d times without saved progress", r.relaunch)
			}
			r.progress, r.lost = c.Progress, false
		case launch.ResumeCommand:
			r.lost = r.lost && c.Actor != launch.Person
		case launch.WakeCommand:
			r.lost = r.lost && !e.answered()
		case launch.RecoverCommand:
			if e.After.State == launch.Queued {
				if r.toQueued++; r.toQueued > 2 {
					return e.broken("RelaunchBounded", i, "returned to queued by expiry %d times", r.toQueued)
				}
			}
			r.lost = c.Record.Status == launch.RecordRunning && c.Record.Progress <= r.progress
			if c.Record.Progress > r.progress {
				r.relaunch = 0
			}
		}
	}
	return nil
}

// ReplayAgrees: folding the events of a run that the trace saw from its start
// yields the launch's state, generation and failure code.
func (tr Trace) ReplayAgrees() error {
	events := map[launch.RunID][]launch.Event{}
	for i := range tr {
		e := &tr[i]
		id := e.After.ID
		if e.Err != nil || e.Request == nil && events[id] == nil {
			continue
		}
		events[id] = append(events[id], e.Events...)
		if s, g, c := launch.Replay(events[id]); s != e.After.State || g != e.After.Generation || c != e.After.Error.Code {
			return e.broken("ReplayAgrees", i, "events say %s, generation %d, %q; the launch is %s, %d, %q", s, g, c, e.After.State, e.After.Generation, e.After.Error.Code)
		}
	}
	return nil
}
