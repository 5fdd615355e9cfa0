package request_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

type cell struct {
	Action, Kind string
	Actors       []string
}

func contract(t *testing.T) []cell {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/contract/request-matrix.json")
	if err != nil {
		t.Fatal(err)
	}
	var data struct{ Cells []cell }
	if err := json.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	return data.Cells
}

func TestMatrixAgreesWithItsData(t *testing.T) {
	var got []cell
	for _, c := range request.Matrix() {
		one := cell{Action: c.Action.String(), Kind: c.Kind.String()}
		for _, by := range c.Actors {
			one.Actors = append(one.Actors, by.String())
		}
		got = append(got, one)
	}
	if d := cmp.Diff(contract(t), got); d != "" {
		t.Errorf("the matrix differs from its data (-data +go):\n%s", d)
	}
	request.Matrix()[4].Actors[0] = launch.Model
	if request.Allows(request.ActDecide, run.Decision, launch.Model) {
		t.Error("the caller of Matrix can change it")
	}
}

// Every action on every kind in every state by everybody, as the data of the
// contract has it.
func TestEveryCell(t *testing.T) {
	cells := contract(t)
	in0 := func(a request.Action, k string, by launch.Actor) bool {
		return slices.ContainsFunc(cells, func(c cell) bool {
			return c.Action == a.String() && (k == "" || c.Kind == k) && slices.Contains(c.Actors, by.String())
		})
	}
	actions := append([]request.Action{0, 99}, request.Actions()...)
	actors := []launch.Actor{0, launch.Model, launch.Person, launch.Host, launch.Worker, launch.Timer, 99}
	n := 0
	for _, k := range kinds {
		for _, s := range request.States() {
			r, ok := in(t, k, s)
			if !ok {
				continue
			}
			for _, a := range actions {
				for _, by := range actors {
					for _, payload := range []string{answers[k].payload, answers[k].another, `{"status":"half"}`, `{`} {
						n++
						why := fmt.Sprintf("%s of a %s that is %s, by %q, with %s", a, k, s, by, payload)
						p := request.Respond(&r, act(r, a, by, payload), nil, after(2*time.Minute))
						wantKind(t, why, p.Err, expected(in0, r, a, by, payload))
						checkReply(t, why, r, a, p)
					}
				}
			}
		}
	}
	if n < 4000 {
		t.Errorf("only %d cases were walked", n)
	}
}

func expected(in0 func(request.Action, string, launch.Actor) bool, r request.Request, a request.Action, by launch.Actor, payload string) launch.Kind {
	called := a >= request.ActSubmit && a <= request.ActDecide
	switch {
	case !called || !in0(a, "", by):
		return launch.ErrNotAllowed
	case !in0(a, r.Kind.String(), by):
		return launch.ErrWrongKind
	}
	fits := payload == answers[r.Kind].payload || payload == answers[r.Kind].another
	if a == request.ActUpdate {
		fits = payload == `{"status":"half"}`
	}
	switch {
	case r.State == request.Validating:
		return launch.ErrValidating
	case r.State == request.Expired:
		return launch.ErrExpired
	case r.State == request.Cancelled:
		return launch.ErrEnded
	case r.State == request.Accepted && (a == request.ActUpdate || payload != answers[r.Kind].payload):
		return launch.ErrAlreadyDecided
	case !fits:
		return launch.ErrInvalid
	}
	return 0
}

// checkReply checks what holds for every first use of a key.
func checkReply(t *testing.T, why string, before request.Request, a request.Action, p request.Reply) {
	t.Helper()
	if p.Receipt == nil || p.Receipt.Outcome != p.Outcome || p.Receipt.Revision != before.Revision || p.Outcome == 0 {
		t.Errorf("%s: receipt %+v, outcome %s", why, p.Receipt, p.Outcome)
		return
	}
	if refused := p.Err != nil; refused != (p.Receipt.Kind != 0) || refused != (p.Receipt.Reason != "") {
		t.Errorf("%s: the receipt does not say %v", why, p.Err)
	}
	want := before
	var events []request.Event
	if p.Outcome == request.Rejected && a != request.ActUpdate && p.Receipt.Actor == launch.Model {
		want.Rejection = p.Receipt.Reason
		events = []request.Event{{Kind: request.EvRejected, By: launch.Model}}
	}
	if p.Err != nil || p.Outcome == request.Adopted {
		same(t, why, want, p.Request)
		if d := cmp.Diff(events, p.Events); d != "" {
			t.Errorf("%s: refused with events (-want +got)\n%s", why, d)
		}
	}
	if p.Changed == reflect.DeepEqual(before, p.Request) {
		t.Errorf("%s: changed is %v", why, p.Changed)
	}
	sound(t, p.Request)
}

