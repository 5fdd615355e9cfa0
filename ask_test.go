package piworkflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

type topic struct {
	Title string `json:"title"`
}

type paper struct {
	Text string `json:"text"`
}

type verdict string

func (verdict) Choices() []verdict { return []verdict{"approve", "redo"} }

// everyKind is a workflow with a node of each kind that asks.
func everyKind() *engine.Workflow {
	w := engine.New[topic]("every", "1")
	draft := engine.Agent[paper](w, "draft", w.Input(), func(_ context.Context, in topic) (string, error) {
		return "Write about " + in.Title + ".", nil
	}, engine.Validate(func(_ context.Context, p paper) error {
		if len(p.Text) < 5 {
			return engine.Explain("the text is too short; write at least 5 characters", nil)
		}
		return nil
	}))
	say := engine.Respond(w, "say", draft, func(_ context.Context, p paper) (string, error) { return "Sum up: " + p.Text, nil })
	ask := engine.Checkpoint[paper](w, "ask", say, func(_ context.Context, s string) (string, error) { return "What is missing in: " + s, nil })
	decide := engine.Decide[verdict](w, "decide", engine.Both(draft, ask), func(_ context.Context, p engine.Pair[paper, paper]) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish?", Text: p.A.Text + p.B.Text}, nil
	}, engine.TextFor(verdict("redo"), 100, true))
	publish := engine.Action(w, "publish", engine.Both(draft, ask), func(_ context.Context, a engine.Attempt, p engine.Pair[paper, paper]) (string, error) {
		return p.A.Text + p.B.Text, nil
	}, engine.Repeatable(), engine.Approved(decide, "approve"))
	tell := engine.Notify(w, "tell", publish, func(_ context.Context, s string) (string, error) { return "published " + s, nil }, engine.Final())
	engine.Then(draft, say)
	engine.Then(say, ask)
	engine.Then(ask, decide)
	engine.Switch(decide, engine.Case(verdict("approve"), publish), engine.Case(verdict("redo"), draft))
	engine.Then(publish, tell)
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// requestOf returns the id of the request that a text names.
func requestOf(text string) string {
	at := strings.Index(text, "req-")
	if at < 0 {
		return ""
	}
	return text[at : at+36]
}

// One run asks the model by tool and by text, asks a question, waits for a
// person, acts once on what was approved, and reports: through the whole host,
// on a scripted session.
func TestEveryKindOfRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	committed := make(chan struct{}, 1)
	runs := 0
	rt, err := piworkflows.Open(piworkflows.Options{Path: filepath.Join(t.TempDir(), "w.db"), Workflows: []*engine.Workflow{everyKind()}, Observe: func(e store.Event) {
		if e.Launch == launch.EvReserved {
			runs++
		}
		select {
		case committed <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	file := deliverytest.NewFile("h1", "/s1.jsonl")
	var conn *piworkflows.Conn
	var told []string // by the tool
	call := func(format string, args ...any) deliverytest.Reply {
		return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "workflow", Args: json.RawMessage(fmt.Sprintf(format, args...))}}}
	}
	model := func(_ context.Context, turn deliverytest.Turn) deliverytest.Reply {
		text := turn.Opener.Text
		id := requestOf(text)
		switch {
		case turn.Opener.Role == deliverytest.User && turn.Request == 1:
			return call(`{"action":"start","workflow":"every","input":{"title":"rafts"}}`)
		case strings.Contains(text, "Write about") && turn.Request == 1:
			return call(`{"action":"submit","requestId":"req-invented","output":{"text":"rafts float"}}`)
		case strings.Contains(text, "Write about") && turn.Request == 2:
			return call(`{"action":"submit","requestId":%q,"output":{"text":"x"}}`, id)
		case strings.Contains(text, "Write about") && turn.Request == 3:
			return call(`{"action":"submit","requestId":%q,"output":{"text":"rafts float"}}`, id)
		case strings.Contains(text, "What is missing") && turn.Request == 1:
			return call(`{"action":"answer","requestId":%q,"output":{"text":"!"}}`, id)
		case strings.Contains(text, "Sum up"):
			return deliverytest.Reply{Text: "They float."}
		}
		return deliverytest.Reply{Text: "ok"}
	}
	pi := file.Start(deliverytest.Options{Model: model, Tools: map[string]deliverytest.Tool{"workflow": func(ctx context.Context, c deliverytest.Call) string {
		r := conn.Tool(ctx, piworkflows.ToolCall{Args: c.Args, RequestKey: fmt.Sprint(c.Turn, c.ID, len(told))})
		told = append(told, r.Text)
		return r.Text
	}}})
	defer pi.Kill()
	if err := pi.Connect(deliverytest.Via(func(ctx context.Context, h delivery.Hello, s delivery.Session) (*piworkflows.Conn, error) {
		c, err := rt.Connect(ctx, h, s)
		conn = c
		return c, err
	})); err != nil {
		t.Fatal(err)
	}
	if err := pi.Prompt("do it"); err != nil {
		t.Fatal(err)
	}
	var v view.View
	for v.Request == nil || v.Request.Kind != "decision" {
		id, err := rt.SessionRun(ctx, file.Key())
		if err == nil && id != "" {
			if v, err = rt.Status(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-committed:
		case <-ctx.Done():
			t.Fatalf("no decision: %+v", v)
		}
	}
	if said, ok, err := rt.Output(ctx, v.Run, "say"); err != nil || !ok || string(said) != `"They float."` {
		t.Errorf("the visible text is %s %v %v", said, ok, err)
	}
	for _, c := range []struct{ command, want string }{
		{"decide " + v.Request.ID + " maybe", "invalid input: choice must be one of"},
		{"decide " + v.Request.ID + " redo", "invalid input: choice redo needs a text"},
		{"decide " + v.Request.ID + " approve", "is answered"},
	} {
		if r := conn.Tool(ctx, piworkflows.ToolCall{Command: c.command, Person: true}); !strings.Contains(r.Text, c.want) {
			t.Errorf("%s: %s, want %s", c.command, r.Text, c.want)
		}
	}
	if v, err = rt.Wait(ctx, v.Run); err != nil || v.Status != view.Completed {
		t.Fatalf("%+v %v", v, err)
	}
	if out, _, err := rt.Output(ctx, v.Run, "publish"); err != nil || string(out) != `"rafts float!"` || runs != 1 {
		t.Errorf("published %s in %d runs: %v", out, runs, err)
	}
	for i, want := range []string{"queued", "the one that is open in this session is req-", "the text is too short; write at least 5 characters", "is answered", "is answered"} {
		if i >= len(told) || !strings.Contains(told[i], want) {
			t.Errorf("the tool said %q; want %q in its answer %d", told, want, i+1)
		}
	}
}
