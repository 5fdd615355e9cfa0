package piworkflows

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// ToolCall is one execution of the workflow tool or command.
type ToolCall struct {
	// Args is the JSON object that the model wrote: action, and what the action
	// takes. See [Runtime.Tool]. A person's command that names no run means the run
	// that the session shows; the model names its run.
	Args json.RawMessage
	// Command is what a person wrote instead, after /workflow. It needs Person;
	// see [Runtime.Commands].
	Command string
	// RequestKey is random per execution of the tool, and repeated only when
	// that very call is repeated. It makes a repeated start or answer the same
	// one.
	RequestKey string
	// ToolCallID is the provider's id of the call. It is recorded and never a
	// key, because providers reuse ids.
	ToolCallID string
	// Person says that a person's command makes the call, not the model. The
	// bridge vouches for it.
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
	// Commands are the actions that a person can write after /workflow, with how
	// each is written.
	Commands []CommandSpec `json:"commands,omitempty"`
}

// CommandSpec is one action as a person writes it.
type CommandSpec struct {
	Name  string `json:"name"`
	Usage string `json:"usage"` // "decide <requestId> <choice> [text]"
	About string `json:"about"`
}

type toolArgs struct {
	Action   string          `json:"action"`
	Workflow string          `json:"workflow,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	RunID    launch.RunID    `json:"runId,omitempty"`
	Revision uint64          `json:"revision,omitempty"`
	Request  string          `json:"requestId,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	Progress json.RawMessage `json:"progress,omitempty"`
	Settings json.RawMessage `json:"settings,omitempty"`
	Choice   string          `json:"choice,omitempty"`
	Text     string          `json:"text,omitempty"`
	Effect   string          `json:"effectId,omitempty"`
	Finding  string          `json:"finding,omitempty"`
	Evidence string          `json:"evidence,omitempty"`
	Message  string          `json:"messageId,omitempty"`
}

// toolParams describes what actions take, in the order of the schema. A person's
// own are left out of the model's schema.
var toolParams = []struct {
	name, kind, about string
	person            bool
}{
	{"workflow", "string", "name of the workflow to start", false},
	{"input", "object", "its input; list shows the schema", false},
	{"runId", "string", "the exact run", false},
	{"revision", "integer", "runRevision of the run to restart, or settingsRevision of the settings to change, as status shows it", false},
	{"requestId", "string", "the exact request, as the message that asks names it", false},
	{"output", "", "the answer, in the form that the request names", false},
	{"progress", "object", "status, completed, total, unit", false},
	{"settings", "object", "JSON merge patch of the run's settings", false},
	{"choice", "string", "", true},
	{"text", "string", "", true},
	{"effectId", "string", "", true},
	{"finding", "string", "", true},
	{"evidence", "string", "", true},
	{"messageId", "string", "", true},
}

// toolActions is the one list of actions: the schema and the commands are made
// from it, and a call is looked up in it.
var toolActions = []struct {
	name, about string
	words       string // what a person writes after the action; see parseCommand
	person      bool   // for people only
	run         func(*Conn, context.Context, ToolCall, toolArgs) (string, any, error)
}{
	{"list", "show the workflows and their input", "", false, (*Conn).list},
	{"start", "queue a run; it activates after this turn", "<workflow> [input...]", false, (*Conn).start},
	{"status", "show a run, or this session's run", "[runId]", false, (*Conn).status},
	{"submit", "hand in the output of a step, by its requestId", "", false, (*Conn).submit},
	{"update", "report progress of a step, by its requestId", "", false, (*Conn).update},
	{"answer", "answer a checkpoint, by its requestId", "<requestId> <output...>", false, (*Conn).answer},
	{"pause", "hold a run until a person resumes it", "[runId]", false, (*Conn).pause},
	{"cancel", "end a run", "[runId]", false, (*Conn).cancelRun},
	{"restart", "run a run that has ended again, with its input, by runId and revision", "[runId] [revision]", false, (*Conn).restart},
	{"configure", "change the settings of a run, by runId and revision", "[runId] <settings...>", false, (*Conn).configure},
	{"resume", "let a run go on that is paused or waits for attention", "[runId]", true, (*Conn).resume},
	{"decide", "decide what only a person decides", "<requestId> <choice> [text...]", true, (*Conn).decide},
	{"reopen", "try to send a blocked message again", "[messageId]", true, (*Conn).reopen},
	{"resolve", "say whether an effect happened: applied or rejected, with what you found", "[runId] <effectId> <finding> [output=] <evidence...>", true, (*Conn).resolve},
}

