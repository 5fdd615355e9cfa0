package intents

import "example.com/piworkflows/launch"

// Command is one of [MakeEligible], [MakeIneligible], [Claim], [Settle],
// [Resolve] and [Withdraw].
type Command interface{ command() }

// MakeEligible lets a fallback or result message serve the intent: the run
// ended, or it is handed over to a person. An intent that is eligible already
// keeps its place in the order.
type MakeEligible struct {
	Handoff bool
	// Facts of what was observed then, as for [Join]; the zero value keeps
	// those of the intent.
	Facts Facts
}

// MakeIneligible takes back a hand-over that was not sent, because the run was
// resumed. Nothing else becomes ineligible again.
type MakeIneligible struct{}

// Claim records that a message attempts to carry the intent.
type Claim struct {
	TokenHash launch.Digest // SHA-256 of the token that only the sender knows
	Deadline  launch.Time   // after which the bridge refuses to send
	Message   string        // id of the message
	Run       RunFacts      // the run as it is now, see [StillEligible]
	// Natural marks a step or checkpoint message of the run, which needs no
	// eligibility but a run that has not ended.
	Natural bool
}

// Settle records that the attempt with this token did not carry the intent. It
// touches no other attempt.
type Settle struct {
	TokenHash launch.Digest
	// Absent means that a report shows the message missing, which counts only
	// after the attempt's deadline. Otherwise the bridge refused the attempt.
	Absent bool
}

// Resolve records that a message on the session's branch served the intent. It
// needs no token: what a session shows is true whoever sent it.
type Resolve struct {
	Resolution Resolution
	Message    string
}

// Withdraw ends the intent unserved.
type Withdraw struct{ Reason Reason }

func (MakeEligible) command()   {}
func (MakeIneligible) command() {}
func (Claim) command()          {}
func (Settle) command()         {}
func (Resolve) command()        {}
func (Withdraw) command()       {}

// Apply returns the intent after the command and what happened. A command that
// repeats what is already so succeeds without events. A refusal has kind
// [launch.ErrEnded] for an intent that ended otherwise, [launch.ErrStale] for a
// claim or settlement whose time or token is not right (any more),
// [launch.ErrAlreadyDecided] for a second resolution, [launch.ErrWrongKind]
// for a command that the intent does not take, and [launch.ErrInvalid].
func Apply(i Intent, c Command, now launch.Now) (Intent, []Event, error) {
	if now.Wall <= 0 {
		return i, nil, invalid("now", "the time of a command is not set")
	}
	next, event, err := apply(i, c, now)
	if err != nil {
		return i, nil, err
	}
	if event.Kind == 0 {
		return next, nil, nil
	}
	event.Intent = i.ID
	return next, []Event{event}, nil
}

func apply(i Intent, c Command, now launch.Now) (Intent, Event, error) {
	switch c := c.(type) {
	case Resolve:
		return resolve(i, c, now.Wall)
	case Withdraw:
		return withdraw(i, c, now.Wall)
	case Settle:
		return settle(i, c, now)
	}
	if !i.Pending() {
		return i, Event{}, ended(i)
	}
	switch c := c.(type) {
	case MakeEligible:
		return makeEligible(i, c, now.Wall)
	case MakeIneligible:
		return makeIneligible(i)
	case Claim:
		return claim(i, c, now)
	}
	return i, Event{}, invalid("command", "unknown command for an intent")
}

func makeEligible(i Intent, c MakeEligible, now launch.Time) (Intent, Event, error) {
	was := i
	if c.Facts != (Facts{}) {
		i.Facts = i.Facts.add(c.Facts)
	}
	i.Facts.Handoff = c.Handoff
	if err := i.Facts.checkBounds(); err != nil {
		return was, Event{}, err
	}
	if !c.Handoff && !i.Facts.Observed.Terminal() {
		return was, Event{}, invalid("observedState", "an intent becomes eligible when its run has ended or is handed over; give the facts of that")
	}
	if i.EligibleAt == 0 {
		i.EligibleAt = now
	}
	if i == was {
		return i, Event{}, nil
	}
	return i, Event{Kind: EvEligible, Handoff: c.Handoff}, nil
}

func makeIneligible(i Intent) (Intent, Event, error) {
	switch {
	case i.EligibleAt == 0:
		return i, Event{}, nil
	case !i.Facts.Handoff:
		return i, Event{}, launch.Refuse(launch.ErrWrongKind, "only a hand-over becomes ineligible again; the run of this intent has ended")
	}
	i.EligibleAt, i.Facts.Handoff = 0, false
	return i, Event{Kind: EvIneligible}, nil
}

