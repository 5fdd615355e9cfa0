// Command adapter bridges something that is not Pi: an agent that is driven by
// lines on its standard input and output.
//
//	go run ./examples/adapter
//
// The agent (agent.go) keeps a transcript in a file and echoes. The bridge
// (bridge.go) is what another agent needs too: the four methods of
// delivery.Session, whose send is one step under one lock, and one goroutine
// that connects, reports in order, and repeats what was not confirmed. What it
// knows of its agent is in process.go. The test runs the conformance kit,
// deliverytest.Run, on the bridge with real processes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		if err := agent(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	}
	if err := demo(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "not ok:", err)
		os.Exit(1)
	}
}

type person struct {
	Name string `json:"name"`
}

// demo has a person start a workflow in a session of the agent, which is then
// told how it ended.
func demo(out io.Writer) error {
	dir, err := os.MkdirTemp("", "adapter-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := engine.New[person]("greet", "1")
	engine.Compute(w, "say", w.Input(), func(_ context.Context, in person) (string, error) { return "hello " + in.Name, nil })
	greet, err := w.Build()
	if err != nil {
		return err
	}
	rt, err := piworkflows.Open(piworkflows.Options{Path: filepath.Join(dir, "flows.db"), Workflows: []*engine.Workflow{greet}})
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer rt.Close(ctx)

	connected, asked := make(chan *piworkflows.Conn, 1), make(chan bool, 1)
	connect := func(ctx context.Context, h delivery.Hello, s delivery.Session) (delivery.Reporter, error) {
		c, err := rt.Connect(ctx, h, s)
		if err != nil {
			return nil, err
		}
		select {
		case connected <- c:
		default: // it connected again
		}
		return c, nil
	}
	echo := func(context.Context) (string, error) {
		select {
		case asked <- true:
		default:
		}
		return "I have read it.", nil
	}
	transcript := filepath.Join(dir, "transcript")
	p, err := start(transcript, connect, echo)
	if err != nil {
		return err
	}
	c := <-connected
	started := c.Tool(ctx, piworkflows.ToolCall{Args: json.RawMessage(`{"action":"start","workflow":"greet","input":{"name":"Ada"}}`), RequestKey: "1", Person: true})
	fmt.Fprintln(out, "#", started.Text)
	if started.IsError {
		return fmt.Errorf("the workflow did not start")
	}
	<-asked // the run has ended, and the agent was told
	p.end()
	told, err := readTranscript(transcript)
	fmt.Fprintln(out, "# the agent's transcript")
	for line := range bytes.Lines(told) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", e.Role, e.Text)
	}
	return err
}
