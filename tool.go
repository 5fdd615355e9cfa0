package piworkflows

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// ToolCall is one execution of the workflow tool or command.
type ToolCall struct {
	// Args is the JSON object that the model wrote: action, and by action
	// workflow, input and runId. See [Runtime.Tool]. A person's command that names
	// no run means the run that the session shows; the model names its run.
	Args json.RawMessage
	// RequestKey is random per execution of the tool, and repeated only when
	// that very call is repeated. It makes a repeated start the same start.
	RequestKey string
	// ToolCallID is the provider's id of the call. It is recorded and never a
	// key, because providers reuse ids.
	ToolCallID string
	// Person says that a person's command makes the call, not the model.
	Person bool
}

// ToolResult is what the caller gets to see.
type ToolResult struct {
	Text    string          `json:"text"`
	Details json.RawMessage `json:"details,omitempty"`
	IsError bool            `json:"isError,omitempty"`
}

// ToolSpec describes the workflow tool to a bridge, which registers it as it is.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema
}

// Tool describes the workflow tool.
func (r *Runtime) Tool() ToolSpec {
	var about strings.Builder
	about.WriteString("Start and follow durable workflows. Actions: ")
	for i, a := range toolActions {
		if i > 0 {
			about.WriteString("; ")
		}
		about.WriteString(a.name + " - " + a.about)
	}
	about.WriteString(". Workflows here: " + r.names() + ".")
	schema, err := json.Marshal(map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"action"},
		"properties": map[string]any{
			"action":   map[string]any{"type": "string", "enum": actionNames()},
			"workflow": map[string]any{"type": "string", "description": "name of the workflow to start"},
			"input":    map[string]any{"type": "object", "description": "its input; list shows the schema"},
			"runId":    map[string]any{"type": "string", "description": "run to look at or cancel"},
		},
	})
	if err != nil { // maps of strings always encode
		schema = json.RawMessage("{}")
	}
	return ToolSpec{Name: "workflow", Description: about.String(), Parameters: schema}
}

