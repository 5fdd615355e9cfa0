package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
)

// whole asks the model, then whoever answers, then a person, and does what may or
// may not have happened.
func whole() *engine.Workflow {
	w := engine.New[topic]("whole", "1")
	engine.Settings(w, voice{Tone: "plain", Sign: "us"}, "tone")
	draft := engine.Agent[paper](w, "draft", w.Input(), func(context.Context, topic) (string, error) { return "Write.", nil }, engine.Updates())
	ask := engine.Checkpoint[string](w, "ask", draft, func(context.Context, paper) (string, error) { return "What is missing?", nil })
	decide := engine.Decide[verdict](w, "decide", ask, func(context.Context, string) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish?", Text: "It is about rafts."}, nil
	}, engine.TextFor(verdict("redo"), 100, true))
	act := engine.Action(w, "act", ask, func(context.Context, engine.Attempt, string) (paper, error) {
		return paper{}, engine.Unknown(errors.New("the line broke"))
	}, engine.Unrepeatable())
	engine.Then(draft, ask)
	engine.Then(ask, decide)
	engine.Then(decide, act)
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// write calls the tool with what a person wrote after /workflow.
func (a *agent) write(command string) piworkflows.ToolResult {
	return a.conn.Tool(bg, piworkflows.ToolCall{Command: command, Person: true})
}

