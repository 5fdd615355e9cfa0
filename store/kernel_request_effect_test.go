package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// fail settles the current execution of a run as failed.
func (r *ride) fail() store.Next {
	r.t.Helper()
	p := r.proposal()
	p.Outcome, p.Failure = run.Failed, launch.NewSafeError(launch.CodeNodeFailed, "it failed; look at it")
	return r.propose(p)
}

func (r *ride) effects() (all []effect.Effect) {
	for _, e := range must(r.all()).Effects {
		if e.Key.Run == r.run {
			all = append(all, e)
		}
	}
	return all
}

// A declared retry waits for its backoff without a claim, doubles it, and is an
// effect of its own. The last one ends the run.
func TestRetriesWithBackoff(t *testing.T) {
	b := newBed(t)
	plan := &run.Plan{MaxSteps: 10, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: run.Unrepeatable,
		Retry: &run.Retry{Max: 2, Backoff: time.Minute, On: []run.Outcome{run.Failed}}}}}
	r, other := b.start("", plan), b.start("", plan)
	for n, backoff := range []time.Duration{time.Minute, 2 * time.Minute} {
		for _, one := range []*ride{r, other} {
			if a := one.claim(); a.Next.Retry != uint32(n) || a.Next.Attempt != uint32(n+1) || a.Next.Recovering {
				t.Fatalf("execution %d: %+v", n, a.Next)
			}
			if next := one.fail(); !next.Parked {
				t.Fatalf("a retry with a backoff goes on at once: %+v", next)
			}
		}
		wall, _ := b.clock.Now()
		if at := must(b.store.Deadline(bg)); at != wall.Add(backoff) {
			t.Errorf("retry %d is due at %s, want in %v", n+1, at, backoff)
		}
		b.clock.Advance(backoff - 1)
		if got := carry(b, store.Lapse{}); got != 0 {
			t.Errorf("%d retries are due before their backoff is over", got)
		}
		if _, err := r.tryClaim(store.Claim{}); !errors.Is(err, launch.ErrNotAllowed) {
			t.Errorf("a claim before the backoff is over: %v", err)
		}
		if n == 1 { // a pause outlives the backoff, and a resume finds it over
			carry(b, store.Pause{Run: r.run})
		}
		b.clock.Advance(1)
		if got := carry(b, store.Lapse{}); got != 2 {
			t.Errorf("%d retries are due, want both", got)
		}
		if n == 1 {
			if _, err := r.tryClaim(store.Claim{}); !errors.Is(err, launch.ErrPaused) {
				t.Errorf("a claim while paused: %v", err)
			}
			carry(b, store.Resume{Run: r.run})
		}
	}
	r.claim()
	if next := r.fail(); !next.Ended {
		t.Fatalf("%+v", next)
	}
	if l := r.launch(); l.State != launch.Failed || l.Error.Code != launch.CodeNodeFailed {
		t.Errorf("the run is %s, %v", l.State, l.Error)
	}
	seen := map[launch.Digest]bool{}
	for _, e := range r.effects() {
		seen[e.Key.ID()] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d effects with keys of their own, want one for each execution", len(seen))
	}
}

// approvedPlan lets a person decide, and pays as often as the choice says so.
func approvedPlan() *run.Plan {
	p := then(planOf(run.Decision), run.Node{Path: "pay", Kind: run.Action, Policy: run.Unrepeatable, Reads: []string{"ask"},
		Approval: "ask", Approving: []string{"approve"}})
	p.Edges = append(p.Edges, run.Edge{From: "pay", On: run.Plain, To: "pay"})
	return p
}

