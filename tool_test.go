package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

// agent is a session with its process and its connection to a host.
type agent struct {
	t    *testing.T
	file *deliverytest.File
	pi   *deliverytest.Process
	conn *piworkflows.Conn
}

// connect starts an agent on a session. What its model does in a turn is up to
// reply, which may be nil.
func connect(t *testing.T, rt *piworkflows.Runtime, name string, reply func(*agent, deliverytest.Turn) deliverytest.Reply) *agent {
	t.Helper()
	a := &agent{t: t, file: deliverytest.NewFile(name, "/"+name+".jsonl")}
	a.pi = a.file.Start(deliverytest.Options{Model: func(_ context.Context, turn deliverytest.Turn) deliverytest.Reply {
		if reply == nil {
			return deliverytest.Reply{Text: "ok"}
		}
		return reply(a, turn)
	}})
	t.Cleanup(a.pi.Kill)
	if err := a.pi.Connect(deliverytest.Via(func(ctx context.Context, h delivery.Hello, s delivery.Session) (_ *piworkflows.Conn, err error) {
		a.conn, err = rt.Connect(ctx, h, s)
		return a.conn, err
	})); err != nil {
		t.Fatal(err)
	}
	return a
}

// call calls the tool as the model, person as a person.
func (a *agent) call(args, key string) piworkflows.ToolResult {
	return a.conn.Tool(bg, piworkflows.ToolCall{Args: json.RawMessage(args), RequestKey: key, ToolCallID: "call_1"})
}

func (a *agent) person(args, key string) piworkflows.ToolResult {
	return a.conn.Tool(bg, piworkflows.ToolCall{Args: json.RawMessage(args), RequestKey: key, Person: true})
}

// runID returns the run that a result names.
func runID(t *testing.T, r piworkflows.ToolResult) launch.RunID {
	t.Helper()
	if r.IsError {
		t.Fatalf("the tool refuses: %s", r.Text)
	}
	return startedRun(t, string(r.Details))
}

