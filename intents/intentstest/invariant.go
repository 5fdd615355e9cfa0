// Package intentstest helps to test whatever keeps turn intents: the
// invariants as functions with names, and a [World] that draws command
// sequences over a small population of intents in one session.
//
// An invariant returns an error that names it and says what broke it. A store
// checks the row invariants on its rows and the others on what one of its
// transactions changed.
package intentstest

import (
	"fmt"

	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Resolution: the resolution fields are set together or not at all, and no
// intent is both resolved and withdrawn.
func Resolution(i intents.Intent) error {
	fields := 0
	for _, set := range []bool{i.ResolvedAt != 0, i.Resolution != 0, i.ResolutionMessage != ""} {
		if set {
			fields++
		}
	}
	switch {
	case fields != 0 && fields != 3:
		return fmt.Errorf("Resolution: %d of 3 resolution fields are set in %s", fields, i.ID)
	case (i.WithdrawnAt != 0) != (i.WithdrawnReason != 0):
		return fmt.Errorf("Resolution: only one of 2 withdrawal fields is set in %s", i.ID)
	case fields != 0 && i.WithdrawnAt != 0:
		return fmt.Errorf("Resolution: %s is resolved and withdrawn", i.ID)
	}
	return nil
}

// Identity: the id of an intent is the digest of its facts.
func Identity(i intents.Intent) error {
	id, err := intents.ID(i.Identity())
	if err != nil || id != i.ID {
		return fmt.Errorf("Identity: %s should be %s, %v", i.ID, id, err)
	}
	return nil
}

// Immutable: from one commit to the next, the immutable fields of an intent are
// constant, an ended intent stays as it is, and the place of an eligible one in
// the order does not change.
func Immutable(before, after intents.Intent) error {
	b, a := before, after
	a.Facts, a.EligibleAt = b.Facts, b.EligibleAt
	a.ResolvedAt, a.Resolution, a.ResolutionMessage = b.ResolvedAt, b.Resolution, b.ResolutionMessage
	a.WithdrawnAt, a.WithdrawnReason = b.WithdrawnAt, b.WithdrawnReason
	a.DeliveryClaimToken, a.DeliveryClaimExpiresAt = b.DeliveryClaimToken, b.DeliveryClaimExpiresAt
	switch {
	case a != b:
		return fmt.Errorf("Immutable: a fixed field of %s changed: %+v, then %+v", before.ID, before, after)
	case !before.Pending() && before != after:
		return fmt.Errorf("Immutable: %s changed after its end: %+v, then %+v", before.ID, before, after)
	case before.EligibleAt != 0 && after.EligibleAt != 0 && before.EligibleAt != after.EligibleAt:
		return fmt.Errorf("Immutable: %s lost its place among the eligible", before.ID)
	}
	return nil
}

// OnePerSource: no two intents come from one source event.
func OnePerSource(all []intents.Intent) error {
	seen := make(map[string]string, len(all))
	for _, i := range all {
		if other := seen[i.SourceEvent]; other != "" && other != i.ID {
			return fmt.Errorf("OnePerSource: %s and %s come from %s", other, i.ID, i.SourceEvent)
		}
		seen[i.SourceEvent] = i.ID
	}
	return nil
}

// Owed: the events of the transaction that recorded a source event show exactly
// one new or joined intent if the run of a session completed, failed or timed
// out, and none if the run is headless or a person cancelled it. A merge of two
// intents in the same transaction is not counted.
func Owed(s intents.Source, sourceEvent string, events []intents.Event) error {
	n := 0
	for _, e := range events {
		if (e.Kind == intents.EvRequested || e.Kind == intents.EvJoined) && e.SourceEvent == sourceEvent {
			n++
		}
	}
	person := s.Kind == intents.OnCancel && s.Actor == launch.Person
	switch {
	case (s.Headless || person) && n != 0:
		return fmt.Errorf("Owed: %+v owes nothing, but %d intents were requested or joined", s, n)
	case !s.Headless && s.Kind == intents.OnEnded && n != 1:
		return fmt.Errorf("Owed: %+v owes one turn, but %d intents were requested or joined", s, n)
	}
	return nil
}

// Uncarried: at most one intent per run and session is pending without a
// message that may carry it, and no run that has ended has an ineligible
// pending one. state tells the state of a run.
func Uncarried(all []intents.Intent, state func(launch.RunID) launch.State) error {
	type owner struct {
		run     launch.RunID
		session launch.SessionKey
	}
	seen := make(map[owner]string)
	for _, i := range all {
		if !i.Pending() {
			continue
		}
		if i.EligibleAt == 0 && state(i.Run).Terminal() {
			return fmt.Errorf("Uncarried: %s is pending and ineligible although its run is %s", i.ID, state(i.Run))
		}
		if i.Carried() {
			continue
		}
		o := owner{i.Run, i.Session}
		if other := seen[o]; other != "" {
			return fmt.Errorf("Uncarried: %s and %s of one run are pending and uncarried", other, i.ID)
		}
		seen[o] = i.ID
	}
	return nil
}

// Attempt: an attempt was recorded only on a pending intent, and, but for a
// step or checkpoint message of its run, only while it was eligible as the run
// then was. before is the intent as the transaction of the attempt found it.
func Attempt(before intents.Intent, c intents.Claim) error {
	switch {
	case !before.Pending():
		return fmt.Errorf("Attempt: %s has ended and was attempted", before.ID)
	case c.Natural && c.Run.State.Terminal():
		return fmt.Errorf("Attempt: %s was attempted by a prompt of a run that has ended", before.ID)
	case c.Natural:
		return nil
	case before.EligibleAt == 0:
		return fmt.Errorf("Attempt: %s was attempted while it was ineligible", before.ID)
	case before.Facts.Handoff && !(c.Run.State == launch.Parked && c.Run.Attention):
		return fmt.Errorf("Attempt: the hand-over %s was attempted although its run does not wait for a person", before.ID)
	case !before.Facts.Handoff && !c.Run.State.Terminal():
		return fmt.Errorf("Attempt: %s was attempted although its run goes on", before.ID)
	}
	return nil
}

// Handoff: a run that is parked for attention has no ineligible pending intent.
func Handoff(all []intents.Intent, run launch.RunID, r intents.RunFacts) error {
	if r.State != launch.Parked || !r.Attention {
		return nil
	}
	for _, i := range all {
		if i.Run == run && i.Pending() && i.EligibleAt == 0 {
			return fmt.Errorf("Handoff: %s is ineligible although its run is parked for attention", i.ID)
		}
	}
	return nil
}
