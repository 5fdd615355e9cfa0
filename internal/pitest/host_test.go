package pitest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/pi"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// TestMain makes the test binary a host when it is asked to, so that a host can
// be killed. The tests mostly wait for other processes.
func TestMain(m *testing.M) {
	flag.Parse()
	if raw := os.Getenv("PITEST_HOST"); raw != "" {
		if err := runHost(raw); err != nil {
			fmt.Fprintln(os.Stderr, "host:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// hostConfig says what a host process is.
type hostConfig struct {
	DB, Dir string
	Version string // of the workflow deploy
}

// line is what a host process says, one JSON object a line.
type line struct {
	Ready  bool     // with Env and Ext
	Env    []string `json:",omitempty"`
	Ext    string   `json:",omitempty"`
	At     string   `json:",omitempty"` // it has stopped at this point
	Gate   string   `json:",omitempty"` // a node waits at this gate
	Kind   string   `json:",omitempty"` // of an event, with the rest
	Run    string   `json:",omitempty"`
	To     string   `json:",omitempty"`
	Why    string   `json:",omitempty"`
	Node   string   `json:",omitempty"`
	Msg    string   `json:",omitempty"`
	Intent string   `json:",omitempty"`
	Ask    string   `json:",omitempty"` // id of the request concerned
	Armed  bool     `json:",omitempty"`
	Over   string   `json:",omitempty"` // this run has ended and owes nothing
}

// runHost is the host process. It reads commands, one a line: "arm A;B" stops
// at the first point B after the first point A, "go" lets it go on, "open" lets
// nodes pass the gate, "over RUN" says when a run has ended and no turn is owed
// for it, "close" ends the host politely.
func runHost(raw string) error {
	var c hostConfig
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	h := &hostProcess{enc: json.NewEncoder(os.Stdout), pass: make(chan struct{}), gate: make(chan struct{}, 100), seen: make(chan struct{}, 1)}
	flows, err := workflows(c.Version, h.wait)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	rt, err := piworkflows.Open(piworkflows.Options{Path: c.DB, Workflows: flows, Observe: h.observe, Probe: h.probe, Log: log,
		Lease: 2 * time.Second, Renew: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	e, err := pi.Listen(pi.Options{Dir: c.Dir, Host: pi.ForRuntime(rt), Log: log})
	if err != nil {
		return err
	}
	h.say(line{Ready: true, Env: e.Env(), Ext: e.ExtensionPath()})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "arm":
			h.mu.Lock()
			h.armed = strings.Split(rest, ";")
			h.mu.Unlock()
			h.say(line{Armed: true})
		case "go":
			h.pass <- struct{}{}
		case "open":
			h.gate <- struct{}{}
		case "over":
			go h.over(rt, launch.RunID(rest))
		case "close":
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return errors.Join(e.Close(), rt.Close(ctx))
		}
	}
	return in.Err()
}

type hostProcess struct {
	mu    sync.Mutex
	enc   *json.Encoder
	armed []string
	pass  chan struct{}
	gate  chan struct{}
	seen  chan struct{} // something was committed
}

func (h *hostProcess) say(l line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.enc.Encode(l) // the other side may be gone
}

func (h *hostProcess) observe(e store.Event) {
	h.say(line{Kind: e.Kind, Run: string(e.Run), To: e.To, Why: e.Why, Node: e.Node, Msg: e.Message, Intent: e.Intent, Ask: e.Request})
	select {
	case h.seen <- struct{}{}:
	default:
	}
}

// over says when a run has ended and no turn is owed for it.
func (h *hostProcess) over(rt *piworkflows.Runtime, id launch.RunID) {
	for {
		v, err := rt.Status(context.Background(), id)
		if err != nil || v.Finished != "" && v.Turn == "" {
			h.say(line{Over: string(id), Why: fmt.Sprint(v.Status, " ", err)})
			return
		}
		<-h.seen
	}
}

func (h *hostProcess) probe(point string) {
	h.mu.Lock()
	stop := false
	if len(h.armed) > 0 && h.armed[0] == point {
		h.armed = h.armed[1:]
		stop = len(h.armed) == 0
	}
	h.mu.Unlock()
	if stop {
		h.say(line{At: point})
		<-h.pass
	}
}

// wait is a node's wait for somebody to open the gate.
func (h *hostProcess) wait(ctx context.Context, node string) error {
	h.say(line{Gate: node})
	select {
	case <-h.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// host is a host process, seen from a test.
type host struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{}
	env  []string
	ext  string

	mu      sync.Mutex
	lines   []line
	changed chan struct{}
	stderr  bytes.Buffer
}

func startHost(ctx context.Context, c hostConfig) (*host, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	h := &host{cmd: exec.Command(os.Args[0]), done: make(chan struct{}), changed: make(chan struct{})}
	h.cmd.Env = append(os.Environ(), "PITEST_HOST="+string(raw))
	h.cmd.Stderr = &h.stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(h.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l line
			if json.Unmarshal(lines.Bytes(), &l) == nil {
				h.mu.Lock()
				h.lines = append(h.lines, l)
				close(h.changed)
				h.changed = make(chan struct{})
				h.mu.Unlock()
			}
		}
		_ = h.cmd.Wait() // how it ended is what a test made it do
	}()
	ready, err := h.wait(ctx, 0, "ready", func(l line) bool { return l.Ready })
	h.env, h.ext = ready.Env, ready.Ext
	return h, err
}

func (h *host) say(command string) error {
	_, err := io.WriteString(h.in, command+"\n")
	return err
}

// arm makes the host stop at the last of these points, after the others.
func (h *host) arm(ctx context.Context, points string) error {
	mark := h.mark()
	if err := h.say("arm " + points); err != nil {
		return err
	}
	_, err := h.wait(ctx, mark, "armed", func(l line) bool { return l.Armed })
	return err
}

func (h *host) mark() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lines)
}

func (h *host) wait(ctx context.Context, mark int, what string, match func(line) bool) (line, error) {
	for ended := false; ; {
		h.mu.Lock()
		for ; mark < len(h.lines); mark++ {
			if match(h.lines[mark]) {
				defer h.mu.Unlock()
				return h.lines[mark], nil
			}
		}
		changed := h.changed
		h.mu.Unlock()
		if ended {
			return line{}, fmt.Errorf("the host ended while %s was waited for: %s", what, h.stderr.String())
		}
		select {
		case <-changed:
		case <-h.done:
			ended = true
		case <-ctx.Done():
			return line{}, fmt.Errorf("the host did not say %s: %w\n%s", what, ctx.Err(), h.story())
		}
	}
}

// story is what the host has said, for a failure.
func (h *host) story() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, l := range h.lines {
		raw, _ := json.Marshal(l)
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

// count counts the events of a kind.
func (h *host) count(kind string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if l.Kind == kind {
			n++
		}
	}
	return n
}

func (h *host) kill() {
	_ = h.cmd.Process.Kill() // it may be gone already
	<-h.done
}

// close ends the host politely.
func (h *host) close(ctx context.Context) error {
	if err := h.say("close"); err != nil {
		return err
	}
	select {
	case <-h.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !h.cmd.ProcessState.Success() {
		return fmt.Errorf("the host ended badly: %s", h.stderr.String())
	}
	return nil
}
