package request_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/prompts.txt anew")

// The texts of all messages, as the model and people read them.
func TestTexts(t *testing.T) {
	choose := func(n *run.Node) {
		n.Choices, n.Ask.Form = []string{"fast", "safe"}, json.RawMessage(`{"type":"string"}`)
	}
	plain := func(n *run.Node) { n.Ask.Form, n.Ask.Updates = nil, false }
	var b strings.Builder
	for _, c := range []struct {
		why     string
		kind    run.Kind
		form    request.PromptForm
		changes []func(*run.Node)
		after   []request.PromptForm
		misfit  bool
	}{
		{"a step, asked", run.Agent, request.Initial, nil, nil, false},
		{"a step, asked again after a turn without an end", run.Agent, request.Resumed, nil, []request.PromptForm{request.Initial}, false},
		{"a step, reminded of after a rejection", run.Agent, request.Reminder, nil, []request.PromptForm{request.Initial}, true},
		{"a step that is checked by code", run.Agent, request.Initial, []func(*run.Node){validates}, nil, false},
		{"a step with any output", run.Agent, request.Initial, []func(*run.Node){plain}, nil, false},
		{"a choice", run.Agent, request.Initial, []func(*run.Node){choose}, nil, false},
		{"a visible text", run.Assistant, request.Initial, nil, nil, false},
		{"a visible text, the last reminder", run.Assistant, request.Reminder, nil, []request.PromptForm{request.Initial, request.Reminder}, false},
		{"a question", run.Checkpoint, request.Initial, nil, nil, false},
		{"a question with a default", run.Checkpoint, request.Initial, []func(*run.Node){defaults(`3`)}, nil, false},
		{"a decision", run.Decision, request.Initial, nil, nil, false},
		{"a decision with a default", run.Decision, request.Initial, []func(*run.Node){defaults(`"ship"`), func(n *run.Node) { n.Ask.Audience = "" }}, nil, false},
	} {
		r := open(t, c.kind, c.changes...)
		for _, f := range append(c.after, c.form) {
			r = applied(t, r, request.Prompted{Form: f})
		}
		if c.misfit {
			r = request.Respond(&r, act(r, answers[c.kind].action, launch.Model, answers[c.kind].misfit), nil, after(0)).Request
		}
		text, err := request.Text(r, c.form)
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		b.WriteString("# " + c.why + "\n" + text + "\n" + string(request.Details(r, c.form)) + "\n\n")
	}
	const path = "testdata/prompts.txt"
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("the texts differ (run with -rewrite after checking that they should) (-golden +got):\n%s", d)
	}
}

// Every message is complete in itself, whatever the task says, and the task
// cannot end its frame. What a decision is about never appears.
func TestTextIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(kinds).Draw(t, "kind")
		o := opening(node(k))
		o.Task = strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"=", "=====", "\n", "x", "\"}", "<", "=========="}), 1, 30).Draw(t, "task"), "")
		r, err := request.Open(o, opened)
		if err != nil {
			t.Fatal(err)
		}
		r.Rejection, r.Prompts = "it is too short", 1
		for _, f := range []request.PromptForm{request.Initial, request.Resumed, request.Reminder} {
			text, err := request.Text(r, f)
			if err != nil {
				t.Fatal(err)
			}
			needs := []string{r.ID, o.Task, "it is too short", string(runID), "mount/ask"}
			switch k {
			case run.Agent:
				needs = append(needs, `{"action":"submit","requestId":"`+r.ID+`","output":`, `{"action":"update","requestId":"`+r.ID+`","progress":{`, string(o.Node.Ask.Form))
			case run.Checkpoint:
				needs = append(needs, `{"action":"answer","requestId":"`+r.ID+`","output":`, string(o.Node.Ask.Form))
			case run.Decision:
				needs = append(needs, "/workflow decide "+r.ID+" <choice>", "ship, hold", "Release 1.0", "release managers")
			}
			for _, s := range needs {
				if !strings.Contains(text, s) {
					t.Fatalf("%s %s does not say %q:\n%s", k, f, s, text)
				}
			}
			if strings.Contains(text, r.Subject.String()) {
				t.Fatalf("the subject appears in\n%s", text)
			}
			start := strings.Index(text, "\n=====") + 1
			frame, _, _ := strings.Cut(text[start:], "\n")
			if strings.Count(text, frame) != 2 || strings.Contains(o.Task, frame) {
				t.Fatalf("the frame %s is not the task's own:\n%s", frame, text)
			}
		}
	})
}

// The largest message has room for every rejection that follows.
func TestLargestText(t *testing.T) {
	for size := request.MaxTask; size > request.MaxTask-30_000; size -= 500 {
		o := opening(node(run.Agent))
		o.Task = strings.Repeat("<", size)
		r, err := request.Open(o, opened)
		if err != nil {
			continue
		}
		r.Rejection, r.Prompts = strings.Repeat("<", launch.MaxErrorMessage), 1<<32-1
		text, err := request.Text(r, request.Reminder)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]any{"customType": "pi-workflows-checkpoint", "content": text, "details": request.Details(r, request.Reminder)})
		if err != nil || len(body) > 2*launch.MaxOptions || len(text) > launch.MaxOptions {
			t.Errorf("a task of %d bytes makes a message of %d and a body of %d bytes, %v", size, len(text), len(body), err)
		}
		return
	}
	t.Error("no task fits")
}
