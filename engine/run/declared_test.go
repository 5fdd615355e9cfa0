package run

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/launch"
)

// TestDeclared: what a node declares about its execution, its request and its
// approval, and what a plan declares about settings.
func TestDeclared(t *testing.T) {
	node := func(k Kind, f func(*Node)) Plan {
		n := Node{Path: "a", Kind: k}
		if k == Action {
			n.Policy = Repeatable
		}
		if k.Asks() {
			n.Ask = &Ask{Form: json.RawMessage(`{}`)}
		}
		if k == Decision {
			n.Choices = []string{"x", "y"}
		}
		f(&n)
		return plan([]Node{n})
	}
	retry := func(f func(*Retry)) Plan {
		r := &Retry{Max: 1, On: []Outcome{Failed}}
		f(r)
		return node(Compute, func(n *Node) { n.Retry = r })
	}
	ask := func(k Kind, f func(*Ask)) Plan { return node(k, func(n *Node) { f(n.Ask) }) }
	late := func(k Kind, answer string) Plan {
		return ask(k, func(a *Ask) { a.Expires, a.Default = time.Minute, json.RawMessage(answer) })
	}
	text := func(texts ...TextInput) Plan { return ask(Decision, func(a *Ask) { a.Texts = texts }) }
	approval := func(f func(*Node)) Plan {
		n := Node{Path: "b", Kind: Action, Policy: Repeatable, Reads: []string{"a"}, Approval: "a", Approving: []string{"x"}}
		f(&n)
		p := node(Decision, func(*Node) {})
		p.Nodes, p.Edges = append(p.Nodes, n), []Edge{then("a", "b")}
		return p
	}
	settings := func(s Settings) Plan {
		p := plan([]Node{compute("a")})
		p.Settings = &s
		return p
	}
	long := json.RawMessage(`"` + strings.Repeat("a", launch.MaxOptions) + `"`)
	for _, c := range []struct {
		why  string
		plan Plan
		want string // part of the error; "" accepts
	}{
		{"a budget of a step", node(Agent, func(n *Node) { n.Budget = MaxBudget }), ""},
		{"time that runs backward", node(Compute, func(n *Node) { n.Budget = -1 }), "node a: budget is -1ns"},
		{"a budget beyond its bound", node(Compute, func(n *Node) { n.Budget = MaxBudget + 1 }), "at most 8760h0m0s"},
		{"a checkpoint has a deadline, not active time", node(Checkpoint, func(n *Node) { n.Budget = 1 }), "no budget of active time"},
		{"a notify node has no active time", node(Notify, func(n *Node) { n.Budget = 1 }), "no budget of active time"},

		{"retries with the longest backoff", retry(func(r *Retry) { r.Max, r.Backoff, r.On = MaxRetries, MaxBackoff, []Outcome{TimedOut, Failed} }), ""},
		{"no retry is none declared", retry(func(r *Retry) { r.Max = 0 }), "declares 0 retries"},
		{"too many retries", retry(func(r *Retry) { r.Max = MaxRetries + 1 }), "it must be 1 to 100"},
		{"a backoff into the past", retry(func(r *Retry) { r.Backoff = -1 }), "backoff is -1ns"},
		{"a backoff beyond its bound", retry(func(r *Retry) { r.Backoff = MaxBackoff + 1 }), "must be 0 to 24h0m0s"},
		{"on nothing", retry(func(r *Retry) { r.On = nil }), "retries on no outcome"},
		{"what is ok is not repeated", retry(func(r *Retry) { r.On = []Outcome{OK} }), "retries on outcome ok"},
		{"what somebody cancelled is not repeated", retry(func(r *Retry) { r.On = []Outcome{Cancelled} }), "retries on outcome cancelled"},
		{"an outcome twice", retry(func(r *Retry) { r.On = []Outcome{Failed, Failed} }), "once each"},
		{"an outcome of a newer library", retry(func(r *Retry) { r.On = []Outcome{99} }), "retries on outcome unknown"},

		{"an agent that asks nothing", node(Agent, func(n *Node) { n.Ask = nil }), "node a: a node that asks says what"},
		{"a compute node that asks", node(Compute, func(n *Node) { n.Ask = &Ask{Form: json.RawMessage(`{}`)} }), "and no other does"},
		{"a form that is no JSON", ask(Agent, func(a *Ask) { a.Form = json.RawMessage(`{`) }), "the form of its answer"},
		{"no form", ask(Agent, func(a *Ask) { a.Form = nil }), "the form of its answer"},
		{"a form beyond its bound", ask(Agent, func(a *Ask) { a.Form = long }), "at most 65536 bytes"},
		{"code that decides", ask(Decision, func(a *Ask) { a.Validates = true }), "a decision has no validation code"},
		{"an agent reports progress", ask(Agent, func(a *Ask) { a.Updates, a.Validates = true, true }), ""},
		{"a checkpoint reports none", ask(Checkpoint, func(a *Ask) { a.Updates = true }), "only an agent's step reports progress"},
		{"an assistant reports none", ask(Assistant, func(a *Ask) { a.Updates = true }), "only an agent's step reports progress"},
		{"an agent has active time, not a deadline", ask(Agent, func(a *Ask) { a.Expires = 1 }), "only a checkpoint or a decision does"},
		{"a deadline in the past", ask(Checkpoint, func(a *Ask) { a.Expires = -1 }), "expires after -1ns"},
		{"a deadline beyond its bound", ask(Decision, func(a *Ask) { a.Expires = MaxBudget + 1 }), "after at most 8760h0m0s"},
		{"a default at the deadline", late(Checkpoint, `{"any":1}`), ""},
		{"a default choice", late(Decision, `"y"`), ""},
		{"a default that is never taken", ask(Checkpoint, func(a *Ask) { a.Default = json.RawMessage(`1`) }), "never expires"},
		{"a default that is no JSON", late(Checkpoint, `{`), "the default answer is not JSON"},
		{"a default beyond its bound", late(Checkpoint, string(long)), "the default answer is not JSON of at most"},
		{"a default outside the closed set", late(Decision, `"z"`), `not one of ["x" "y"]`},
		{"a default that is no choice", late(Decision, `1`), `not one of ["x" "y"]`},
		{"an audience", ask(Decision, func(a *Ask) { a.Audience = strings.Repeat("a", MaxAudience) }), ""},
		{"an audience one byte too long", ask(Decision, func(a *Ask) { a.Audience = strings.Repeat("a", MaxAudience+1) }), "the audience has 201 bytes"},
		{"an audience that is not UTF-8", ask(Decision, func(a *Ask) { a.Audience = "\xff" }), "valid UTF-8"},
		{"an open decision", node(Decision, func(n *Node) { n.Choices = nil }), "needs a closed set of choices"},
		{"a checkpoint for somebody", ask(Checkpoint, func(a *Ask) { a.Audience = "me" }), "only a decision has an audience and texts"},
		{"a checkpoint with a text", ask(Checkpoint, func(a *Ask) { a.Texts = []TextInput{} }), "only a decision has an audience and texts"},

		{"a text to each choice", text(TextInput{"x", 1, true}, TextInput{"y", MaxText, false}), ""},
		{"a text to no choice", text(TextInput{"z", 1, false}), `with choice "z"`},
		{"two texts to one choice", text(TextInput{"x", 1, false}, TextInput{"x", 2, false}), "text of choice x twice"},
		{"a text of nothing", text(TextInput{"x", 0, false}), "at most 0 characters"},
		{"a text beyond its bound", text(TextInput{"x", MaxText + 1, false}), "the bound is 1 to 8192"},
		{"nobody writes the text of a default", ask(Decision, func(a *Ask) {
			a.Expires, a.Default, a.Texts = 1, json.RawMessage(`"x"`), []TextInput{{"x", 1, true}}
		}), "which a default cannot give"},

		{"a last word", node(Notify, func(n *Node) { n.Final = true }), ""},
		{"a last word of a step", node(Agent, func(n *Node) { n.Final = true }), "only a notify node has a last word"},

		{"an approved action", approval(func(*Node) {}), ""},
		{"choices without a decision", approval(func(n *Node) { n.Approval = "" }), "but no decision"},
		{"an approved computation", approval(func(n *Node) { n.Kind, n.Policy = Compute, 0 }), "only an action needs an approval"},
		{"approved by itself", approval(func(n *Node) { n.Approval = "b" }), "its approval b is not a decision"},
		{"approved by nobody", approval(func(n *Node) { n.Approval = "z" }), "its approval z is not a decision"},
		{"what it does not read may be of another proposal", approval(func(n *Node) { n.Reads = nil }), "does not read its approval a"},
		{"no choice approves", approval(func(n *Node) { n.Approving = nil }), "no choice of a approves it"},
		{"a choice that the decision has not", approval(func(n *Node) { n.Approving = []string{"z"} }), `choice "z" of a approves it`},

		{"settings", settings(Settings{Defaults: json.RawMessage(`{"a":1}`), Form: json.RawMessage(`{}`), Model: []string{"a"}}), ""},
		{"settings without defaults", settings(Settings{}), "not one JSON object"},
		{"settings that are a list", settings(Settings{Defaults: json.RawMessage(`[]`)}), "not one JSON object"},
		{"half an object", settings(Settings{Defaults: json.RawMessage(`{"a":`)}), "not one JSON object"},
		{"defaults beyond their bound", settings(Settings{Defaults: json.RawMessage(`{"a":` + string(long) + `}`)}), "the bound is 65536"},
		{"too many paths", settings(Settings{Defaults: json.RawMessage(`{}`), Model: make([]string, launch.MaxList+1)}), "paths are named"},
	} {
		t.Run(c.why, func(t *testing.T) { checkErr(t, c.plan.Validate(), c.want) })
	}
}