// An action that needs an approval is reserved for exactly what was decided, by
// one effect, once.
func TestApprovals(t *testing.T) {
	right := launch.DigestOf([]byte("proposal"))
	for _, c := range []struct {
		choice  string
		print   launch.Digest
		refused launch.Kind
		why     string
	}{
		{"approve", right, 0, "the very proposal"},
		{"approve", launch.DigestOf([]byte("a dearer one")), launch.ErrConflict, "a changed proposal needs a new decision"},
		{"reject", right, launch.ErrNotAllowed, "a choice that does not approve"},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := asking(t, approvedPlan())
			r.respond(r.act(fits[run.Decision].action, launch.Person, fmt.Sprintf(`{"choice":%q}`, c.choice)))
			if a := r.claim(); a.Next.Node != "pay" || !a.Next.Reserve || len(r.effects()) != 0 {
				t.Fatalf("its effect is not reserved yet: %+v, %v", a.Next, r.effects())
			}
			reserve := store.Reserve{Run: r.run, Authority: r.auth, Plan: r.plan, Node: "pay", Visit: 1, Attempt: 1, Fingerprint: c.print}
			before := must(r.dump())
			_, err := try(r.bed, reserve)
			if (err == nil) != (c.refused == 0) || c.refused != 0 && !errors.Is(err, c.refused) {
				t.Fatalf("%v, want %s", err, c.refused)
			}
			if c.refused != 0 {
				if !reflect.DeepEqual(before, must(r.dump())) {
					t.Error("a refused reservation changed something")
				}
				p := r.proposal()
				p.Outcome, p.Output = run.OK, []byte(`1`)
				if _, err := try(r.bed, p); !errors.Is(err, launch.ErrConflict) {
					t.Errorf("a result of code that must not have run: %v", err)
				}
				return
			}
			before = must(r.dump())
			if _, err := try(r.bed, reserve); err != nil || !reflect.DeepEqual(before, must(r.dump())) {
				t.Errorf("the same reservation again: %v", err)
			}
			reserve.Fingerprint = launch.DigestOf([]byte("another"))
			if _, err := try(r.bed, reserve); !errors.Is(err, launch.ErrConflict) {
				t.Errorf("another proposal under the same reservation: %v", err)
			}
			if q := r.request(); q.UsedBy != r.effects()[0].Key.ID() {
				t.Errorf("the approval is used by %.8s", q.UsedBy)
			}
			if n := r.ok(`1`); n.Node != "pay" || n.Visit != 2 || !n.Reserve {
				t.Fatalf("%+v", n)
			}
			again := store.Reserve{Run: r.run, Authority: r.auth, Plan: r.plan, Node: "pay", Visit: 2, Attempt: 1, Fingerprint: right}
			if _, err := try(r.bed, again); !errors.Is(err, launch.ErrConflict) {
				t.Errorf("a second use of the approval: %v", err)
			}
		})
	}
	r := asking(t, approvedPlan())
	r.answer()
	r.claim()
	reserve := store.Reserve{Run: r.run, Authority: r.auth, Plan: r.plan, Node: "pay", Visit: 1, Attempt: 1, Fingerprint: right}
	for _, c := range []struct {
		why    string
		change func(*store.Reserve)
		want   launch.Kind
	}{
		{"an older attempt", func(c *store.Reserve) { c.Attempt = 0 }, launch.ErrStale},
		{"another visit", func(c *store.Reserve) { c.Visit = 2 }, launch.ErrStale},
		{"another node", func(c *store.Reserve) { c.Node = "ask" }, launch.ErrStale},
		{"a claim that was replaced", func(c *store.Reserve) { c.Generation-- }, launch.ErrStale},
		{"a forged token", func(c *store.Reserve) { c.Token = digestNamed("forged") }, launch.ErrStale},
		{"no plan", func(c *store.Reserve) { c.Plan = nil }, launch.ErrInvalid},
	} {
		changed := reserve
		c.change(&changed)
		if _, err := try(r.bed, changed); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

// lostPayment is a run whose effect took place outside and whose worker was lost
// before it could say so.
func lostPayment(t *testing.T) (*ride, string) {
	b := newBed(t)
	r := b.start("", then(&run.Plan{MaxSteps: 10, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: run.Unrepeatable}}},
		run.Node{Path: "after", Kind: run.Compute, Reads: []string{"pay"}}))
	r.claim()
	if a := r.lose(); a.State != launch.Parked {
		t.Fatalf("%+v", a)
	}
	e := r.effects()
	if len(e) != 1 || e[0].State != effect.Ambiguous {
		t.Fatalf("the effects are %+v", e)
	}
	return r, e[0].Key.ID().String()
}

