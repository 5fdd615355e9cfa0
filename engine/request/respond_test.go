package request_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// The same key gets its first answer again; see rule request/keys.
func TestKeys(t *testing.T) {
	r := open(t, run.Agent)
	right, wrong := answer(r), answer(r)
	wrong.Payload, wrong.Key = []byte(answers[run.Agent].misfit), "wrong"
	rejected := request.Respond(&r, wrong, nil, after(0))
	r1 := rejected.Request
	taken := answered(t, r1, right)
	r2 := taken.Request

	spaced, update, person := right, right, right
	spaced.Payload = []byte("{ \"text\" :\n \"done\" }")
	update.Action = request.ActUpdate
	person.Actor = launch.Person
	more, invalid := right, right
	more.Payload, invalid.Payload = []byte(answers[run.Agent].another), []byte("{")

	for _, c := range []struct {
		why     string
		r       request.Request
		a       request.Act
		had     *request.Receipt
		outcome request.Outcome
		kind    launch.Kind
	}{
		{"same payload", r2, right, taken.Receipt, request.Adopted, 0},
		{"same value with other white space", r2, spaced, taken.Receipt, request.Adopted, 0},
		{"another payload", r2, more, taken.Receipt, request.Conflict, launch.ErrConflict},
		{"no JSON", r2, invalid, taken.Receipt, request.Conflict, launch.ErrConflict},
		{"another action", r2, update, taken.Receipt, request.Conflict, launch.ErrConflict},
		{"another actor, who may not even ask", r2, person, taken.Receipt, request.Conflict, launch.ErrNotAllowed},
		{"a rejection is repeated", r1, wrong, rejected.Receipt, request.Rejected, launch.ErrInvalid},
		{"a rejection is repeated after acceptance", r2, wrong, rejected.Receipt, request.Rejected, launch.ErrInvalid},
	} {
		p := request.Respond(&c.r, c.a, c.had, after(time.Hour))
		if wantKind(t, c.why, p.Err, c.kind); p.Outcome != c.outcome || p.Receipt != nil || p.Changed {
			t.Errorf("%s: %s, want %s, and no other receipt: %+v", c.why, p.Outcome, c.outcome, p)
		}
		same(t, c.why, c.r, p.Request)
	}

	again := request.Respond(&r1, wrong, rejected.Receipt, after(time.Hour))
	if again.Err.Error() != rejected.Err.Error() {
		t.Errorf("the rejection %q comes back as %q", rejected.Err, again.Err)
	}
	wrong.Key = "another"
	if p := request.Respond(&r1, wrong, nil, after(0)); p.Outcome != request.Rejected || p.Receipt == nil {
		t.Errorf("an equal payload under a new key is a new candidate: %+v", p)
	}

	// After acceptance a new key adopts an equal payload, and remembers that.
	right.Key = "new"
	adopted := request.Respond(&r2, right, nil, after(time.Hour))
	if adopted.Outcome != request.Adopted || adopted.Err != nil || adopted.Receipt.Outcome != request.Adopted {
		t.Fatalf("an equal payload after acceptance: %+v", adopted)
	}
	if p := request.Respond(&r2, right, adopted.Receipt, after(time.Hour)); p.Outcome != request.Adopted || p.Err != nil {
		t.Errorf("the repeat of an adoption: %s, %v", p.Outcome, p.Err)
	}

	for _, key := range []string{"", strings.Repeat("k", launch.MaxKey+1), "a\nb", "\xff"} {
		right.Key = key
		p := request.Respond(&r, right, nil, after(0))
		if wantKind(t, "bad key", p.Err, launch.ErrInvalid); p.Receipt != nil || p.Changed {
			t.Errorf("key %q leaves %+v", key, p)
		}
	}
}

// Two payloads that are no JSON are not the same.
func TestFingerprintOfNoJSON(t *testing.T) {
	r := open(t, run.Agent)
	a := answer(r)
	a.Payload = []byte("{")
	had := *request.Respond(&r, a, nil, after(0)).Receipt
	a.Payload = []byte("[")
	p := request.Respond(&r, a, &had, after(0))
	wantKind(t, "another text", p.Err, launch.ErrConflict)
}