// What model and person are told of one run, from its start over everything that
// it asks to its restart, word for word.
func TestToolOnRequests(t *testing.T) {
	rt := host(t, piworkflows.Options{}, whole())
	gate := make(chan struct{})
	a := connect(t, rt, "s1", func(_ *agent, turn deliverytest.Turn) deliverytest.Reply {
		if strings.Contains(turn.Opener.Text, "Write.") { // while the test acts
			<-gate
		}
		return deliverytest.Reply{Text: "ok"}
	})
	defer close(gate)
	b := connect(t, rt, "s2", nil)
	key := 0
	model := func(format string, args ...any) piworkflows.ToolResult {
		key++
		return a.call(fmt.Sprintf(format, args...), fmt.Sprint("m", key))
	}
	told := func(r piworkflows.ToolResult, text, details string) {
		t.Helper()
		want(t, text, r, false, text, details)
	}
	refused := func(r piworkflows.ToolResult, action, kind, text, more string) {
		t.Helper()
		want(t, text, r, true, kind+": "+text, fmt.Sprintf(`{"action":%q,"error":%q%s}`, action, kind, more))
	}
	const plainly = `,"retry":false`
	of := func(outcome, request string) string {
		return fmt.Sprintf(`,"outcome":%q,"requestId":%q,"retry":false`, outcome, request)
	}

	run := string(runID(t, a.write(`start whole {"title":"rafts"}`)))
	ofRun := func(outcome, request string) string { return of(outcome, request) + fmt.Sprintf(`,"runId":%q`, run) }
	status := func() view.View {
		t.Helper()
		v, err := rt.Status(bg, launch.RunID(run))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}

	// The step.
	id := asked(t, rt, launch.RunID(run), "agent").ID
	answered := func(action, outcome, node, state string, revision int) string {
		return fmt.Sprintf(`{"action":%q,"requestId":%q,"outcome":%q,"runId":%q,"node":%q,"state":%q,"revision":%d}`, action, id, outcome, run, node, state, revision)
	}
	const progress = `{"schema":"pi-workflows.progress.v1","status":"reading","completed":1,"total":4,"unit":"files"}`
	told(model(`{"action":"update","requestId":%q,"progress":%s}`, id, progress),
		"The progress is recorded; request "+id+" is still open.", answered("update", "accepted", "draft", "pending", 1))
	refused(model(`{"action":"update","requestId":%q}`, id), "update", "invalid input", "update needs its progress", plainly)
	refused(model(`{"action":"submit","requestId":%q}`, id), "submit", "invalid input", "submit needs its output", plainly)
	refused(model(`{"action":"submit","output":{}}`), "submit", "invalid input", "submit needs requestId: the exact id in the message that asks", plainly)
	refused(model(`{"action":"submit","requestId":"req-none","output":{}}`), "submit", "not found",
		"no such request here; the one that is open in this session is "+id+", of kind agent", of("notFound", "req-none"))
	refused(b.call(`{"action":"submit","requestId":"`+id+`","output":{}}`, "x"), "submit", "not found",
		"no such request here; use the exact request id of the message that asks", of("notFound", id))
	refused(model(`{"action":"answer","requestId":%q,"output":"x"}`, id), "answer", "wrong kind",
		"request "+id+" does not take answer; the model of its session submits its output, and may update its progress before", ofRun("conflict", id))
	if r := model(`{"action":"submit","requestId":%q,"output":{"text":7}}`, id); !r.IsError || !strings.HasPrefix(r.Text, "invalid input: output") || !strings.Contains(string(r.Details), `"outcome":"rejected"`) {
		t.Errorf("another form: %q %s", r.Text, r.Details)
	}
	refused(a.person(`{"action":"submit","requestId":"`+id+`","output":{"text":"a"}}`, "p1"), "submit", "not allowed",
		"the person may not submit; the model of its session submits its output, and may update its progress before", ofRun("conflict", id))
	taken := a.call(`{"action":"submit","requestId":"`+id+`","output":{"text":"a"}}`, "taken")
	told(taken, "Request "+id+" is answered. Run "+run+" goes on by itself; if it asks again, a new message says so.", answered("submit", "accepted", "draft", "accepted", 2))
	told(a.call(`{"action":"submit","requestId":"`+id+`","output":{"text":"a"}}`, "taken"),
		"Request "+id+" was answered so before; nothing is done twice.", answered("submit", "adopted", "draft", "accepted", 2))
	if r := model(`{"action":"submit","requestId":%q,"output":{"text":"b"}}`, id); !strings.HasPrefix(r.Text, "already decided: request "+id+" was answered at ") {
		t.Errorf("another output: %q %s", r.Text, r.Details)
	}

	// The checkpoint, held meanwhile, and with other settings.
	id = asked(t, rt, launch.RunID(run), "checkpoint").ID
	told(model(`{"action":"pause","runId":%q}`, run), "Run "+run+" is paused: what runs finishes, nothing new starts. A person resumes it with /workflow resume.",
		fmt.Sprintf(`{"action":"pause","runId":%q,"state":"parked"}`, run))
	told(a.write("resume"), "Run "+run+" goes on.", fmt.Sprintf(`{"action":"resume","runId":%q,"state":"parked"}`, run))
	told(a.write(`configure {"sign": "them"}`), "The settings of run "+run+" are at revision 2; an attempt that has begun goes on with the old ones.",
		fmt.Sprintf(`{"action":"configure","runId":%q,"revision":2}`, run))
	told(model(`{"action":"configure","runId":%q,"revision":2,"settings":{"tone":"dry"}}`, run), "The settings of run "+run+" are at revision 3; an attempt that has begun goes on with the old ones.",
		fmt.Sprintf(`{"action":"configure","runId":%q,"revision":3}`, run))
	if r := model(`{"action":"configure","runId":%q,"revision":3,"settings":{"sign":"me"}}`, run); !strings.HasPrefix(r.Text, "not allowed: ") {
		t.Errorf("the model changes what it may not: %q", r.Text)
	}
	if r := model(`{"action":"configure","runId":%q,"revision":2,"settings":{"tone":"wet"}}`, run); !strings.HasPrefix(r.Text, "stale: ") {
		t.Errorf("the model names an old revision: %q", r.Text)
	}
	if r := model(`{"action":"configure","runId":%q,"revision":3}`, run); !strings.HasPrefix(r.Text, "invalid input: ") {
		t.Errorf("the model changes nothing: %q", r.Text)
	}
	refused(a.write("answer "+id+" 7"), "answer", "invalid input", "output must be of type string", of("rejected", id))
	told(a.write("answer "+id+" boats, and more"), "Request "+id+" is answered. Run "+run+" goes on by itself; if it asks again, a new message says so.",
		answered("answer", "accepted", "ask", "accepted", 2))

	// The decision.
	id = asked(t, rt, launch.RunID(run), "decision").ID
	refused(model(`{"action":"answer","requestId":%q,"output":{"choice":"approve"}}`, id), "answer", "wrong kind",
		"request "+id+" does not take answer; only a person decides it, with /workflow decide "+id+" <choice>; tell the person and wait", ofRun("conflict", id))
	for action, usage := range map[string]string{
		"resume":  "resume [runId]",
		"decide":  "decide <requestId> <choice> [text...]",
		"reopen":  "reopen [messageId]",
		"resolve": "resolve [runId] <effectId> <finding> [output=] <evidence...>",
	} {
		refused(model(`{"action":%q,"requestId":%q,"choice":"approve","runId":%q}`, action, id, run), action, "not allowed",
			"only a person does that: /workflow "+usage+"; tell the person", plainly)
	}
	refused(a.write("decide "+id+" burn"), "decide", "invalid input", `choice must be one of ["approve" "redo"]`, of("rejected", id))
	refused(a.write("decide "+id+" redo"), "decide", "invalid input", "choice redo needs a text of 1 to 100 characters", of("rejected", id))
	refused(a.write("decide req-none redo"), "decide", "not found", "no such request; check the request id", plainly)
	refused(a.person(`{"action":"decide","requestId":"`+id+`","choice":"approve","revision":7}`, "p2"), "decide", "stale",
		"request "+id+" is at revision 1, the action names 7; look at it again", ofRun("conflict", id))
	told(b.write("decide "+id+" redo say  more"), "Request "+id+" is answered. Run "+run+" goes on by itself; if it asks again, a new message says so.",
		answered("decide", "accepted", "decide", "accepted", 2))
	if r := a.write("decide " + id + " approve"); !strings.HasPrefix(r.Text, "already decided: ") || !strings.Contains(r.Text, "by the person") {
		t.Errorf("a late decision: %q", r.Text)
	}

	// The effect.
	until(t, "it is ambiguous", func() bool { return status().Effect != "" })
	effect := status().Effect
	if output, _, err := rt.Output(bg, launch.RunID(run), "decide"); err != nil || string(output) != `{"choice":"redo","text":"say  more","by":"person","person":"local"}` {
		t.Errorf("decided was %s, %v", output, err)
	}
	refused(a.write("resolve "+effect+" maybe seen"), "resolve", "invalid input", "finding must be applied or rejected", plainly)
	refused(a.write("resolve none applied seen"), "resolve", "not found", "run "+run+" has no unsettled effect of that id; its status names it", plainly)
	refused(b.write("resolve "+effect+" applied seen"), "resolve", "not found", "this session has no run; start one, or name the run of another session", plainly)
	refused(a.write("reopen"), "reopen", "not allowed", "run "+run+" has no blocked message; there is nothing to re-open", plainly)
	refused(a.write("reopen none"), "reopen", "not found", "no such message in this session; check the message id", plainly)
	refused(a.write("restart"), "restart", "not allowed", "run "+run+" is parked; only a run that has ended is restarted, so cancel it first", plainly+fmt.Sprintf(`,"runId":%q`, run))
	told(b.write("resolve "+run+" "+effect+` applied output={"text":"out"} I saw it`), "The effect of node act is settled as applied.",
		fmt.Sprintf(`{"action":"resolve","runId":%q,"effectId":%q,"node":"act","state":"applied"}`, run, effect))
	if v, err := rt.Wait(bg, launch.RunID(run)); err != nil || v.Status != view.Completed {
		t.Fatalf("the run is %s, %v", v.Status, err)
	}
	if output, _, err := rt.Output(bg, launch.RunID(run), "act"); err != nil || string(output) != `{"text":"out"}` {
		t.Errorf("it returned %s, %v", output, err)
	}

	// The restart, once the step's turn is over at last.
	gate <- struct{}{}
	if r := a.write("restart " + run + " 1"); !strings.HasPrefix(r.Text, "stale: ") {
		t.Errorf("a restart at an old revision: %q %s", r.Text, r.Details)
	}
	if r := model(`{"action":"restart","runId":%q}`, run); !strings.HasPrefix(r.Text, "stale: ") {
		t.Errorf("the model restarts at no revision: %q %s", r.Text, r.Details)
	}
	r := a.write(fmt.Sprintf("restart %s revision=%d", run, status().RunRevision))
	next := string(runID(t, r))
	told(r, "Run "+run+" is queued again as run "+next+"; nothing of it is copied but its input.",
		fmt.Sprintf(`{"action":"restart","runId":%q,"sourceRunId":%q,"queued":true}`, next, run))
	asked(t, rt, launch.RunID(next), "agent")
	if r := a.write("cancel"); r.Text != "Run "+next+" is cancelled." {
		t.Errorf("the restarted run: %q", r.Text)
	}
	last := string(runID(t, a.write("restart")))
	if v, err := rt.Status(bg, launch.RunID(last)); err != nil || last == next {
		t.Errorf("a restart of the run on display: %+v, %v", v, err)
	}
}

