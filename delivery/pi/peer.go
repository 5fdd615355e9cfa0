package pi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

const (
	maxCalls  = 16 // tool calls of one peer that are under way
	maxBehind = 8  // frames of one peer that wait for the report before them
)

// peer is one connection. One goroutine reads, one reports, one writes.
type peer struct {
	e   *Endpoint
	c   net.Conn
	log *slog.Logger

	key   launch.SessionKey // set by hello
	conn  Conn              // likewise; nil before
	calls chan struct{}
	told  chan told // what the peer said, in order, from the reader to the reporter
	in    incoming  // used by the reader alone

	gone chan struct{} // closed when the reader has ended
	wake chan struct{} // for the writer

	mu      sync.Mutex
	queue   [][]byte
	queued  int
	leaving bool      // the end of the host's side is the peer's own wish, to be confirmed
	last    bool      // what is queued is said, then the connection ends
	until   time.Time // at the latest then
	asked   uint64
	pending map[uint64]chan body
	out     outgoing
}

// told is one message of a peer.
type told struct {
	id   uint64
	body body
}

func newPeer(e *Endpoint, c net.Conn) *peer {
	return &peer{e: e, c: c, log: e.o.Log, calls: make(chan struct{}, maxCalls), told: make(chan told, maxBehind),
		gone: make(chan struct{}), wake: make(chan struct{}, 1), pending: map[uint64]chan body{}}
}

// serve runs the connection until it ends.
func (p *peer) serve() {
	var reporter, writer sync.WaitGroup
	reporter.Go(p.report)
	writer.Go(p.write)
	err := p.read()
	close(p.gone)
	close(p.told)
	reporter.Wait() // what was read counts
	p.end(err)
	if p.conn != nil {
		p.conn.Close()
	}
	writer.Wait()
}

// end ends the connection; what goes wrong is said before the host's end of it
// ends it without a word.
func (p *peer) end(err error) {
	if err == nil {
		p.finish()
		return
	}
	p.log.Warn("a connection of Pi was ended", "session", string(p.key), "err", err)
	p.bye(launch.SafeText(err.Error(), maxReason), p.conn == nil && delivery.Rejected(err))
}

// read takes frames until the connection ends; the error is told to the peer. It
// waits for no report but when maxBehind frames do so already, so that what the
// host asks meanwhile is answered (rule pi/order).
func (p *peer) read() error {
	frames := newFrames(p.c)
	if err := p.c.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil
	}
	line, err := frames.next(maxHello)
	if err != nil {
		return protocolError(err)
	}
	if err := p.hello(line); err != nil {
		return err
	}
	if err := p.c.SetReadDeadline(time.Time{}); err != nil {
		return nil
	}
	for {
		if line, err = frames.next(MaxFrame); err != nil {
			return protocolError(err)
		}
		id, b, err := decode(fromExtension, line, MaxFrame)
		if err != nil {
			return err
		}
		if err := p.take(id, b); err != nil {
			return err
		}
	}
}

// report takes what the peer told, one by one. After one that failed it takes
// none: the peer repeats them all.
func (p *peer) report() {
	over := false
	for t := range p.told {
		if over {
			continue
		}
		var err error
		if over, err = p.tell(t.id, t.body); over || err != nil {
			over = true
			p.end(err)
		}
	}
}

// protocolError drops what only says that the connection is over.
func protocolError(err error) error {
	var r *launch.Refusal
	if errors.As(err, &r) {
		return r
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return launch.Refuse(launch.ErrBusy, "the first frame did not come within %v", helloTimeout)
	}
	return nil
}

