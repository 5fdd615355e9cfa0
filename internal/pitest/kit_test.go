package pitest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/delivery/pi"
	"example.com/piworkflows/internal/pitest"
)

// TestKit checks the bridge in the real Pi against the conformance kit. The real
// Pi can do everything that the kit asks for.
func TestKit(t *testing.T) {
	t.Parallel()
	installed, err := pitest.Install(t.Context())
	missing(t, err)
	for _, r := range deliverytest.Rules() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel() // each rule has its own Pi
			r.Check(t, func(tb deliverytest.TB, host deliverytest.Host) deliverytest.Subject {
				// The first pause before reconnecting is at most 100 ms.
				return deliverytest.Subject{Agent: newKitPi(t, installed, host), Patience: time.Minute, Quiet: 250 * time.Millisecond}
			})
		})
	}
}

// neighbour is another extension. With it the leaf can be moved, and it takes its
// time where Pi waits for it, so that what the kit sends then arrives then.
const neighbour = `export default function (pi) {
  const slow = () => new Promise((resolve) => setTimeout(resolve, 50));
  pi.on("input", slow);
  pi.on("agent_settled", slow);
  pi.registerCommand("rewind", { description: "moves the leaf", handler: async (id, ctx) => { await ctx.navigateTree(id, { summarize: false }); } });
}
`

// kitPi is the real Pi as the kit drives it.
type kitPi struct {
	ctx   context.Context
	pi    pitest.Pi
	home  *pitest.Home
	env   []string
	args  []string
	agent *pitest.Agent // nil when none runs
	file  string        // of the session
}

func newKitPi(t *testing.T, installed pitest.Pi, host deliverytest.Host) *kitPi {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	provider, err := pitest.NewProvider(func(ctx context.Context, _ pitest.Request) pitest.Reply {
		text, err := host.Model(ctx)
		if err != nil {
			return pitest.Reply{Status: http.StatusServiceUnavailable, Text: err.Error()}
		}
		return pitest.Reply{Text: text}
	})
	missing(t, err)
	t.Cleanup(provider.Close)
	endpoint, err := pi.Listen(pi.Options{Host: kitHost{host.Connect}})
	missing(t, err)
	t.Cleanup(func() {
		if err := endpoint.Close(); err != nil {
			t.Error(err)
		}
	})
	home, err := pitest.NewHome(t.TempDir(), provider.URL, map[string]any{"retry": map[string]any{"baseDelayMs": 10}})
	missing(t, err)
	extension := filepath.Join(home.Dir, "neighbour.mjs")
	missing(t, os.WriteFile(extension, []byte(neighbour), 0o600))
	k := &kitPi{ctx: ctx, pi: installed, home: home, env: endpoint.Env(), args: []string{"-e", endpoint.ExtensionPath(), "-e", extension}}
	t.Cleanup(func() {
		if k.agent != nil {
			k.agent.Kill()
		}
	})
	return k
}

func (k *kitPi) Start() (err error) {
	args := k.args
	if k.file != "" {
		args = append(args[:len(args):len(args)], "--session", k.file)
	}
	if k.agent, err = pitest.Start(k.pi, k.home, k.env, args...); err != nil {
		return err
	}
	return k.find()
}

// find finds the session's file.
func (k *kitPi) find() error {
	s, err := k.agent.State(k.ctx)
	k.file = s.SessionFile
	return err
}

func (k *kitPi) Stop() error { return k.agent.Terminate(k.ctx) }

func (k *kitPi) Kill() error {
	k.agent.Kill()
	return nil
}

func (k *kitPi) Prompt(text string) error { return k.agent.Prompt(k.ctx, text, "steer") }

func (k *kitPi) Escape() error {
	_, err := k.agent.Do(k.ctx, "abort", nil)
	return err
}

func (k *kitPi) Rewind(message string) error {
	all, _, err := k.entries()
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.MessageID() == message {
			return k.agent.Prompt(k.ctx, "/rewind "+e.Parent, "steer")
		}
	}
	return deliverytest.ErrNoEntry
}

func (k *kitPi) Fork() error {
	if _, err := k.agent.Do(k.ctx, "clone", nil); err != nil {
		return err
	}
	return k.find()
}

// entries returns all entries of the process and the leaf.
func (k *kitPi) entries() ([]pitest.Entry, string, error) {
	raw, err := k.agent.Do(k.ctx, "get_entries", nil)
	if err != nil {
		return nil, "", err
	}
	var all struct {
		Entries []pitest.Entry
		LeafID  string
	}
	err = json.Unmarshal(raw, &all)
	return all.Entries, all.LeafID, err
}

func (k *kitPi) Branch() ([]deliverytest.Entry, error) {
	all, leaf, err := k.entries()
	for i, e := range all {
		if e.ID == leaf { // what comes later has another leaf
			return kitEntries(pitest.Branch(all[:i+1])), err
		}
	}
	return nil, err
}

func (k *kitPi) Disk() ([]deliverytest.Entry, error) {
	all, err := pitest.File(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has no reply yet
	}
	return kitEntries(pitest.Branch(all)), err
}

func kitEntries(branch []pitest.Entry) (all []deliverytest.Entry) {
	roles := map[string]deliverytest.Role{"user": deliverytest.User, "assistant": deliverytest.Assistant, "toolResult": deliverytest.ToolResult}
	for _, e := range branch {
		k := deliverytest.Entry{ID: e.ID, Parent: e.Parent, Text: e.Text(), CustomType: e.CustomType, Details: e.Details, Role: roles[e.Message.Role]}
		if e.Type == "custom_message" {
			k.Role = deliverytest.Custom
		}
		all = append(all, k)
	}
	return all
}

// kitHost is the kit's host as the endpoint wants it: with a tool, which the
// kit's model does not call.
type kitHost struct{ connect deliverytest.Bind }

func (h kitHost) Connect(ctx context.Context, hello delivery.Hello, s delivery.Session) (pi.Conn, error) {
	r, err := h.connect(ctx, hello, s)
	if err != nil {
		return nil, err
	}
	return kitConn{r}, nil
}

func (kitHost) Tool() piworkflows.ToolSpec {
	return piworkflows.ToolSpec{Name: "workflow", Description: "none", Parameters: []byte(`{"type":"object"}`)}
}

type kitConn struct{ deliverytest.Reporter }

func (kitConn) Tool(context.Context, piworkflows.ToolCall) piworkflows.ToolResult {
	return piworkflows.ToolResult{Text: "there are no workflows", IsError: true}
}
