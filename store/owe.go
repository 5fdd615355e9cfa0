package store

import (
	"errors"
	"strconv"

	"example.com/piworkflows/engine/follow"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// This file carries out what package follow says. A refusal in here is never
// the command's: it is recorded as a violation and the command goes on.

// applyLaunch applies a command to a launch and carries out what follows.
func (x *tx) applyLaunch(l *launchRow, c launch.Command) error {
	next, events, err := launch.Apply(l.Launch, c, x.now)
	if err != nil {
		return err
	}
	next.Events = l.Events
	l.Launch = next
	for _, e := range events {
		x.launchEvent(l, e, "")
		if err := x.followLaunch(l, e); err != nil {
			return err
		}
	}
	return nil
}

func (x *tx) followLaunch(l *launchRow, e launch.Event) error {
	active := false
	if l.Mode == launch.Interactive {
		s, err := x.session(l.Session)
		if err != nil {
			return err
		}
		if active, err = x.ownTurn(s, l.ID); err != nil {
			return err
		}
	}
	return x.follow(l, e.Kind.String(), follow.Launch(e, &l.Launch, active))
}

// ownTurn reports whether a turn of that very run is open.
func (x *tx) ownTurn(s *sessionRow, id launch.RunID) (bool, error) {
	if s.Open == "" {
		return false, nil
	}
	m, err := x.message(s.Open)
	return m != nil && m.Run == id && m.Kind.EndsWithRun(), err
}

func (x *tx) followSession(k launch.SessionKey, events []session.Event) error {
	var again []follow.Prompt
	for _, e := range events {
		for _, c := range follow.Session(e) {
			if p, ok := c.(follow.Prompt); ok {
				again = append(again, p)
				continue
			}
			if err := x.contain(k, e.Run, x.carryOn(k, c)); err != nil {
				return err
			}
		}
	}
	for _, p := range again {
		if err := x.contain(k, "", x.promptAgain(p.Request, false)); err != nil {
			return err
		}
	}
	return nil
}

// carryOn carries out what a session's event causes.
func (x *tx) carryOn(k launch.SessionKey, c follow.Command) error {
	switch c := c.(type) {
	case follow.PauseRun:
		return x.hold(c.Run, launch.PauseCommand{Actor: launch.Host})
	case follow.LiftPause:
		l, err := x.launch(c.Run)
		if err != nil || l.State.Terminal() || !l.HostPause {
			return err
		}
		return x.resume(l, launch.Host)
	case follow.TurnOpened:
		return x.turnOpened(c.Request)
	case follow.TurnClosed:
		return x.turnClosed(c)
	}
	return x.carryIntent(k, c)
}

// hold applies a command to the launch of a run that may have ended.
func (x *tx) hold(id launch.RunID, c launch.Command) error {
	l, err := x.launch(id)
	if err != nil || l.State.Terminal() {
		return err
	}
	return x.applyLaunch(l, c)
}

// contain turns a refusal of a follow-on into a recorded violation (rule
// follow/never-refused). Errors of the storage stay errors.
func (x *tx) contain(k launch.SessionKey, run launch.RunID, err error) error {
	var r *launch.Refusal
	if !errors.As(err, &r) || r.Kind == launch.ErrInternal || r.Kind == launch.ErrFull || r.Kind == launch.ErrBusy {
		return err
	}
	why := launch.SafeText(r.Message, 512)
	violation := Event{Kind: "store.violation", Run: run, Why: why}
	if k == "" {
		l, err := x.launch(run)
		if err != nil {
			return err
		}
		x.runEvent(l, violation, uint8(l.State), l.Generation, encode(messageData{Run: run, Reason: why}))
		return nil
	}
	s, err := x.session(k)
	if err != nil {
		return err
	}
	x.sessionEvent(s, violation, 0, encode(messageData{Run: run, Reason: why}))
	return nil
}

// follow carries out the follow-ons of a launch's event; what names the event.
func (x *tx) follow(l *launchRow, what string, all []follow.Command) error {
	for _, c := range all {
		var err error
		switch c := c.(type) {
		case follow.Owe:
			err = x.owe(l, what, c.Source)
		case follow.StopChain:
			var chain session.Chain
			if chain, err = x.chain(l.Chain); err == nil {
				chain.Stopped = true
				err = x.setChain(l.Session, chain)
			}
		case follow.ChainRan:
			var chain session.Chain
			if chain, err = x.chain(l.Chain); err == nil {
				err = x.setChain(l.Session, chain.Ran())
			}
		case follow.TakeBack:
			err = x.eachIntent(l, func(i *intents.Intent) intents.Command {
				if i.Facts.Handoff && i.Eligible() {
					return intents.MakeIneligible{}
				}
				return nil
			})
		case follow.EndRun:
			if _, err = x.apply(l.Session, session.EndRun{Run: l.ID}); err == nil {
				err = x.eachIntent(l, func(i *intents.Intent) intents.Command {
					if i.EligibleAt == 0 || i.Facts.Handoff {
						return intents.MakeEligible{Facts: x.facts(l, i.Cause)}
					}
					return nil
				})
			}
		case follow.Notice:
			err = x.notice(l, what, c.Text)
		case follow.EndRequest:
			err = x.endRequest(l)
		case follow.StopClock:
			err = x.stopClock(l)
		}
		if err = x.contain(l.Session, l.ID, err); err != nil {
			return err
		}
	}
	return nil
}

// eachIntent applies a command to the pending intents of a run.
func (x *tx) eachIntent(l *launchRow, c func(*intents.Intent) intents.Command) error {
	rows, err := x.pending(l.Session, func(i *intents.Intent) bool { return i.Run == l.ID })
	if err != nil {
		return err
	}
	for _, r := range rows {
		if cmd := c(&r.Intent); cmd != nil {
			if err := x.applyIntent(r, cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyIntent applies a command to an intent and carries out what follows.
func (x *tx) applyIntent(r *intentRow, c intents.Command) error {
	next, events, err := intents.Apply(r.Intent, c, x.now)
	if err != nil {
		return err
	}
	r.Intent = next
	return x.intentEvents(events)
}

// intentEvents records what happened to intents and carries out what follows.
func (x *tx) intentEvents(events []intents.Event) error {
	for _, e := range events {
		r, err := x.intent(e.Intent)
		if err != nil {
			return err
		}
		s, err := x.session(r.Session)
		if err != nil {
			return err
		}
		x.intentEvent(s, &r.Intent, e)
		if e.Kind == intents.EvJoined {
			x.sources.insert(sourceRow{e.SourceEvent, e.Intent})
		}
		for _, c := range follow.Intent(e) {
			switch c := c.(type) {
			case follow.QueueFallback:
				_, err = x.apply(r.Session, session.Queue{Message: session.Message{
					Kind: session.Fallback, Subject: intentSubject(c.Intent), Run: r.Run, Intent: c.Intent, Eligible: r.EligibleAt,
				}})
			case follow.CancelMessages:
				_, err = x.apply(r.Session, session.Cancel{Subject: intentSubject(c.Intent), Reason: c.Reason})
			}
			if err = x.contain(r.Session, r.Run, err); err != nil {
				return err
			}
		}
	}
	return nil
}

func intentSubject(id string) string { return "intent:" + id }

// facts are what a message may tell of a launch now.
func (x *tx) facts(l *launchRow, cause intents.Cause) intents.Facts {
	f := intents.Facts{Observed: intents.Observe(l.State, l.Park), Cause: cause, Code: l.Error.Code, Reason: l.Error.Message}
	if l.Error.Code == launch.CodeTimedOut {
		f.Observed = intents.ObservedTimedOut
	}
	if l.Park == launch.ParkAttention {
		f.Reason = "parked for attention: " + l.Attention.String()
	}
	return f
}

// owe lets package intents decide what a source event owes, and keeps it. what
// names the event in its identity.
func (x *tx) owe(l *launchRow, what string, source intents.Source) error {
	revision := uint64(0)
	if l.HasRecord() {
		r, err := x.run(l.ID)
		if err != nil {
			return err
		}
		if r != nil {
			revision = r.Revision
		}
	}
	event, err := intents.SourceEvent(l.ID, revision, what)
	if err != nil {
		return err
	}
	d := intents.Policy(source)
	if d.Owe { // one that is linked to an intent was dealt with
		linked, err := x.sources.load(x, sourceRow{Source: event}, func(r *sourceRow) bool { return r.Source == event })
		if err != nil || linked != nil {
			return err
		}
	}
	want := intents.New{
		Identity: intents.Identity{Session: l.Session, Run: l.ID, SourceEvent: event, Cause: d.Cause},
		Workflow: l.Workflow, Chain: l.Chain, Facts: x.facts(l, d.Cause),
	}
	chain, err := x.chain(l.Chain)
	if err != nil {
		return err
	}
	if d.Owe && d.Cause == intents.LaunchFailed {
		next, within := chain.LaunchFailed()
		if !within {
			want.Withdraw = intents.ReasonOverBudget
		}
		if err := x.setChain(l.Session, next); err != nil {
			return err
		}
	}
	if chain.Stopped {
		want.Withdraw = intents.ReasonChainStopped
	}
	rows, err := x.pending(l.Session, func(i *intents.Intent) bool {
		return i.Run == l.ID || d.WithdrawChain && i.Chain == l.Chain
	})
	if err != nil {
		return err
	}
	stored := make([]intents.Intent, 0, len(rows)+1)
	for _, r := range rows {
		stored = append(stored, r.Intent)
	}
	if d.Owe {
		id, err := intents.ID(want.Identity)
		if err != nil {
			return err
		}
		if r, err := x.intent(id); err != nil {
			return err
		} else if r != nil && !r.Pending() {
			stored = append(stored, r.Intent)
		}
	}
	owed, err := intents.Owe(source, want, stored, x.now.Wall)
	if err != nil {
		return err
	}
	for _, i := range owed.Changed {
		if r, err := x.intent(i.ID); err != nil {
			return err
		} else if r != nil {
			r.Intent = i
		} else {
			x.intents.insert(intentRow{i})
		}
	}
	if err := x.intentEvents(owed.Events); err != nil || !owed.Notice {
		return err
	}
	if want.Withdraw != 0 {
		return x.notice(l, what, "ended ("+l.State.String()+"); no turn follows: "+want.Withdraw.String())
	}
	return x.notice(l, what+":"+strconv.FormatUint(l.Events, 10), "is parked and waits for a person ("+l.Attention.String()+"): resume, cancel or restart it")
}

// notice queues a passive message about a run.
func (x *tx) notice(l *launchRow, what, text string) error {
	body, err := noticeBody(l, what, text)
	if err != nil {
		return err
	}
	_, err = x.apply(l.Session, session.Queue{Message: session.Message{
		Kind: session.Notice, Subject: "notice:" + string(l.ID) + ":" + what, Run: l.ID, Body: body, Eligible: x.now.Wall,
	}})
	return err
}

// carryIntent carries out what a session's event causes in an intent.
func (x *tx) carryIntent(k launch.SessionKey, c follow.Command) error {
	switch c := c.(type) {
	case follow.Resolve:
		r, err := x.intent(c.Intent)
		if err != nil || r == nil || r.Session != k || r.WithdrawnAt != 0 {
			return err // withdrawn is final: the message is sent, the intent stays
		}
		return x.applyIntent(r, intents.Resolve{Resolution: c.By, Message: c.Message})
	case follow.Settle:
		r, err := x.intent(c.Intent)
		if err != nil || r == nil || !r.Pending() || !r.Carried() {
			return err
		}
		// The session's rules have proven the absence: the deadline has passed,
		// or the message was seen before and is gone.
		if err := x.applyIntent(r, intents.Settle{TokenHash: r.DeliveryClaimToken}); err != nil {
			return err
		}
		return x.tidy(r)
	}
	return nil
}

// tidy joins two uncarried intents of one run, and lets an intent of a run that
// has ended meanwhile be served.
func (x *tx) tidy(r *intentRow) error {
	l, err := x.launch(r.Run)
	if err != nil {
		return err
	}
	open, err := x.pending(r.Session, func(i *intents.Intent) bool { return i.Run == r.Run && !i.Carried() })
	if err != nil {
		return err
	}
	if len(open) > 1 {
		a, b := open[0], open[1]
		older, newer, events, err := intents.Merge(a.Intent, b.Intent, x.now.Wall)
		if err != nil {
			return err
		}
		if a.ID != older.ID {
			a, b = b, a
		}
		a.Intent, b.Intent = older, newer
		if err := x.intentEvents(events); err != nil {
			return err
		}
		r = b
	}
	if r.Pending() && l.State.Terminal() && (r.EligibleAt == 0 || r.Facts.Handoff) {
		return x.applyIntent(r, intents.MakeEligible{Facts: x.facts(l, r.Cause)})
	}
	return nil
}
