package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

type (
	connector func(context.Context, delivery.Hello, delivery.Session) (conn, error)
	model     func(context.Context) (string, error)
)

// process is one agent process, as the bridge knows it.
type process struct {
	hello delivery.Hello
	model model
	cmd   *exec.Cmd
	lines *bufio.Reader
	wake  chan struct{} // something is to be reported or looked at
	left  chan struct{} // closed when the host was told of the end

	mu      sync.Mutex
	moved   *sync.Cond // out or link has changed
	in      io.WriteCloser
	entries []entry // the transcript
	flight  []entry // written to the agent, not yet in the transcript
	turn    *turn   // or nil
	turns   int
	out     []func(conn) error // reports that are not confirmed
	link    *link              // the current connection
	away    bool               // fenced
	polite  bool               // asked to end
	ended   bool
}

type turn struct {
	key, message string
	ctx          context.Context
	cancel       context.CancelFunc
	closing      bool // answered or stopped
	own          bool // stopped by the host
}

// start starts the agent on a transcript and connects it.
func start(transcript string, connect connector, m model) (*process, error) {
	path, err := filepath.Abs(transcript)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{model: m, cmd: exec.Command(self, "agent", path), wake: make(chan struct{}, 1), left: make(chan struct{})}
	p.moved = sync.NewCond(&p.mu)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = os.Stderr
	p.lines = bufio.NewReader(stdout)
	key, err := launch.NewSessionKey("line-agent", path)
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.hello = delivery.Hello{Session: key, Process: fmt.Sprintf("%d@%d", p.cmd.Process.Pid, time.Now().UnixNano()), Durable: true}
	for ready := false; !ready; {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(errors.New("the agent did not start"), p.cmd.Wait())
		}
		ready = p.event(line)
	}
	go p.read()
	go p.stay(connect)
	return p, nil
}

// read follows the agent until it is gone.
func (p *process) read() {
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			break
		}
		p.event(line)
	}
	_ = p.cmd.Wait() // how it ended says nothing that the host needs
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.turn != nil {
		p.turn.cancel()
	}
	p.signal()
}

// event takes in one line of the agent.
func (p *process) event(line string) (ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch verb, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); verb {
	case "entry":
		var e entry
		if json.Unmarshal([]byte(arg), &e) != nil {
			return false
		}
		p.entries = append(p.entries, e)
		if e.Role != "assistant" && len(p.flight) > 0 {
			p.flight = p.flight[1:]
		}
	case "ask":
		go p.answer(p.turn)
	case "done":
		t := p.turn
		end := map[string]delivery.End{"completed": delivery.Completed, "aborted": delivery.Aborted, "error": delivery.Error}[arg]
		p.out = append(p.out, func(c conn) error {
			return c.TurnSettled(context.Background(), t.key, end, end == delivery.Aborted && !t.own)
		})
		t.cancel()
		p.turn = nil
	case "ready":
		return true
	}
	p.signal()
	return false
}

// answer asks the model.
func (p *process) answer(t *turn) {
	text, err := p.model(t.ctx)
	e := entry{Role: "assistant", Text: text, Stop: "completed"}
	if err != nil {
		e.Stop = "error"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn == t && !t.closing {
		t.closing = true
		p.write("answer " + encode(e))
	}
}

// prompt is a person's.
func (p *process) prompt(text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy() || p.ended {
		return errors.New("the agent is busy or gone; wait")
	}
	p.away = false
	p.out = append(p.out, func(c conn) error { return c.Input(context.Background()) })
	p.begin(entry{Role: "user", Text: text})
	p.signal()
	return nil
}

// escape is a person's too.
func (p *process) escape() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop(false)
}

// end ends the agent politely and waits until the host knows.
func (p *process) end() {
	p.mu.Lock()
	p.polite, p.away = true, false
	p.stop(false)
	_ = p.in.Close()
	p.mu.Unlock()
	<-p.left
}

// kill ends it at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.left
}

// The rest is called with the lock.

func (p *process) busy() bool { return p.turn != nil || len(p.flight) > 0 }

func (p *process) begin(opener entry) {
	p.turns++
	t := &turn{key: fmt.Sprintf("%s/%d", p.hello.Process, p.turns)}
	t.message, _ = opener.marks()
	t.ctx, t.cancel = context.WithCancel(context.Background())
	p.turn = t
	p.out = append(p.out, func(c conn) error {
		_, err := c.TurnStarted(context.Background(), t.key, t.message)
		return err
	})
	p.append("turn", opener)
	p.signal()
}

func (p *process) append(verb string, e entry) {
	p.flight = append(p.flight, e)
	p.write(verb + " " + encode(e))
}

func (p *process) stop(own bool) {
	if t := p.turn; t != nil && !t.closing {
		t.closing, t.own = true, own
		t.cancel()
		p.write("stop")
	}
}

func (p *process) write(line string) { _, _ = io.WriteString(p.in, line+"\n") } // a dead agent is noticed by read

func (p *process) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
