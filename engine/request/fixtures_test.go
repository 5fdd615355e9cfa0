package request_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

const (
	runID   = launch.RunID("demo-01ARZ3NDEKTSV4RRFFQ69G5FAV")
	session = launch.SessionKey("s1@0123456789abcdef0123456789abcdef")
	other   = launch.SessionKey("s2@0123456789abcdef0123456789abcdef")
	opened  = launch.Time(1_700_000_000_000_000_000)
)

var kinds = []run.Kind{run.Agent, run.Assistant, run.Checkpoint, run.Decision}

// answers is a payload that fits, for each kind, and the actions and actors that
// bring it.
var answers = map[run.Kind]struct {
	action  request.Action
	actor   launch.Actor
	payload string
	another string // that fits too
	misfit  string
}{
	run.Agent:      {request.ActSubmit, launch.Model, `{"text":"done"}`, `{"text":"more"}`, `{"text":1}`},
	run.Assistant:  {request.ActRespond, launch.Model, `"done"`, `"more"`, `1`},
	run.Checkpoint: {request.ActAnswer, launch.Model, `7`, `8`, `"seven"`},
	run.Decision:   {request.ActDecide, launch.Person, `{"choice":"ship"}`, `{"choice":"hold","text":"wait"}`, `{"choice":"sell"}`},
}

// node is a node of a kind, all of whose declarations are used.
func node(k run.Kind) *run.Node {
	n := &run.Node{Path: "mount/ask", Kind: k, Ask: &run.Ask{}}
	switch k {
	case run.Agent:
		n.Ask.Form = json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"additionalProperties":false}`)
		n.Ask.Updates = true
	case run.Assistant:
		n.Ask.Form = json.RawMessage(`{"type":"string"}`)
	case run.Checkpoint:
		n.Ask.Form = json.RawMessage(`{"type":"integer","minimum":0,"maximum":255}`)
		n.Ask.Expires = time.Hour
	case run.Decision:
		n.Choices = []string{"ship", "hold"}
		n.Ask.Form = json.RawMessage(`{"type":"object"}`)
		n.Ask.Texts = []run.TextInput{{Choice: "hold", Max: 10, Required: true}}
		n.Ask.Audience = "release managers"
		n.Ask.Expires = time.Hour
	}
	return n
}

func opening(n *run.Node) request.Opening {
	o := request.Opening{Run: runID, Node: n, Visit: 2, Attempt: 3, Session: session, Task: "Do it."}
	if n.Kind == run.Decision {
		o.Title, o.Subject = "Release 1.0", launch.DigestOf([]byte("the release"))
	}
	return o
}

// open opens a request of a kind, with changes to its node.
func open(t testing.TB, k run.Kind, changes ...func(*run.Node)) request.Request {
	t.Helper()
	n := node(k)
	for _, change := range changes {
		change(n)
	}
	r, err := request.Open(opening(n), opened)
	if err != nil {
		t.Fatal(err)
	}
	return sound(t, r)
}

func validates(n *run.Node) { n.Ask.Validates = true }

func defaults(answer string) func(*run.Node) {
	return func(n *run.Node) { n.Ask.Default = json.RawMessage(answer) }
}

func after(d time.Duration) launch.Now { return launch.Now{Wall: opened.Add(d)} }

// act is an action on r by whoever fits the actor, under a key of its own.
func act(r request.Request, a request.Action, by launch.Actor, payload string) request.Act {
	return request.Act{Request: r.ID, Action: a, Actor: by, Session: session, Key: a.String() + launch.DigestOf([]byte(payload)).String(), Revision: r.Revision,
		Payload: []byte(payload), Person: "ann", Channel: "pi", Event: "event-1"}
}

// answer is an action that answers r.
func answer(r request.Request) request.Act {
	a := answers[r.Kind]
	return act(r, a.action, a.actor, a.payload)
}

// answered carries an action out that has to stand.
func answered(t testing.TB, r request.Request, a request.Act) request.Reply {
	t.Helper()
	p := request.Respond(&r, a, nil, after(time.Minute))
	if p.Err != nil {
		t.Fatalf("%s by the %s: %v", a.Action, a.Actor, p.Err)
	}
	sound(t, p.Request)
	return p
}

// applied carries commands out that have to stand.
func applied(t testing.TB, r request.Request, commands ...request.Command) request.Request {
	t.Helper()
	for _, c := range commands {
		next, _, err := request.Apply(r, c, after(time.Minute))
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		r = sound(t, next)
	}
	return r
}

func sound(t testing.TB, r request.Request) request.Request {
	t.Helper()
	if err := request.Check(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// in brings a request of a kind into a state, by the rules; a decision is never
// validating.
func in(t testing.TB, k run.Kind, s request.State) (request.Request, bool) {
	t.Helper()
	switch s {
	case request.Pending:
		return open(t, k), true
	case request.Validating:
		if k == run.Decision {
			return request.Request{}, false
		}
		r := open(t, k, validates)
		return answered(t, r, answer(r)).Request, true
	case request.Accepted:
		r := open(t, k)
		return answered(t, r, answer(r)).Request, true
	case request.Expired:
		return applied(t, open(t, k), request.Expire{Why: launch.CodeTimedOut}), true
	default:
		return applied(t, open(t, k), request.End{}), true
	}
}

func same(t testing.TB, why string, want, got request.Request) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s: the request changed (-before +after):\n%s", why, cmp.Diff(want, got))
	}
}

func wantKind(t testing.TB, why string, err error, want launch.Kind) *launch.Refusal {
	t.Helper()
	var r *launch.Refusal
	if want == 0 && err == nil {
		return nil
	}
	if want == 0 || !errors.As(err, &r) || r.Kind != want {
		t.Errorf("%s: got %v, want %v", why, err, want)
		return &launch.Refusal{}
	}
	return r
}