// Tool describes the workflow tool and the person's command.
func (r *Runtime) Tool() ToolSpec {
	var about strings.Builder
	about.WriteString("Start and follow durable workflows, and answer what they ask. Actions: ")
	spec := ToolSpec{Name: "workflow"}
	var actions []string
	for _, a := range toolActions {
		if a.words != "" || a.name == "list" {
			spec.Commands = append(spec.Commands, CommandSpec{a.name, strings.TrimSpace(a.name + " " + a.words), a.about})
		}
		if a.person {
			continue
		}
		if actions != nil {
			about.WriteString("; ")
		}
		about.WriteString(a.name + " - " + a.about)
		actions = append(actions, a.name)
	}
	about.WriteString(". Workflows here: " + r.names() + ".")
	spec.Description = about.String()
	properties := map[string]any{"action": map[string]any{"type": "string", "enum": actions}}
	for _, p := range toolParams {
		if p.person {
			continue
		}
		property := map[string]any{"description": p.about}
		if p.kind != "" {
			property["type"] = p.kind
		}
		properties[p.name] = property
	}
	schema, err := json.Marshal(map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"action"}, "properties": properties,
	})
	if err != nil { // maps of strings always encode
		schema = json.RawMessage("{}")
	}
	spec.Parameters = schema
	return spec
}

func actionNames(person bool) []string {
	var names []string
	for _, a := range toolActions {
		if person && (a.words != "" || a.name == "list") || !person && !a.person {
			names = append(names, a.name)
		}
	}
	return names
}

// Tool carries out one call of the workflow tool. It never fails otherwise than
// with a result that says so; the text tells what to do next.
func (c *Conn) Tool(ctx context.Context, call ToolCall) ToolResult {
	var args toolArgs
	var err error
	switch {
	case call.Command != "" && (!call.Person || call.Args != nil):
		err = launch.Refuse(launch.ErrInvalid, "a command is a person's, and comes without arguments")
	case call.Person && call.Args == nil:
		args, err = parseCommand(call.Command)
	default:
		err = canon.Decode(call.Args, launch.MaxInput+launch.MaxOptions, "arguments", &args)
	}
	if err != nil {
		return failed("", nil, err)
	}
	if call.RequestKey == "" {
		if call.RequestKey, err = c.r.store.NewID(); err != nil {
			return failed("", nil, err)
		}
	}
	for _, a := range toolActions {
		if a.name != args.Action {
			continue
		}
		if a.person && !call.Person {
			return failed(a.name, nil, launch.Refuse(launch.ErrNotAllowed, "only a person does that: /workflow %s; tell the person", strings.TrimSpace(a.name+" "+a.words)))
		}
		text, details, err := a.run(c, ctx, call, args)
		if err != nil {
			return failed(a.name, details, err)
		}
		raw, err := json.Marshal(details)
		if err != nil {
			return failed(a.name, nil, launch.Refuse(launch.ErrInternal, "the answer cannot be encoded"))
		}
		return ToolResult{Text: text, Details: raw}
	}
	return failed("", nil, launch.Refuse(launch.ErrInvalid, "action must be one of %s", strings.Join(actionNames(call.Person), ", ")))
}

// failed is the result of a call that came to nothing; action is one of the
// known ones, or empty, and so never what somebody made up. What an answer to a
// request came to is added to its details.
func failed(action string, answered any, err error) ToolResult {
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
	if a, ok := answered.(answeredDetails); ok {
		details["requestId"], details["outcome"] = a.Request, a.Outcome
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
