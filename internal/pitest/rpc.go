package pitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// Event is a record of Pi's that is not the response to a command.
type Event struct {
	Type    string `json:"type"`
	Aborted bool   `json:"aborted"` // of agent_settled
	Raw     json.RawMessage
}

// Agent is one Pi process in RPC mode. It is safe for concurrent use.
type Agent struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}

	mu        sync.Mutex
	events    []Event
	changed   chan struct{}
	responses map[string]response
	asked     int
	stderr    bytes.Buffer
}

type response struct {
	Success bool            `json:"success"`
	Error   string          `json:"error"`
	Data    json.RawMessage `json:"data"`
}

// Start starts Pi in RPC mode in a home, with the environment of the home and
// env, and these further arguments, as "-e" and an extension or "--session" and
// a file.
func Start(pi Pi, h *Home, env []string, args ...string) (*Agent, error) {
	all := append([]string{pi.CLI, "--mode", "rpc"}, h.Args()...)
	a := &Agent{cmd: exec.Command(pi.Node, append(all, args...)...), done: make(chan struct{}),
		changed: make(chan struct{}), responses: map[string]response{}}
	a.cmd.Env = append(h.Env(), env...)
	a.cmd.Dir = h.Work
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts dies with it
	a.cmd.Stderr = lockedWriter{a}
	var err error
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go a.read(out)
	return a, nil
}

type lockedWriter struct{ a *Agent }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	return w.a.stderr.Write(p)
}

func (a *Agent) read(out io.Reader) {
	defer close(a.done)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			_ = a.cmd.Wait() // how it ended is what a test made it do
			a.mu.Lock()
			a.tell()
			a.mu.Unlock()
			return
		}
		var head struct {
			ID string `json:"id"`
			Event
			response
		}
		if json.Unmarshal(line, &head) != nil {
			continue
		}
		a.mu.Lock()
		if head.Type == "response" {
			a.responses[head.ID] = head.response
		} else {
			head.Event.Raw = bytes.TrimSpace(line)
			a.events = append(a.events, head.Event)
		}
		a.tell()
		a.mu.Unlock()
	}
}

func (a *Agent) tell() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// ErrEnded says that the process is gone.
var ErrEnded = errors.New("Pi has ended")

// until waits until ok, which is called with the lock held.
func (a *Agent) until(ctx context.Context, what string, ok func() bool) error {
	for {
		a.mu.Lock()
		is, changed := ok(), a.changed
		stderr := a.stderr.String()
		a.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-a.done:
			a.mu.Lock()
			defer a.mu.Unlock()
			if ok() {
				return nil
			}
			return fmt.Errorf("%w while it was waited for %s: %s", ErrEnded, what, stderr)
		case <-ctx.Done():
			return fmt.Errorf("Pi: no %s: %w: %s", what, ctx.Err(), stderr)
		}
	}
}

// Do gives Pi a command and waits for the response. It returns its data.
func (a *Agent) Do(ctx context.Context, command string, fields map[string]any) (json.RawMessage, error) {
	all := map[string]any{"type": command}
	for k, v := range fields {
		all[k] = v
	}
	a.mu.Lock()
	a.asked++
	id := strconv.Itoa(a.asked)
	all["id"] = id
	raw, err := json.Marshal(all)
	if err == nil {
		_, err = a.stdin.Write(append(raw, '\n'))
	}
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var r response
	if err := a.until(ctx, "response to "+command, func() (ok bool) { r, ok = a.responses[id]; return ok }); err != nil {
		return nil, err
	}
	if !r.Success {
		return nil, errors.New("Pi: " + command + ": " + r.Error)
	}
	return r.Data, nil
}

// Prompt hands over what a person typed. While a turn runs it is queued as
// behaviour says, "steer" or "followUp". A registered command is carried out.
func (a *Agent) Prompt(ctx context.Context, text, behaviour string) error {
	_, err := a.Do(ctx, "prompt", map[string]any{"message": text, "streamingBehavior": behaviour})
	return err
}

// Mark is the number of events so far; see [Agent.Wait].
func (a *Agent) Mark() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.events)
}

// Wait returns the first event after the mark that matches.
func (a *Agent) Wait(ctx context.Context, mark int, what string, match func(Event) bool) (e Event, err error) {
	err = a.until(ctx, what, func() bool {
		for ; mark < len(a.events); mark++ {
			if e = a.events[mark]; match(e) {
				return true
			}
		}
		return false
	})
	return e, err
}

// Settled waits until a turn after the mark has settled.
func (a *Agent) Settled(ctx context.Context, mark int) (Event, error) {
	return a.Wait(ctx, mark, "agent_settled", func(e Event) bool { return e.Type == "agent_settled" })
}

// Ask prompts and waits until the turn has settled.
func (a *Agent) Ask(ctx context.Context, text string) error {
	mark := a.Mark()
	if err := a.Prompt(ctx, text, "followUp"); err != nil {
		return err
	}
	_, err := a.Settled(ctx, mark)
	return err
}

// Events returns the events so far.
func (a *Agent) Events() []Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Event(nil), a.events...)
}

// State is the part of Pi's state that tests look at.
type State struct {
	SessionFile, SessionID string
	IsStreaming            bool
	MessageCount           int
}

// State asks Pi for its state.
func (a *Agent) State(ctx context.Context) (s State, err error) {
	raw, err := a.Do(ctx, "get_state", nil)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// Stderr returns what Pi has said on its standard error.
func (a *Agent) Stderr() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stderr.String()
}

// PID returns the process id.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Kill ends the process with SIGKILL, and what it started with it.
func (a *Agent) Kill() {
	_ = syscall.Kill(-a.PID(), syscall.SIGKILL) // it may be gone already
	<-a.done
}

// Terminate asks the process to end with SIGTERM and waits until it has.
func (a *Agent) Terminate(ctx context.Context) error {
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done is closed when the process has ended.
func (a *Agent) Done() <-chan struct{} { return a.done }
