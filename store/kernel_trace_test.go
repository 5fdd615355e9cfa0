package store_test

import (
	"errors"
	"fmt"
	"reflect"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/intents/intentstest"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// trace is what the invariants over time have to remember.
type trace struct {
	keys      map[[2]string]launch.RunID
	paused    map[launch.RunID]bool
	requeued  map[launch.RunID]int
	relaunch  map[launch.RunID]int // automatic, since the last progress or person
	progress  map[launch.RunID]uint64
	cancelled map[launch.RunID]bool
}

func (tr *trace) init() {
	*tr = trace{map[[2]string]launch.RunID{}, map[launch.RunID]bool{}, map[launch.RunID]int{}, map[launch.RunID]int{},
		map[launch.RunID]uint64{}, map[launch.RunID]bool{}}
}

// check checks one accepted command: what the tables held before and after, and
// its events.
func (tr *trace) check(k *kernel, c, answer any, before, after store.All, events []store.Event) error {
	errs := []error{engineChanges(before, after), engineRows(k, after), refusedKeeps(answer, before, after)}
	bad := func(name, format string, v ...any) { errs = append(errs, fmt.Errorf(name+": "+format, v...)) }
	wall, _ := k.memory.clock.Now()
	was, is := byRun(before.Launches), byRun(after.Launches)
	for id, old := range was {
		now := is[id]
		if now == nil {
			bad("Kept", "run %s is gone", id)
			continue
		}
		if old.State.Terminal() && !reflect.DeepEqual(withoutEvents(*old), withoutEvents(*now)) {
			bad("EndIsFinal", "run %s changed after its end", id)
		}
		if now.Generation < old.Generation {
			bad("GenerationsIncrease", "run %s went back", id)
		}
	}
	for id, l := range is {
		if l.RequestKey == "" {
			continue
		}
		key := [2]string{l.Scope, l.RequestKey}
		if first := tr.keys[key]; first != "" && first != id {
			bad("RequestKeyUnique", "key %q names %s and %s", key, first, id)
		}
		tr.keys[key] = id
	}
	if id, a, expiredToo := authority(c); id != "" {
		old := was[id]
		held := launch.Authority{Runner: old.Claim.Runner, Token: old.Claim.Token, Generation: old.Generation}
		if !old.State.Claimed() || a != held || !expiredToo && wall >= old.Claim.Expiry && !k.distrusted() {
			bad("WritesAuthorized", "%T of run %s was accepted from %+v at %s, the claim is %+v until %s", c, id, a, wall, held, old.Claim.Expiry)
		}
	}
	sessions, isSession := map[launch.SessionKey]session.Session{}, map[launch.SessionKey]session.Session{}
	for _, s := range before.Sessions {
		sessions[s.Key] = s
	}
	for _, s := range after.Sessions {
		isSession[s.Key] = s
		if s.Epoch < sessions[s.Key].Epoch {
			bad("EpochsIncrease", "session %s", s.Key)
		}
	}
	wasIntent := map[string]intents.Intent{}
	for _, i := range before.Intents {
		wasIntent[i.ID] = i
	}
	isIntent := map[string]intents.Intent{}
	for _, i := range after.Intents {
		isIntent[i.ID] = i
		if old, ok := wasIntent[i.ID]; ok {
			errs = append(errs, intentstest.Immutable(old, i))
		}
	}
	for _, ch := range after.Chains {
		if ch.Recoveries > session.MaxRecoveries {
			bad("Budget", "chain %s has %d recoveries", ch.ID, ch.Recoveries)
		}
	}
	for i := range after.Messages {
		if after.Messages[i].Turn.Starts > session.MaxStartsPerTurn {
			bad("Budget", "%d starts in one turn", after.Messages[i].Turn.Starts)
		}
	}
	if c, ok := c.(store.Abandon); ok {
		errs = append(errs, abandoned(after, c.Session))
	}
	owed, counted := map[launch.RunID]int{}, map[string]bool{} // intents requested or joined in this commit
	for _, e := range events {
		if (e.Turn == intents.EvRequested || e.Turn == intents.EvJoined) && !counted[e.Intent] {
			owed[e.Run]++
			counted[e.Intent] = true
		}
	}
	for _, e := range events {
		l := is[e.Run]
		switch e.Launch {
		case launch.EvClaimed:
			if tr.paused[e.Run] {
				bad("PauseHolds", "run %s was claimed while paused", e.Run)
			}
			if was[e.Run] != nil && l.Generation <= was[e.Run].Generation {
				bad("GenerationsIncrease", "a claim of run %s has no new generation", e.Run)
			}
		case launch.EvStarted:
			if s := sessions[l.Session]; l.Mode == launch.Interactive && was[e.Run].Started == 0 && was[e.Run].State == launch.Queued && s.Boundary(launch.Now{Wall: wall}) != "" {
				bad("Boundary", "run %s started: %s", e.Run, s.Boundary(launch.Now{Wall: wall}))
			}
		case launch.EvPaused:
			tr.paused[e.Run] = true
		case launch.EvResumed:
			tr.paused[e.Run], tr.relaunch[e.Run] = false, 0
		case launch.EvRecovered:
			switch p := progressOf(after, e.Run); {
			case l.State == launch.Queued || e.To == "queued":
				if tr.requeued[e.Run]++; tr.requeued[e.Run] > 2 {
					bad("RelaunchBounded", "run %s returned to queued by expiry %d times", e.Run, tr.requeued[e.Run])
				}
			case p > tr.progress[e.Run]:
				tr.progress[e.Run], tr.relaunch[e.Run] = p, 0
			case e.Why == launch.ParkWaiting.String(): // for an answer, which relaunches it
			default:
				if tr.relaunch[e.Run]++; tr.relaunch[e.Run] > 1 && e.Why == launch.ParkDue.String() {
					bad("RelaunchBounded", "run %s is relaunched again without progress", e.Run)
				}
			}
		case launch.EvDone, launch.EvFailed:
			want := 1
			if l.Mode == launch.Headless {
				want = 0
			}
			if owed[e.Run] != want {
				bad("Owed", "the end of run %s by %s owes %d intents, want %d", e.Run, e.Kind, owed[e.Run], want)
			}
		case launch.EvCancelled:
			tr.cancelled[e.Run] = true
			if c, ok := c.(store.Cancel); ok && c.Actor == launch.Person && owed[e.Run] != 0 {
				bad("Owed", "a person's cancel of run %s owes %d intents", e.Run, owed[e.Run])
			}
		}
		if tr.cancelled[e.Run] && e.Node != "" && was[e.Run].State == launch.Cancelled && e.Kind[:4] == "run." {
			bad("CancelFinal", "%s of the cancelled run %s", e.Kind, e.Run)
		}
		_, try := c.(store.Try) // else the command has carried out an offer besides
		if e.Turn == intents.EvClaimed {
			old, run := wasIntent[e.Intent], was[e.Run]
			if !try {
				old, run = isIntent[e.Intent], is[e.Run]
			}
			facts := intents.RunFacts{State: run.State, Attention: run.Park == launch.ParkAttention}
			errs = append(errs, intentstest.Attempt(old, intents.Claim{Run: facts, Natural: natural(after, e.Message)}))
		}
		switch e.Of {
		case session.EvAttempted:
			s := sessions[e.Session]
			fresh := s.Fresh || isReport(c)
			if !try {
				s = isSession[e.Session]
			}
			if why := s.Boundary(launch.Now{Wall: wall}); why != "" || !fresh {
				bad("SendNeedsFree", "an attempt was recorded: %s, fresh %v", why, fresh)
			}
		case session.EvSent:
			if !shown(c, e.Message) {
				bad("SentByEvidence", "%s is sent without a report that shows it", e.Message)
			}
		}
	}
	return errors.Join(errs...)
}

// abandoned: a session that was given up has nothing that is live, owed, unsent
// or open.
func abandoned(a store.All, k launch.SessionKey) error {
	for _, l := range a.Launches {
		if l.Session == k && l.State.Live() {
			return fmt.Errorf("Abandoned: run %s is %s", l.ID, l.State)
		}
	}
	for _, i := range a.Intents {
		if i.Session == k && i.Pending() {
			return fmt.Errorf("Abandoned: %s is pending", i.ID)
		}
	}
	for i := range a.Messages {
		if m := &a.Messages[i]; m.Session == k && (m.State == session.Pending || m.State == session.Blocked || m.Turn.Open()) {
			return fmt.Errorf("Abandoned: %s is %s, its turn open: %v", m.ID, m.State, m.Turn.Open())
		}
	}
	return nil
}

// authority returns what a worker's command shows, and whether an ended lease
// is enough for it.
func authority(c any) (launch.RunID, launch.Authority, bool) {
	switch c := c.(type) {
	case store.Propose:
		return c.Run, c.Authority, false
	case store.Activate:
		return c.Run, c.Authority, false
	case store.FailActivation:
		return c.Run, c.Authority, false
	case store.Renew:
		return c.Run, c.Authority, true
	case store.Release:
		return c.Run, c.Authority, true
	}
	return "", launch.Authority{}, false
}

func isReport(c any) bool {
	o, ok := c.(store.Observe)
	if ok {
		_, ok = o.Saw.(session.Report)
	}
	return ok
}

// shown reports whether a command is a report that shows the message.
func shown(c any, message string) bool {
	o, ok := c.(store.Observe)
	if !ok {
		return false
	}
	r, ok := o.Saw.(session.Report)
	for _, e := range r.Evidence {
		if ok && e.Message == message && e.Present {
			return true
		}
	}
	return false
}

func byRun(ls []launch.Launch) map[launch.RunID]*launch.Launch {
	m := map[launch.RunID]*launch.Launch{}
	for i := range ls {
		m[ls[i].ID] = &ls[i]
	}
	return m
}

// withoutEvents leaves out the count of events, which late receipts raise.
func withoutEvents(l launch.Launch) launch.Launch { l.Events = 0; return l }

func progressOf(a store.All, id launch.RunID) uint64 {
	for _, r := range a.Runs {
		if r.ID == id {
			return r.Progress
		}
	}
	return 0
}

// natural reports whether a message puts a request besides serving an intent.
func natural(a store.All, id string) bool {
	for i := range a.Messages {
		if m := &a.Messages[i]; m.ID == id {
			return m.Kind == session.Step || m.Kind == session.Checkpoint
		}
	}
	return false
}