// The first check that refuses decides; see rule request/order.
func TestOrder(t *testing.T) {
	r := open(t, run.Decision)
	a := answer(r)
	had := *request.Respond(&r, a, nil, after(0)).Receipt
	cancelled := applied(t, r, request.End{})
	// Everything is wrong at first; each step corrects what was refused.
	a = request.Act{Request: "req-x", Action: request.ActSubmit, Actor: launch.Model, Session: other, Key: a.Key, Revision: 9, Payload: []byte("{")}
	step := func(why string, r *request.Request, had *request.Receipt, want launch.Kind, correct func()) {
		t.Helper()
		p := request.Respond(r, a, had, after(time.Minute))
		wantKind(t, why, p.Err, want)
		if p.Err == nil != p.Changed {
			t.Errorf("%s: changed is %v", why, p.Changed)
		}
		correct()
	}
	step("who", &cancelled, &had, launch.ErrNotFound, func() { a.Request, a.Session, a.Action = r.ID, session, request.ActDecide })
	step("actor", &cancelled, &had, launch.ErrNotAllowed, func() { a.Actor, a.Action = launch.Person, request.ActAnswer })
	step("receipt", &cancelled, &had, launch.ErrConflict, func() {})
	step("matrix", &cancelled, nil, launch.ErrWrongKind, func() { a.Action = request.ActDecide })
	step("state", &cancelled, nil, launch.ErrEnded, func() {})
	step("revision", &r, nil, launch.ErrStale, func() { a.Revision = 0 })
	step("a decision names its revision", &r, nil, launch.ErrStale, func() { a.Revision = r.Revision })
	for _, field := range []*string{&a.Person, &a.Channel, &a.Event} {
		step("who the person is", &r, nil, launch.ErrInvalid, func() { *field = "x" })
	}
	step("JSON", &r, nil, launch.ErrInvalid, func() { a.Payload = []byte(`{"choice":"sell"}`) })
	step("form", &r, nil, launch.ErrInvalid, func() { a.Payload = []byte(`{"choice":"ship"}`) })
	step("nothing", &r, nil, 0, func() {})
}

// What somebody saw stays current while the request is open, whatever is tried.
func TestRevision(t *testing.T) {
	r := open(t, run.Checkpoint, validates)
	misfit := answer(r)
	misfit.Payload = []byte(answers[run.Checkpoint].misfit)
	p := request.Respond(&r, misfit, nil, after(0))
	if !p.Changed || p.Request.Rejection == "" {
		t.Errorf("a misfit of the model is not kept: %+v", p)
	}
	misfit.Key = "again"
	if again := request.Respond(&p.Request, misfit, nil, after(0)); again.Outcome != request.Rejected || again.Changed || len(again.Events) > 0 {
		t.Errorf("the same misfit again changes what is kept: %+v", again)
	}
	misfit.Actor = launch.Person
	if p := request.Respond(&r, misfit, nil, after(0)); p.Outcome != request.Rejected || p.Changed {
		t.Errorf("a misfit of a person is kept for the model: %+v", p)
	}
	r = applied(t, answered(t, p.Request, answer(r)).Request, request.Verdict{Reason: "no"}, request.Prompted{Form: request.Initial})
	person := act(r, request.ActAnswer, launch.Person, "9")
	person.Revision = 1
	r = applied(t, answered(t, r, person).Request, request.Verdict{Accepted: true})
	if r.Revision != 2 {
		t.Errorf("answered at revision %d", r.Revision)
	}

	other := open(t, run.Checkpoint)
	a := answer(other)
	a.Revision = 0
	answered(t, other, a) // who names none takes what is there
	a.Revision = 2
	wantKind(t, "another revision", request.Respond(&other, a, nil, after(0)).Err, launch.ErrStale)
}

func TestProvenance(t *testing.T) {
	for _, k := range kinds {
		r := open(t, k)
		p := answered(t, r, answer(r))
		want := request.Provenance{Actor: answers[k].actor, Key: answer(r).Key}
		if k == run.Decision {
			want.Person, want.Channel, want.Event = "ann", "pi", "event-1"
		}
		got := p.Request
		if d := cmp.Diff(want, got.By); d != "" || got.ByAction != answers[k].action || got.Settled != after(time.Minute).Wall {
			t.Errorf("%s: by %s at %s (-want +got)\n%s", k, got.ByAction, got.Settled, d)
		}
		if d := cmp.Diff([]request.Event{{Kind: request.EvAccepted, By: answers[k].actor}}, p.Events); d != "" || p.Outcome != request.Taken {
			t.Errorf("%s: %s %s", k, p.Outcome, d)
		}
	}
	r := open(t, run.Checkpoint)
	a := act(r, request.ActAnswer, launch.Person, " 7 ")
	if got := answered(t, r, a).Request; got.By.Person != "ann" || string(got.Answer) != "7" {
		t.Errorf("a person's answer: %+v, %s", got.By, got.Answer)
	}
}

