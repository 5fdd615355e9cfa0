package intents

import (
	"testing"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

const t0 = launch.Time(1_700_000_000_000_000_000)

func at(n launch.Time) launch.Now { return launch.Now{Wall: t0 + n} }

func testNew(revision uint64, cause Cause) New {
	event, _ := SourceEvent(testRun, revision, "test")
	return New{
		Identity: Identity{Session: testSession, Run: testRun, SourceEvent: event, Cause: cause},
		Workflow: "autoimplement", Chain: testRun, Facts: Facts{Observed: ObservedRunning},
	}
}

// The intents that the cases begin with.
func pendingIntent() Intent {
	i, _, _, err := Ensure(nil, testNew(1, ClaimLost), t0)
	if err != nil {
		panic(err)
	}
	return i
}

func after(i Intent, commands ...Command) Intent {
	for n, c := range commands {
		var err error
		if i, _, err = Apply(i, c, at(launch.Time(n+1))); err != nil {
			panic(err)
		}
	}
	return i
}

var (
	ended1   = RunFacts{State: launch.Failed}
	parked   = RunFacts{State: launch.Parked, Attention: true}
	runs     = RunFacts{State: launch.Running}
	endFacts = Facts{Observed: ObservedFailed, Reason: "node failed", Code: launch.CodeNodeFailed}
	hash     = launch.DigestOf([]byte("token"))
	other    = launch.DigestOf([]byte("other"))
	byEnd    = MakeEligible{Facts: endFacts}
	handover = MakeEligible{Handoff: true, Facts: Facts{Observed: ObservedWaiting}}
	claimed  = Claim{TokenHash: hash, Deadline: t0 + 100, Message: "m1", Run: ended1}
)

func TestApply(t *testing.T) {
	pending := pendingIntent()
	eligible := after(pending, byEnd)
	handed := after(pending, handover)
	carried := after(eligible, claimed)
	resolved := after(eligible, Resolve{ByFallback, "m1"})
	withdrawn := after(carried, Withdraw{ReasonCancelled})
	natural := Claim{TokenHash: hash, Deadline: t0 + 100, Message: "m1", Run: runs, Natural: true}
	edit := func(c Claim, f func(*Claim)) Claim { f(&c); return c }

	for _, c := range []struct {
		why  string
		in   Intent
		c    Command
		at   launch.Time
		kind launch.Kind // 0 = accepted
		ev   EventKind   // 0 = nothing happened
	}{
		{"the run ended", pending, byEnd, 9, 0, EvEligible},
		{"once more", eligible, byEnd, 9, 0, 0},
		{"a hand-over", pending, handover, 9, 0, EvEligible},
		{"the run of a hand-over ended", handed, byEnd, 9, 0, EvEligible},
		{"eligible without facts that say why", pending, MakeEligible{}, 9, launch.ErrInvalid, 0},
		{"a hand-over of a run that ended", eligible, MakeEligible{Handoff: true}, 9, launch.ErrInvalid, 0},
		{"eligible after the end", withdrawn, byEnd, 9, launch.ErrEnded, 0},

		{"a resume takes the hand-over back", handed, MakeIneligible{}, 9, 0, EvIneligible},
		{"nothing to take back", pending, MakeIneligible{}, 9, 0, 0},
		{"the end of a run is not taken back", eligible, MakeIneligible{}, 9, launch.ErrWrongKind, 0},
		{"ineligible after the end", resolved, MakeIneligible{}, 9, launch.ErrEnded, 0},

		{"a claim", eligible, claimed, 9, 0, EvClaimed},
		{"the same message once more", carried, claimed, 9, 0, EvClaimed},
		{"a claim by another message", carried, edit(claimed, func(c *Claim) { c.TokenHash = other }), 9, launch.ErrStale, 0},
		{"a claim of what is not eligible", pending, claimed, 9, launch.ErrStale, 0},
		{"a claim although the run goes on", eligible, edit(claimed, func(c *Claim) { c.Run = runs }), 9, launch.ErrStale, 0},
		{"a claim without the run", eligible, edit(claimed, func(c *Claim) { c.Run = RunFacts{} }), 9, launch.ErrStale, 0},
		{"a hand-over", handed, edit(claimed, func(c *Claim) { c.Run = parked }), 9, 0, EvClaimed},
		{"a hand-over after the resume", handed, edit(claimed, func(c *Claim) { c.Run = runs }), 9, launch.ErrStale, 0},
		{"a hand-over after the end", handed, claimed, 9, launch.ErrStale, 0},
		{"a prompt of the run carries an ineligible one", pending, natural, 9, 0, EvClaimed},
		{"a prompt of a run that ended", eligible, edit(natural, func(c *Claim) { c.Run = ended1 }), 9, launch.ErrStale, 0},
		{"a deadline that has passed", eligible, claimed, 100, launch.ErrInvalid, 0},
		{"a claim without a token", eligible, edit(claimed, func(c *Claim) { c.TokenHash = launch.Digest{} }), 9, launch.ErrInvalid, 0},
		{"a claim without a message", eligible, edit(claimed, func(c *Claim) { c.Message = "" }), 9, launch.ErrInvalid, 0},
		{"a claim of a resolved one", resolved, claimed, 9, launch.ErrEnded, 0},
		{"a claim of a withdrawn one", withdrawn, claimed, 9, launch.ErrEnded, 0},

		{"the bridge refused", carried, Settle{TokenHash: hash}, 9, 0, EvSettled},
		{"absent after the deadline", carried, Settle{TokenHash: hash, Absent: true}, 100, 0, EvSettled},
		{"absent before the deadline", carried, Settle{TokenHash: hash, Absent: true}, 99, launch.ErrStale, 0},
		{"an answer to another attempt", carried, Settle{TokenHash: other}, 9, launch.ErrStale, 0},
		{"nothing to settle", eligible, Settle{TokenHash: hash}, 9, launch.ErrStale, 0},
		{"nothing to settle, and no token", eligible, Settle{}, 9, launch.ErrStale, 0},
		{"a late answer after the end", withdrawn, Settle{TokenHash: hash}, 9, launch.ErrStale, 0},

		{"seen on the branch", carried, Resolve{ByFallback, "m1"}, 9, 0, EvResolved},
		{"seen without an attempt", pending, Resolve{ByWorkflowPrompt, "m1"}, 9, 0, EvResolved},
		{"seen again", resolved, Resolve{ByFallback, "m1"}, 9, 0, 0},
		{"another message", resolved, Resolve{ByFallback, "m2"}, 9, launch.ErrAlreadyDecided, 0},
		{"another kind of message", resolved, Resolve{ByPresentation, "m1"}, 9, launch.ErrAlreadyDecided, 0},
		{"seen after the withdrawal", withdrawn, Resolve{ByFallback, "m1"}, 9, launch.ErrEnded, 0},
		{"resolved by nothing", pending, Resolve{0, "m1"}, 9, launch.ErrInvalid, 0},
		{"resolved by no message", pending, Resolve{ByFallback, ""}, 9, launch.ErrInvalid, 0},

		{"withdrawn", pending, Withdraw{ReasonRestarted}, 9, 0, EvWithdrawn},
		{"withdrawn while carried", carried, Withdraw{ReasonRestarted}, 9, 0, EvWithdrawn},
		{"withdrawn again for another reason", withdrawn, Withdraw{ReasonRestarted}, 9, 0, 0},
		{"withdrawn after it was served", resolved, Withdraw{ReasonCancelled}, 9, launch.ErrEnded, 0},
		{"withdrawn without a reason", pending, Withdraw{}, 9, launch.ErrInvalid, 0},

		{"no command", pending, nil, 9, launch.ErrInvalid, 0},
		{"no time", pending, byEnd, -t0, launch.ErrInvalid, 0},
	} {
		got, events, err := Apply(c.in, c.c, at(c.at))
		if c.kind != 0 {
			want(t, c.why, err, c.kind, "")
			if got != c.in || events != nil {
				t.Errorf("%s: a refusal changed something", c.why)
			}
			continue
		}
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.ev == 0 && (len(events) != 0 || got != c.in):
			t.Errorf("%s: something happened: %v", c.why, events)
		case c.ev != 0 && (len(events) != 1 || events[0].Kind != c.ev || events[0].Intent != c.in.ID):
			t.Errorf("%s: got %v, want %v", c.why, events, c.ev)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: left a broken row: %v", c.why, err)
		}
	}
}