func (p *peer) hello(line []byte) error {
	id, b, err := decode(fromExtension, line, maxHello)
	h, ok := b.(*helloBody)
	switch { // who has no token is told nothing else
	case !ok || !p.e.admits(h.Token):
		return launch.Refuse(launch.ErrNotAllowed, "the first frame must be a hello with the token of this host; start Pi from this host again")
	case h.Version != Version:
		return invalid("the protocol's version is %d here; type /reload in Pi, or start it from this host again", Version)
	case err != nil:
		return err
	}
	if p.key, err = launch.NewSessionKey(h.Session.ID, h.Session.File); err != nil {
		return err
	}
	hello := delivery.Hello{Session: p.key, Process: h.Process, Durable: h.Durable, After: h.After}
	s := &session{p}
	conn, err := p.e.o.Host.Connect(p.e.ctx, hello, s)
	if errors.Is(err, launch.ErrStale) { // it could not be told before
		s.Fenced()
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.conn = conn
	p.mu.Unlock()
	p.poke() // the writer watches the connection from now on
	p.log.Debug("Pi is connected", "session", string(p.key), "pid", h.PID, "reason", h.Reason, "epoch", conn.Epoch())
	return p.say(id, &welcomeBody{Version: Version, Epoch: conn.Epoch(), Tool: p.e.tool})
}

// take hands one message on.
func (p *peer) take(id uint64, b body) error {
	switch b := b.(type) {
	case *sentBody, *abortedBody, *unableBody:
		p.answer(id, b)
	case *fetchBody:
		c, err := p.out.chunk(b)
		if err != nil {
			return err
		}
		return p.say(id, c)
	case *largeBody:
		f, err := p.in.begin(b)
		if err != nil {
			return err
		}
		return p.say(0, f)
	case *chunkBody:
		f, whole, err := p.in.add(b)
		switch {
		case err != nil:
			return err
		case whole == nil:
			return p.say(0, f)
		}
		id, large, err := decode(fromExtension, whole, MaxContent)
		if err != nil {
			return err
		}
		if large.kind() != "tool" { // nothing else may be large
			return invalid("a %s must fit into a frame", large.kind())
		}
		return p.take(id, large)
	case *helloBody:
		return invalid("%s is not expected here", b.kind())
	case *toolBody:
		select {
		case p.calls <- struct{}{}:
		default:
			return p.say(id, &toolResultBody{Text: "full: too many workflow calls at once; nothing was done, call again", IsError: true})
		}
		p.told <- told{id, b}
	default:
		p.told <- told{id, b}
	}
	return nil
}

// tell hands to the host what comes in order: reports, answers to looks, calls.
// over ends the connection without an error.
func (p *peer) tell(id uint64, b body) (over bool, err error) {
	ctx := p.e.ctx
	switch b := b.(type) {
	case *turnStartedBody:
		own, err := p.conn.TurnStarted(ctx, b.Turn, b.Message)
		return p.confirm(id, ownerships[own], err)
	case *turnSettledBody:
		p.conn.Replied(b.Turn, delivery.Reply{PromptEntry: b.PromptEntry, ReplyEntry: b.ReplyEntry, Text: b.Reply, Usable: b.Whole})
		err := p.conn.TurnSettled(ctx, b.Turn, ends[b.End], b.ByPerson)
		if err == nil {
			p.e.o.Settled(Turn{Session: p.key, Turn: b.Turn, End: ends[b.End], ByPerson: b.ByPerson, Aborted: b.Aborted,
				StopReason: b.StopReason, PromptEntry: b.PromptEntry, ReplyEntry: b.ReplyEntry, Prompt: b.Prompt, Reply: b.Reply})
		}
		return p.confirm(id, "", err)
	case *inputBody:
		if p.e.taken(p.key, b.Key, false) {
			return p.confirm(id, "", nil)
		}
		err := p.conn.Input(ctx)
		if err == nil {
			p.e.taken(p.key, b.Key, true)
		}
		return p.confirm(id, "", err)
	case *changedBody:
		p.log.Debug("Pi says that it changed", "session", string(p.key), "why", b.Why)
		p.conn.Changed()
	case *shutdownBody:
		p.log.Debug("Pi shuts its session down", "session", string(p.key), "reason", b.Reason)
		p.mu.Lock()
		p.leaving = true
		p.mu.Unlock()
		if over, err := p.confirm(id, "", p.conn.Shutdown(ctx)); over || err != nil {
			return over, err
		}
		return true, nil
	case *reportBody:
		p.answer(id, b)
	case *toolBody:
		p.tool(id, b)
	}
	return false, nil
}

// confirm answers a report. What cannot be repeated with success is refused;
// after anything else the peer connects again and repeats it.
func (p *peer) confirm(id uint64, own string, err error) (over bool, _ error) {
	if err == nil {
		return false, p.say(id, &okBody{Own: own})
	}
	if errors.Is(err, launch.ErrStale) { // the session was told that it is fenced
		return true, nil
	}
	var r *launch.Refusal
	if delivery.Rejected(err) && errors.As(err, &r) {
		return false, p.say(id, &refusedBody{Error: r.Kind.String(), Reason: launch.SafeText(err.Error(), maxReason)})
	}
	return false, err
}

// tool carries a call out beside the reports. It goes on when the connection
// ends: its repetition adopts what it did.
func (p *peer) tool(id uint64, b *toolBody) {
	call := piworkflows.ToolCall{RequestKey: b.Key, ToolCallID: b.ToolCallID, Person: b.Person}
	if b.Person {
		call.Command = b.Args
	} else {
		call.Args = []byte(b.Args)
	}
	p.e.wg.Go(func() {
		defer func() { <-p.calls }()
		r := p.conn.Tool(p.e.ctx, call)
		if p.say(id, &toolResultBody{Text: r.Text, Details: r.Details, IsError: r.IsError}) != nil {
			p.bye("an answer cannot be sent", false)
		}
	})
}

// request asks the peer and waits for its answer.
func (p *peer) request(ctx context.Context, b body) (body, error) {
	p.mu.Lock()
	p.asked++
	id := p.asked
	answered := make(chan body, 1)
	p.pending[id] = answered
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.pending, id)
		p.mu.Unlock()
	}()
	if err := p.say(id, b); err != nil {
		return nil, err
	}
	select {
	case a := <-answered:
		if u, ok := a.(*unableBody); ok {
			return nil, launch.Refuse(launch.ErrBusy, "the extension cannot answer: %s", launch.SafeText(u.Reason, maxReason))
		}
		return a, nil
	case <-p.gone:
		return nil, errGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errGone = launch.Refuse(launch.ErrBusy, "the connection to Pi is gone")

// answer hands an answer to who waits for it, if anybody still does.
func (p *peer) answer(id uint64, b body) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.pending[id]; c != nil {
		delete(p.pending, id)
		c <- b
	}
}