func TestDecisions(t *testing.T) {
	for _, c := range []struct{ why, payload, want, says string }{
		{"a choice", `{"choice":"ship"}`, `{"choice":"ship","by":"person","person":"ann"}`, ""},
		{"its text", `{"choice":"hold","text":"too early"}`, `{"choice":"hold","text":"too early","by":"person","person":"ann"}`, ""},
		{"characters, not bytes", `{"choice":"hold","text":"éééééééééé"}`, `{"choice":"hold","text":"éééééééééé","by":"person","person":"ann"}`, ""},
		{"one character more", `{"choice":"hold","text":"ééééééééééé"}`, "", "at most 10 characters; this one has 11"},
		{"a necessary text", `{"choice":"hold"}`, "", "hold needs a text of 1 to 10 characters"},
		{"a blank one", `{"choice":"hold","text":" \n"}`, "", "hold needs a text"},
		{"a text that nobody asked for", `{"choice":"ship","text":"x"}`, "", "ship takes a text of at most 0"},
		{"outside the set", `{"choice":"sell"}`, "", `must be one of ["ship" "hold"]`},
		{"no choice", `{"text":"x"}`, "", "must be one of"},
		{"a bare choice", `"ship"`, "", "wrong type"},
		{"a member that nobody knows", `{"choice":"ship","by":"person"}`, "", "unknown field"},
		{"too large", `{"choice":"` + strings.Repeat("x", launch.MaxOptions) + `"}`, "", "the bound is 65536"},
	} {
		r := open(t, run.Decision)
		p := request.Respond(&r, act(r, request.ActDecide, launch.Person, c.payload), nil, after(0))
		switch {
		case c.want != "":
			if p.Err != nil || string(p.Request.Answer) != c.want {
				t.Errorf("%s: %v, %s", c.why, p.Err, p.Request.Answer)
			}
		case p.Outcome != request.Rejected || p.Err == nil || !strings.Contains(p.Err.Error(), c.says):
			t.Errorf("%s: %s %v, want %q", c.why, p.Outcome, p.Err, c.says)
		}
	}

	// The first one wins, whoever comes late learns that.
	r := open(t, run.Decision)
	won := answered(t, r, answer(r)).Request
	late := act(won, request.ActDecide, launch.Person, answers[run.Decision].another)
	p := request.Respond(&won, late, nil, after(2*time.Minute))
	if refused := wantKind(t, "late", p.Err, launch.ErrAlreadyDecided); !strings.Contains(refused.Message, "by the person") {
		t.Errorf("late: %q does not name the winner", refused.Message)
	}
	if string(p.Request.Answer) != string(won.Answer) || p.Request.By != won.By {
		t.Error("late: the winner does not come back")
	}
}