// A lost receipt is not guessed: a person says what became of the effect, with
// evidence, once, and the run goes on with that.
func TestLostReceipt(t *testing.T) {
	resolve := func(r *ride, id string, v effect.Verdict, output string) store.ResolveEffect {
		c := store.ResolveEffect{Run: r.run, Effect: id, Verdict: v, Evidence: "the bank says so", Actor: launch.Person}
		if output != "" {
			c.Output = []byte(output)
		}
		return c
	}
	for _, c := range []struct {
		why    string
		say    effect.Verdict
		output string
		next   string // node that is due then; empty: the run has failed
		says   string
	}{
		{"applied, and its output is known", effect.SaysApplied, `{"paid":1}`, "after", ""},
		{"applied, and its output is lost", effect.SaysApplied, "", "", "took effect and its output is lost"},
		{"rejected", effect.SaysRejected, "", "", "did not take effect"},
	} {
		t.Run(c.why, func(t *testing.T) {
			r, id := lostPayment(t)
			if recorded := carry(r.bed, store.Receipt{Run: r.run, Token: r.effects()[0].Token, Node: "pay", Visit: 1, Applied: true}); recorded {
				t.Error("the late receipt decides what only a person may")
			}
			before := must(r.dump())
			model := resolve(r, id, c.say, c.output)
			model.Actor = launch.Model
			for why, refused := range map[string]struct {
				c    store.ResolveEffect
				kind launch.Kind
			}{
				"by the model":     {model, launch.ErrNotAllowed},
				"of another id":    {resolve(r, strings.Repeat("0", 64), c.say, c.output), launch.ErrNotFound},
				"output, rejected": {resolve(r, id, effect.SaysRejected, `1`), launch.ErrInvalid},
				"output, no JSON":  {resolve(r, id, effect.SaysApplied, `{`), launch.ErrInvalid},
				"no verdict":       {resolve(r, id, effect.SaysUnknown, ""), launch.ErrInvalid},
			} {
				if _, err := try(r.bed, refused.c); !errors.Is(err, refused.kind) {
					t.Errorf("%s: %v", why, err)
				}
			}
			if _, err := try(r.bed, store.Resume{Run: r.run}); !errors.Is(err, launch.ErrUnsettledEffect) {
				t.Errorf("a resume: %v", err)
			}
			if !reflect.DeepEqual(before, must(r.dump())) {
				t.Error("what was refused changed something")
			}
			if a := carry(r.bed, resolve(r, id, c.say, c.output)); !a.Changed || a.Launch != launch.Parked {
				t.Errorf("%+v", a)
			}
			if a := carry(r.bed, resolve(r, id, c.say, c.output)); a.Changed {
				t.Errorf("the same finding again: %+v", a)
			}
			opposite := effect.SaysApplied + effect.SaysRejected - c.say
			if _, err := try(r.bed, resolve(r, id, opposite, "")); !errors.Is(err, launch.ErrAlreadyDecided) {
				t.Errorf("the opposite finding: %v", err)
			}
			r.claim()
			l := r.launch()
			if c.next != "" && (r.at.Node != c.next || r.output("pay") != c.output) {
				t.Errorf("at %s, output %s", r.at.Node, r.output("pay"))
			}
			if c.next == "" && (l.State != launch.Failed || !strings.Contains(l.Error.Message, c.says)) {
				t.Errorf("the run is %s, %v", l.State, l.Error)
			}
			if n := r.kinds()["effect.pending"]; n != 1 {
				t.Errorf("the effect was reserved %d times", n)
			}
		})
	}

	t.Run("while its code may still run", func(t *testing.T) {
		b := newBed(t)
		r := b.start("", &run.Plan{MaxSteps: 10, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: run.Unrepeatable}}})
		r.claim()
		if _, err := try(b, resolve(r, r.effects()[0].Key.ID().String(), effect.SaysApplied, "")); !errors.Is(err, launch.ErrWrongKind) {
			t.Errorf("%v", err)
		}
	})

	t.Run("paused meanwhile", func(t *testing.T) {
		r, id := lostPayment(t)
		carry(r.bed, store.Pause{Run: r.run})
		carry(r.bed, resolve(r, id, effect.SaysApplied, `1`))
		if _, err := r.tryClaim(store.Claim{}); !errors.Is(err, launch.ErrPaused) {
			t.Errorf("a claim while paused: %v", err)
		}
		carry(r.bed, store.Resume{Run: r.run})
		if a := r.claim(); a.Next.Node != "after" {
			t.Errorf("%+v", a)
		}
	})
}

// restarting is the restart of a run at the revision that stands.
func (r *ride) restarting() store.Start {
	c := store.Start{Request: headless(r.t, r.store), Revision: r.record().Revision}
	c.Parent, c.Input = r.run, nil
	return c
}

