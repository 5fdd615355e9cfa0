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
	"strings"
	"sync"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

type (
	connector func(context.Context, delivery.Hello, delivery.Session) (delivery.Reporter, error)
	model     func(context.Context) (string, error)
)

// process is the agent as its bridge knows it.
type process struct {
	model   model
	cmd     *exec.Cmd
	in      io.WriteCloser
	entries []entry // the transcript, and then what was written to the agent
	kept    int     // so many of them are in the agent's file
	turn    *turn   // or nil
	turns   int
	gone    bool
}

type turn struct {
	key, message string
	ctx          context.Context
	cancel       context.CancelFunc
	own          bool // stopped by the host
}

// start starts the agent on a transcript, an absolute path, and connects it.
func start(transcript string, connect connector, m model) (*bridge, error) {
	key, err := launch.NewSessionKey("line-agent", transcript)
	if err != nil {
		return nil, err
	}
	b := &bridge{wake: make(chan struct{}, 1), left: make(chan struct{})}
	b.moved = sync.NewCond(b)
	b.model, b.cmd = m, exec.Command(os.Args[0], "agent", transcript) // this program is the agent too
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	b.hello = delivery.Hello{Session: key, Process: fmt.Sprintf("%d@%d", b.cmd.Process.Pid, time.Now().UnixNano()), Durable: true}
	lines := bufio.NewReader(stdout)
	for ready := false; !ready; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(errors.New("the agent did not start"), b.cmd.Wait())
		}
		ready = b.event(line)
	}
	go b.read(lines)
	go b.stay(connect)
	return b, nil
}

// read follows the agent until it is gone.
func (b *bridge) read(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		b.event(line)
	}
	_ = b.cmd.Wait() // how it ended says nothing that the host needs
	b.Lock()
	defer b.Unlock()
	b.gone = true
	if b.turn != nil {
		b.turn.cancel()
	}
	b.signal()
}

// event takes in one line of the agent.
func (b *bridge) event(line string) (ready bool) {
	b.Lock()
	defer b.Unlock()
	defer b.signal()
	switch verb, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); verb {
	case "entry":
		var e entry
		if json.Unmarshal([]byte(arg), &e) != nil {
			return false
		}
		if b.kept == len(b.entries) { // not one of ours
			b.entries = append(b.entries, e)
		}
		b.kept++
	case "ask":
		go b.answer(b.turn)
	case "done":
		t := b.turn
		end := map[string]delivery.End{"completed": delivery.Completed, "aborted": delivery.Aborted, "error": delivery.Error}[arg]
		said := b.entries[b.kept-1] // nobody types into a turn of this agent
		reply := delivery.Reply{Text: said.Text, Usable: end == delivery.Completed}
		b.report(func(c delivery.Reporter) error {
			c.Replied(t.key, reply)
			return c.TurnSettled(context.Background(), t.key, end, end == delivery.Aborted && !t.own)
		})
		t.cancel()
		b.turn = nil
	case "bye":
		b.report(func(c delivery.Reporter) error { return c.Shutdown(context.Background()) })
		b.gone = true
	}
	return line == "ready\n"
}

// answer asks the model.
func (b *bridge) answer(t *turn) {
	text, err := b.model(t.ctx)
	e := entry{Role: "assistant", Text: text, Stop: "completed"}
	if err != nil {
		e.Stop = "error"
	}
	b.Lock()
	defer b.Unlock()
	if b.turn == t && t.ctx.Err() == nil {
		b.write("answer " + encode(e))
	}
}

// prompt is a person's.
func (b *bridge) prompt(text string) error {
	b.Lock()
	defer b.Unlock()
	if b.busy() || b.gone {
		return errors.New("the agent is busy or gone; wait")
	}
	b.away = false
	b.report(func(c delivery.Reporter) error { return c.Input(context.Background()) })
	b.begin(entry{Role: "user", Text: text})
	return nil
}

// escape is a person's too.
func (b *bridge) escape() {
	b.Lock()
	defer b.Unlock()
	b.stop(false)
}

// end ends the agent politely and waits until the host knows.
func (b *bridge) end() {
	b.Lock()
	b.stop(false)
	_ = b.in.Close()
	b.Unlock()
	<-b.left
}

// kill ends it at once.
func (b *bridge) kill() {
	_ = b.cmd.Process.Kill()
	<-b.left
}

// The rest is called with the lock.

func (b *bridge) begin(opener entry) {
	b.turns++
	t := &turn{key: fmt.Sprintf("%s/%d", b.hello.Process, b.turns)}
	t.message, _ = opener.marks()
	t.ctx, t.cancel = context.WithCancel(context.Background())
	b.turn = t
	b.report(func(c delivery.Reporter) error {
		_, err := c.TurnStarted(context.Background(), t.key, t.message)
		return err
	})
	b.append("turn", opener)
}

func (b *bridge) report(r func(delivery.Reporter) error) {
	b.out = append(b.out, r)
	b.signal()
}

func (b *bridge) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (p *process) busy() bool { return p.turn != nil || p.kept < len(p.entries) }

func (p *process) append(verb string, e entry) {
	p.entries = append(p.entries, e)
	p.write(verb + " " + encode(e))
}

func (p *process) stop(own bool) {
	if t := p.turn; t != nil && t.ctx.Err() == nil {
		t.own = own
		t.cancel()
		p.write("stop") // after an answer it does nothing
	}
}

func (p *process) write(line string) { _, _ = io.WriteString(p.in, line+"\n") } // a dead agent is noticed by read
