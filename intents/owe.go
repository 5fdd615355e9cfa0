package intents

import (
	"slices"

	"example.com/piworkflows/launch"
)

// Owed is what a source event changed.
type Owed struct {
	Changed []Intent // changed or created, each once; a created one is last
	Events  []Event
	Notice  bool // a passive notice is due: nothing to hand over, or the turn is withheld
}

// Owe does what [Policy] decides for a source event (rules intents/policy,
// intents/join and intents/no-ineligible-end). want describes the event; Cause
// and Eligible are filled from the decision. stored are the pending intents of
// the run, for a cancel by a person those of its chain, and the one with the id
// of want if it exists, which means that the event was dealt with. So was one
// that an earlier [EvJoined] links to an intent; the caller looks that up first.
func Owe(s Source, want New, stored []Intent, now launch.Time) (Owed, error) {
	d := Policy(s)
	list := slices.Clone(stored)
	var out Owed
	joined := -1
	if d.Owe {
		want.Cause, want.Eligible = d.Cause, d.Eligible
		want.Facts.Cause, want.Facts.Node, want.Facts.Attempt = want.Cause, want.Node, want.Attempt
		id, err := ID(want.Identity)
		if err != nil {
			return Owed{}, err
		}
		if n := slices.IndexFunc(list, func(i Intent) bool { return i.ID == id }); n >= 0 {
			_, _, _, err := Ensure(&list[n], want, now)
			return Owed{}, err
		}
		joined = slices.IndexFunc(list, func(i Intent) bool {
			return i.Run == want.Run && i.Session == want.Session && i.Pending() && !i.Carried()
		})
		if joined >= 0 {
			list[joined], out.Events, err = Join(list[joined], want.Facts, want.SourceEvent)
		} else {
			var own Intent
			own, out.Events, _, err = Ensure(nil, want, now)
			out.Changed, out.Notice = []Intent{own}, own.WithdrawnAt != 0
		}
		if err != nil {
			return Owed{}, err
		}
	}
	pending := false
	for n, i := range list {
		var c Command
		switch {
		case !i.Pending():
			continue
		case d.WithdrawChain:
			c = Withdraw{ReasonCancelled}
		case !d.Eligible || i.Run != want.Run:
			continue
		case n == joined: // has the facts already
			c = MakeEligible{Handoff: d.Handoff}
		default:
			c = MakeEligible{Handoff: d.Handoff, Facts: want.Facts}
		}
		pending = true
		next, events, err := Apply(i, c, launch.Now{Wall: now})
		if err != nil {
			return Owed{}, err
		}
		list[n], out.Events = next, append(out.Events, events...)
	}
	out.Notice = out.Notice || d.NoticeIfNone && !pending
	var changed []Intent
	for n := range list {
		if list[n] != stored[n] {
			changed = append(changed, list[n])
		}
	}
	out.Changed = append(changed, out.Changed...)
	return out, nil
}