func TestDistrustedClockProvesNoAbsence(t *testing.T) {
	carried := after(pendingIntent(), byEnd, claimed)
	_, _, err := Apply(carried, Settle{TokenHash: hash, Absent: true}, launch.Now{Wall: t0 + 1000, Distrust: true})
	want(t, "distrusted clock", err, launch.ErrStale, "deadline")
}

func TestEligibleKeepsItsPlace(t *testing.T) {
	handed := after(pendingIntent(), handover)
	ended, _, err := Apply(handed, byEnd, at(50))
	if err != nil || ended.EligibleAt != handed.EligibleAt || ended.Facts.Handoff {
		t.Errorf("%v: %+v", err, ended)
	}
	back := after(handed, MakeIneligible{})
	if back.EligibleAt != 0 || back.Facts.Handoff || !back.Pending() {
		t.Errorf("%+v", back)
	}
}

func TestEnsure(t *testing.T) {
	first, events, created, err := Ensure(nil, testNew(1, ClaimLost), t0)
	if err != nil || !created || first.Eligible() || !first.Pending() {
		t.Fatalf("%+v, %v, %v", first, created, err)
	}
	wantEvents := []Event{{Kind: EvRequested, Intent: first.ID, Cause: ClaimLost, SourceEvent: first.SourceEvent}}
	if d := cmp.Diff(wantEvents, events); d != "" {
		t.Error(d)
	}
	for why, i := range map[string]Intent{
		"pending": first, "withdrawn": after(first, Withdraw{ReasonCancelled}), "resolved": after(first, Resolve{ByFallback, "m"}),
	} {
		again := testNew(1, ClaimLost)
		again.Facts.Reason = "told in other words"
		got, events, created, err := Ensure(&i, again, t0+99)
		if err != nil || created || events != nil || got != i {
			t.Errorf("a %s one is returned as it is: %+v, %v, %v", why, got, events, err)
		}
	}
	for field, edit := range map[string]func(*New){
		"workflow": func(n *New) { n.Workflow = "other" },
		"chain":    func(n *New) { n.Chain = "other-01J8ZQ4T9G7W2N5X8Y1R3KVB6M" },
	} {
		n := testNew(1, ClaimLost)
		edit(&n)
		_, _, _, err := Ensure(&first, n, t0)
		want(t, field, err, launch.ErrConflict, field)
	}
	broken := first
	broken.Cause = Failed
	_, _, _, err = Ensure(&broken, testNew(1, ClaimLost), t0)
	want(t, "a stored row with another cause", err, launch.ErrConflict, "cause")

	n := testNew(2, Failed)
	n.Facts, n.Eligible = endFacts, true
	if i, events, _, err := Ensure(nil, n, t0); err != nil || i.EligibleAt != t0 || len(events) != 2 || events[1].Kind != EvEligible {
		t.Errorf("eligible at once: %+v, %v, %v", i, events, err)
	}
	for _, r := range Reasons() {
		n.Withdraw = r
		i, events, created, err := Ensure(nil, n, t0)
		if r != ReasonChainStopped && r != ReasonOverBudget {
			want(t, "stored withdrawn as "+r.String(), err, launch.ErrInvalid, "stored withdrawn only")
		} else if err != nil || !created || i.Pending() || i.EligibleAt != 0 || i.WithdrawnReason != r || len(events) != 2 {
			t.Errorf("%v: %+v, %v, %v", r, i, events, err)
		}
	}
	_, _, _, err = Ensure(nil, testNew(1, Failed), 0)
	want(t, "no time", err, launch.ErrInvalid, "time")
	n = testNew(1, TimedOut)
	n.Facts.Observed = 0
	_, _, _, err = Ensure(nil, n, t0)
	want(t, "no observed state", err, launch.ErrInvalid, "observedState")
	n = testNew(1, TimedOut)
	n.Eligible = true
	_, _, _, err = Ensure(nil, n, t0)
	want(t, "eligible although the run goes on", err, launch.ErrInvalid, "eligible when")
}

