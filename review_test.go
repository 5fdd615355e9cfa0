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

func requestOf(text string) string {
	at := strings.Index(text, "req-")
	if at < 0 {
		return ""
	}
	return text[at : at+36]
}

func TestEveryKindOfRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wf := everyKind()
	rt, err := piworkflows.Open(piworkflows.Options{Path: filepath.Join(t.TempDir(), "w.db"), Workflows: []*engine.Workflow{wf}, Observe: func(e store.Event) {
		t.Log(e.Kind, e.To, e.Why, e.Node)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	file := deliverytest.NewFile("h1", "/s1.jsonl")
	var conn *piworkflows.Conn
	drafts := 0
	model := func(_ context.Context, turn deliverytest.Turn) deliverytest.Reply {
		last := turn.Context[len(turn.Context)-1]
		text := turn.Opener.Text
		call := func(args string) deliverytest.Reply {
			return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "workflow", Args: json.RawMessage(args)}}}
		}
		switch {
		case turn.Opener.Role == deliverytest.User && turn.Request == 1:
			return call(`{"action":"start","workflow":"every","input":{"title":"rafts"}}`)
		case strings.Contains(text, "Write about"):
			t.Log("model sees:", text)
			if turn.Request == 1 {
				drafts++
				return call(`{"action":"submit","requestId":"` + requestOf(text) + `","output":{"text":"x"}}`)
			}
			if turn.Request == 2 {
				t.Log("model sees:", last.Text)
				return call(`{"action":"submit","requestId":"` + requestOf(text) + `","output":{"text":"rafts float"}}`)
			}
		case strings.Contains(text, "What is missing") && turn.Request == 1:
			return call(`{"action":"answer","requestId":"` + requestOf(text) + `","output":{"text":"!"}}`)
		case strings.Contains(text, "Sum up"):
			return deliverytest.Reply{Text: "They float."}
		}
		return deliverytest.Reply{Text: "ok"}
	}
	pi := file.Start(deliverytest.Options{Model: model, Tools: map[string]deliverytest.Tool{"workflow": func(ctx context.Context, c deliverytest.Call) string {
		r := conn.Tool(ctx, piworkflows.ToolCall{Args: c.Args, RequestKey: fmt.Sprint(c.Turn, c.ID, len(c.Args))})
		t.Log("tool:", r.Text, string(r.Details))
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
	pi.Prompt("do it")
	var v view.View
	for v.Request == nil || v.Request.Kind != "decision" {
		id, err := rt.SessionRun(ctx, file.Key())
		if err == nil && id != "" {
			if v, err = rt.Status(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("no decision: %+v", v)
		}
		time.Sleep(5 * time.Millisecond)
	}
	raw, _ := json.Marshal(v)
	t.Log(string(raw))
	for _, c := range []string{"decide " + v.Request.ID + " maybe", "decide " + v.Request.ID + " redo", "decide " + v.Request.ID + " approve"} {
		r := conn.Tool(ctx, piworkflows.ToolCall{Command: c, Person: true})
		t.Log(r.Text)
	}
	v, err = rt.Wait(ctx, v.Run)
	if err != nil || v.Status != view.Completed {
		t.Fatalf("%+v %v", v, err)
	}
	for _, e := range pi.Branch() {
		t.Logf("%s %s %s", e.Role, e.CustomType, e.Text)
	}
}
