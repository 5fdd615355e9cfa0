package pi

import (
	"context"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// Host is what an endpoint connects sessions to.
type Host interface {
	// Connect registers one connection of a session; see [delivery.Conn].
	Connect(ctx context.Context, h delivery.Hello, s delivery.Session) (Conn, error)
	// Tool describes the workflow tool. It is asked once, by [Listen].
	Tool() piworkflows.ToolSpec
}

// Conn is one registered connection; [piworkflows.Conn] is one.
type Conn interface {
	delivery.Reporter
	Tool(ctx context.Context, call piworkflows.ToolCall) piworkflows.ToolResult
}

// ForRuntime makes a host of a runtime.
func ForRuntime(r *piworkflows.Runtime) Host { return runtimeHost{r} }

type runtimeHost struct{ *piworkflows.Runtime }

func (h runtimeHost) Connect(ctx context.Context, hello delivery.Hello, s delivery.Session) (Conn, error) {
	c, err := h.Runtime.Connect(ctx, hello, s)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Turn is what an extension saw of a turn that is over.
type Turn struct {
	Session launch.SessionKey
	Turn    string
	End     delivery.End
	// ByPerson says that a person, not the host, stopped it.
	ByPerson bool
	// Aborted and StopReason are Pi's own words.
	Aborted    bool
	StopReason string
	// PromptEntry and ReplyEntry are ids of entries in the session file, of what
	// opened the turn and of its final assistant message; empty when unknown.
	PromptEntry, ReplyEntry string
	// Prompt and Reply are their texts, cut at 8 KiB and 128 KiB. They are private.
	Prompt, Reply string
}
