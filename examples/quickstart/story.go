package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/store"
)

// story is one process: a host, and a scripted session whose transcript lies
// beside the file.
type story struct {
	db     string
	crash  *crasher
	rt     *piworkflows.Runtime
	file   *deliverytest.File
	pi     *deliverytest.Process
	conn   *piworkflows.Conn
	wake   chan struct{} // something was committed
	edited bool          // this host has the edited definition of deploy
	// replaced says that the definition changed under this host.
	replaced *atomic.Bool
}

func (s *story) transcript() string { return s.db + ".session.jsonl" }
func (s *story) edit() string       { return s.db + ".edited" }

// openStory opens host and session. The definition of deploy is the edited one
// once somebody has edited it.
func openStory(db string, crash *crasher) (_ *story, err error) {
	s := &story{db: db, crash: crash, wake: make(chan struct{}, 1), replaced: new(atomic.Bool)}
	version := "1"
	if _, err := os.Stat(s.edit()); err == nil {
		version, s.edited = "2", true
	}
	first, err := report()
	if err != nil {
		return nil, err
	}
	second, err := deploy(version)
	if err != nil {
		return nil, err
	}
	if s.file, err = deliverytest.OpenFile("quickstart", s.transcript()); err != nil {
		return nil, err
	}
	s.rt, err = piworkflows.Open(piworkflows.Options{
		Path: db, Workflows: []*engine.Workflow{first, second}, Observe: s.observe, Probe: crash.pass,
		Lease: 2 * time.Second, Renew: 500 * time.Millisecond, // so that nobody waits long for a killed host
	})
	if err != nil {
		return nil, err
	}
	s.pi = s.file.Start(deliverytest.Options{
		Process: fmt.Sprintf("pi-%d-%s", os.Getpid(), s.rt.Runner()), Model: model, Tools: map[string]deliverytest.Tool{"workflow": s.tool},
	})
	err = s.pi.Connect(deliverytest.Via(func(ctx context.Context, h delivery.Hello, se delivery.Session) (*piworkflows.Conn, error) {
		conn, err := s.rt.Connect(ctx, h, se)
		s.conn = conn
		return conn, err
	}))
	return s, err
}

func (s *story) close() {
	s.pi.Kill()
	_ = s.rt.Close(context.Background()) // the story is told; what is left is in the file
}

// observe prints one line for each durable fact that the story is about.
func (s *story) observe(e store.Event) {
	select {
	case s.wake <- struct{}{}:
	default:
	}
	line := ""
	switch {
	case e.Launch != 0:
		line = strings.TrimPrefix(e.From+" → "+e.To, " ")
	case e.Turn == intents.EvRequested, e.Turn == intents.EvResolved, e.Turn == intents.EvWithdrawn:
		line = "turn " + e.Turn.String()
	case e.Kind == "session.sent":
		line = "message on the branch"
		defer s.crash.pass("after sent")
	case e.Kind == "run.settled":
		line = "node " + e.Node + " settled"
	default:
		return
	}
	if e.Why != "" {
		line += " (" + e.Why + ")"
	}
	fmt.Println(e.At.Std().Format("15:04:05.000"), e.Run, line)
}

// tell brings the story to its end, from wherever the file says that it is.
func (s *story) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, goal := range []struct{ workflow, prompt string }{
		{"report", "make the report"}, {"deploy", "deploy it"},
	} {
		for tries := 0; ; tries++ {
			reached, err := s.quiet(ctx, goal.workflow)
			if err != nil {
				return err
			}
			if reached {
				break
			}
			if tries == 5 {
				return errors.New("the run of " + goal.workflow + " does not come to its end")
			}
			if err := s.pi.Prompt(goal.prompt); err != nil {
				return err
			}
			if s.replaced.Load() {
				fmt.Println("# the definition of deploy has changed; a new host opens the file")
				s.close()
				next, err := openStory(s.db, s.crash)
				if err != nil {
					return err
				}
				*s = *next
			}
		}
	}
	return s.check(ctx)
}

// quiet waits until nothing is live or owed in the session, and reports whether
// the run that it shows is a finished one of that workflow, or of a later one.
func (s *story) quiet(ctx context.Context, workflow string) (bool, error) {
	for {
		s.pi.Wait()
		id, err := s.rt.SessionRun(ctx, s.file.Key())
		if err != nil || id == "" {
			return false, err
		}
		v, err := s.rt.Status(ctx, id)
		switch {
		case err != nil:
			return false, err
		case v.Turn == "blocked":
			return false, errors.New("a message is blocked: " + v.Blocked)
		case v.Finished != "" && v.Turn == "":
			return v.Workflow == workflow && v.Status == view.Completed || v.Workflow == "deploy" && workflow == "report", nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return false, fmt.Errorf("run %s stays %s, waiting for %s; session %s", id, v.Status, v.WaitsFor, v.Session)
		}
	}
}

// check looks whether what was promised has come true.
func (s *story) check(ctx context.Context) error {
	turns := 0
	for _, e := range s.file.Entries() {
		if id := e.MessageID(); id != "" {
			turns++
			if n := s.file.MaxCount(id); n != 1 {
				return fmt.Errorf("a message is on the branch %d times", n)
			}
		}
	}
	id, err := s.rt.SessionRun(ctx, s.file.Key())
	if err != nil {
		return err
	}
	node := "ship"
	output, ok, err := s.rt.Output(ctx, id, node)
	if err != nil || !ok {
		return fmt.Errorf("run %s has no output of %s: %v", id, node, err)
	}
	fmt.Printf("# %d successor turns, each delivered once; the last run says %s\n", turns, output)
	return nil
}

// model is the scripted model: it does what it is asked for, and corrects a
// start that failed.
func model(_ context.Context, t deliverytest.Turn) deliverytest.Reply {
	start := func(workflow string) deliverytest.Reply {
		args := fmt.Sprintf(`{"action":"start","workflow":%q,"input":{"topic":"every launch"}}`, workflow)
		return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "workflow", Args: json.RawMessage(args)}}}
	}
	switch text := t.Opener.Text; {
	case t.Request > 1:
		return deliverytest.Reply{Text: "It is queued."}
	case text == "make the report":
		return start("report")
	case text == "deploy it", strings.HasPrefix(text, "Workflow deploy failed to start"):
		return start("deploy")
	}
	return deliverytest.Reply{Text: "I have seen it."}
}

// tool is the bridge's end of the workflow tool. Somebody edits the definition
// of deploy while its first start is made.
func (s *story) tool(ctx context.Context, c deliverytest.Call) string {
	edits := strings.Contains(string(c.Args), `"deploy"`) && !s.edited
	if edits {
		if err := os.WriteFile(s.edit(), nil, 0o600); err != nil {
			return err.Error()
		}
	}
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return err.Error()
	}
	result := s.conn.Tool(ctx, piworkflows.ToolCall{Args: c.Args, RequestKey: hex.EncodeToString(key), ToolCallID: c.ID})
	fmt.Println("# the model is told:", result.Text)
	s.crash.pass("after tool result")
	if edits && !result.IsError {
		s.replaced.Store(true)
		s.pi.Kill() // and the host with it
	}
	return result.Text
}