type toolArgs struct {
	Action   string          `json:"action"`
	Workflow string          `json:"workflow,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	RunID    launch.RunID    `json:"runId,omitempty"`
}

// toolActions is the one list of actions: the schema is made from it, and a
// call is looked up in it.
var toolActions = []struct {
	name, about string
	run         func(*Conn, context.Context, ToolCall, toolArgs) (string, any, error)
}{
	{"list", "show the workflows and their input", (*Conn).list},
	{"start", "queue a run; it activates after this turn", (*Conn).start},
	{"status", "show a run, or this session's run", (*Conn).status},
	{"cancel", "end a run", (*Conn).cancelRun},
}

func actionNames() []string {
	names := make([]string, len(toolActions))
	for i, a := range toolActions {
		names[i] = a.name
	}
	return names
}

// Tool carries out one call of the workflow tool. It never fails otherwise than
// with a result that says so; the text tells what to do next.
func (c *Conn) Tool(ctx context.Context, call ToolCall) ToolResult {
	var args toolArgs
	if err := canon.Decode(call.Args, launch.MaxInput+launch.MaxOptions, "arguments", &args); err != nil {
		return failed("", err)
	}
	for _, a := range toolActions {
		if a.name != args.Action {
			continue
		}
		text, details, err := a.run(c, ctx, call, args)
		if err != nil {
			return failed(args.Action, err)
		}
		raw, err := json.Marshal(details)
		if err != nil {
			return failed(args.Action, launch.Refuse(launch.ErrInternal, "the answer cannot be encoded"))
		}
		return ToolResult{Text: text, Details: raw}
	}
	return failed("", launch.Refuse(launch.ErrInvalid, "action must be one of %s", strings.Join(actionNames(), ", ")))
}

// failed is the result of a call that came to nothing; action is one of the
// known ones, or empty, and so never what somebody made up.
func failed(action string, err error) ToolResult {
	kind, retry := launch.ErrInternal, false
	var r *launch.Refusal
	text := "internal error; see the host's log"
	if errors.As(err, &r) {
		kind, text = r.Kind, r.Error()
		retry = r.Kind.Retryable()
	} else if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		text = "the call was cancelled before anything happened"
	}
	details := map[string]any{"action": action, "error": kind.String(), "retry": retry}
	if r != nil && r.Run != "" {
		details["runId"] = r.Run
	}
	raw, err := json.Marshal(details)
	if err != nil { // strings and booleans always encode
		raw = nil
	}
	return ToolResult{Text: text, Details: raw, IsError: true}
}

func (call ToolCall) actor() launch.Actor {
	if call.Person {
		return launch.Person
	}
	return launch.Model
}

func (c *Conn) list(context.Context, ToolCall, toolArgs) (string, any, error) {
	type workflow struct {
		Name    string          `json:"name"`
		Version string          `json:"version"`
		Input   json.RawMessage `json:"inputSchema"`
	}
	all := []workflow{}
	for _, name := range c.r.registry.Names() {
		wf, _ := c.r.registry.Lookup(name)
		all = append(all, workflow{name, wf.Version(), wf.InputSchema()})
	}
	var text strings.Builder
	for _, w := range all {
		text.WriteString(w.Name + " (version " + w.Version + "), input: " + string(w.Input) + "\n")
	}
	if len(all) == 0 {
		text.WriteString("This host offers no workflows.\n")
	}
	return strings.TrimSuffix(text.String(), "\n"), map[string]any{"action": "list", "workflows": all}, nil
}

func (c *Conn) start(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if args.RunID != "" {
		return "", nil, launch.Refuse(launch.ErrInvalid, "start takes workflow and input, not runId; a run's id is given by its start")
	}
	started, err := c.r.start(ctx, StartOptions{
		Workflow: args.Workflow, Input: args.Input, Session: c.Session(), RequestKey: call.RequestKey, Actor: call.actor(),
	}, c.Epoch(), call.ToolCallID)
	if err != nil {
		return "", nil, err
	}
	return "Workflow " + args.Workflow + " queued (run " + string(started.Run) + ").", struct {
		Action   string       `json:"action"`
		Workflow string       `json:"workflow"`
		Run      launch.RunID `json:"runId"`
		Queued   bool         `json:"queued"`
	}{"start", args.Workflow, started.Run, true}, nil
}

func (c *Conn) status(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	id := args.RunID
	if id == "" {
		var err error
		if id, err = c.r.store.Displayed(ctx, c.Session()); err != nil {
			return "", nil, err
		}
		if id == "" {
			return "This session has no run.", map[string]any{"action": "status"}, nil
		}
	}
	f, err := c.r.store.Facts(ctx, id)
	if err != nil {
		return "", nil, err
	}
	if !call.Person && f.Launch.Session != c.Session() {
		return "", nil, launch.Refuse(launch.ErrNotFound, "no such run; check the run id")
	}
	v := view.Of(f)
	return describe(v), struct {
		Action string `json:"action"`
		view.View
	}{"status", v}, nil
}

func describe(v view.View) string {
	text := "Run " + string(v.Run) + " of workflow " + v.Workflow + " is " + string(v.Status) + " (launch " + v.LaunchState + ")"
	if v.WaitsFor != "" {
		text += ", waiting for " + v.WaitsFor
	}
	if v.ErrorCode != "" {
		text += ": " + v.ErrorCode + ": " + v.ErrorText
	}
	return strings.TrimSuffix(text, ".") + "."
}

// target is the run that a call is to change. A person's command that names none
// means the one that the session shows; for the model nothing is guessed.
func (c *Conn) target(ctx context.Context, call ToolCall, args toolArgs) (launch.RunID, error) {
	if args.RunID != "" {
		return args.RunID, nil
	}
	if !call.Person {
		return "", launch.Refuse(launch.ErrInvalid, "%s needs runId; status shows this session's run", args.Action)
	}
	id, err := c.r.store.Displayed(ctx, c.Session())
	if err == nil && id == "" {
		err = launch.Refuse(launch.ErrNotFound, "this session has no run; start one, or name the run of another session")
	}
	return id, err
}

func (c *Conn) cancelRun(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	id, err := c.target(ctx, call, args)
	if err != nil {
		return "", nil, err
	}
	done, err := store.Do(ctx, c.r.store, store.Cancel{Run: id, Actor: call.actor(), Session: c.Session(), Epoch: c.Epoch()})
	if err != nil {
		return "", nil, err
	}
	text := "Run " + string(id)
	switch {
	case done.Won:
		text += " is cancelled."
	case done.State == launch.Cancelled:
		text += " was already cancelled."
	default:
		text += " had already ended: " + done.State.String() + "."
	}
	if done.Live != "" {
		text += " A run of the same chain is live: " + string(done.Live) + "."
	}
	return text, struct {
		Action    string       `json:"action"`
		Run       launch.RunID `json:"runId"`
		Cancelled bool         `json:"cancelled"`
		State     string       `json:"state"`
		Live      launch.RunID `json:"liveRunId,omitempty"`
	}{"cancel", id, done.Won, done.State.String(), done.Live}, nil
}

func (r *Runtime) names() string {
	if names := r.registry.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}