func TestApproves(t *testing.T) {
	n := Node{Approving: []string{"yes"}}
	for decision, want := range map[string]bool{`{"choice":"yes","by":"person"}`: true, `"yes"`: true, `{"choice":"no"}`: false, `{"by":"yes"}`: false,
		`{"choice":1}`: false, `null`: false, ``: false, `["yes"]`: false} {
		if n.Approves([]byte(decision)) != want {
			t.Errorf("%s approves: %v", decision, !want)
		}
	}
}

// one is a plan of one node.
func one(n Node) *Plan {
	p := plan([]Node{n})
	return &p
}

// apply applies commands at times that a second divides, on one clock.
func apply(t *testing.T, p *Plan, r Run, at int, clock string, c Command) Result {
	t.Helper()
	s := time.Duration(at) * time.Second
	res, err := Apply(r, c, p, visited(0), launch.Now{Wall: launch.Time(s), Mono: launch.Mono(s), Clock: clock})
	if err != nil {
		t.Fatalf("%T at %v: %v", c, s, err)
	}
	return res
}

func TestActive(t *testing.T) {
	p := one(Node{Path: "a", Kind: Compute, Budget: 10 * time.Second})
	type step struct {
		at       int
		clock    string
		do       Command
		spent    int // seconds, after it
		interval int // that it closes, seconds; -1 for none
	}
	const none = -1
	for _, c := range []struct {
		why   string
		steps []step
	}{
		{"samples add up to the interval", []step{{1, "c", StartClock{}, 0, none}, {3, "c", SampleClock{}, 2, none}, {6, "c", StopClock{}, 5, 5}}},
		{"nothing is spent between two intervals", []step{{1, "c", StartClock{}, 0, none}, {2, "c", StopClock{}, 1, 1}, {60, "c", StartClock{}, 1, none}, {62, "c", StopClock{}, 3, 2}}},
		{"an open interval stays as it is", []step{{1, "c", StartClock{}, 0, none}, {4, "c", StartClock{}, 0, none}, {5, "c", StopClock{}, 4, 4}}},
		{"there is nothing to stop", []step{{1, "c", StopClock{}, 0, none}, {2, "c", SampleClock{}, 0, none}}},
		{"another process cannot tell what was spent", []step{{1, "c", StartClock{}, 0, none}, {3, "c", SampleClock{}, 2, none}, {60, "d", SampleClock{}, 2, none}, {61, "d", StopClock{}, 3, 3}}},
		{"nothing counts after the last sample of one that is lost", []step{{1, "c", StartClock{}, 0, none}, {3, "c", SampleClock{}, 2, none}, {9, "c", StopClock{Lost: true}, 2, 2}}},
		{"a clock without a name is nobody's", []step{{1, "", StartClock{}, 0, none}, {9, "", StopClock{}, 0, 0}}},
		{"a clock that runs backward spends nothing", []step{{5, "c", StartClock{}, 0, none}, {3, "c", SampleClock{}, 0, none}, {4, "c", StopClock{}, 1, 1}}},
		{"a park ends the interval", []step{{1, "c", StartClock{}, 0, none}, {3, "c", Park{Waiting}, 2, 2}}},
		{"so does what ends the run", []step{{1, "c", StartClock{}, 0, none}, {3, "c", End{Status: RunCancelled}, 2, 2}}},
		{"and an interruption, which begins a new attempt", []step{{1, "c", StartClock{}, 0, none}, {3, "c", Reattempt{}, 0, 2}}},
	} {
		t.Run(c.why, func(t *testing.T) {
			r, err := Begin("w-1", p, []byte(`{}`), 1)
			if err != nil {
				t.Fatal(err)
			}
			n := uint32(0)
			for _, s := range c.steps {
				revision := r.Revision
				res := apply(t, p, r, s.at, s.clock, s.do)
				got := none
				if i := res.Interval; i != nil {
					n++
					got = int(i.Spent / time.Second)
					if i.N != n || i.Node != "a" || i.Visit != 1 || i.Attempt != 1 || i.Closed != launch.Time(s.at)*1e9 {
						t.Errorf("at %d: interval %+v", s.at, *i)
					}
				}
				if res.Run.Active.Spent != time.Duration(s.spent)*time.Second || got != s.interval {
					t.Fatalf("at %d: spent %v, closes %d s; want %d s and %d s", s.at, res.Run.Active.Spent, got, s.spent, s.interval)
				}
				if len(res.Events) == 0 && res.Run.Revision != revision {
					t.Fatalf("at %d: a clock command raised the revision", s.at)
				}
				r = res.Run
			}
		})
	}
}

