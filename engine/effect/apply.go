package effect

import (
	"unicode/utf8"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Verdict is what someone says about an effect.
type Verdict uint8

// The verdicts.
const (
	_            Verdict = iota
	SaysApplied          // it happened
	SaysRejected         // it did not happen and will not
	SaysUnknown          // cannot tell
)

// String returns the wire name.
func (v Verdict) String() string {
	switch v {
	case SaysApplied:
		return "applied"
	case SaysRejected:
		return "rejected"
	case SaysUnknown:
		return "unknown"
	}
	return "none"
}

// Command is one of [Settle], [Recover], [Observation] and [Resolve].
type Command interface {
	trigger(e *Effect) (Trigger, error)
}

// Settle is the receipt of the effect's code. Another token than the newest
// reservation's is [launch.ErrStale].
type Settle struct {
	Token   launch.Digest // hash of the token
	Verdict Verdict
}

// Recover asks what to do about an effect whose worker was lost. When its run has
// Ended, nobody observes it or runs it again, whatever its policy.
type Recover struct{ Ended bool }

// Observation is what the author's observer said of an effect declared
// observed: it is there, or it is surely not.
type Observation struct{ Found bool }

// Resolve is a person's finding about an ambiguous effect, applied or rejected,
// with evidence of 1 to [MaxEvidence] bytes. The evidence is the host's to keep.
type Resolve struct {
	Verdict  Verdict
	Evidence string
}

// Result is what an accepted command leaves to store.
type Result struct {
	Effect   Effect
	Changed  bool // the row differs from before
	Evidence bool // nothing changed; keep the receipt as evidence
	Next     Next
}

// Apply applies one command to a reserved effect, or refuses it and changes
// nothing (rule effect/table).
func Apply(e Effect, c Command, now launch.Time) (Result, error) {
	if c == nil || e.State == 0 || e.State >= stateEnd {
		return Result{Effect: e}, refuse(e.Key, launch.ErrInternal, "no command, or an effect without a state")
	}
	t, err := c.trigger(&e)
	if err != nil {
		return Result{Effect: e}, err
	}
	cell := table[e.State][t]
	if cell.Refuse == early {
		return Result{Effect: e}, refuse(e.Key, early, "the effect is %s; a person resolves it once it is ambiguous", e.State)
	}
	if cell.Refuse != 0 {
		return Result{Effect: e}, refuse(e.Key, cell.Refuse, "the effect is %s for ever", e.State)
	}
	changed := cell.To != e.State
	if e.State = cell.To; changed && e.State.Final() {
		e.Settled = now
	}
	return Result{Effect: e, Changed: changed, Evidence: cell.Evidence, Next: cell.Next}, nil
}

func (c Settle) trigger(e *Effect) (Trigger, error) {
	if c.Token != e.Token {
		return 0, refuse(e.Key, launch.ErrStale, "the receipt is not of the effect's newest reservation, attempt %d", e.Attempt)
	}
	switch c.Verdict {
	case SaysApplied:
		return ReceiptApplied, nil
	case SaysRejected:
		return ReceiptRejected, nil
	case SaysUnknown:
		return ReceiptUnknown, nil
	}
	return 0, refuse(e.Key, launch.ErrInvalid, "a receipt says applied, rejected or unknown")
}

func (c Recover) trigger(e *Effect) (Trigger, error) {
	if c.Ended {
		return RecoverUnrepeatable, nil
	}
	switch e.Policy {
	case run.Repeatable:
		return RecoverRepeatable, nil
	case run.Observed:
		return RecoverObserved, nil
	case run.Unrepeatable:
		return RecoverUnrepeatable, nil
	}
	return 0, refuse(e.Key, launch.ErrInternal, "the effect has no policy")
}

func (c Observation) trigger(e *Effect) (Trigger, error) {
	if e.Policy != run.Observed {
		return 0, refuse(e.Key, launch.ErrNotAllowed, "the effect is %s; only one declared observed has an observer", e.Policy)
	}
	if c.Found {
		return ObservedFound, nil
	}
	return ObservedMissing, nil
}

func (c Resolve) trigger(e *Effect) (Trigger, error) {
	if n := len(c.Evidence); n == 0 || n > MaxEvidence || !utf8.ValidString(c.Evidence) {
		return 0, refuse(e.Key, launch.ErrInvalid, "evidence has %d bytes; it must have 1 to %d of valid UTF-8", n, MaxEvidence)
	}
	switch c.Verdict {
	case SaysApplied:
		return PersonApplied, nil
	case SaysRejected:
		return PersonRejected, nil
	}
	return 0, refuse(e.Key, launch.ErrInvalid, "a person says applied or rejected")
}