// Nobody answers after the deadline, also before the timer has noticed; while
// the clock is distrusted it has not passed.
func TestAnswerAtTheDeadline(t *testing.T) {
	for _, k := range []run.Kind{run.Checkpoint, run.Decision} {
		r := open(t, k)
		for _, c := range []struct {
			why  string
			now  launch.Now
			want launch.Kind
		}{
			{"just before", after(time.Hour - 1), 0},
			{"at it", after(time.Hour), launch.ErrExpired},
			{"distrusted clock", launch.Now{Wall: opened.Add(2 * time.Hour), Distrust: true}, 0},
		} {
			wantKind(t, c.why, request.Respond(&r, answer(r), nil, c.now).Err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	r := open(t, run.Decision, defaults(`"ship"`))
	if want := "req-e8cf0cf7c9a8c0a7fd65ebb3a0bb4a3e"; len(r.ID) != len(want) || r.ID != request.ID(runID, "mount/ask", 2, 3) {
		t.Errorf("id %s", r.ID)
	}
	if r.Deadline != opened.Add(time.Hour) || r.Revision != 1 || r.State != request.Pending || r.Opened != opened || r.Session != session {
		t.Errorf("opened as %+v", r)
	}
	seen := map[string]bool{}
	for _, id := range []string{request.ID("a-b", "c", 1, 1), request.ID("a", "b-c", 1, 1), request.ID("a-b", "c", 2, 1), request.ID("a-b", "c", 1, 2), request.ID("a-bc", "", 1, 1)} {
		if seen[id] {
			t.Errorf("two attempts have id %s", id)
		}
		seen[id] = true
	}

	type change = func(*request.Opening)
	on := func(f func(*run.Node)) change { return func(o *request.Opening) { f(o.Node) } }
	for _, c := range []struct {
		why    string
		kind   run.Kind
		change change
		says   string // empty: opens
	}{
		{"largest task", run.Agent, func(o *request.Opening) { o.Task = strings.Repeat("x", request.MaxTask) }, ""},
		{"larger task", run.Agent, func(o *request.Opening) { o.Task = strings.Repeat("x", request.MaxTask+1) }, "prompt has 32769 bytes; it must have 1 to 32768"},
		{"task that grows as JSON", run.Agent, func(o *request.Opening) { o.Task = strings.Repeat("<", request.MaxTask) }, "as JSON, has"},
		{"no task", run.Agent, func(o *request.Opening) { o.Task = "" }, "prompt has 0 bytes"},
		{"task that is no text", run.Agent, func(o *request.Opening) { o.Task = "\xff" }, "valid UTF-8"},
		{"largest title", run.Decision, func(o *request.Opening) { o.Title = strings.Repeat("x", request.MaxTitle) }, ""},
		{"larger title", run.Decision, func(o *request.Opening) { o.Title = strings.Repeat("x", request.MaxTitle+1) }, "title has 201 bytes"},
		{"title of two lines", run.Decision, func(o *request.Opening) { o.Title = "a\nb" }, "on one line"},
		{"no title", run.Decision, func(o *request.Opening) { o.Title = "" }, "title has 0 bytes"},
		{"title of a step", run.Agent, func(o *request.Opening) { o.Title = "a" }, "title is of decisions only"},
		{"larger audience", run.Decision, on(func(n *run.Node) { n.Ask.Audience = strings.Repeat("x", 201) }), "audience has 201 bytes"},
		{"large form", run.Agent, on(func(n *run.Node) {
			n.Ask.Form = json.RawMessage(`{"description":"` + strings.Repeat("x", launch.MaxOptions) + `"}`)
		}), "message of the request, with its form, has"},
		{"huge form", run.Agent, on(func(n *run.Node) {
			n.Ask.Form = json.RawMessage(`{"description":"` + strings.Repeat("x", request.MaxContract) + `"}`)
		}), "prompt with its form, as JSON, has"},
		{"form that is no JSON", run.Agent, on(func(n *run.Node) { n.Ask.Form = json.RawMessage(`{`) }), "form is not JSON"},
		{"no form", run.Agent, on(func(n *run.Node) { n.Ask.Form = nil }), ""},
		{"no visit", run.Agent, func(o *request.Opening) { o.Visit = 0 }, "at least 1"},
		{"no attempt", run.Agent, func(o *request.Opening) { o.Attempt = 0 }, "at least 1"},
		{"a kind that asks nothing", run.Agent, on(func(n *run.Node) { n.Kind = run.Action }), "asks nothing"},
		{"nothing to ask", run.Agent, on(func(n *run.Node) { n.Ask = nil }), "asks nothing"},
		{"no node", run.Agent, func(o *request.Opening) { o.Node = nil }, "asks nothing"},
		{"no choices", run.Decision, on(func(n *run.Node) { n.Choices = nil }), "closed set"},
		{"texts of a checkpoint", run.Checkpoint, on(func(n *run.Node) { n.Ask.Texts = []run.TextInput{{Choice: "a", Max: 1}} }), "texts are of decisions"},
		{"code that decides", run.Decision, on(validates), "not for decisions"},
		{"updates of a checkpoint", run.Checkpoint, on(func(n *run.Node) { n.Ask.Updates = true }), "updates are of agents"},
		{"deadline of a step", run.Agent, on(func(n *run.Node) { n.Ask.Expires = 1 }), "deadline is of checkpoints"},
		{"deadline before", run.Checkpoint, on(func(n *run.Node) { n.Ask.Expires = -1 }), "deadline must be"},
		{"far deadline", run.Checkpoint, on(func(n *run.Node) { n.Ask.Expires = run.MaxBudget + 1 }), "deadline must be"},
		{"default", run.Checkpoint, on(defaults(`3`)), ""},
		{"default that does not fit", run.Checkpoint, on(defaults(`"three"`)), "default must be of type integer"},
		{"default without a deadline", run.Checkpoint, on(func(n *run.Node) { n.Ask.Default, n.Ask.Expires = json.RawMessage(`3`), 0 }), "needs a deadline"},
		{"choice by default", run.Decision, on(defaults(`"ship"`)), ""},
		{"default that is no choice", run.Decision, on(defaults(`"sell"`)), "default must be one of"},
		{"default that is no string", run.Decision, on(defaults(`{"choice":"ship"}`)), "default must be one of"},
		{"default without its text", run.Decision, on(defaults(`"hold"`)), "default hold needs a text"},
	} {
		o := opening(node(c.kind))
		c.change(&o)
		r, err := request.Open(o, opened)
		switch {
		case c.says == "" && err == nil:
			sound(t, r)
			for _, f := range []request.PromptForm{request.Initial, request.Resumed, request.Reminder} {
				if text, err := request.Text(r, f); err != nil || len(text) > launch.MaxOptions {
					t.Errorf("%s: %s text of %d bytes, %v", c.why, f, len(text), err)
				}
			}
		case c.says == "" || err == nil || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, want %q", c.why, err, c.says)
		default:
			wantKind(t, c.why, err, launch.ErrInvalid)
		}
	}
}
