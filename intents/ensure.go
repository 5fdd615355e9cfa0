package intents

import "example.com/piworkflows/launch"

// New is an intent to ensure.
type New struct {
	Identity
	Workflow string       // name of the run's workflow
	Chain    launch.RunID // first run of the run's chain

	// Facts need Observed and what is known of Reason, Code and Handoff; the
	// rest is filled from the fields above.
	Facts Facts

	// Eligible makes it eligible at once.
	Eligible bool
	// Withdraw stores it withdrawn, for ReasonChainStopped or ReasonOverBudget
	// only. It is never eligible then.
	Withdraw Reason
}

// Ensure returns the intent that want asks for and whether it was created.
// existing is the stored intent with that id, or nil. If its immutable facts
// are those of want it is returned as it is, also when it has ended; other
// facts are refused with kind [launch.ErrConflict] (rule intents/identity).
// The reason is redacted and shortened, never refused.
func Ensure(existing *Intent, want New, now launch.Time) (Intent, []Event, bool, error) {
	id, err := ID(want.Identity)
	if err != nil {
		return Intent{}, nil, false, err
	}
	i := Intent{
		ID: id, SourceEvent: want.SourceEvent, Run: want.Run, Workflow: want.Workflow,
		Session: want.Session, Cause: want.Cause, Node: want.Node, Attempt: want.Attempt,
		Chain: want.Chain, RequestedAt: now, Facts: want.Facts.Safe(),
	}
	if existing != nil {
		if field := differs(*existing, i); field != "" {
			r := launch.Refuse(launch.ErrConflict, "an intent with this id has another %s; one source event owes one turn", field)
			r.Field, r.Run = field, existing.Run
			return Intent{}, nil, false, r
		}
		return *existing, nil, false, nil
	}
	i.Facts.Workflow, i.Facts.Run, i.Facts.Cause = i.Workflow, i.Run, i.Cause
	i.Facts.Node, i.Facts.Attempt = i.Node, i.Attempt
	events := make([]Event, 1, 2)
	events[0] = Event{Kind: EvRequested, Intent: id, Cause: i.Cause, SourceEvent: i.SourceEvent}
	switch want.Withdraw {
	case 0:
		if want.Eligible {
			i.EligibleAt = now
			events = append(events, Event{Kind: EvEligible, Intent: id, Handoff: i.Facts.Handoff})
		}
	case ReasonChainStopped, ReasonOverBudget:
		i.WithdrawnAt, i.WithdrawnReason = now, want.Withdraw
		events = append(events, Event{Kind: EvWithdrawn, Intent: id, Reason: want.Withdraw})
	default:
		return Intent{}, nil, false, invalid("withdrawal reason", "an intent is stored withdrawn only as %q or %q", ReasonChainStopped, ReasonOverBudget)
	}
	if err := i.checkBounds(); err != nil {
		return Intent{}, nil, false, err
	}
	return i, events, true, nil
}

// differs names the first immutable fact in which two intents differ.
func differs(a, b Intent) string {
	switch {
	case a.ID != b.ID:
		return "intent id"
	case a.Session != b.Session:
		return "session"
	case a.Run != b.Run:
		return "run"
	case a.SourceEvent != b.SourceEvent:
		return "source event"
	case a.Node != b.Node:
		return "node"
	case a.Attempt != b.Attempt:
		return "attempt"
	case a.Cause != b.Cause:
		return "cause"
	case a.Workflow != b.Workflow:
		return "workflow"
	case a.Chain != b.Chain:
		return "chain"
	}
	return ""
}

// Join adds a further event to the pending intent of its run that no message
// carries (rule intents/join): id and cause stay, the facts are updated. The
// returned event links sourceEvent to the intent, so that whoever repeats it
// finds the same one; the caller looks that up first. f needs what [New.Facts]
// needs, and Cause, Node and Attempt of the event. It does not change whether
// the intent is eligible: [MakeEligible] follows when the event ends the run.
func Join(pending Intent, f Facts, sourceEvent string) (Intent, []Event, error) {
	if err := uncarried(pending); err != nil {
		return pending, nil, err
	}
	if err := checkSourceEvent(pending.Run, sourceEvent); err != nil {
		return pending, nil, err
	}
	if sourceEvent == pending.SourceEvent {
		return pending, nil, nil
	}
	i := pending
	i.Facts = pending.Facts.add(f)
	i.Facts.Handoff = pending.Facts.Handoff && !i.Facts.Observed.Terminal()
	if err := i.Facts.checkBounds(); err != nil {
		return pending, nil, err
	}
	return i, []Event{{Kind: EvJoined, Intent: i.ID, Cause: f.Cause, SourceEvent: sourceEvent}}, nil
}

// Merge joins two uncarried intents of one run, which a refusal or settlement
// left: the older is withdrawn and its facts are added to the newer. The order
// of the arguments does not matter.
func Merge(older, newer Intent, now launch.Time) (Intent, Intent, []Event, error) {
	if newer.RequestedAt < older.RequestedAt || newer.RequestedAt == older.RequestedAt && newer.ID < older.ID {
		older, newer = newer, older
	}
	for _, i := range []Intent{older, newer} {
		if err := uncarried(i); err != nil {
			return older, newer, nil, err
		}
	}
	if older.ID == newer.ID || older.Run != newer.Run || older.Session != newer.Session {
		return older, newer, nil, invalid("intent", "only two intents of one run and session can be merged")
	}
	withdrawn, events, err := Apply(older, Withdraw{ReasonJoined}, launch.Now{Wall: now})
	if err != nil {
		return older, newer, nil, err
	}
	merged := newer
	merged.Facts = older.Facts.add(newer.Facts)
	merged.Facts.Cause, merged.Facts.Handoff = newer.Cause, newer.Facts.Handoff
	events = append(events, Event{Kind: EvJoined, Intent: newer.ID, Cause: older.Cause, SourceEvent: older.SourceEvent})
	if err := merged.Facts.checkBounds(); err != nil {
		return older, newer, nil, err
	}
	return withdrawn, merged, events, nil
}

func uncarried(i Intent) error {
	switch {
	case !i.Pending():
		return ended(i)
	case i.Carried():
		return launch.Refuse(launch.ErrWrongKind, "a message may be carrying this intent; ensure an intent of the event's own")
	}
	return nil
}
