package store_test

import (
	"slices"
	"testing"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// What the view offers to a person is what is accepted, wherever a run stands.
func TestOfferedActionsAreAccepted(t *testing.T) {
	settings := func() *run.Plan {
		p := planOf(run.Agent)
		p.Settings = &run.Settings{Defaults: []byte(`{"n":1}`), Form: []byte(formObject)}
		return p
	}
	payment := func(t *testing.T) *ride {
		r := newBed(t).start("", &run.Plan{MaxSteps: 10, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: run.Observed}}})
		r.claim()
		return r
	}
	cancelled := func(r *ride) *ride {
		carry(r.bed, store.Cancel{Run: r.run, Actor: launch.Host})
		return r
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T) *ride
	}{
		{"queued", func(t *testing.T) *ride { return newBed(t).start("", settings()) }},
		{"queued and paused", func(t *testing.T) *ride {
			r := newBed(t).start("", settings())
			carry(r.bed, store.Pause{Run: r.run})
			return r
		}},
		{"cancelled before it ran", func(t *testing.T) *ride { return cancelled(newBed(t).start("", settings())) }},
		{"running", payment},
		{"running and paused", func(t *testing.T) *ride {
			r := payment(t)
			carry(r.bed, store.Pause{Run: r.run})
			return r
		}},
		{"waiting", func(t *testing.T) *ride { return asking(t, settings()) }},
		{"waiting and paused", func(t *testing.T) *ride {
			r := asking(t, settings())
			carry(r.bed, store.Pause{Run: r.run})
			return r
		}},
		{"held for a provider's error", func(t *testing.T) *ride {
			r := asking(t, settings())
			r.turn(session.Error)
			return r
		}},
		{"checking an answer", func(t *testing.T) *ride { r, _ := submitted(t, run.Agent); return r }},
		{"answered", func(t *testing.T) *ride { r := asking(t, settings()); r.answer(); return r }},
		{"prompted too often", func(t *testing.T) *ride {
			r := asking(t, settings())
			for range request.MaxResumed + 1 {
				r.turn(session.Aborted)
			}
			return r
		}},
		{"ambiguous", func(t *testing.T) *ride { r, _ := lostPayment(t); return r }},
		{"ambiguous and paused", func(t *testing.T) *ride {
			r, _ := lostPayment(t)
			carry(r.bed, store.Pause{Run: r.run})
			return r
		}},
		{"ambiguous and cancelled", func(t *testing.T) *ride { r, _ := lostPayment(t); return cancelled(r) }},
		{"cancelled in its action", func(t *testing.T) *ride { return cancelled(payment(t)) }},
		{"done", func(t *testing.T) *ride { r := payment(t); r.ok("1"); return r }},
		{"failed", func(t *testing.T) *ride { r := payment(t); r.fail(); return r }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, action := range []string{"cancel", "pause", "resume", "restart", "configure", "resolve"} {
				r := c.make(t)
				f := must(r.store.Facts(bg, r.run))
				offered := slices.Contains(view.Actions(f), action)
				before := must(r.dump())
				if err := r.person(action, f); (err == nil) != offered && (offered || len(diffDumps(before, must(r.dump()))) > 0) {
					t.Errorf("%s: offered %v, and it comes to %v", action, offered, err)
				}
			}
		})
	}
}

// person does an action on a run as a person.
func (r *ride) person(action string, f view.Facts) error {
	r.t.Helper()
	switch action {
	case "cancel":
		return failing(try(r.bed, store.Cancel{Run: r.run, Actor: launch.Person}))
	case "pause":
		return failing(try(r.bed, store.Pause{Run: r.run}))
	case "resume":
		return failing(try(r.bed, store.Resume{Run: r.run}))
	case "restart":
		c := store.Start{Request: headless(r.t, r.store)}
		if r.session != "" {
			c.Mode, c.Session, c.Actor = launch.Interactive, r.session, launch.Person
		}
		if c.Parent, c.Input = r.run, nil; f.Run != nil {
			c.Revision = f.Run.Revision
		}
		return failing(try(r.bed, c))
	case "configure":
		c := store.Configure{Run: r.run, Plan: r.plan, Digest: digestNamed("d1"), Patch: []byte(`{"n":2}`), Actor: launch.Person}
		if f.Run != nil {
			c.Revision = f.Run.Settings
		}
		return failing(try(r.bed, c))
	}
	c := store.ResolveEffect{Run: r.run, Verdict: effect.SaysRejected, Evidence: "I looked", Actor: launch.Person}
	if f.Effect != nil {
		c.Effect = f.Effect.Key.ID().String()
	}
	return failing(try(r.bed, c))
}