func TestJoin(t *testing.T) {
	pending := pendingIntent()
	event := "run:" + string(testRun) + ":9:failed"
	f := endFacts
	f.Cause = Failed
	got, events, err := Join(pending, f, event)
	if err != nil || got.ID != pending.ID || got.Cause != ClaimLost || got.Facts.Observed != ObservedFailed || got.EligibleAt != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if d := cmp.Diff([]Event{{Kind: EvJoined, Intent: pending.ID, Cause: Failed, SourceEvent: event}}, events); d != "" {
		t.Error(d)
	}
	if same, events, err := Join(pending, f, pending.SourceEvent); err != nil || events != nil || same != pending {
		t.Errorf("its own event once more: %+v, %v, %v", same, events, err)
	}
	handed := after(pending, handover)
	if got, _, err := Join(handed, Facts{Observed: ObservedPaused}, event); err != nil || !got.Facts.Handoff || !got.Eligible() {
		t.Errorf("a join keeps the hand-over: %+v, %v", got, err)
	}
	if got, _, err := Join(handed, f, event); err != nil || got.Facts.Handoff || !got.Eligible() || got.Check() != nil {
		t.Errorf("the end of the run ends the hand-over: %+v, %v", got, err)
	}
	eligible := after(pending, byEnd)
	_, _, err = Join(after(eligible, claimed), f, event)
	want(t, "a carried one", err, launch.ErrWrongKind, "ensure an intent")
	_, _, err = Join(after(eligible, Withdraw{ReasonCancelled}), f, event)
	want(t, "an ended one", err, launch.ErrEnded, "withdrawn (cancelled)")
	_, _, err = Join(pending, f, "run:x:1:failed")
	want(t, "an event of another run", err, launch.ErrInvalid, "source event")
}