// A restart is refused over an effect that nobody has settled, also after its
// run was cancelled. It copies the input and nothing else, and adopts its own
// duplicate.
func TestRestart(t *testing.T) {
	r, id := lostPayment(t)
	if _, err := try(r.bed, r.restarting()); !errors.Is(err, launch.ErrNotAllowed) {
		t.Errorf("of a live run: %v", err)
	}
	carry(r.bed, store.Cancel{Run: r.run, Actor: launch.Person})
	if e := r.effects()[0]; e.State != effect.Ambiguous {
		t.Errorf("a cancel claims that the effect is %s", e.State)
	}
	before := must(r.dump())
	_, err := try(r.bed, r.restarting())
	if !errors.Is(err, launch.ErrUnsettledEffect) || !strings.Contains(err.Error(), id) {
		t.Errorf("over an unsettled effect: %v; want it to name %s", err, id)
	}
	if !reflect.DeepEqual(before, must(r.dump())) {
		t.Error("a refused restart changed something")
	}
	carry(r.bed, store.ResolveEffect{Run: r.run, Effect: id, Verdict: effect.SaysRejected, Evidence: "nothing was paid", Actor: launch.Person})
	stale := r.restarting()
	stale.Revision--
	if _, err := try(r.bed, stale); !errors.Is(err, launch.ErrStale) {
		t.Errorf("at another revision: %v", err)
	}
	again := r.restarting()
	again.Scope, again.RequestKey = "host", "restart"
	first := carry(r.bed, again)
	again.ID = headless(t, r.store).ID
	if a := carry(r.bed, again); a.Created || a.Run != first.Run {
		t.Errorf("its own duplicate: %+v, want %s adopted", a, first.Run)
	}
	if l := must(r.store.Launch(bg, first.Run)); l.Parent != r.run || l.State != launch.Queued {
		t.Errorf("%+v", l)
	}

	// With steps, settings, a request and an approval that was used.
	plan := approvedPlan()
	plan.Settings = &run.Settings{Defaults: []byte(`{"n":1}`), Form: []byte(formObject)}
	plan.Edges = plan.Edges[:1]
	old := asking(t, plan)
	carry(old.bed, store.Configure{Run: old.run, Plan: plan, Digest: digestNamed("d1"), Revision: 1, Patch: []byte(`{"n":7}`), Actor: launch.Person})
	old.answer()
	old.claim()
	carry(old.bed, store.Reserve{Run: old.run, Authority: old.auth, Plan: plan, Node: "pay", Visit: 1, Attempt: 1, Fingerprint: launch.DigestOf([]byte("proposal"))})
	old.ok(`1`)
	restart := old.restarting()
	restart.Mode, restart.Session, restart.Actor = launch.Interactive, old.session, launch.Person
	fresh := carry(old.bed, restart)
	n := &ride{bed: old.bed, run: fresh.Run, session: old.session, plan: plan}
	n.report(n.session)
	if a := n.claim(); a.Next.Node != "ask" || a.Next.Visit != 1 || string(a.Input) != string(old.record().Input) {
		t.Fatalf("%+v", a)
	}
	if value, revision, err := n.store.Settings(bg, n.run, 0); err != nil || revision != 1 || string(value) != `{"n":1}` {
		t.Errorf("the settings are %s, revision %d, %v; want the defaults", value, revision, err)
	}
	all := must(n.all())
	for _, s := range all.Steps {
		if s.Run == n.run {
			t.Errorf("a step was copied: %+v", s)
		}
	}
	for _, q := range all.Requests {
		if q.Run == n.run {
			t.Errorf("a request was copied: %+v", q)
		}
	}
	if len(n.effects()) != 0 {
		t.Errorf("an effect was copied")
	}
}

// A person restarts a run of any session, or of none, through the connection of
// their own, which has to be current.
func TestRestartFromElsewhere(t *testing.T) {
	for _, k := range []launch.SessionKey{"", kernelSessions[1]} {
		r := asking(t, planOf(run.Agent))
		here := r.session
		carry(r.bed, store.Cancel{Run: r.run, Actor: launch.Person})
		if k != "" {
			r.connect(k)
		}
		one := &run.Plan{MaxSteps: 10, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}}}
		other := r.start(k, one)
		other.claim()
		other.ok("1")
		c := other.restarting()
		c.Actor, c.From, c.Epoch = launch.Person, here, r.epochs[here]
		if k != "" {
			c.Mode, c.Session = launch.Interactive, k
		}
		stale := c
		stale.Epoch++
		if _, err := try(r.bed, stale); !errors.Is(err, launch.ErrStale) {
			t.Errorf("session %q: through a connection that is not current: %v", k, err)
		}
		if a := carry(r.bed, c); !a.Created {
			t.Errorf("session %q: %+v", k, a)
		}
	}
}