// Who cannot see a request learns nothing of it, in no state.
func TestInvisible(t *testing.T) {
	for _, k := range kinds {
		for _, s := range request.States() {
			r, ok := in(t, k, s)
			if !ok {
				continue
			}
			right := answer(r)
			right.Actor = launch.Model
			elsewhere, nowhere, invented, old := right, right, right, right
			elsewhere.Session, nowhere.Session, invented.Request = other, "", "req-00000000000000000000000000000000"
			old.Request = request.ID(runID, r.Node, r.Visit, r.Attempt-1)
			for why, a := range map[string]request.Act{"another session": elsewhere, "no session": nowhere, "an invented id": invented, "an old attempt": old} {
				p := request.Respond(&r, a, nil, after(time.Minute))
				refused := wantKind(t, why, p.Err, launch.ErrNotFound)
				if p.Outcome != request.NotFound || p.Changed || !cmp.Equal(p.Request, request.Request{}) || p.Receipt == nil || p.Receipt.Revision != 0 ||
					refused.Run != "" || strings.Contains(refused.Message, r.ID) {
					t.Errorf("%s: %s learns of a %s request: %+v", why, k, s, p)
				}
				if unknown := request.Respond(nil, a, nil, after(time.Minute)); unknown.Err.Error() != p.Err.Error() {
					t.Errorf("%s: reads %q, and an unknown id %q", why, p.Err, unknown.Err)
				}
				had := *request.Respond(&r, right, nil, after(time.Minute)).Receipt
				if p := request.Respond(&r, a, &had, after(time.Minute)); p.Outcome != request.NotFound || p.Receipt != nil {
					t.Errorf("%s: a known key reads %s", why, p.Outcome)
				}
			}
		}
	}
	headless, err := request.Open(request.Opening{Run: runID, Node: node(run.Checkpoint), Visit: 1, Attempt: 1, Task: "Go on?"}, opened)
	if err != nil {
		t.Fatal(err)
	}
	a := act(headless, request.ActAnswer, launch.Model, "7")
	a.Session = ""
	if p := request.Respond(&headless, a, nil, after(0)); p.Outcome != request.NotFound {
		t.Errorf("a model of no session answers a headless run: %s", p.Outcome)
	}
	a.Actor = launch.Person
	if p := request.Respond(&headless, a, nil, after(0)); p.Outcome != request.Taken {
		t.Errorf("a person cannot answer a headless run: %v", p.Err)
	}
}

// A refusal tells the model what to do, and who can.
func TestRefusalsNameTheWay(t *testing.T) {
	for _, c := range []struct {
		why  string
		kind run.Kind
		by   launch.Actor
		act  request.Action
		says []string
	}{
		{"a model decides", run.Decision, launch.Model, request.ActDecide, []string{"only a person", "release managers", "/workflow decide req-"}},
		{"a model answers a decision", run.Decision, launch.Model, request.ActAnswer, []string{"only a person", "/workflow decide req-"}},
		{"a model submits to a checkpoint", run.Checkpoint, launch.Model, request.ActSubmit, []string{"the model of its session or a person answers"}},
		{"a model answers an agent's step", run.Agent, launch.Model, request.ActAnswer, []string{"submits its output", "may update"}},
		{"a person submits", run.Agent, launch.Person, request.ActSubmit, []string{"the person may not submit", "the model of its session"}},
		{"a model submits a visible text", run.Assistant, launch.Model, request.ActSubmit, []string{"visible text"}},
	} {
		r := open(t, c.kind)
		p := request.Respond(&r, act(r, c.act, c.by, answers[c.kind].payload), nil, after(0))
		for _, s := range c.says {
			if p.Err == nil || !strings.Contains(p.Err.Error(), s) {
				t.Errorf("%s: %v does not say %q", c.why, p.Err, s)
			}
		}
	}
	r := open(t, run.Agent, func(n *run.Node) { n.Ask.Updates = false })
	p := request.Respond(&r, act(r, request.ActUpdate, launch.Model, `{"status":"half"}`), nil, after(0))
	wantKind(t, "an update that the contract does not take", p.Err, launch.ErrWrongKind)
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{request.Action(0).String(), "none"}, {request.Action(200).String(), "none"}, {request.ActDefault.String(), "timeout"},
		{request.State(0).String(), "none"}, {request.State(6).String(), "none"}, {request.Validating.String(), "validating"},
		{request.Outcome(0).String(), "none"}, {request.Outcome(8).String(), "none"}, {request.NotFound.String(), "notFound"},
		{request.ClaimLost.String(), "claimLost"}, {request.Started.String(), "validating"}, {request.EvUsed.String(), "used"},
		{request.EventKind(10).String(), "none"}, {request.PromptForm(4).String(), "none"}, {request.Reminder.String(), "reminder"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
