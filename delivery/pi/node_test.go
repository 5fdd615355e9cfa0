package pi

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
)

// node runs a script of testdata with the extension in place of Pi's own
// program, which is what the real one is tested with elsewhere.
func node(t *testing.T, script string, env func(dir string) []string) {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("PIWORKFLOWS_REQUIRE_PI") != "" {
			t.Fatal("node is not installed; install it to run the extension")
		}
		t.Skip("node is not installed; the extension is not run")
	}
	dir := t.TempDir()
	ext := filepath.Join(dir, "extension.mjs")
	if err := os.WriteFile(ext, Extension(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, filepath.Join("testdata", script))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DIR=" + dir, "EXTENSION=" + ext}, env(dir)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || strings.TrimSpace(out.String()) != "ok" {
		t.Errorf("%s: %v\n%s", script, err, out.String())
	}
}

func TestExtensionLogic(t *testing.T) { node(t, "logic.mjs", func(string) []string { return nil }) }

// A host that does not know this Pi, or speaks another version, is not asked again
// until the person acts.
func TestExtensionRefused(t *testing.T) {
	var log bytes.Buffer
	e := open(t, Options{Host: ForRuntime(openRuntime(t)), Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, c := range []struct {
		why, says string
		env       func(dir string) []string
	}{
		{"a wrong token", "token of this host; start Pi from this host again", func(string) []string {
			return append(e.Env(), "PIWORKFLOWS_TOKEN="+strings.Repeat("0", 64))
		}},
		{"another version", "version is 1 here; type /reload in Pi", func(dir string) []string {
			next := filepath.Join(dir, "next.mjs")
			if err := os.WriteFile(next, bytes.Replace(Extension(), []byte("const VERSION = 1;"), []byte("const VERSION = 2;"), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			return append(e.Env(), "EXTENSION="+next)
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			node(t, "refused.mjs", func(dir string) []string { return append(c.env(dir), "SAYS="+c.says) })
		})
	}
	if err := e.Close(); err != nil { // the log is complete
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "a connection of Pi was ended"); n != 4 {
		t.Errorf("%d connections were refused, want one each at the start and one each when the person acted:\n%s", n, log.String())
	}
}

// lossy is a host that can lose the answer of a call.
type lossy struct {
	Host
	mu    sync.Mutex
	lose  func() // called once the next call was carried out
	calls map[string][]string
}

type lossyConn struct {
	Conn
	h *lossy
}

func (h *lossy) Connect(ctx context.Context, hello delivery.Hello, s delivery.Session) (Conn, error) {
	c, err := h.Host.Connect(ctx, hello, s)
	return &lossyConn{c, h}, err
}

func (c *lossyConn) Tool(ctx context.Context, call piworkflows.ToolCall) piworkflows.ToolResult {
	r := c.Conn.Tool(ctx, call)
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.calls[call.RequestKey] = append(c.h.calls[call.RequestKey], r.Text)
	if c.h.lose != nil && !r.IsError && strings.Contains(string(call.Args), "start") {
		c.h.lose()
		c.h.lose = nil
	}
	return r
}

// The extension with a real host: a story, a person's commands, large content,
// a host that goes and comes back, and an answer that is lost.
func TestExtensionWithHost(t *testing.T) {
	h := &lossy{Host: ForRuntime(openRuntime(t)), calls: map[string][]string{}}
	o := Options{Host: h, Dir: filepath.Join(t.TempDir(), "bridge")}
	e := open(t, o)
	control := map[string]func(){
		"stop": func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		},
		"start": func() { e = open(t, o) },
		"lose": func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lose = func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				for p := range e.peers {
					p.finish() // what is said from now on is lost
				}
			}
		},
		"count": func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			repeated := 0
			for _, texts := range h.calls {
				if len(texts) > 1 {
					repeated++
					if len(texts) != 2 || texts[0] != texts[1] {
						t.Errorf("a repeated call was answered %q", texts)
					}
				}
			}
			if repeated != 1 {
				t.Errorf("%d calls were repeated, want the one whose answer was lost", repeated)
			}
		},
	}
	node(t, "host.mjs", func(dir string) []string {
		env, stop := e.Env(), make(chan struct{})
		var wg sync.WaitGroup
		t.Cleanup(func() { close(stop); wg.Wait() })
		wg.Go(func() { // the script asks by files
			for {
				for what, do := range control {
					ask := filepath.Join(dir, "ask-"+what)
					if os.Remove(ask) == nil {
						do()
						if err := os.WriteFile(filepath.Join(dir, "done-"+what), nil, 0o600); err != nil {
							t.Error(err)
						}
					}
				}
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
		return env
	})
}