// want compares a result with what it is to be, word for word.
func want(t *testing.T, what string, got piworkflows.ToolResult, isError bool, text, details string) {
	t.Helper()
	w := piworkflows.ToolResult{Text: text, Details: json.RawMessage(details), IsError: isError}
	if d := cmp.Diff(plain(w), plain(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func plain(r piworkflows.ToolResult) map[string]string {
	return map[string]string{"text": r.Text, "details": string(r.Details), "error": fmt.Sprint(r.IsError)}
}

func TestToolSpec(t *testing.T) {
	rt := host(t, piworkflows.Options{}, gated(func() {}, nil), double())
	spec := rt.Tool()
	var schema struct {
		Properties map[string]struct {
			Type string   `json:"type"`
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil {
		t.Fatal(err)
	}
	model := []string{"list", "start", "status", "submit", "update", "answer", "pause", "cancel", "restart", "configure"}
	if d := cmp.Diff(model, schema.Properties["action"].Enum); d != "" {
		t.Errorf("actions of the model (-want +got):\n%s", d)
	}
	var person []string
	for _, c := range spec.Commands {
		person = append(person, c.Usage)
	}
	usages := []string{"list", "start <workflow> [input...]", "status [runId]", "answer <requestId> <output...>", "pause [runId]", "cancel [runId]",
		"restart [runId] [revision]", "configure [runId] <settings...>", "resume [runId]", "decide <requestId> <choice> [text...]",
		"reopen [messageId]",
		"resolve [runId] <effectId> <finding> [output=] <evidence...>"}
	if d := cmp.Diff(usages, person); d != "" {
		t.Errorf("commands of a person (-want +got):\n%s", d)
	}
	if _, ok := schema.Properties["choice"]; ok || spec.Name != "workflow" || !strings.HasSuffix(spec.Description, "Workflows here: double, gated.") {
		t.Errorf("the tool is described as %s: %s\n%s", spec.Name, spec.Description, spec.Parameters)
	}
}

// What the model and a person are told, word for word.
func TestToolAnswers(t *testing.T) {
	const at = "2030-01-02T03:04:05.000Z"
	start, _ := time.Parse(time.RFC3339, at)
	gate, working := make(chan struct{}), make(chan bool, 1)
	defer close(gate)
	rt := host(t, piworkflows.Options{Clock: clock.NewManual(launch.TimeOf(start))}, gated(func() { working <- true }, gate))
	a := connect(t, rt, "s1", nil)
	b := connect(t, rt, "s2", nil)

	const schema = `{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"type":"object"}`
	want(t, "list", a.call(`{"action":"list"}`, "k0"), false,
		"gated (version 1), input: "+schema, `{"action":"list","workflows":[{"name":"gated","version":"1","inputSchema":`+schema+`}]}`)
	want(t, "status without a run", a.call(`{"action":"status"}`, "k0"), false, "This session has no run.", `{"action":"status"}`)

	first := a.call(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k1")
	run := string(runID(t, first))
	want(t, "start", first, false, "Workflow gated queued (run "+run+").", `{"action":"start","workflow":"gated","runId":"`+run+`","queued":true}`)
	want(t, "the same start again", a.call(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k1"), false, first.Text, string(first.Details))
	want(t, "the same key for another input", a.call(`{"action":"start","workflow":"gated","input":{"n":2}}`, "k1"), true,
		"conflict: the request key was used with another input for run "+run+"; repeat the first content or use a new key",
		`{"action":"start","error":"conflict","retry":false,"runId":"`+run+`"}`)
	<-working
	want(t, "a second start", a.call(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k2"), true,
		"session busy: run "+run+" of this session is running; wait for it or cancel it",
		`{"action":"start","error":"session busy","retry":false,"runId":"`+run+`"}`)

	revision := func(r piworkflows.ToolResult) (v struct {
		Revision    uint64 `json:"revision"`
		RunRevision uint64 `json:"runRevision"`
	}) {
		if err := json.Unmarshal(r.Details, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	shown := a.call(`{"action":"status"}`, "k0")
	v := revision(shown)
	want(t, "status of the session's run", shown, false, "Run "+run+" of workflow gated is running (launch running).",
		fmt.Sprintf(`{"action":"status","workflow":"gated","runId":"%s","status":"running","launchState":"running","node":"work","owner":"live","session":"idle",`+
			`"actions":["cancel","pause"],"recovery":"goes on from the last accepted output","revision":%d,"runRevision":%d,"createdAt":"%s"}`, run, v.Revision, v.RunRevision, at))
	named := `{"action":"status","runId":"` + run + `"}`
	want(t, "status by id", a.call(named, "k0"), false, shown.Text, string(shown.Details))
	want(t, "status for a person", a.person(named, "k0"), false, shown.Text, string(shown.Details))

	const notFound = "not found: no such run; check the run id"
	want(t, "another session's run for the model", b.call(named, "k0"), true, notFound, `{"action":"status","error":"not found","retry":false}`)
	want(t, "another session's run for a person", b.person(named, "k0"), false, shown.Text, string(shown.Details))
	cancel := `{"action":"cancel","runId":"` + run + `"}`
	want(t, "another session's model cancels", b.call(cancel, "k0"), true, notFound, `{"action":"cancel","error":"not found","retry":false}`)
	want(t, "cancel of nothing", a.call(`{"action":"cancel"}`, "k0"), true,
		"invalid input: cancel needs runId; status shows this session's run", `{"action":"cancel","error":"invalid input","retry":false}`)

	want(t, "a person's cancel in a session without a run", b.person(`{"action":"cancel"}`, "k0"), true,
		"not found: this session has no run; start one, or name the run of another session", `{"action":"cancel","error":"not found","retry":false}`)

	want(t, "cancel", a.call(cancel, "k0"), false, "Run "+run+" is cancelled.", `{"action":"cancel","runId":"`+run+`","cancelled":true,"state":"cancelled"}`)
	want(t, "cancel again", a.call(cancel, "k0"), false, "Run "+run+" was already cancelled.", `{"action":"cancel","runId":"`+run+`","cancelled":false,"state":"cancelled"}`)
	want(t, "cancel by a person in another session", b.person(cancel, "k0"), false, "Run "+run+" was already cancelled.", `{"action":"cancel","runId":"`+run+`","cancelled":false,"state":"cancelled"}`)
	ended := a.call(`{"action":"status"}`, "k0")
	v = revision(ended)
	want(t, "status of an ended run", ended, false, "Run "+run+" of workflow gated is cancelled (launch cancelled).",
		fmt.Sprintf(`{"action":"status","workflow":"gated","runId":"%s","status":"cancelled","launchState":"cancelled","session":"idle","actions":["restart"],`+
			`"revision":%d,"runRevision":%d,"createdAt":"%s","finishedAt":"%s"}`, run, v.Revision, v.RunRevision, at, at))
	want(t, "the first start once more, after its end", a.call(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k1"), false, first.Text, string(first.Details))

	next := string(runID(t, a.person(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k3")))
	<-working
	want(t, "a person cancels from another session", b.person(`{"action":"cancel","runId":"`+next+`"}`, "k0"), false,
		"Run "+next+" is cancelled.", `{"action":"cancel","runId":"`+next+`","cancelled":true,"state":"cancelled"}`)

	last := string(runID(t, a.person(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k4")))
	<-working
	want(t, "a person cancels the session's run", a.person(`{"action":"cancel"}`, "k0"), false,
		"Run "+last+" is cancelled.", `{"action":"cancel","runId":"`+last+`","cancelled":true,"state":"cancelled"}`)
	want(t, "and again, the run on display", a.person(`{"action":"cancel"}`, "k0"), false,
		"Run "+last+" was already cancelled.", `{"action":"cancel","runId":"`+last+`","cancelled":false,"state":"cancelled"}`)
}

func TestToolRefuses(t *testing.T) {
	rt := host(t, piworkflows.Options{}, double())
	a := connect(t, rt, "s1", nil)
	for _, c := range []struct {
		why, args, kind, text string
	}{
		{"nothing", ``, "invalid input", "arguments"},
		{"no JSON", marker, "invalid input", "arguments"},
		{"no object", `["start"]`, "invalid input", "arguments"},
		{"no action", `{}`, "invalid input", "action must be one of list, start, status, "},
		{"an unknown action", `{"action":"` + marker + `"}`, "invalid input", "action must be one of"},
		{"an unknown field", `{"action":"list","` + marker + `":1}`, "invalid input", "unknown field; known are: action, choice"},
		{"a wrong type", `{"action":"` + marker + `","workflow":7}`, "invalid input", "wrong type"},
		{"too many bytes", `{"action":"start","input":"` + strings.Repeat("x", launch.MaxInput+launch.MaxOptions) + `"}`, "invalid input", "the bound is"},
		{"too many bytes of input", `{"action":"start","workflow":"double","input":"` + strings.Repeat("x", launch.MaxInput) + `"}`, "invalid input", "the bound is"},
		{"too deep", `{"action":"start","workflow":"double","input":` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `}`, "invalid input", "deep"},
		{"an unknown workflow", `{"action":"start","workflow":"` + marker + `"}`, "not found", "it has: double"},
		{"a run id at the start", `{"action":"start","workflow":"double","runId":"` + marker + `"}`, "invalid input", "not runId"},
		{"a bad input", `{"action":"start","workflow":"double","input":{"n":"` + marker + `"}}`, "invalid input", "wrong type"},
		{"a run that nobody knows", `{"action":"status","runId":"` + marker + `"}`, "not found", "check the run id"},
		{"a cancel of it", `{"action":"cancel","runId":"` + marker + `"}`, "not found", "check the run id"},
	} {
		t.Run(c.why, func(t *testing.T) {
			for _, person := range []bool{false, true} {
				r := a.conn.Tool(bg, piworkflows.ToolCall{Args: json.RawMessage(c.args), RequestKey: "k", Person: person})
				var d struct {
					Error string `json:"error"`
				}
				if err := json.Unmarshal(r.Details, &d); err != nil || !r.IsError || d.Error != c.kind || !strings.Contains(r.Text, c.text) {
					t.Errorf("got %q %s, want %q with %q", r.Text, r.Details, c.kind, c.text)
				}
				if strings.Contains(r.Text+string(r.Details), marker) {
					t.Errorf("the refusal tells the input: %q %s", r.Text, r.Details)
				}
			}
		})
	}
	for _, key := range []string{strings.Repeat("k", 513), "k\n", "k\xff"} {
		if r := a.call(`{"action":"start","workflow":"double","input":{"n":1}}`, key); !r.IsError || !strings.Contains(r.Text, "request key") {
			t.Errorf("the request key %.20q: %q", key, r.Text)
		}
	}
	r := a.conn.Tool(bg, piworkflows.ToolCall{Args: json.RawMessage(`{"action":"start","workflow":"double"}`), RequestKey: "k", ToolCallID: strings.Repeat("c", 513)})
	if !r.IsError || !strings.Contains(r.Text, "tool call id has 513 bytes") {
		t.Errorf("a long tool call id: %q", r.Text)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	r = a.conn.Tool(ctx, piworkflows.ToolCall{Args: json.RawMessage(`{"action":"start","workflow":"double"}`), RequestKey: "k"})
	want(t, "a call that was cancelled before", r, true, "the call was cancelled before anything happened", `{"action":"start","error":"internal","retry":false}`)
	if r := a.call(`{"action":"status"}`, "k"); r.Text != "This session has no run." {
		t.Errorf("a refusal left something: %s", r.Text)
	}
}

// In turns that follow a run's end the model may start two corrected runs; the
// next one is refused in the call itself.
func TestToolOverBudget(t *testing.T) {
	w := engine.New[number]("broken", "1")
	engine.Compute(w, "fail", w.Input(), func(context.Context, number) (int, error) { return 0, errors.New(marker) })
	broken, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan piworkflows.ToolResult, 10)
	rt := host(t, piworkflows.Options{}, broken)
	starts := 0
	a := connect(t, rt, "s1", func(a *agent, turn deliverytest.Turn) deliverytest.Reply {
		if turn.Request > 1 || turn.Opener.Text == "stop" {
			return deliverytest.Reply{Text: "ok"}
		}
		r := a.call(`{"action":"start","workflow":"broken","input":{"n":1}}`, fmt.Sprint("k", starts))
		if starts++; r.IsError {
			refused <- r
		}
		return deliverytest.Reply{Text: "tried"}
	})
	if err := a.pi.Prompt("go"); err != nil {
		t.Fatal(err)
	}
	r := <-refused
	if !strings.HasPrefix(r.Text, "over budget: ") || !strings.Contains(string(r.Details), `"error":"over budget","retry":false`) {
		t.Errorf("the third corrected start: %q %s", r.Text, r.Details)
	}
	a.pi.Wait()
	if starts != 4 {
		t.Errorf("the model started %d times, want its own, two corrections and the refused one", starts)
	}
	if r := a.person(`{"action":"start","workflow":"broken","input":{"n":1}}`, "p"); r.IsError && !strings.HasPrefix(r.Text, "session busy") {
		t.Errorf("a person's start: %s", r.Text)
	}
}
