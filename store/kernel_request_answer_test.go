package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// asking returns a run that has opened the request of its first node.
func asking(t testing.TB, p *run.Plan) *ride {
	t.Helper()
	b := newBed(t)
	b.connect(kernelSessions[0])
	r := b.start(kernelSessions[0], p)
	r.claim()
	r.ask()
	return r
}

// kinds counts the stored events of a run by kind.
func (r *ride) kinds() map[string]int {
	n := map[string]int{}
	for _, e := range must(r.store.RunEvents(bg, r.run, 0)) {
		n[e.Kind]++
	}
	return n
}

func (r *ride) output(node string) string {
	out, _, err := r.store.Output(bg, r.run, node)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// Four deliveries of answers in every order, with the run going on after any of
// them: the first one decides, equal ones adopt it, the other is told that it
// came too late, and the answer is used once.
func TestAnswersInEveryOrder(t *testing.T) {
	plan := func() *run.Plan { return then(planOf(run.Agent), run.Node{Path: "after", Kind: run.Compute}) }
	answers := []struct{ key, payload string }{
		{"a", `{"n":1}`}, {"a", `{ "n": 1 }`}, {"b", `{"n":1}`}, {"c", `{"n":2}`},
	}
	orders := permutations([]int{0, 1, 2, 3})
	for i, order := range orders {
		r := asking(t, plan())
		claimAfter := i % 4
		for n, which := range order {
			c := r.act(request.ActSubmit, launch.Model, answers[which].payload)
			c.Key = answers[which].key
			got := r.respond(c)
			equal := which == 3 == (order[0] == 3)
			switch {
			case n == 0 && (got.Outcome != request.Taken || got.Refused != nil):
				t.Fatalf("%v: the first answer is %s, %v", order, got.Outcome, got.Refused)
			case n > 0 && equal && (got.Outcome != request.Adopted || got.Refused != nil):
				t.Fatalf("%v: answer %d is %s, %v; want adopted", order, n, got.Outcome, got.Refused)
			case !equal && !errors.Is(got.Refused, launch.ErrAlreadyDecided):
				t.Fatalf("%v: answer %d is %s, %v; want already decided", order, n, got.Outcome, got.Refused)
			}
			if n == claimAfter {
				r.claim()
			}
		}
		if want := strings.ReplaceAll(answers[order[0]].payload, " ", ""); r.output("ask") != want {
			t.Errorf("%v: the node's output is %s, want %s", order, r.output("ask"), want)
		}
		if n := r.kinds(); n["request.accepted"] != 1 || n["run.settled"] != 1 {
			t.Errorf("%v: %d answers accepted, %d nodes settled", order, n["request.accepted"], n["run.settled"])
		}
	}
}

func permutations(of []int) (all [][]int) {
	if len(of) == 0 {
		return [][]int{nil}
	}
	for i, first := range of {
		for _, rest := range permutations(slices.Delete(slices.Clone(of), i, i+1)) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}

// The acknowledgement of an answer is lost with its connection or its process:
// the same key on the new connection adopts it, and every other use of the key
// or of the old connection is refused and changes nothing.
func TestLostAcknowledgement(t *testing.T) {
	r := asking(t, then(planOf(run.Agent), run.Node{Path: "after", Kind: run.Compute}))
	first := r.act(request.ActSubmit, launch.Model, `{"n":1}`)
	if got := r.respond(first); got.Outcome != request.Taken {
		t.Fatal(got)
	}
	if err := r.reopen(); err != nil {
		t.Fatal(err)
	}
	r.connect(r.session)
	r.claim()
	before := must(r.dump())
	for _, c := range []struct {
		why     string
		change  func(*store.Respond)
		outcome request.Outcome
		refused launch.Kind
	}{
		{"the same on the new connection, although the run went on", func(*store.Respond) {}, request.Adopted, 0},
		{"white space is no other payload", func(c *store.Respond) { c.Payload = []byte(` { "n" : 1 } `) }, request.Adopted, 0},
		{"a key is of one payload", func(c *store.Respond) { c.Payload = []byte(`{"n":2}`) }, request.Conflict, launch.ErrConflict},
		{"and of one action", func(c *store.Respond) { c.Action = request.ActUpdate }, request.Conflict, launch.ErrConflict},
	} {
		again := first
		r.as(&again)
		c.change(&again)
		got := r.respond(again)
		if got.Outcome != c.outcome || (got.Refused == nil) != (c.refused == 0) || c.refused != 0 && !errors.Is(got.Refused, c.refused) {
			t.Errorf("%s: %s, %v", c.why, got.Outcome, got.Refused)
		}
	}
	_, err := try(r.bed, first)
	var refused *launch.Refusal
	if !errors.As(err, &refused) || refused.Kind != launch.ErrStale || refused.Fence != launch.EpochChanged {
		t.Errorf("through the old connection: %v", err)
	}
	if !reflect.DeepEqual(before, must(r.dump())) {
		t.Error("a repeat changed something")
	}
}

// What does not fit keeps the request open. Its receipt is that of its own key:
// another key is a new candidate, also with the same payload, and the first key
// is told its rejection for ever.
func TestRejectedAnswers(t *testing.T) {
	for _, c := range []struct {
		kind    run.Kind
		payload string
		says    string
		why     string
	}{
		{run.Agent, `{"n":"SECRET-1"}`, "output.n must be of type integer", "names the place, never the value"},
		{run.Agent, `{}`, "output needs the member n", "a member is missing"},
		{run.Agent, `{"n":1,"SECRET-2":2}`, "has a member that its form does not have", "names no member that is not of the form"},
		{run.Checkpoint, `7`, "output must be of type object", "of another type"},
		{run.Decision, `{"choice":"SECRET-3"}`, `choice must be one of ["approve" "reject"]`, "a closed set"},
		{run.Decision, `{"choice":"approve","text":"SECRET-4"}`, "choice approve takes a text of at most 0 characters", "texts are declared by choice"},
		{run.Assistant, `{"n":1}`, "output must be of type string", "a response is text"},
	} {
		t.Run(c.kind.String()+" "+c.why, func(t *testing.T) {
			r := asking(t, planOf(c.kind))
			bad := r.act(fits[c.kind].action, fits[c.kind].by, c.payload)
			before := must(r.dump())
			got := r.respond(bad)
			if got.Outcome != request.Rejected || !errors.Is(got.Refused, launch.ErrInvalid) || !strings.Contains(got.Refused.Error(), c.says) {
				t.Errorf("%s, %v; want rejected: %s", got.Outcome, got.Refused, c.says)
			}
			changed := unlikeDumps(before, must(r.dump()))
			if slices.ContainsFunc(changed, func(name string) bool {
				return !slices.Contains([]string{"workflow_receipts", "workflow_requests", "workflow_events", "workflow_run_queue"}, name)
			}) {
				t.Errorf("a rejection changed %v", changed)
			}
			if q := r.request(); q.State != request.Pending || q.Revision != 1 {
				t.Errorf("the request is %s, revision %d", q.State, q.Revision)
			}
			other := bad
			other.Key = r.next("key")
			for _, again := range []store.Respond{bad, other, bad} {
				if next := r.respond(again); next.Outcome != request.Rejected || next.Refused.Error() != got.Refused.Error() {
					t.Errorf("key %s again: %s, %v", again.Key, next.Outcome, next.Refused)
				}
			}
			r.answer()
			r.claim()
			if l := r.launch(); l.State != launch.Done {
				t.Errorf("the right answer leaves the run %s", l.State)
			}
			if next := r.respond(bad); next.Outcome != request.Rejected {
				t.Errorf("after the right answer the first key is told %s, %v", next.Outcome, next.Refused)
			}
			if n := len(must(r.dump())["workflow_receipts"]); n != 3 {
				t.Errorf("%d receipts, want one for each key", n)
			}
			if found := must(r.dump()).secrets("SECRET"); len(found) > 0 {
				t.Errorf("the rejected payload is kept in %v", found)
			}
		})
	}
}

// lose ends the lease of a run's claim and takes it over.
func (r *ride) lose() store.Claimed {
	r.t.Helper()
	r.clock.Advance(launch.DefaultLease + time.Second)
	a, err := r.tryClaim(store.Claim{Lost: true, Generation: r.auth.Generation})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// submitted is a run whose answer its own code has to check, claimed for that.
func submitted(t *testing.T, k run.Kind, change ...func(*run.Node)) (*ride, store.Respond) {
	r := asking(t, then(planOf(k, append(change, validates)...), run.Node{Path: "after", Kind: run.Compute}))
	c := r.act(fits[k].action, fits[k].by, fits[k].payload)
	if got := r.respond(c); got.Outcome != request.Started || got.State != request.Validating || got.Refused != nil {
		t.Fatalf("%+v", got)
	}
	if a := r.claim(); string(a.Next.Candidate) != fits[k].payload {
		t.Fatalf("the worker gets candidate %s", a.Next.Candidate)
	}
	return r, c
}

// is checks where request and launch stand.
func (r *ride) is(what string, q request.State, l launch.State, p launch.Park) {
	r.t.Helper()
	got := r.launch()
	if state := r.request().State; state != q || got.State != l || got.Park != p {
		r.t.Errorf("%s: the request is %s, the launch %s %s; want %s, %s %s", what, state, got.State, got.Park, q, l, p)
	}
}

// repeated is what the key of a submitted answer is told now.
func (r *ride) repeated(what string, c store.Respond, o request.Outcome, refused launch.Kind) {
	r.t.Helper()
	r.as(&c)
	got := r.respond(c)
	if got.Outcome != o || (got.Refused == nil) != (refused == 0) || refused != 0 && !errors.Is(got.Refused, refused) {
		r.t.Errorf("%s: the repeat of the answer is %s, %v; want %s, %s", what, got.Outcome, got.Refused, o, refused)
	}
}

// A node's own check takes a candidate, under the run's claim. Its verdict
// settles the node or opens the request again; without one it is tried once
// more, and then a person or the model has to act.
func TestValidation(t *testing.T) {
	for _, k := range []run.Kind{run.Agent, run.Assistant, run.Checkpoint} {
		t.Run("accepted/"+k.String(), func(t *testing.T) {
			r, c := submitted(t, k)
			r.repeated("while it is checked", c, request.Started, 0)
			p := r.proposal()
			p.Verdict, p.Output = store.Accepted, []byte(`"normal"`)
			if n := r.propose(p); n.Node != "after" {
				t.Fatalf("the run goes on under the claim of the check: %+v", n)
			}
			if r.output("ask") != `"normal"` {
				t.Errorf("the output is %s, want what the check made of it", r.output("ask"))
			}
			r.repeated("after the verdict", c, request.Adopted, 0)
			other := r.act(c.Action, c.Actor, string(c.Payload))
			r.repeated("an equal answer with another key", other, request.Adopted, 0)
		})
		t.Run("rejected/"+k.String(), func(t *testing.T) {
			r, c := submitted(t, k)
			if n, err := r.verdict(store.Rejected, "too short"); err != nil || !n.Parked {
				t.Fatal(n, err)
			}
			r.is("rejected", request.Pending, launch.Parked, launch.ParkWaiting)
			r.repeated("after the verdict", c, request.Rejected, launch.ErrInvalid)
			if q := r.request(); q.Rejection != "too short" {
				t.Errorf("the rejection is %q", q.Rejection)
			}
			again := r.act(c.Action, c.Actor, string(c.Payload))
			r.repeated("the same payload with a new key is a new candidate", again, request.Started, 0)
			r.claim()
			if _, err := r.verdict(store.Accepted, ""); err != nil {
				t.Fatal(err)
			}
			r.repeated("the first key keeps its rejection", c, request.Rejected, launch.ErrInvalid)
		})
	}

	t.Run("no verdict", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		n, err := r.verdict(store.NoVerdict, "")
		if err != nil || n.Candidate == nil {
			t.Fatalf("it is tried once more: %+v, %v", n, err)
		}
		if n, err = r.verdict(store.NoVerdict, ""); err != nil || !n.Parked {
			t.Fatalf("and then waits for another answer: %+v, %v", n, err)
		}
		r.is("twice without a verdict", request.Pending, launch.Parked, launch.ParkWaiting)
		r.repeated("twice without a verdict", c, request.Rejected, launch.ErrInvalid)
	})

	t.Run("claim lost once", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		lost := r.proposal()
		lost.Verdict = store.Accepted
		if a := r.lose(); string(a.Next.Candidate) != string(c.Payload) {
			t.Fatalf("the next worker checks it again: %+v", a)
		}
		before := must(r.dump())
		if _, err := try(r.bed, lost); !errors.Is(err, launch.ErrStale) {
			t.Errorf("the verdict of the lost worker: %v", err)
		}
		if !reflect.DeepEqual(before, must(r.dump())) {
			t.Error("a stale verdict changed something")
		}
		if _, err := r.verdict(store.Accepted, ""); err != nil {
			t.Fatal(err)
		}
		r.repeated("after all", c, request.Adopted, 0)
	})

	t.Run("claim lost twice", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		r.lose()
		if a := r.lose(); a.State != launch.Parked {
			t.Fatalf("%+v", a)
		}
		r.is("not tried for ever", request.Pending, launch.Parked, launch.ParkWaiting)
		r.repeated("it is rejected unjudged", c, request.Rejected, launch.ErrInvalid)
		r.repeated("another answer", r.act(c.Action, c.Actor, `{"n":3}`), request.Started, 0)
		r.claim()
		if _, err := r.verdict(store.Accepted, ""); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("the next answer's claim is lost too", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		r.lose()
		r.lose()
		r.repeated("another answer", r.act(c.Action, c.Actor, `{"n":3}`), request.Started, 0)
		r.claim()
		if a := r.lose(); a.State != launch.Parked {
			t.Fatalf("relaunched again without progress: %+v", a)
		}
		r.is("a person has to look", request.Validating, launch.Parked, launch.ParkAttention)
		carry(r.bed, store.Resume{Run: r.run})
		if a := r.claim(); string(a.Next.Candidate) != `{"n":3}` {
			t.Fatalf("%+v", a)
		}
		if _, err := r.verdict(store.Accepted, ""); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("no verdict while paused", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		carry(r.bed, store.Pause{Run: r.run})
		if n, err := r.verdict(store.NoVerdict, ""); err != nil || !n.Parked {
			t.Fatalf("the second try waits for the resume: %+v, %v", n, err)
		}
		r.is("paused", request.Validating, launch.Parked, launch.ParkPaused)
		carry(r.bed, store.Resume{Run: r.run})
		if a := r.claim(); a.Next.Candidate == nil {
			t.Fatalf("%+v", a)
		}
		if _, err := r.verdict(store.Accepted, ""); err != nil {
			t.Fatal(err)
		}
		r.repeated("after all", c, request.Adopted, 0)
	})

	t.Run("released by a closing host", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		carry(r.bed, store.Release{Run: r.run, Authority: r.auth})
		r.is("a polite release", request.Validating, launch.Parked, launch.ParkDue)
		if a := r.claim(); a.Next.Candidate == nil {
			t.Fatalf("%+v", a)
		}
		if _, err := r.verdict(store.Accepted, ""); err != nil {
			t.Fatal(err)
		}
		r.repeated("after all", c, request.Adopted, 0)
	})

	t.Run("verdict after the end", func(t *testing.T) {
		r, c := submitted(t, run.Checkpoint)
		carry(r.bed, store.Cancel{Run: r.run, Actor: launch.Person})
		before := must(r.dump())
		if _, err := r.verdict(store.Accepted, ""); !errors.Is(err, launch.ErrEnded) {
			t.Errorf("a verdict after the end: %v", err)
		}
		if !reflect.DeepEqual(before, must(r.dump())) {
			t.Error("a verdict after the end changed something")
		}
		r.repeated("the answer that was being checked", c, request.Conflict, launch.ErrEnded)
	})

	// The claim of the check goes on with what became of the request.
	for why, dflt := range map[string]string{"deadline": "", "deadline with a default": `{"n":9}`} {
		t.Run("verdict after the "+why, func(t *testing.T) {
			r, c := submitted(t, run.Checkpoint, func(n *run.Node) {
				if n.Ask.Expires = time.Hour; dflt != "" {
					n.Ask.Default = []byte(dflt)
				}
			})
			r.clock.Advance(time.Hour)
			carry(r.bed, store.Lapse{})
			carry(r.bed, store.Renew{Run: r.run, Authority: r.auth, Lease: launch.DefaultLease})
			n, err := r.verdict(store.Accepted, `"late"`)
			if err != nil {
				t.Fatal(err)
			}
			r.repeated("the answer that was being checked", c, request.Conflict, launch.ErrEnded)
			if l := r.launch(); dflt == "" && (!n.Ended || l.State != launch.Failed || l.Error.Code != launch.CodeRequestExpired) {
				t.Errorf("%+v; the run is %s, %v, want failed for its deadline", n, l.State, l.Error)
			}
			if dflt != "" && (n.Node != "after" || r.output("ask") != dflt) {
				t.Errorf("%+v, output %s; want the default", n, r.output("ask"))
			}
		})
	}

	t.Run("paused", func(t *testing.T) {
		r, c := submitted(t, run.Agent)
		carry(r.bed, store.Pause{Run: r.run})
		if n, err := r.verdict(store.Accepted, ""); err != nil || !n.Parked {
			t.Fatalf("the check ends, and nothing starts after it: %+v, %v", n, err)
		}
		r.is("paused", request.Accepted, launch.Parked, launch.ParkPaused)
		r.repeated("while paused", c, request.Adopted, 0)
		carry(r.bed, store.Resume{Run: r.run})
		if a := r.claim(); a.Next.Node != "after" {
			t.Errorf("%+v", a)
		}
	})
}

// Progress is reported while the request is open, and tells how long the rest
// takes; it answers nothing and raises no revision.
func TestProgressOfARequest(t *testing.T) {
	r := asking(t, planOf(run.Agent, func(n *run.Node) { n.Ask.Updates = true }))
	for i := range 3 {
		got := r.respond(r.act(request.ActUpdate, launch.Model, fmt.Sprintf(`{"completed":%d,"total":10}`, 2*i)))
		if got.Outcome != request.Taken || got.State != request.Pending || got.Revision != 1 {
			t.Fatalf("%+v", got)
		}
		r.clock.Advance(10 * time.Second)
	}
	q := r.request()
	wall, _ := r.clock.Now()
	if rate, left, ok := q.Estimate(wall); !ok || rate != 0.2 || left != 20*time.Second {
		t.Errorf("rate %v, left %v, %v", rate, left, ok)
	}
	for _, c := range []struct{ payload, why string }{
		{`{"completed":11,"total":10}`, "beyond the total"}, {`{"completed":-1}`, "negative"}, {`{"done":1}`, "an unknown member"},
		{`{"schema":"other"}`, "another schema"}, {`{"status":"` + strings.Repeat("x", 1025) + `"}`, "beyond its bound"}, {`[]`, "no object"},
	} {
		before := r.request()
		if got := r.respond(r.act(request.ActUpdate, launch.Model, c.payload)); got.Outcome != request.Rejected || !errors.Is(got.Refused, launch.ErrInvalid) {
			t.Errorf("%s: %+v", c.why, got)
		}
		if !reflect.DeepEqual(before, r.request()) {
			t.Errorf("%s: the request changed", c.why)
		}
	}
	plain := asking(t, planOf(run.Agent))
	if got := plain.respond(plain.act(request.ActUpdate, launch.Model, `{"completed":1}`)); !errors.Is(got.Refused, launch.ErrWrongKind) {
		t.Errorf("where the contract takes no updates: %+v", got)
	}
}

// The final text of the owned turn answers, when the turn completed and is whole.
func TestAssistantResponses(t *testing.T) {
	for _, c := range []struct {
		end   session.End
		said  *store.Reply
		state request.State
		why   string
	}{
		{session.Completed, &store.Reply{PromptEntry: "e1", ReplyEntry: "e2", Text: "done", Usable: true}, request.Accepted, "the whole text of a turn that completed"},
		{session.Completed, &store.Reply{Text: "done"}, request.Pending, "a person typed in it, or the text is cut"},
		{session.Completed, nil, request.Pending, "the bridge saw no text"},
		{session.Aborted, &store.Reply{Text: "done", Usable: true}, request.Pending, "aborted text is no response"},
		{session.Error, &store.Reply{Text: "done", Usable: true}, request.Pending, "nor is what an error left"},
	} {
		r := asking(t, planOf(run.Assistant))
		r.deliver(r.session)
		r.settle(r.session, c.end, false, c.said)
		if q := r.request(); q.State != c.state || c.said != nil && q.PromptEntry != c.said.PromptEntry || q.State == request.Accepted && q.ResponseEntry != "e2" {
			t.Errorf("%s: %s, entries %q %q", c.why, q.State, q.PromptEntry, q.ResponseEntry)
		}
		if c.state == request.Accepted {
			if r.claim(); r.output("ask") != `"done"` {
				t.Errorf("the output is %s", r.output("ask"))
			}
		}
	}
}
