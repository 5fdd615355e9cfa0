package piworkflows_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// gated has one node, which waits until it is let through.
func gated(working func(), gate <-chan struct{}) *engine.Workflow {
	w := engine.New[number]("gated", "1")
	engine.Compute(w, "work", w.Input(), func(ctx context.Context, in number) (int, error) {
		working()
		select {
		case <-gate:
			return in.N, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

func readTranscript(path string) (entries []deliverytest.Entry, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(raw) {
		var e deliverytest.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, err
}

// sessionChild is one agent process with its host. The first prompts and starts
// a run whose node waits; with "hold" it stops in the send of the message that
// follows. The second takes the session over.
func sessionChild(c *child) {
	path, task := c.args[0], c.args[1]
	ctx := context.Background()
	gate := make(chan struct{})
	file, err := deliverytest.OpenFile("s1", path+".session.jsonl")
	c.must(err)
	rt, err := piworkflows.Open(piworkflows.Options{
		Path: path, Workflows: []*engine.Workflow{gated(func() { c.say("working") }, gate)},
		Observe: func(e store.Event) {
			if e.Kind == "session.sent" || e.Kind == "intent.resolved" || e.Kind == "launch.done" {
				c.say("fact %s %s", e.Kind, e.Message)
			}
		},
	})
	c.must(err)
	var conn *piworkflows.Conn
	pi := file.Start(deliverytest.Options{
		Process: "pi-" + task,
		Model: func(_ context.Context, turn deliverytest.Turn) deliverytest.Reply {
			if turn.Opener.Text == "start" && turn.Request == 1 {
				return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "workflow", Args: json.RawMessage(`{"action":"start","workflow":"gated","input":{"n":1}}`)}}}
			}
			return deliverytest.Reply{Text: "ok"}
		},
		Tools: map[string]deliverytest.Tool{"workflow": func(ctx context.Context, call deliverytest.Call) string {
			r := conn.Tool(ctx, piworkflows.ToolCall{Args: call.Args, RequestKey: rand.Text(), ToolCallID: call.ID})
			c.say("told %s", r.Details)
			return r.Text
		}},
	})
	c.must(pi.Connect(deliverytest.Via(func(ctx context.Context, h delivery.Hello, s delivery.Session) (*piworkflows.Conn, error) {
		var err error
		conn, err = rt.Connect(ctx, h, s)
		return conn, err
	})))
	c.say("connected %d", conn.Epoch())
	if task == "second" {
		c.hear()
		pi.Wait()
		c.must(rt.Close(ctx))
		return
	}
	var hold *deliverytest.Hold
	if task == "hold" {
		hold = pi.Hold(deliverytest.PointSend)
	}
	c.must(pi.Prompt("start"))
	if task == "hold" {
		close(gate)
		hold.Wait()
		c.say("sending")
		c.hear()
		c.must(pi.Type("are you there?")) // its report is refused, which tells the bridge
	}
	<-conn.Done() // which another process causes
	c.say("fenced")
	if r := conn.Tool(ctx, piworkflows.ToolCall{Args: json.RawMessage(`{"action":"start","workflow":"gated"}`), RequestKey: rand.Text()}); true {
		c.say("late start %s", r.Details)
	}
	if _, err := conn.TurnStarted(ctx, "late", ""); !errors.Is(err, launch.ErrStale) {
		c.say("error: a fenced report was answered %v", err)
	}
	if err := pi.Connect(nil); !errors.Is(err, deliverytest.ErrAway) {
		c.say("error: a fenced bridge connects again: %v", err)
	}
	c.hear()
	if task == "hold" {
		hold.Release()
	} else {
		close(gate) // the run is still this host's
	}
	c.hear()
	for _, s := range file.Sends() {
		c.say("asked %v", s.Executed)
	}
	c.must(rt.Close(ctx))
}

// Another process connects the session while a run of the first is under way,
// or while the first is about to append the message that the run owes. The first
// is fenced, and the message arrives once.
func TestTakeover(t *testing.T) {
	for _, c := range []struct {
		task, why string
		sends     string
	}{
		{"run", "the run goes on under its claim, and the new connection delivers", ""},
		{"hold", "the send that was on its way is refused; the new connection waits until it cannot be executed any more", "asked false"},
	} {
		t.Run(c.task, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "flows.db")
			first := spawn(t, "session", path, c.task)
			first.await("connected 1")
			run := startedRun(t, first.await("told"))
			first.await("working")
			if c.task == "hold" {
				first.await("sending")
			}
			second := spawn(t, "session", path, "second")
			second.await("connected 2")
			if c.task == "hold" {
				first.tell("type")
			}
			first.await("fenced")
			if got := first.await("late start"); !strings.Contains(got, `"stale"`) {
				t.Errorf("a fenced connection starts: %s", got)
			}
			first.tell("go on")
			message := second.await("fact session.sent")
			second.await("fact intent.resolved")
			first.tell("close")
			second.tell("close")
			first.wait()
			second.wait()
			var sends []string
			for _, line := range first.seen {
				if strings.HasPrefix(line, "asked") {
					sends = append(sends, line)
				}
				if strings.HasPrefix(line, "fact session.sent") {
					t.Errorf("the fenced process saw its own message arrive")
				}
			}
			if got := strings.Join(sends, ", "); !strings.HasPrefix(got, c.sends) || c.sends == "" && got != "" || len(sends) > 1 {
				t.Errorf("the first process was asked to send: %q, want %q (%s)", got, c.sends, c.why)
			}
			entries, err := readTranscript(path + ".session.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			for _, e := range entries {
				if e.MessageID() != "" {
					count++
					if e.MessageID() != message || !strings.Contains(e.Text, string(run)) {
						t.Errorf("the transcript has the message %s %q, want %s about %s", e.MessageID(), e.Text, message, run)
					}
				}
			}
			if count != 1 {
				t.Errorf("%d messages are in the transcript, want one", count)
			}
			checkFile(t, path)
			if rows := query(t, path, `SELECT state, issue FROM workflow_messages`); len(rows) != 1 || rows[0] != "2 1" {
				t.Errorf("messages: %q, want one, sent, the first issue", rows)
			}
			if rows := query(t, path, `SELECT count(*), count(resolved_at) FROM workflow_turn_intents`); rows[0] != "1 1" {
				t.Errorf("intents and resolved ones: %q", rows)
			}
			if l := launchOf(t, openStore(t, path), run); l.State != launch.Done || l.Generation != 1 {
				t.Errorf("run %s is %s in generation %d; the first host's claim was to last", run, l.State, l.Generation)
			}
		})
	}
}

// startedRun returns the run that the details of a start name.
func startedRun(t *testing.T, details string) launch.RunID {
	t.Helper()
	var d struct {
		Run launch.RunID `json:"runId"`
	}
	if err := json.Unmarshal([]byte(details), &d); err != nil || d.Run == "" {
		t.Fatalf("the start was answered %s (%v)", details, err)
	}
	return d.Run
}
