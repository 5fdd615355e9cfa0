package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/examples/review/flow"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// story is a host and a scripted session, whose model does what its script says
// when a message asks.
type story struct {
	db, out string
	host    piworkflows.Options // of every host, besides what open sets
	say     func(string)
	seen    chan struct{} // something was committed

	rt    *piworkflows.Runtime
	file  *deliverytest.File
	pi    *deliverytest.Process
	conn  *piworkflows.Conn
	calls int
	run   launch.RunID
	first launch.RunID

	// model answers a person's prompt (no node) or a message of the workflow with a
	// call of the tool, or with nothing. Where the story goes on meanwhile, it
	// thinks until it is told what it thought.
	model   func(node, request string) string
	thought chan string
}

// open opens the host, and the session when it is not open yet.
func (s *story) open() error {
	wf, err := flow.New()
	if err != nil {
		return err
	}
	o := s.host
	o.Path, o.Workflows = s.db, append([]*engine.Workflow{wf}, o.Workflows...)
	o.Observe = func(store.Event) {
		select {
		case s.seen <- struct{}{}:
		default:
		}
	}
	if s.rt, err = piworkflows.Open(o); err != nil {
		return err
	}
	if s.pi == nil {
		s.file = deliverytest.NewFile("review", "/sessions/review.jsonl")
		s.pi = s.file.Start(deliverytest.Options{Model: s.turn, Tools: map[string]deliverytest.Tool{"workflow": s.tool}})
	}
	return s.pi.Connect(deliverytest.Via(func(ctx context.Context, h delivery.Hello, se delivery.Session) (*piworkflows.Conn, error) {
		conn, err := s.rt.Connect(ctx, h, se)
		s.conn = conn
		return conn, err
	}))
}

func (s *story) close() {
	s.pi.DropConnection()
	_ = s.rt.Close(context.Background()) // everything is in the file
}

// again closes the host and opens another one on the same file.
func (s *story) again() error {
	s.say("  the host closes and opens again")
	s.close()
	return s.open()
}

// turn is the model: it makes one call for a message that asks, and then is done.
func (s *story) turn(_ context.Context, t deliverytest.Turn) deliverytest.Reply {
	args := ""
	if t.Request == 1 {
		var asked struct {
			Request string `json:"requestId"`
			Node    string `json:"node"`
		}
		_ = json.Unmarshal(t.Opener.Details, &asked) // a person's prompt has none
		if s.model != nil && (asked.Node != "" || t.Opener.Role == deliverytest.User) {
			args = s.model(asked.Node, asked.Request)
		}
	}
	if args == "" {
		return deliverytest.Reply{Text: "Done."}
	}
	return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "workflow", Args: json.RawMessage(args)}}}
}

func (s *story) tool(ctx context.Context, c deliverytest.Call) string {
	s.calls++
	r := s.conn.Tool(ctx, piworkflows.ToolCall{Args: c.Args, RequestKey: fmt.Sprintf("%s-%s-%d", c.Turn, c.ID, s.calls)})
	s.say("  the model calls " + call(c.Args) + ": " + short(r.Text))
	return r.Text
}

// person is a command that the person writes.
func (s *story) person(ctx context.Context, command string) error {
	r := s.conn.Tool(ctx, piworkflows.ToolCall{Command: command, Person: true})
	s.say("  the person writes /workflow " + plain(command) + ": " + short(r.Text))
	if r.IsError {
		return fmt.Errorf("the command failed: %s", r.Text)
	}
	return nil
}

// until waits for the session's run to be in a state.
func (s *story) until(ctx context.Context, what string, is func(view.View) bool) (view.View, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		id, err := s.rt.SessionRun(ctx, s.file.Key())
		if err != nil {
			return view.View{}, err
		}
		v := view.View{}
		if id != "" {
			if v, err = s.rt.Status(ctx, id); err != nil {
				return v, err
			}
		}
		if is(v) {
			s.run = v.Run
			s.say("  " + what + ": " + state(v))
			return v, nil
		}
		select {
		case <-s.seen:
		case <-ctx.Done():
			return v, fmt.Errorf("waiting for %s: the run is %s: %w", what, state(v), ctx.Err())
		}
	}
}

// asks waits until the run waits at a node, in a host that was opened again.
func (s *story) asks(ctx context.Context, node string) (view.View, error) {
	at := func(v view.View) bool {
		return v.Status == view.Waiting && v.Node == node && v.Request != nil && v.Request.State == "pending"
	}
	if _, err := s.until(ctx, "it asks", at); err != nil {
		return view.View{}, err
	}
	if err := s.again(); err != nil {
		return view.View{}, err
	}
	return s.until(ctx, "it still asks", at)
}

func state(v view.View) string {
	out := string(v.Status)
	if v.Node != "" {
		out += " at " + v.Node
	}
	if v.WaitsFor != "" {
		out += ", for " + v.WaitsFor
	}
	return out
}

// call is what is told of a call of the tool.
func call(args json.RawMessage) string {
	var a struct {
		Action   string `json:"action"`
		Workflow string `json:"workflow"`
	}
	_ = json.Unmarshal(args, &a) // the script's own
	return strings.TrimSpace(a.Action + " " + a.Workflow)
}

// plain leaves out the ids, which differ from run to run.
func plain(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		if bare := strings.TrimRight(w, ".,;:()"); strings.HasPrefix(bare, "req-") || strings.Contains(bare, "review-01") {
			words[i] = "…"
		}
	}
	return strings.Join(words, " ")
}

func short(text string) string {
	text = plain(strings.SplitN(text, "\n", 2)[0])
	if len(text) > 110 {
		text = text[:107] + "..."
	}
	return text
}

func (s *story) published() string {
	raw, err := os.ReadFile(s.out)
	if err != nil {
		return "nothing"
	}
	return strings.TrimSpace(string(raw))
}