func claim(i Intent, c Claim, now launch.Now) (Intent, Event, error) {
	if err := launch.CheckKey("message id", c.Message); err != nil {
		return i, Event{}, err
	}
	switch {
	case c.TokenHash == launch.Digest{}:
		return i, Event{}, invalid("token", "a claim needs the digest of a token")
	case c.Deadline <= now.Wall:
		return i, Event{}, invalid("deadline", "the deadline of a claim must lie ahead")
	case i.Carried() && i.DeliveryClaimToken != c.TokenHash:
		return i, Event{}, stale(launch.OwnerChanged, "another message may be carrying this intent; settle its attempt first")
	case c.Natural && (c.Run.State == 0 || c.Run.State.Terminal()):
		return i, Event{}, stale(launch.MissingAuthority, "the run has ended; no step or checkpoint message of it is sent")
	case !c.Natural && !StillEligible(i, c.Run):
		return i, Event{}, stale(launch.MissingAuthority, "the intent is not eligible as its run is now; look again when the run changes")
	}
	i.DeliveryClaimToken = c.TokenHash
	i.DeliveryClaimExpiresAt = max(i.DeliveryClaimExpiresAt, c.Deadline)
	return i, Event{Kind: EvClaimed, Message: c.Message, Natural: c.Natural}, nil
}

func settle(i Intent, c Settle, now launch.Now) (Intent, Event, error) {
	switch {
	case !i.Carried() || c.TokenHash == launch.Digest{}:
		return i, Event{}, stale(launch.MissingAuthority, "no attempt is unanswered; there is nothing to settle")
	case i.DeliveryClaimToken != c.TokenHash:
		return i, Event{}, stale(launch.TokenChanged, "another attempt is unanswered; only its own answer settles it")
	case c.Absent && !now.Passed(i.DeliveryClaimExpiresAt):
		return i, Event{}, stale(launch.FenceNone, "the attempt may still be carried out; absence counts after its deadline")
	}
	return unclaimed(i), Event{Kind: EvSettled}, nil
}

func resolve(i Intent, c Resolve, now launch.Time) (Intent, Event, error) {
	if err := launch.CheckKey("message id", c.Message); err != nil {
		return i, Event{}, err
	}
	switch {
	case !valid(resolutionNames, uint8(c.Resolution)):
		return i, Event{}, invalid("resolution", "resolution is not set")
	case i.WithdrawnAt != 0:
		return i, Event{}, ended(i)
	case i.ResolvedAt != 0 && i.Resolution == c.Resolution && i.ResolutionMessage == c.Message:
		return i, Event{}, nil
	case i.ResolvedAt != 0:
		return i, Event{}, launch.Refuse(launch.ErrAlreadyDecided, "another message resolved this intent as %s; it is served once", i.Resolution)
	}
	i = unclaimed(i)
	i.ResolvedAt, i.Resolution, i.ResolutionMessage = now, c.Resolution, c.Message
	return i, Event{Kind: EvResolved, Resolution: c.Resolution, Message: c.Message}, nil
}

func withdraw(i Intent, c Withdraw, now launch.Time) (Intent, Event, error) {
	switch {
	case !valid(reasonNames, uint8(c.Reason)):
		return i, Event{}, invalid("withdrawal reason", "withdrawal reason is not set")
	case i.ResolvedAt != 0:
		return i, Event{}, ended(i)
	case i.WithdrawnAt != 0:
		return i, Event{}, nil
	}
	i = unclaimed(i)
	i.WithdrawnAt, i.WithdrawnReason = now, c.Reason
	return i, Event{Kind: EvWithdrawn, Reason: c.Reason}, nil
}

func unclaimed(i Intent) Intent {
	i.DeliveryClaimToken, i.DeliveryClaimExpiresAt = launch.Digest{}, 0
	return i
}

func ended(i Intent) *launch.Refusal {
	how := "resolved as " + i.Resolution.String()
	if i.WithdrawnAt != 0 {
		how = "withdrawn (" + i.WithdrawnReason.String() + ")"
	}
	return launch.Refuse(launch.ErrEnded, "the intent is %s, which is final", how)
}

func stale(f launch.Fence, why string) *launch.Refusal {
	r := launch.Refuse(launch.ErrStale, "%s", why)
	r.Fence = f
	return r
}