// A command is a person's, and what it cannot be is said.
func TestToolCommands(t *testing.T) {
	rt := host(t, piworkflows.Options{}, double())
	a := connect(t, rt, "s1", nil)
	for why, call := range map[string]piworkflows.ToolCall{
		"the model writes":       {Command: "list"},
		"arguments and command":  {Command: "list", Args: json.RawMessage(`{"action":"list"}`), Person: true},
		"the model does, beside": {Command: "list", Args: json.RawMessage(`{"action":"list"}`)},
	} {
		want(t, why, a.conn.Tool(bg, call), true, "invalid input: a command is a person's, and comes without arguments", `{"action":"","error":"invalid input","retry":false}`)
	}
	want(t, "an unknown command", a.write(marker), true,
		"invalid input: there is no such command; write one of: list, start, status, answer, pause, cancel, restart, configure, resume, decide, reopen, resolve",
		`{"action":"","error":"invalid input","retry":false}`)
	want(t, "too few words", a.write("decide "+marker), true,
		"invalid input: choice is missing; write /workflow decide <requestId> <choice> [text...]", `{"action":"","error":"invalid input","retry":false}`)
	want(t, "nothing", a.write(""), false, "This session has no run.", `{"action":"status"}`)
	if r := a.write("start double n=1"); !r.IsError || !strings.Contains(r.Text, "input") {
		t.Errorf("text for an input: %q", r.Text)
	}
	id := runID(t, a.write(`start double {"n": 21}`))
	if v, err := rt.Wait(bg, id); err != nil || v.Status != view.Completed {
		t.Errorf("the run is %s, %v", v.Status, err)
	}
	for _, command := range []string{"status", "status " + string(id), "status runId=" + string(id)} {
		if r := a.write(command); r.Text != "Run "+string(id)+" of workflow double is completed (launch done)." {
			t.Errorf("%s: %q", command, r.Text)
		}
	}
}
