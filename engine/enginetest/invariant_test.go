package enginetest

import (
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// edit returns a changed copy.
func edit[V any](v V, f func(*V)) V {
	f(&v)
	return v
}

// Each invariant holds for what the rules make, and fails, naming itself, for
// each broken value.
func TestInvariantsFail(t *testing.T) {
	at := run.Step{Run: RunID, Node: "n0", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte("1"), At: 5}
	step := func(f func(*run.Step)) run.Step { return edit(at, f) }
	failed := step(func(s *run.Step) { s.Outcome, s.Output, s.Failure = run.Failed, nil, boom })
	second := step(func(s *run.Step) { s.Attempt = 2 })
	steps := func(s ...run.Step) []run.Step { return s }

	plan := run.Plan{MaxSteps: 9, Start: "n0", Nodes: []run.Node{
		{Path: "n0", Kind: run.Compute, Budget: time.Minute, Retry: &run.Retry{Max: 1, On: []run.Outcome{run.Failed}}}, {Path: "n1", Kind: run.Compute}},
		Edges: []run.Edge{{From: "n0", On: run.Plain, To: "n1"}}}
	begun := NewWorld(plan).Run
	row := func(f func(*run.Run)) run.Run { return edit(begun, f) }
	next := row(func(r *run.Run) { r.Node, r.Steps, r.Progress, r.Revision = "n1", 1, 1, 3 })
	spent := row(func(r *run.Run) { r.Active = run.Active{Spent: 7, N: 1} })
	opened := row(func(r *run.Run) {
		r.Active = run.Active{Spent: 7, N: 2, Opened: 9, From: 5, Clock: "c"}
	})
	ended := row(func(r *run.Run) { r.Status, r.Ended = run.RunCancelled, 9 })
	runs := func(r ...run.Run) []run.Run { return r }

	interval := run.Interval{Run: RunID, Node: "n0", Visit: 1, Attempt: 1, N: 1, Opened: 1, Closed: 2, Spent: 7}
	intervals := func(i ...run.Interval) []run.Interval { return i }
	another := func(f func(*run.Interval)) run.Interval { return edit(interval, f) }

	asks := NewWorld(run.Plan{MaxSteps: 9, Start: "n0", Nodes: []run.Node{
		{Path: "n0", Kind: run.Decision, Choices: []string{"x"}, Ask: &run.Ask{Form: []byte(`{"type":"string"}`)}}}})
	decide := request.Act{Request: request.ID(RunID, "n0", 1, 1), Action: request.ActDecide, Actor: launch.Person, Key: "k", Revision: 1,
		Payload: []byte(`{"choice":"x"}`), Person: "alice", Channel: "pi", Event: "e"}
	for _, s := range []Step{Ask{}, Act{decide}} {
		if err, broken := asks.Apply(s); err != nil || broken != nil {
			t.Fatal(err, broken)
		}
	}
	accepted, receipt, asked := asks.Requests[0], asks.Receipts[0], asks.Run
	req := func(f func(*request.Request)) request.Request { return edit(accepted, f) }
	pending := req(func(q *request.Request) {
		q.State, q.By, q.ByAction, q.Print, q.Answer, q.Settled, q.Revision = request.Pending, request.Provenance{}, 0, launch.Digest{}, nil, 0, 1
	})
	open := func(f func(*request.Request)) request.Request { return edit(pending, f) }
	used := func(d launch.Digest) request.Request {
		return req(func(q *request.Request) { q.UsedBy = d })
	}
	requests := func(q ...request.Request) []request.Request { return q }
	refused := request.Reply{Request: pending, Outcome: request.Conflict, Err: launch.Refuse(launch.ErrStale, "no")}
	reply := func(f func(*request.Reply)) request.Reply { return edit(refused, f) }
	receipts := func(r ...request.Receipt) []request.Receipt { return r }
	rec := func(f func(*request.Receipt)) request.Receipt { return edit(receipt, f) }
	started := rec(func(r *request.Receipt) { r.Outcome = request.Started })

	key := effect.ActionKey(RunID, "n1", 1, 0)
	reserved, _, err := effect.Reserve(nil, effect.Reservation{Key: key, Fingerprint: Subject, Policy: run.Observed, Token: token(1), Attempt: 1}, 5)
	if err != nil {
		t.Fatal(err)
	}
	eff := func(f func(*effect.Effect)) effect.Effect { return edit(reserved, f) }
	applied := eff(func(e *effect.Effect) { e.State, e.Settled = effect.Applied, 9 })
	ambiguous := eff(func(e *effect.Effect) { e.State = effect.Ambiguous })
	effects := func(e ...effect.Effect) []effect.Effect { return e }

	for _, c := range []struct {
		name, why string
		err       error
		broken    bool
	}{
		{"OneResult", "one", OneResult(steps(at)), false},
		{"OneResult", "a failure and then an output", OneResult(steps(second, failed)), false},
		{"OneResult", "of two visits", OneResult(steps(at, step(func(s *run.Step) { s.Visit = 2 }))), false},
		{"OneResult", "an attempt twice", OneResult(steps(failed, failed)), true},
		{"OneResult", "two outputs", OneResult(steps(at, second)), true},
		{"OneResult", "a failure after the output", OneResult(steps(at, edit(failed, func(s *run.Step) { s.Attempt = 2 }))), true},

		{"WalksPlan", "nothing yet", WalksPlan(&plan, begun, nil), false},
		{"WalksPlan", "one node", WalksPlan(&plan, next, steps(at)), false},
		{"WalksPlan", "a result that the row does not count", WalksPlan(&plan, begun, steps(at)), true},
		{"WalksPlan", "a row that stayed behind", WalksPlan(&plan, edit(next, func(r *run.Run) { r.Node = "n0" }), steps(at)), true},
		{"WalksPlan", "a result of a node elsewhere", WalksPlan(&plan, next, steps(step(func(s *run.Step) { s.Node = "n1" }))), true},

		{"RetriesDeclared", "one retry", RetriesDeclared(&plan, steps(second, failed)), false},
		{"RetriesDeclared", "one too many", RetriesDeclared(&plan, steps(failed, edit(failed, func(s *run.Step) { s.Attempt = 2 }), step(func(s *run.Step) { s.Attempt = 3 }))), true},
		{"RetriesDeclared", "another outcome", RetriesDeclared(&plan, steps(second, edit(failed, func(s *run.Step) { s.Outcome = run.TimedOut }))), true},
		{"RetriesDeclared", "a node without retries", RetriesDeclared(&plan, steps(edit(failed, func(s *run.Step) { s.Node = "n1" }), edit(second, func(s *run.Step) { s.Node = "n1" }))), true},
		{"RetriesDeclared", "a node of no plan", RetriesDeclared(&plan, steps(step(func(s *run.Step) { s.Node = "n9" }))), true},

		{"RunFixed", "the next node", RunFixed(begun, next), false},
		{"RunFixed", "the next attempt", RunFixed(begun, row(func(r *run.Run) { r.Attempt, r.Began = 2, 99 })), false},
		{"RunFixed", "another input", RunFixed(begun, row(func(r *run.Run) { r.Input = []byte("1") })), true},
		{"RunFixed", "started anew", RunFixed(begun, row(func(r *run.Run) { r.Started++ })), true},
		{"RunFixed", "began anew", RunFixed(begun, row(func(r *run.Run) { r.Began++ })), true},
		{"RunFixed", "steps fell", RunFixed(next, begun), true},
		{"RunFixed", "an old attempt", RunFixed(row(func(r *run.Run) { r.Attempt = 2 }), begun), true},
		{"RunFixed", "new settings within an attempt", RunFixed(begun, row(func(r *run.Run) { r.Seen = 9 })), true},
		{"RunFixed", "goes on after the end", RunFixed(ended, begun), true},
		{"RunFixed", "ended later", RunFixed(ended, edit(ended, func(r *run.Run) { r.Ended++ })), true},

		{"SpentRises", "spends", SpentRises(begun, spent), false},
		{"SpentRises", "a new attempt", SpentRises(spent, row(func(r *run.Run) { r.Attempt = 2 })), false},
		{"SpentRises", "falls", SpentRises(spent, begun), true},
		{"SpentRises", "an interval opened anew", SpentRises(opened, edit(opened, func(r *run.Run) { r.Active.Opened++ })), true},
		{"SpentRises", "no budget", SpentRises(begun, edit(spent, func(r *run.Run) { r.Budget = 0 })), true},

		{"IntervalsDisjoint", "of a row", IntervalsDisjoint(runs(spent), nil, intervals(interval)), false},
		{"IntervalsDisjoint", "of a result", IntervalsDisjoint(runs(next), steps(step(func(s *run.Step) { s.Spent = 7 })), intervals(interval)), false},
		{"IntervalsDisjoint", "one open", IntervalsDisjoint(runs(opened), nil, intervals(another(func(i *run.Interval) { i.Spent = 5 }))), false},
		{"IntervalsDisjoint", "of an attempt that was interrupted", IntervalsDisjoint(runs(begun), nil, intervals(another(func(i *run.Interval) { i.Attempt = 9 }))), false},
		{"IntervalsDisjoint", "twice", IntervalsDisjoint(runs(spent), nil, intervals(interval, interval)), true},
		{"IntervalsDisjoint", "a gap", IntervalsDisjoint(runs(spent), nil, intervals(interval, another(func(i *run.Interval) { i.N, i.Spent = 3, 0 }))), true},
		{"IntervalsDisjoint", "negative", IntervalsDisjoint(runs(begun), nil, intervals(another(func(i *run.Interval) { i.Spent = -1 }))), true},
		{"IntervalsDisjoint", "one that is missing", IntervalsDisjoint(runs(spent), nil, nil), true},
		{"IntervalsDisjoint", "more than the result says", IntervalsDisjoint(nil, steps(at), intervals(interval)), true},

		{"OneOpen", "one", OneOpen(runs(asked), requests(pending)), false},
		{"OneOpen", "an accepted one of the attempt", OneOpen(runs(asked), requests(accepted)), false},
		{"OneOpen", "two", OneOpen(runs(asked), requests(pending, open(func(q *request.Request) { q.ID = "other" }))), true},
		{"OneOpen", "of an old attempt", OneOpen(runs(asked), requests(accepted, open(func(q *request.Request) { q.Attempt = 9 }))), true},
		{"OneOpen", "after the end", OneOpen(runs(edit(asked, func(r *run.Run) { r.Status = run.RunFailed })), requests(pending)), true},
		{"OneOpen", "of a run that has not asked", OneOpen(runs(edit(asked, func(r *run.Run) { r.Asked = false })), requests(pending)), true},
		{"OneOpen", "of no run", OneOpen(nil, requests(pending)), true},
		{"OneOpen", "gone", OneOpen(runs(asked), nil), true},

		{"Bound", "answered", Bound(pending, accepted), false},
		{"Bound", "another attempt", Bound(pending, open(func(q *request.Request) { q.Attempt = 2 })), true},
		{"Bound", "another contract", Bound(pending, open(func(q *request.Request) { q.Contract = []byte("{}") })), true},
		{"Bound", "a later deadline", Bound(pending, open(func(q *request.Request) { q.Deadline = 9 })), true},
		{"Bound", "an older revision", Bound(accepted, req(func(q *request.Request) { q.Revision = 1 })), true},
		{"Bound", "a new revision while it is open", Bound(pending, open(func(q *request.Request) { q.Revision = 2 })), true},
		{"Bound", "two revisions at once", Bound(pending, req(func(q *request.Request) { q.Revision = 3 })), true},
		{"Bound", "answered under the old revision", Bound(pending, req(func(q *request.Request) { q.Revision = 1 })), true},

		{"Final", "taken over", Final(accepted, req(func(q *request.Request) { q.Answer = nil })), false},
		{"Final", "used", Final(accepted, used(key.ID())), false},
		{"Final", "its turn ended", Final(accepted, req(func(q *request.Request) { q.Latest = session.Completed })), false},
		{"Final", "open ones change", Final(pending, accepted), false},
		{"Final", "another answer", Final(accepted, req(func(q *request.Request) { q.Answer = []byte("2") })), true},
		{"Final", "another who", Final(accepted, req(func(q *request.Request) { q.By.Person = "bob" })), true},
		{"Final", "open again", Final(accepted, pending), true},
		{"Final", "used by another", Final(used(key.ID()), used(token(3))), true},

		{"ByMatrix", "a person's decision", ByMatrix(accepted), false},
		{"ByMatrix", "an open one", ByMatrix(pending), false},
		{"ByMatrix", "a model's decision", ByMatrix(req(func(q *request.Request) { q.By.Actor = launch.Model })), true},
		{"ByMatrix", "submitted", ByMatrix(req(func(q *request.Request) { q.ByAction = request.ActSubmit })), true},
		{"ByMatrix", "expired into an answer", ByMatrix(req(func(q *request.Request) { q.ByAction, q.By.Actor = request.ActExpire, launch.Timer })), true},

		{"PromptBounds", "reminded", PromptBounds(pending, open(func(q *request.Request) { q.Prompts, q.Reminders = 2, 1 })), false},
		{"PromptBounds", "resumed by a person", PromptBounds(open(func(q *request.Request) { q.Resumed, q.Prompts = 3, 4 }), open(func(q *request.Request) { q.Prompts = 4 })), false},
		{"PromptBounds", "too often", PromptBounds(pending, open(func(q *request.Request) { q.Prompts, q.Reminders = 9, request.MaxReminders+1 })), true},
		{"PromptBounds", "resumed too often", PromptBounds(pending, open(func(q *request.Request) { q.Prompts, q.Resumed = 9, request.MaxResumed+1 })), true},
		{"PromptBounds", "counted without a prompt", PromptBounds(pending, open(func(q *request.Request) { q.Resumed = 1 })), true},
		{"PromptBounds", "taken back", PromptBounds(pending, open(func(q *request.Request) { q.Prompts = 0 })), true},
		{"PromptBounds", "after its end", PromptBounds(accepted, req(func(q *request.Request) { q.Prompts = 2 })), true},

		{"RefusedKeeps", "refused", RefusedKeeps(&pending, refused), false},
		{"RefusedKeeps", "not refused", RefusedKeeps(&pending, request.Reply{Request: accepted, Changed: true, Outcome: request.Taken}), false},
		{"RefusedKeeps", "rejected", RefusedKeeps(&pending, reply(func(p *request.Reply) {
			p.Outcome, p.Changed, p.Request.Rejection = request.Rejected, true, "too short"
		})), false},
		{"RefusedKeeps", "rejected and something else", RefusedKeeps(&pending, reply(func(p *request.Reply) {
			p.Outcome, p.Changed, p.Request.Prompts = request.Rejected, true, 9
		})), true},
		{"RefusedKeeps", "refused and answered", RefusedKeeps(&pending, reply(func(p *request.Reply) { p.Request, p.Changed = accepted, true })), true},
		{"RefusedKeeps", "refused with an event", RefusedKeeps(&pending, reply(func(p *request.Reply) { p.Events = []request.Event{{Kind: request.EvAccepted}} })), true},
		{"RefusedKeeps", "no request, and yet one", RefusedKeeps(nil, refused), true},

		{"Answered", "a decision", Answered(requests(accepted), receipts(receipt)), false},
		{"Answered", "open", Answered(requests(pending), nil), false},
		{"Answered", "by nobody's receipt", Answered(requests(accepted), nil), true},
		{"Answered", "by a refused one", Answered(requests(accepted), receipts(rec(func(r *request.Receipt) { r.Outcome = request.Conflict }))), true},
		{"Answered", "with another payload", Answered(requests(accepted), receipts(rec(func(r *request.Receipt) { r.Print = token(1) }))), true},
		{"Answered", "by two", Answered(requests(accepted), receipts(receipt, rec(func(r *request.Receipt) { r.Key = "k2" }))), true},
		{"Answered", "a key twice", Answered(requests(accepted), receipts(receipt, receipt)), true},
		{"Answered", "while it is open", Answered(requests(pending), receipts(receipt)), true},
		{"Answered", "without a fingerprint", Answered(nil, receipts(rec(func(r *request.Receipt) { r.Print = launch.Digest{} }))), true},

		{"ReceiptFixed", "as it is", ReceiptFixed(receipt, receipt), false},
		{"ReceiptFixed", "its candidate was taken", ReceiptFixed(started, receipt), false},
		{"ReceiptFixed", "another outcome", ReceiptFixed(receipt, rec(func(r *request.Receipt) { r.Outcome = request.Conflict })), true},
		{"ReceiptFixed", "another payload", ReceiptFixed(started, rec(func(r *request.Receipt) { r.Print = token(1) })), true},

		{"ApprovalUsedOnce", "one", ApprovalUsedOnce(requests(used(key.ID())), effects(reserved)), false},
		{"ApprovalUsedOnce", "none", ApprovalUsedOnce(requests(accepted), effects(reserved)), false},
		{"ApprovalUsedOnce", "two decisions", ApprovalUsedOnce(requests(used(key.ID()), used(key.ID())), effects(reserved)), true},
		{"ApprovalUsedOnce", "an effect that is not there", ApprovalUsedOnce(requests(used(token(1))), effects(reserved)), true},
		{"ApprovalUsedOnce", "something else", ApprovalUsedOnce(requests(used(key.ID())), effects(eff(func(e *effect.Effect) { e.Fingerprint = token(1) }))), true},
		{"ApprovalUsedOnce", "by an open one", ApprovalUsedOnce(requests(open(func(q *request.Request) { q.UsedBy = key.ID() })), effects(reserved)), true},

		{"KeyUnique", "two visits", KeyUnique(effects(reserved, eff(func(e *effect.Effect) { e.Key.Visit = 2 }))), false},
		{"KeyUnique", "one twice", KeyUnique(effects(reserved, applied)), true},

		{"EffectFixed", "applied", EffectFixed(reserved, applied), false},
		{"EffectFixed", "reserved by a later attempt", EffectFixed(reserved, eff(func(e *effect.Effect) { e.Attempt, e.Token = 2, token(2) })), false},
		{"EffectFixed", "another fingerprint", EffectFixed(reserved, eff(func(e *effect.Effect) { e.Fingerprint = token(1) })), true},
		{"EffectFixed", "applied and then rejected", EffectFixed(applied, edit(applied, func(e *effect.Effect) { e.State = effect.Rejected })), true},
		{"EffectFixed", "an earlier attempt", EffectFixed(eff(func(e *effect.Effect) { e.Attempt = 2 }), reserved), true},
		{"EffectFixed", "another token of one attempt", EffectFixed(reserved, eff(func(e *effect.Effect) { e.Token = token(2) })), true},
		{"EffectFixed", "run again while ambiguous", EffectFixed(ambiguous, reserved), true},
	} {
		if (c.err != nil) != c.broken || c.err != nil && !strings.HasPrefix(c.err.Error(), c.name+": ") {
			t.Errorf("%s, %s: got %v, want broken = %v", c.name, c.why, c.err, c.broken)
		}
	}
}

// A world whose rows were tampered with says so at the next step.
func TestWorldSeesWhatIsBroken(t *testing.T) {
	for why, tamper := range map[string]func(*World){
		"a request that is gone":       func(w *World) { w.Requests = nil },
		"a run that went on":           func(w *World) { w.Run.Node = "n1" },
		"an interval from nowhere":     func(w *World) { w.Intervals = []run.Interval{{}} },
		"an answer of nobody":          func(w *World) { w.Requests[0].State, w.Requests[0].Settled = request.Accepted, 1 },
		"an effect that nobody wanted": func(w *World) { w.Effects = []effect.Effect{{}} },
	} {
		w := NewWorld(run.Plan{MaxSteps: 9, Start: "n0", Nodes: []run.Node{{Path: "n0", Kind: run.Agent, Ask: &run.Ask{Form: []byte("{}")}}}})
		if err, broken := w.Apply(Ask{}); err != nil || broken != nil {
			t.Fatal(err, broken)
		}
		if tamper(w); func() error { _, broken := w.Apply(Pass{}); return broken }() == nil {
			t.Errorf("%s: not seen", why)
		}
	}
}
