package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// No message of a paused run starts a turn: what waits to be sent is sent once
// the run is resumed, and a reminder that waited is not counted again.
func TestPauseKeepsMessages(t *testing.T) {
	for _, c := range []struct {
		why  string
		kind run.Kind
		do   func(r *ride)
		left string
	}{
		{"asked and not sent yet", run.Agent, func(*ride) {}, "initial"},
		{"a checkpoint", run.Checkpoint, func(*ride) {}, "initial"},
		{"a reminder", run.Agent, func(r *ride) { r.turn(session.Completed) }, "reminder"},
		{"a resumed prompt", run.Assistant, func(r *ride) { r.turn(session.Aborted) }, "resumed"},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := asking(t, planOf(c.kind))
			c.do(r)
			reminders := r.request().Reminders
			carry(r.bed, store.Pause{Run: r.run})
			for range 3 {
				r.report(r.session)
				if m := r.send(r.session); m != nil {
					t.Fatalf("a %s message of a paused run is sent", m.Kind)
				}
			}
			carry(r.bed, store.Resume{Run: r.run})
			r.waits("resumed", c.left)
			if m := r.deliver(r.session); m.Request != r.id() || r.request().Reminders != reminders {
				t.Errorf("message of %s, %d reminders", m.Request, r.request().Reminders)
			}
		})
	}
}

// A shutdown that lifts a hold is no person's resume: turns that come to no end
// so are bounded all the same.
func TestLiftedHoldsAreBounded(t *testing.T) {
	r := asking(t, planOf(run.Agent))
	for n := range request.MaxResumed + 1 {
		r.deliver(r.session)
		r.settle(r.session, session.Aborted, true, nil)
		r.see(r.session, session.Disconnect{Epoch: r.epochs[r.session], Shutdown: true})
		r.connect(r.session)
		if n < request.MaxResumed {
			r.waits("lifted", "resumed")
		}
	}
	r.waits("lifted too often")
	r.is("a person has to look", request.Pending, launch.Parked, launch.ParkAttention)
	carry(r.bed, store.Resume{Run: r.run})
	r.waits("resumed by a person", "resumed")
}

// An effect of a run that was cancelled while its code ran, which told nothing
// any more, is a person's to settle; then the run can be restarted.
func TestEffectOfACancelledRun(t *testing.T) {
	b := newBed(t)
	for _, p := range []run.Policy{run.Repeatable, run.Observed, run.Unrepeatable} {
		r := b.start("", &run.Plan{MaxSteps: 10, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: p}}})
		r.claim()
		carry(b, store.Cancel{Run: r.run, Actor: launch.Host})
		v := must(b.store.Facts(bg, r.run))
		id := v.Effect.Key.ID().String()
		if a := view.Actions(v); !slices.Equal(a, []string{"resolve"}) {
			t.Errorf("%s: offered are %v", p, a)
		}
		if _, err := try(b, r.restarting()); !errors.Is(err, launch.ErrUnsettledEffect) {
			t.Errorf("%s: a restart over it: %v", p, err)
		}
		finding := store.ResolveEffect{Run: r.run, Effect: id, Verdict: effect.SaysApplied, Evidence: "\t\n", Output: []byte("1"), Actor: launch.Person}
		if _, err := try(b, finding); !errors.Is(err, launch.ErrInvalid) {
			t.Errorf("%s: evidence of blanks: %v", p, err)
		}
		finding.Evidence = "it is on the account"
		carry(b, finding)
		finding.Evidence, finding.Output = "somebody else looked too", nil
		if a := carry(b, finding); a.Changed {
			t.Errorf("%s: the same finding again: %+v", p, a)
		}
		if finding.Output = []byte("2"); !errors.Is(failing(try(b, finding)), launch.ErrAlreadyDecided) {
			t.Errorf("%s: another output replaces the first", p)
		}
		carry(b, r.restarting())
	}
}

// An attempt that has used up its time when its turn or the check of an answer
// ends is over: nobody is asked again only to be stopped at once.
func TestTimeUpAtTheEnd(t *testing.T) {
	budget := func(n *run.Node) { n.Budget = time.Minute }
	for _, k := range []run.Kind{run.Agent, run.Assistant, run.Checkpoint} {
		r := asking(t, planOf(k, budget))
		r.deliver(r.session)
		r.sample()
		r.clock.Advance(2 * time.Minute)
		r.end(r.session, session.Completed)
		r.waits(k.String())
		r.is(k.String(), request.Expired, launch.Parked, launch.ParkDue)
		r.claim()
		if l := r.launch(); l.Error.Code != launch.CodeTimedOut {
			t.Errorf("%s: the run is %s, %v", k, l.State, l.Error)
		}
	}
	r, c := submitted(t, run.Agent, budget)
	r.clock.Advance(2 * time.Minute)
	carry(r.bed, store.Renew{Run: r.run, Authority: r.auth, Lease: launch.DefaultLease})
	if n, err := r.verdict(store.Rejected, "too short"); err != nil || !n.Ended {
		t.Errorf("a check that took too long: %+v, %v", n, err)
	}
	r.repeated("what was checked", c, request.Rejected, launch.ErrInvalid)
}

func failing[A any](_ A, err error) error { return err }