// say queues a message. A peer that does not read loses its connection.
func (p *peer) say(id uint64, b body) error {
	line, err := encode(id, b)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last {
		return nil
	}
	if len(line) > MaxFrame {
		large, err := p.out.hold(line)
		if err != nil {
			return err
		}
		if line, err = encode(0, large); err != nil {
			return err
		}
	}
	if p.queued += len(line); p.queued > MaxQueue {
		p.last = true
		_ = p.c.Close()
		return launch.Refuse(launch.ErrFull, "the extension does not read what it is sent")
	}
	p.queue = append(p.queue, line)
	p.poke()
	return nil
}

func (p *peer) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// bye says the reason, then ends the connection. final says that it is of no use
// to connect again in the same way.
func (p *peer) bye(reason string, final bool) {
	_ = p.say(0, &byeBody{Reason: reason, Final: final}) // it ends anyway
	p.finish()
}

// finish ends the connection once what is queued was said.
func (p *peer) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last {
		p.last, p.until = true, time.Now().Add(byeTimeout)
		_ = p.c.SetWriteDeadline(p.until) // also of a write that is stuck; the socket may be closed
	}
	p.poke()
}

// deadline sets how long the next write may take.
func (p *peer) deadline() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last {
		return p.c.SetWriteDeadline(p.until)
	}
	return p.c.SetWriteDeadline(time.Now().Add(writeTimeout))
}

// write says what is queued, until the connection ends.
func (p *peer) write() {
	defer func() { _ = p.c.Close() }() // ends the reader
	for {
		p.mu.Lock()
		queue, last := p.queue, p.last
		p.queue, p.queued = nil, 0
		var done <-chan struct{}
		if p.conn != nil && !p.leaving {
			done = p.conn.Done()
		}
		p.mu.Unlock()
		for _, line := range queue {
			if p.deadline() != nil {
				return
			}
			if _, err := p.c.Write(line); err != nil {
				return
			}
		}
		if last && len(queue) == 0 {
			return
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-p.wake:
		case <-done: // the host ended it; Fenced has been said
			p.mu.Lock()
			leaving := p.leaving
			p.mu.Unlock()
			if !leaving {
				p.finish()
			}
		}
	}
}
