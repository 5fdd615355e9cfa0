package pi

import (
	"context"
	"log/slog"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
)

// Host is what an endpoint connects sessions to.
type Host interface {
	// Connect registers one connection of a session; see [delivery.Conn].
	Connect(ctx context.Context, h delivery.Hello, s delivery.Session) (Conn, error)
	// Tool describes the workflow tool. It is asked once, by [Listen].
	Tool() piworkflows.ToolSpec
}

// Conn is one registered connection. The methods are those of
// [piworkflows.Conn].
type Conn interface {
	TurnStarted(ctx context.Context, turn, message string) (delivery.Ownership, error)
	TurnSettled(ctx context.Context, turn string, end delivery.End, byPerson bool) error
	Input(ctx context.Context) error
	Changed()
	Shutdown(ctx context.Context) error
	Close()
	Epoch() uint64
	Done() <-chan struct{}
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

// Options of an endpoint.
type Options struct {
	// Dir is where the socket and the extension are put. It is made with mode
	// 0700 when it is missing, and refused when others may enter it. Empty makes
	// a private temporary one that Close removes.
	Dir  string
	Log  *slog.Logger // nil: nowhere
	Host Host         // required
}

// Endpoint is a Unix socket to which extensions connect.
type Endpoint struct{}

// Listen opens the endpoint.
func Listen(o Options) (*Endpoint, error) { panic("not yet") }

// Env returns what a Pi process needs in its environment, as "KEY=value":
// PIWORKFLOWS_SOCKET and PIWORKFLOWS_TOKEN.
func (e *Endpoint) Env() []string { panic("not yet") }

// ExtensionPath returns the file to start Pi with: pi -e <path>.
func (e *Endpoint) ExtensionPath() string { panic("not yet") }

// Close ends every connection and waits until nothing runs any more.
func (e *Endpoint) Close() error { panic("not yet") }
