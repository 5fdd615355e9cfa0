package intents

import (
	"cmp"
	"slices"

	"example.com/piworkflows/launch"
)

// Intent is the durable obligation to give a session one successor turn. It is
// comparable. The fields down to Chain and RequestedAt never change.
type Intent struct {
	ID          string
	SourceEvent string
	Run         launch.RunID
	Workflow    string // name of the run's workflow
	Session     launch.SessionKey
	Cause       Cause
	Node        string // empty = none
	Attempt     string // empty = none
	Chain       launch.RunID
	RequestedAt launch.Time

	Facts      Facts
	EligibleAt launch.Time // 0 = not eligible

	ResolvedAt        launch.Time
	Resolution        Resolution
	ResolutionMessage string // id of the message that served it

	WithdrawnAt     launch.Time
	WithdrawnReason Reason

	DeliveryClaimToken     launch.Digest // SHA-256 of the attempt's token; zero = no unanswered attempt
	DeliveryClaimExpiresAt launch.Time   // the attempt's deadline
}

// Identity returns what the id is made of.
func (i Intent) Identity() Identity {
	return Identity{i.Session, i.Run, i.SourceEvent, i.Node, i.Attempt, i.Cause}
}

// Pending reports whether the intent has not ended.
func (i Intent) Pending() bool { return i.ResolvedAt == 0 && i.WithdrawnAt == 0 }

// Carried reports whether a message may be carrying the intent: an attempt is
// recorded, and no refusal or settlement has answered it (rule intents/attempt).
func (i Intent) Carried() bool { return i.DeliveryClaimToken != launch.Digest{} }

// Eligible reports whether a fallback or result message may serve the intent.
func (i Intent) Eligible() bool { return i.Pending() && i.EligibleAt != 0 }

// Check refuses a row that no sequence of commands can have made.
func (i Intent) Check() error {
	if err := i.checkBounds(); err != nil {
		return err
	}
	return i.Facts.Check()
}

// checkBounds is Check for facts whose reason [Facts.Safe] has made.
func (i Intent) checkBounds() error {
	id, err := ID(i.Identity())
	if err != nil {
		return err
	}
	if err := checkRun(i.Chain); err != nil {
		return err
	}
	if err := i.Facts.checkBounds(); err != nil {
		return err
	}
	resolved, withdrawn := i.ResolvedAt != 0, i.WithdrawnAt != 0
	switch {
	case id != i.ID:
		return invalid("intent id", "intent id is not the digest of its facts")
	case i.Facts.Workflow != i.Workflow || i.Facts.Run != i.Run || i.Facts.Cause != i.Cause:
		return invalid("facts", "facts name another workflow, run or cause than their intent")
	case i.Facts.Handoff && i.Eligible() != i.Pending():
		return invalid("handoff", "a pending hand-over must be eligible")
	case i.EligibleAt != 0 && !i.Facts.Handoff && !i.Facts.Observed.Terminal():
		return invalid("observedState", "an intent is eligible when its run has ended or is handed over; its facts say neither")
	case i.RequestedAt <= 0 || i.EligibleAt < 0 || i.ResolvedAt < 0 || i.WithdrawnAt < 0:
		return invalid("time", "intent has a time that is missing or before 1970")
	case resolved != valid(resolutionNames, uint8(i.Resolution)) || !resolved && i.Resolution != 0,
		resolved != (i.ResolutionMessage != ""):
		return invalid("resolution", "resolution fields must be set together or not at all")
	case withdrawn != valid(reasonNames, uint8(i.WithdrawnReason)) || !withdrawn && i.WithdrawnReason != 0:
		return invalid("withdrawal", "withdrawal fields must be set together or not at all")
	case resolved && withdrawn:
		return invalid("resolution", "intent is both resolved and withdrawn")
	case i.Carried() != (i.DeliveryClaimExpiresAt != 0):
		return invalid("delivery claim", "delivery claim fields must be set together or not at all")
	case i.Carried() && !i.Pending():
		return invalid("delivery claim", "an ended intent must not hold a delivery claim")
	}
	if resolved {
		return launch.CheckKey("message id", i.ResolutionMessage)
	}
	return nil
}

// RunFacts are what eligibility is checked against: the run as it is.
type RunFacts struct {
	State     launch.State
	Attention bool // parked for attention
}

// StillEligible checks eligibility at the claim (rule intents/eligible): a
// hand-over only while the run is still parked for attention, everything else
// only when the run has ended.
func StillEligible(i Intent, r RunFacts) bool {
	switch {
	case !i.Eligible():
		return false
	case i.Facts.Handoff:
		return r.State == launch.Parked && r.Attention
	}
	return r.State.Terminal()
}

// Next returns the intents of a session that may be claimed, in their order:
// by the time they became eligible, then by id.
func Next(list []Intent) []Intent {
	var due []Intent
	for _, i := range list {
		if i.Eligible() && !i.Carried() {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b Intent) int {
		return cmp.Or(cmp.Compare(a.EligibleAt, b.EligibleAt), cmp.Compare(a.ID, b.ID))
	})
	return due
}