func TestMerge(t *testing.T) {
	old := after(pendingIntent(), byEnd)
	n := testNew(2, Failed)
	n.Facts = Facts{Observed: ObservedFailed, Reason: "no route"}
	n.Eligible = true
	young, _, _, _ := Ensure(nil, n, t0+5)
	o, m, events, err := Merge(young, old, t0+9) // in the wrong order
	if err != nil || o.ID != old.ID || o.WithdrawnReason != ReasonJoined || m.ID != young.ID || m.Cause != Failed ||
		m.Facts.Cause != Failed || m.Facts.Reason != "no route; before that: node failed" || m.EligibleAt != young.EligibleAt {
		t.Fatalf("%+v\n%+v\n%v", o, m, err)
	}
	if d := cmp.Diff([]Event{
		{Kind: EvWithdrawn, Intent: old.ID, Reason: ReasonJoined},
		{Kind: EvJoined, Intent: young.ID, Cause: old.Cause, SourceEvent: old.SourceEvent},
	}, events); d != "" {
		t.Error(d)
	}
	if o.Check() != nil || m.Check() != nil {
		t.Error(o.Check(), m.Check())
	}
	_, _, _, err = Merge(old, old, t0)
	want(t, "with itself", err, launch.ErrInvalid, "two intents")
	_, _, _, err = Merge(o, young, t0)
	want(t, "an ended one", err, launch.ErrEnded, "joined")
	_, _, _, err = Merge(after(old, claimed), young, t0)
	want(t, "a carried one", err, launch.ErrWrongKind, "")
	stranger := young
	stranger.Run = "other-01J8ZQ4T9G7W2N5X8Y1R3KVB6M"
	_, _, _, err = Merge(old, stranger, t0)
	want(t, "of another run", err, launch.ErrInvalid, "two intents")
}

func TestNext(t *testing.T) {
	pending := pendingIntent()
	a := after(pending, byEnd)
	b, c := a, a
	b.ID, b.EligibleAt = "b", a.EligibleAt-1
	c.ID = "a"
	list := []Intent{a, pending, after(a, claimed), b, after(a, Withdraw{ReasonCancelled}), c}
	if d := cmp.Diff([]Intent{b, c, a}, Next(list)); d != "" {
		t.Errorf("by time, then id, only what may be claimed (-want +got):\n%s", d)
	}
}

func TestReplay(t *testing.T) {
	i, all, _, _ := Ensure(nil, testNew(1, ClaimLost), t0)
	for n, c := range []Command{handover, MakeIneligible{}, byEnd, claimed, Settle{TokenHash: hash}, claimed, Resolve{ByFallback, "m1"}} {
		var events []Event
		i, events, _ = Apply(i, c, at(launch.Time(n)))
		all = append(all, events...)
		if e, r, w := Replay(all); e != i.Eligible() || r != i.Resolution || w != i.WithdrawnReason {
			t.Errorf("after %T: %v %v %v", c, e, r, w)
		}
	}
}

// A pure transition is not what a commit waits for.
func TestApplyAllocates(t *testing.T) {
	eligible := after(pendingIntent(), byEnd)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = Apply(eligible, claimed, at(9)) }); n > 2 {
		t.Errorf("a claim allocates %v times", n)
	}
}

func BenchmarkClaim(b *testing.B) {
	eligible := after(pendingIntent(), byEnd)
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = Apply(eligible, claimed, at(9))
	}
}
