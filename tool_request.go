package piworkflows

import (
	"context"
	"encoding/json"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// answeredDetails is what an action on a request came to.
type answeredDetails struct {
	Action   string       `json:"action"`
	Request  string       `json:"requestId"`
	Outcome  string       `json:"outcome"`
	Run      launch.RunID `json:"runId,omitempty"`
	Node     string       `json:"node,omitempty"`
	State    string       `json:"state,omitempty"`
	Revision uint64       `json:"revision,omitempty"`
}

func (c *Conn) submit(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	return c.act(ctx, call, args, request.ActSubmit, args.Output)
}

func (c *Conn) update(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	return c.act(ctx, call, args, request.ActUpdate, args.Progress)
}

func (c *Conn) answer(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	return c.act(ctx, call, args, request.ActAnswer, args.Output)
}

func (c *Conn) decide(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	payload, err := json.Marshal(request.Decision{Choice: args.Choice, Text: args.Text})
	if err != nil { // two strings always encode
		return "", nil, err
	}
	if args.Revision == 0 { // the person looks at the session as it is
		q, err := c.r.store.Request(ctx, args.Request)
		if err != nil {
			return "", nil, err
		}
		args.Revision = q.Revision
	}
	return c.act(ctx, call, args, request.ActDecide, payload)
}

// act carries one action to a request.
func (c *Conn) act(ctx context.Context, call ToolCall, args toolArgs, action request.Action, payload []byte) (string, any, error) {
	if args.Request == "" {
		return "", nil, launch.Refuse(launch.ErrInvalid, "%s needs requestId: the exact id in the message that asks", action)
	}
	if payload == nil {
		return "", nil, launch.Refuse(launch.ErrInvalid, "%s needs its %s", action, map[bool]string{true: "progress", false: "output"}[action == request.ActUpdate])
	}
	a := request.Act{Request: args.Request, Action: action, Actor: call.actor(), Session: c.Session(), Key: call.RequestKey, Revision: args.Revision, Payload: payload}
	if call.Person {
		a.Person, a.Channel, a.Event = "local", "pi", call.RequestKey
	}
	done, err := c.r.respond(ctx, store.Respond{Act: a, Epoch: c.Epoch()})
	if err != nil {
		return "", nil, err
	}
	details := answeredDetails{action.String(), done.Request, done.Outcome.String(), done.Run, done.Node, done.State.String(), done.Revision}
	if done.Refused != nil {
		return "", details, done.Refused
	}
	return spoken(action, done), details, nil
}

// spoken says what an action on a request came to.
func spoken(a request.Action, done store.Response) string {
	switch {
	case a == request.ActUpdate:
		return "The progress is recorded; request " + done.Request + " is still open."
	case done.Outcome == request.Started:
		return "The answer to request " + done.Request + " is being checked; repeat the call to learn the verdict."
	case done.Outcome == request.Adopted:
		return "Request " + done.Request + " was answered so before; nothing is done twice."
	}
	return "Request " + done.Request + " is answered. Run " + string(done.Run) + " goes on by itself; if it asks again, a new message says so."
}

func (c *Conn) resolve(ctx context.Context, call ToolCall, args toolArgs) (string, any, error) {
	if err := c.named(ctx, call, &args); err != nil {
		return "", nil, err
	}
	verdict := effect.SaysUnknown
	switch args.Finding {
	case "applied":
		verdict = effect.SaysApplied
	case "rejected":
		verdict = effect.SaysRejected
	default:
		return "", nil, launch.Refuse(launch.ErrInvalid, "finding must be applied or rejected")
	}
	done, err := store.Do(ctx, c.r.store, store.ResolveEffect{Run: args.RunID, Effect: args.Effect, Verdict: verdict, Evidence: args.Evidence,
		Output: args.Output, Actor: call.actor(), Session: c.Session(), Epoch: c.Epoch()})
	if err != nil {
		return "", nil, err
	}
	return "The effect of node " + done.Node + " is settled as " + done.State.String() + ".", struct {
		Action string       `json:"action"`
		Run    launch.RunID `json:"runId"`
		Effect string       `json:"effectId"`
		Node   string       `json:"node"`
		State  string       `json:"state"`
	}{"resolve", args.RunID, args.Effect, done.Node, done.State.String()}, nil
}
