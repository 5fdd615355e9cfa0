package pi

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

type topic struct {
	Topic string `json:"topic,omitempty"`
}

// openRuntime opens a host with one small workflow.
func openRuntime(t testing.TB) *piworkflows.Runtime {
	return openWith(t, piworkflows.Options{}, func(_ context.Context, in topic) (string, error) { return "hello " + in.Topic, nil })
}

// openWith opens a host whose workflow, greet, does what say does.
func openWith(t testing.TB, o piworkflows.Options, say func(context.Context, topic) (string, error)) *piworkflows.Runtime {
	t.Helper()
	w := engine.New[topic]("greet", "1")
	engine.Compute(w, "say", w.Input(), say)
	greet, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	o.Path, o.Workflows = filepath.Join(t.TempDir(), "db", "flows.db"), []*engine.Workflow{greet}
	rt, err := piworkflows.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// bot is a session whose model says nothing: it answers what the host asks.
type bot struct {
	*client
	epoch uint64
	said  uint64

	mu      sync.Mutex
	idle    bool
	branch  map[string]bool
	sends   []sendBody
	answers map[uint64]chan body
	taken   chan string // messages whose turn has to be played

	heard, parsed time.Time // when the last send was in hand, and understood
}

func newBot(t testing.TB, e *Endpoint, session string) *bot {
	b := &bot{client: dial(t, e), idle: true, branch: map[string]bool{}, answers: map[uint64]chan body{}, taken: make(chan string, 8)}
	b.epoch = b.hello(e, session).Epoch
	go b.listen()
	return b
}

func (b *bot) listen() {
	for {
		line, err := b.frames.next(MaxFrame)
		if err != nil {
			return
		}
		heard := time.Now()
		id, got, err := decode(fromHost, line, MaxFrame)
		if err != nil {
			b.t.Error(err)
			return
		}
		parsed := time.Now()
		b.mu.Lock()
		switch got := got.(type) {
		case *lookBody:
			r := &reportBody{Idle: b.idle, Evidence: []evidenceBody{}}
			for _, n := range got.Names {
				r.Evidence = append(r.Evidence, evidenceBody{Message: n, Present: b.branch[n], Durable: b.branch[n]})
			}
			b.write(id, r)
		case *sendBody:
			b.heard, b.parsed = heard, parsed
			verdict := "taken"
			if !b.idle {
				verdict = "occupied"
			} else if b.branch[got.Message] {
				verdict = "present"
			} else {
				b.branch[got.Message] = true
				b.sends = append(b.sends, *got)
				if got.TriggerTurn {
					b.idle = false
					b.taken <- got.Message
				}
			}
			b.write(id, &sentBody{Verdict: verdict})
		default:
			if c := b.answers[id]; c != nil {
				c <- got
			}
		}
		b.mu.Unlock()
	}
}

// write is called with the lock.
func (b *bot) write(id uint64, what body) {
	line, err := encode(id, what)
	if err != nil {
		b.t.Error(err)
		return
	}
	_, _ = b.c.Write(line) // a dead connection shows in what does not happen
}

func (b *bot) tell(what body) body {
	b.t.Helper()
	c := make(chan body, 1)
	b.mu.Lock()
	b.said++
	b.answers[b.said] = c
	b.write(b.said, what)
	b.mu.Unlock()
	select {
	case a := <-c:
		return a
	case <-b.t.Context().Done():
		return nil
	}
}

func (b *bot) set(idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = idle
	b.write(0, &changedBody{})
}

func (b *bot) call(key, args string) *toolResultBody {
	b.t.Helper()
	r, ok := b.tell(&toolBody{Key: key, ToolCallID: "call_1", Args: args}).(*toolResultBody)
	if !ok {
		b.t.Fatal("a call was not answered")
	}
	return r
}

// A start made in a turn runs after it, and the session gets one turn about it.
func TestStory(t *testing.T) {
	rt := openRuntime(t)
	e := open(t, Options{Host: ForRuntime(rt)})
	b := newBot(t, e, "s")
	b.set(true)

	b.set(false)
	b.tell(&inputBody{Key: "in1"})
	if ok, _ := b.tell(&turnStartedBody{Turn: "t1"}).(*okBody); ok == nil || ok.Own != "none" {
		t.Errorf("a chat turn was answered %+v", ok)
	}
	const args = `{"action":"start","workflow":"greet","input":{"topic":"Ada"}}`
	first := b.call("k1", args)
	var started struct {
		Run launch.RunID `json:"runId"`
	}
	if err := json.Unmarshal(first.Details, &started); err != nil || first.IsError || !strings.Contains(first.Text, "queued") {
		t.Fatalf("start was answered %+v, %v", first, err)
	}
	if again := b.call("k1", args); string(again.Details) != string(first.Details) {
		t.Errorf("the same key made another start: %s, then %s", first.Details, again.Details)
	}
	v, err := rt.Status(t.Context(), started.Run)
	if err != nil || v.LaunchState != "queued" {
		t.Errorf("in the turn that started it the run is %s, %v", v.LaunchState, err)
	}
	b.tell(&turnSettledBody{Turn: "t1", End: "completed", StopReason: "stop"})
	b.set(true)

	v, err = rt.Wait(t.Context(), started.Run)
	if err != nil || v.Status != "completed" {
		t.Fatalf("the run ended %s, %v", v.Status, err)
	}
	message := <-b.taken
	if ok, _ := b.tell(&turnStartedBody{Turn: "t2", Message: message}).(*okBody); ok == nil || ok.Own != "active" {
		t.Errorf("the successor turn was answered %+v", ok)
	}
	b.tell(&turnSettledBody{Turn: "t2", End: "completed", StopReason: "stop"})
	b.set(true)
	if r := b.call("k2", `{"action":"status"}`); r.IsError || !strings.Contains(r.Text, "completed") {
		t.Errorf("status says %q", r.Text)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sends) != 1 || !strings.Contains(b.sends[0].Content, string(started.Run)) {
		t.Errorf("%d messages were sent, want one about the run: %+v", len(b.sends), b.sends)
	}
}

// The arguments are judged by the tool: what no frame may hold is an answer to
// the model, not the end of the connection.
func TestBadArguments(t *testing.T) {
	e := open(t, Options{Host: ForRuntime(openRuntime(t))})
	b := newBot(t, e, "s")
	for _, args := range []string{"", "{", `{"action":"start","x":1}`, `{"action":"dance"}`, strings.Repeat("[", 100), `{"action":"\ud800"}`} {
		if r := b.call("k", args); !r.IsError || !strings.Contains(r.Text, "invalid input") {
			t.Errorf("%.20q was answered %+v", args, r)
		}
	}
}