func TestBudget(t *testing.T) {
	p := one(Node{Path: "a", Kind: Compute, Budget: 10 * time.Second})
	r, err := Begin("w-1", p, []byte(`{}`), 1)
	if err != nil {
		t.Fatal(err)
	}
	r = apply(t, p, r, 1, "c", StartClock{}).Run
	for at, want := range map[int]time.Duration{1: 10 * time.Second, 8: 3 * time.Second, 11: 0, 30: 0} {
		now := apply(t, p, r, at, "c", SampleClock{}).Run
		if left, limited := now.Left(); !limited || left != want {
			t.Errorf("at %d s %v are left, limited %v; want %v", at, left, limited, want)
		}
	}
	res := apply(t, p, r, 4, "c", Settle{Node: "a", Visit: 1, Attempt: 1, Outcome: OK, Output: []byte("1")})
	if res.Step.Spent != 3*time.Second || res.Interval == nil || res.Interval.Spent != 3*time.Second || res.Step.Began != 1 {
		t.Fatalf("the result spent %v since %s, the interval is %+v", res.Step.Spent, res.Step.Began, res.Interval)
	}
	free := one(compute("a"))
	r, err = Begin("w-1", free, []byte(`{}`), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := apply(t, free, r, 1, "c", StartClock{}).Run.Active; got != (Active{}) {
		t.Errorf("an attempt without a budget records %+v", got)
	}
	if _, limited := r.Left(); limited {
		t.Error("an attempt without a budget is limited")
	}
}

func TestRetry(t *testing.T) {
	declared := func(max uint32, backoff time.Duration) *Plan {
		return one(Node{Path: "a", Kind: Compute, Budget: time.Second, Retry: &Retry{Max: max, Backoff: backoff, On: []Outcome{Failed}}})
	}
	fails := func(r Run) Command {
		return Settle{Node: "a", Visit: 1, Attempt: r.Attempt, Outcome: Failed, Failure: boom}
	}
	begun := func(p *Plan) Run {
		r, err := Begin("w-1", p, []byte(`{}`), 1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("the backoff doubles up to its bound", func(t *testing.T) {
		p := declared(MaxRetries, 9*time.Hour)
		r := begun(p)
		for n, want := range []time.Duration{9 * time.Hour, 18 * time.Hour, MaxBackoff, MaxBackoff} {
			now := launch.Now{Wall: launch.Time(n+1) * 1e9}
			res, err := Apply(r, fails(r), p, visited(0), now)
			if err != nil {
				t.Fatal(err)
			}
			r = res.Run
			if r.Status != Waiting || r.Due.Sub(now.Wall) != want || r.Retry != uint32(n+1) || r.Attempt != uint32(n+2) || r.Visit != 1 {
				t.Fatalf("retry %d: %s until %v later, attempt %d of visit %d", r.Retry, r.Status, r.Due.Sub(now.Wall), r.Attempt, r.Visit)
			}
			if _, err := Apply(r, Elapse{}, p, nil, launch.Now{Wall: r.Due - 1}); !errors.Is(err, launch.ErrNotAllowed) {
				t.Fatalf("the backoff is over before its time: %v", err)
			}
			if _, err := Apply(r, Elapse{}, p, nil, launch.Now{Wall: r.Due, Distrust: true}); !errors.Is(err, launch.ErrNotAllowed) {
				t.Fatalf("the backoff is over on a clock that is distrusted: %v", err)
			}
			res, err = Apply(r, Elapse{}, p, nil, launch.Now{Wall: r.Due})
			if err != nil || res.Run.Due != 0 || res.Run.Status != Waiting {
				t.Fatalf("after the backoff: due %s, %s, %v", res.Run.Due, res.Run.Status, err)
			}
			res, err = Apply(res.Run, Unpark{}, p, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			r = res.Run
		}
	})
	t.Run("without a backoff it is tried at once, and no more often than declared", func(t *testing.T) {
		p := declared(2, 0)
		r := begun(p)
		for n := uint32(1); n <= 2; n++ {
			res := apply(t, p, r, int(n), "c", fails(r))
			if r = res.Run; r.Status != Running || r.Retry != n || r.Active != (Active{}) || res.Events[1].Kind != Retried {
				t.Fatalf("retry %d: %s, %d, %+v", n, r.Status, r.Retry, res.Events)
			}
		}
		if r = apply(t, p, r, 3, "c", fails(r)).Run; r.Status != RunFailed || r.Steps != 3 {
			t.Fatalf("after the last retry: %s after %d results", r.Status, r.Steps)
		}
	})
	t.Run("another outcome is not tried again", func(t *testing.T) {
		p := declared(2, 0)
		c := Settle{Node: "a", Visit: 1, Attempt: 1, Outcome: TimedOut, Failure: launch.NewSafeError(launch.CodeTimedOut, "")}
		if r := apply(t, p, begun(p), 1, "c", c).Run; r.Status != RunTimedOut {
			t.Fatalf("got %s", r.Status)
		}
	})
	t.Run("an interruption is no retry", func(t *testing.T) {
		p := declared(1, 0)
		r := apply(t, p, begun(p), 1, "c", Reattempt{}).Run
		if r = apply(t, p, r, 2, "c", fails(r)).Run; r.Retry != 1 || r.Attempt != 3 {
			t.Fatalf("retry %d, attempt %d", r.Retry, r.Attempt)
		}
	})
	t.Run("the step limit ends retries too", func(t *testing.T) {
		p := declared(9, 0)
		p.MaxSteps = 1
		if r := apply(t, p, begun(p), 1, "c", fails(begun(p))).Run; r.Status != RunFailed || r.Failure != boom {
			t.Fatalf("got %s with %v", r.Status, r.Failure)
		}
	})
	t.Run("a new visit has its retries again", func(t *testing.T) {
		p := plan([]Node{{Path: "a", Kind: Compute, Retry: &Retry{Max: 1, On: []Outcome{Failed}}}}, then("a", "a"))
		r := apply(t, &p, begun(&p), 1, "c", fails(begun(&p))).Run
		if r = apply(t, &p, r, 2, "c", ok(r, "1")).Run; r.Visit != 2 || r.Retry != 0 || r.Attempt != 1 {
			t.Fatalf("visit %d, attempt %d, retry %d", r.Visit, r.Attempt, r.Retry)
		}
	})
}

func TestWait(t *testing.T) {
	p := one(Node{Path: "a", Kind: Checkpoint, Ask: &Ask{Form: json.RawMessage(`{}`)}})
	r, err := Begin("w-1", p, []byte(`{}`), 1)
	if err != nil {
		t.Fatal(err)
	}
	wait := Wait{Node: "a", Visit: 1, Attempt: 1}
	res := apply(t, p, r, 1, "c", wait)
	if r = res.Run; r.Status != Waiting || !r.Asked || len(res.Events) != 1 || res.Events[0].Kind != Parked {
		t.Fatalf("got %s, asked %v, %+v", r.Status, r.Asked, res.Events)
	}
	on := apply(t, p, r, 2, "c", Unpark{}).Run
	for _, c := range []struct {
		why     string
		run     Run
		command Command
		want    error
	}{
		{"waits already", r, wait, launch.ErrStale},
		{"an attempt asks once", on, wait, launch.ErrConflict},
		{"another attempt", on, Wait{"a", 1, 2}, launch.ErrStale},
		{"its request keeps the attempt", on, Reattempt{}, launch.ErrNotAllowed},
	} {
		if _, err := Apply(c.run, c.command, p, nil, launch.Now{Wall: 3}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.why, err, c.want)
		}
	}
	free := one(compute("a"))
	if r, err = Begin("w-1", free, []byte(`{}`), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(r, wait, free, nil, launch.Now{Wall: 3}); !errors.Is(err, launch.ErrInvalid) {
		t.Errorf("a node that asks nothing waits: %v", err)
	}
}
