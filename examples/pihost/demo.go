package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/piworkflows/delivery/pi"
	"example.com/piworkflows/internal/pitest"
)

// project is what the demonstration checks; vet finds the mistake.
const project = `package main

import "fmt"

func main() {
	fmt.Printf("%d workflows\n", "three")
}
`

// scripted is the model: it starts the check that it is asked for, and repairs
// what the check finds.
func scripted(_ context.Context, r pitest.Request) pitest.Reply {
	call := func(tool, args string) pitest.Reply {
		return pitest.Reply{Calls: []pitest.Call{{Tool: tool, Args: args}}}
	}
	failed := strings.Contains(r.Opener, "fmt.Printf")
	switch {
	case r.Opener == "Check the project, please." && r.Step == 1, failed && r.Step == 2:
		return call("workflow", `{"action":"start","workflow":"check"}`)
	case failed && r.Step == 1:
		args, _ := json.Marshal(map[string]string{"path": "main.go", "content": strings.Replace(project, "%d", "%s", 1)})
		return call("write", string(args))
	case failed:
		return pitest.Reply{Text: "A wrong verb in main.go. I have corrected it and started the check again."}
	case strings.Contains(r.Opener, "check completed"):
		return pitest.Reply{Text: "The project is in order now."}
	}
	return pitest.Reply{Text: "The check is queued. I will be told how it ends."}
}

// play shows a conversation in which a model starts a workflow, is told that
// its run has failed, repairs the cause, and starts it again.
func play(out io.Writer, bridge *pi.Endpoint, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	fmt.Fprintln(out, "# Pi", pitest.Version, "is installed once, into your cache directory")
	installed, err := pitest.Install(ctx)
	if err != nil {
		return err
	}
	model, err := pitest.NewProvider(scripted)
	if err != nil {
		return err
	}
	defer model.Close()
	home, err := pitest.NewHome(filepath.Join(dir, "home"), model.URL, nil)
	if err != nil {
		return err
	}
	home.Work, home.Tools = dir, true
	for name, text := range map[string]string{"go.mod": "module demo\n\ngo 1.26\n", "main.go": project} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	agent, err := pitest.Start(installed, home, bridge.Env(), "-e", bridge.ExtensionPath())
	if err != nil {
		return err
	}
	defer agent.Kill()
	if err := agent.Prompt(ctx, "Check the project, please.", "followUp"); err != nil {
		return err
	}
	for turns, n := 0, 0; turns < 3; n++ { // the person's, and one for each run
		e, err := agent.Wait(ctx, n, "end of the conversation", func(pitest.Event) bool { return true })
		if err != nil {
			return err
		}
		show(out, e)
		if e.Type == "agent_settled" {
			turns++
		}
	}
	return agent.Terminate(ctx)
}