// A change of the settings is a merge patch against a revision, of what its
// actor may change, in the form that the definition has. An attempt goes on with
// what stood when it began.
func TestLiveSettings(t *testing.T) {
	plan := then(planOf(run.Agent), run.Node{Path: "after", Kind: run.Compute})
	plan.Settings = &run.Settings{Defaults: []byte(`{"deep":{"a":1,"b":2},"n":1}`), Model: []string{"deep.a"}, Form: []byte(
		`{"type":"object","additionalProperties":false,"required":["n"],"properties":{"n":{"type":"integer"},"deep":{"type":"object","additionalProperties":{}}}}`)}
	r := asking(t, plan)
	change := func(revision uint32, by launch.Actor, patch string) store.Configure {
		c := store.Configure{Run: r.run, Plan: plan, Digest: digestNamed("d1"), Revision: revision, Patch: []byte(patch), Actor: by}
		if by == launch.Model {
			c.Session, c.Epoch = r.session, r.epochs[r.session]
		}
		return c
	}
	stranger := change(1, launch.Model, `{"deep":{"a":3}}`)
	stranger.Session, stranger.Epoch = kernelSessions[1], 0
	changed := change(1, launch.Person, `{"n":2}`)
	changed.Digest = digestNamed("d2")
	before := must(r.dump())
	for why, c := range map[string]struct {
		c    store.Configure
		kind launch.Kind
	}{
		"a path that the model may not change":   {change(1, launch.Model, `{"n":2}`), launch.ErrNotAllowed},
		"nor what is above an allowed one":       {change(1, launch.Model, `{"deep":null}`), launch.ErrNotAllowed},
		"nor its neighbour":                      {change(1, launch.Model, `{"deep":{"b":3}}`), launch.ErrNotAllowed},
		"a model of another session":             {stranger, launch.ErrNotFound},
		"another revision":                       {change(2, launch.Person, `{"n":2}`), launch.ErrStale},
		"a value of another type":                {change(1, launch.Person, `{"n":"x"}`), launch.ErrInvalid},
		"a required member taken away":           {change(1, launch.Person, `{"n":null}`), launch.ErrInvalid},
		"a member that the form has not":         {change(1, launch.Person, `{"m":1}`), launch.ErrInvalid},
		"no object":                              {change(1, launch.Person, `[]`), launch.ErrInvalid},
		"beyond the bound":                       {change(1, launch.Person, `{"deep":{"x":"`+strings.Repeat("x", run.MaxSettings)+`"}}`), launch.ErrInvalid},
		"a host with another definition":         {changed, launch.ErrSourceChanged},
		"a patch that names a member twice":      {change(1, launch.Person, `{"n":2,"n":3}`), launch.ErrInvalid},
		"through a connection that was replaced": {func() store.Configure { c := change(1, launch.Model, `{"deep":{"a":3}}`); c.Epoch++; return c }(), launch.ErrStale},
	} {
		if _, err := try(r.bed, c.c); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %s", why, err, c.kind)
		}
	}
	if !reflect.DeepEqual(before, must(r.dump())) {
		t.Error("a refused change changed something")
	}
	if got := carry(r.bed, change(1, launch.Model, `{"deep":{"a":3}}`)); got != 2 {
		t.Errorf("revision %d", got)
	}
	if got := carry(r.bed, change(2, launch.Person, `{"deep":{"b":null},"n":5}`)); got != 3 {
		t.Errorf("revision %d", got)
	}
	for revision, want := range map[uint32]string{1: `{"deep":{"a":1,"b":2},"n":1}`, 2: `{"deep":{"a":3,"b":2},"n":1}`, 3: `{"deep":{"a":3},"n":5}`} {
		if got, latest, err := r.store.Settings(bg, r.run, revision); err != nil || string(got) != want || latest != 3 {
			t.Errorf("revision %d is %s, latest %d, %v; want %s", revision, got, latest, err, want)
		}
	}
	if rec := r.record(); rec.Seen != 1 {
		t.Errorf("the attempt that had begun sees revision %d", rec.Seen)
	}
	r.answer()
	if a := r.claim(); a.Next.Node != "after" || a.Next.Seen != 3 {
		t.Errorf("the next attempt: %+v", a.Next)
	}
	carry(r.bed, change(3, launch.Host, `{"n":6}`))
	if a := r.lose(); a.Next.Attempt != 2 || a.Next.Seen != 4 {
		t.Errorf("the attempt that replaces a lost one: %+v", a.Next)
	}
	r.ok(`1`)
	if _, err := try(r.bed, change(4, launch.Person, `{"n":7}`)); !errors.Is(err, launch.ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}
