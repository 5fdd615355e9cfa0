package piworkflows

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// named makes sure that the call names a run. A person's command may leave it to
// the run that the session shows; nothing is guessed for the model.
func (c *Conn) named(ctx context.Context, call ToolCall, args *toolArgs) (err error) {
	if args.RunID == "" && call.Person {
		args.RunID, err = c.r.store.Displayed(ctx, c.Session())
	}
	switch {
	case err != nil || args.RunID != "":
	case call.Person:
		err = launch.Refuse(launch.ErrNotFound, "this session has no run; start one, or name the run of another session")
	default:
		err = launch.Refuse(launch.ErrInvalid, "%s needs runId; status shows this session's run", args.Action)
	}
	return err
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
	if q := v.Request; q != nil {
		text += " (request " + q.ID + " of kind " + q.Kind + ", since " + q.Since + ")"
	}
	if v.ErrorCode != "" {
		text += ": " + v.ErrorCode + ": " + v.ErrorText
	}
	return strings.TrimSuffix(text, ".") + "."
}

func (c *Conn) cancelRun(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if err := c.named(ctx, call, &args); err != nil {
		return "", nil, err
	}
	done, err := store.Do(ctx, c.r.store, store.Cancel{Run: args.RunID, Actor: call.actor(), Session: c.Session(), Epoch: c.Epoch()})
	if err != nil {
		return "", nil, err
	}
	if done.Won && !call.Person {
		c.Stopped(ctx) // the turn that makes this call, as a rule
	}
	text := "Run " + string(args.RunID)
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
	}{"cancel", args.RunID, done.Won, done.State.String(), done.Live}, nil
}

func (c *Conn) pause(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if err := c.named(ctx, call, &args); err != nil {
		return "", nil, err
	}
	state, err := store.Do(ctx, c.r.store, store.Pause{Run: args.RunID, Actor: call.actor(), Session: c.Session(), Epoch: c.Epoch()})
	if err != nil {
		return "", nil, err
	}
	return "Run " + string(args.RunID) + " is paused: what runs finishes, nothing new starts. A person resumes it with /workflow resume.",
		stateDetails{"pause", args.RunID, state.String()}, nil
}

func (c *Conn) resume(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if err := c.named(ctx, call, &args); err != nil {
		return "", nil, err
	}
	state, err := store.Do(ctx, c.r.store, store.Resume{Run: args.RunID, Actor: call.actor(), Session: c.Session(), Epoch: c.Epoch()})
	if err != nil {
		return "", nil, err
	}
	return "Run " + string(args.RunID) + " goes on.", stateDetails{"resume", args.RunID, state.String()}, nil
}

// reopen lets a blocked message be sent again; without an id that of the run that
// the session shows.
func (c *Conn) reopen(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if args.Message == "" {
		if err := c.named(ctx, call, &args); err != nil {
			return "", nil, err
		}
		v, err := c.r.Status(ctx, args.RunID)
		if err != nil {
			return "", nil, err
		}
		if v.Blocked == "" {
			return "", nil, launch.Refuse(launch.ErrNotAllowed, "run %s has no blocked message; there is nothing to re-open", args.RunID)
		}
		args.Message = v.Blocked
	}
	if err := c.r.Unblock(ctx, c.Session(), args.Message); err != nil {
		return "", nil, err
	}
	return "The message is sent again once the session is free.", struct {
		Action  string `json:"action"`
		Message string `json:"messageId"`
	}{"reopen", args.Message}, nil
}

type stateDetails struct {
	Action string       `json:"action"`
	Run    launch.RunID `json:"runId"`
	State  string       `json:"state"`
}

func (c *Conn) restart(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if err := c.named(ctx, call, &args); err != nil {
		return "", nil, err
	}
	if args.Revision == 0 && call.Person {
		v, err := c.r.Status(ctx, args.RunID)
		if err != nil {
			return "", nil, err
		}
		args.Revision = v.RunRevision
	}
	started, err := c.r.restart(ctx, RestartOptions{Run: args.RunID, Revision: args.Revision, RequestKey: call.RequestKey, Actor: call.actor()},
		c.Session(), c.Epoch(), call.ToolCallID)
	if err != nil {
		return "", nil, err
	}
	return "Run " + string(args.RunID) + " is queued again as run " + string(started.Run) + "; nothing of it is copied but its input.", struct {
		Action string       `json:"action"`
		Run    launch.RunID `json:"runId"`
		Source launch.RunID `json:"sourceRunId"`
		Queued bool         `json:"queued"`
	}{"restart", started.Run, args.RunID, true}, nil
}

func (c *Conn) configure(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if err := c.named(ctx, call, &args); err != nil {
		return "", nil, err
	}
	if args.Revision == 0 && call.Person {
		_, latest, err := c.r.store.Settings(ctx, args.RunID, 0)
		if err != nil {
			return "", nil, err
		}
		args.Revision = uint64(latest)
	}
	revision, err := c.r.configure(ctx, args.RunID, uint32(min(args.Revision, 1<<32-1)), args.Settings, call.actor(), c.Session(), c.Epoch())
	if err != nil {
		return "", nil, err
	}
	return "The settings of run " + string(args.RunID) + " are at revision " + strconv.Itoa(int(revision)) + "; an attempt that has begun goes on with the old ones.", struct {
		Action   string       `json:"action"`
		Run      launch.RunID `json:"runId"`
		Revision uint32       `json:"revision"`
	}{"configure", args.RunID, revision}, nil
}

func (r *Runtime) names() string {
	if names := r.registry.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}
