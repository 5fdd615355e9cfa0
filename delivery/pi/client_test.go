package pi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// open opens an endpoint that is closed with the test.
func open(t testing.TB, o Options) *Endpoint {
	t.Helper()
	e, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(e.socket()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return e
}

// client is an extension that does as it is told.
type client struct {
	t      testing.TB
	c      net.Conn
	frames *frames
	asked  uint64
}

func dial(t testing.TB, e *Endpoint) *client {
	t.Helper()
	c, err := net.Dial("unix", e.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t: t, c: c, frames: newFrames(c)}
}

func (c *client) say(id uint64, b body) {
	c.t.Helper()
	line, err := encode(id, b)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.c.Write(line); err != nil {
		c.t.Fatal(err)
	}
}

// hear returns the next frame, or nil at the end.
func (c *client) hear() (uint64, body) {
	c.t.Helper()
	if err := c.c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // a hang is a failure
		c.t.Fatal(err)
	}
	line, err := c.frames.next(MaxFrame)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) { // closed before it had read all
		return 0, nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	id, b, err := decode(fromHost, line, MaxFrame)
	if err != nil {
		c.t.Fatalf("the host said %.200q: %v", line, err)
	}
	return id, b
}

func hello(e *Endpoint, session string) *helloBody {
	return &helloBody{Version: Version, Token: e.token, Session: sessionBody{ID: session, File: "/" + session + ".jsonl"},
		Process: "p1", PID: 1, Reason: "startup", Durable: true}
}

func (c *client) hello(e *Endpoint, session string) *welcomeBody {
	c.t.Helper()
	c.say(1, hello(e, session))
	_, b := c.hear()
	w, ok := b.(*welcomeBody)
	if !ok {
		c.t.Fatalf("got %#v, want welcome", b)
	}
	return w
}

// ask says something and returns its answer.
func (c *client) ask(b body) body {
	c.t.Helper()
	c.asked++
	c.say(c.asked, b)
	for {
		id, a := c.hear()
		if a == nil || id == c.asked {
			return a
		}
		c.t.Fatalf("got %#v before the answer to %s", a, b.kind())
	}
}

// bye returns the reason with which the host ends the connection.
func (c *client) bye() string {
	c.t.Helper()
	reason, _ := c.end()
	return reason
}

// end says besides whether to connect again is of no use.
func (c *client) end() (reason string, final bool) {
	c.t.Helper()
	for {
		_, b := c.hear()
		if b == nil {
			return "", false
		}
		if b, ok := b.(*byeBody); ok {
			if _, after := c.hear(); after != nil {
				c.t.Errorf("the host says %#v after bye", after)
			}
			return b.Reason, b.Final
		}
	}
}

// fakeHost takes everything.
type fakeHost struct {
	mu    sync.Mutex
	told  []string
	fail  error // of the next report
	conns map[launch.SessionKey]*fakeConn
	tool  func(piworkflows.ToolCall) piworkflows.ToolResult
	epoch uint64
	hold  chan struct{} // closed to let reports of an end be committed; may be nil
}

func (h *fakeHost) Tool() piworkflows.ToolSpec {
	return piworkflows.ToolSpec{Name: "workflow", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (h *fakeHost) Connect(_ context.Context, hello delivery.Hello, s delivery.Session) (Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hello.After != 0 && hello.After < h.epoch {
		return nil, launch.Refuse(launch.ErrStale, "another process has connected since")
	}
	h.epoch++
	c := &fakeConn{h: h, s: s, epoch: h.epoch, done: make(chan struct{})}
	if h.conns == nil {
		h.conns = map[launch.SessionKey]*fakeConn{}
	}
	if old := h.conns[hello.Session]; old != nil {
		old.end(true)
	}
	h.conns[hello.Session] = c
	return c, nil
}

// conn returns the connection of a session that a test's client has.
func (h *fakeHost) conn(t testing.TB, session string) *fakeConn {
	t.Helper()
	k, err := launch.NewSessionKey(session, "/"+session+".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[k]
}

func (h *fakeHost) tell(what ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.fail
	h.fail = nil
	if err == nil {
		h.told = append(h.told, strings.Join(what, " "))
	}
	return err
}

func (h *fakeHost) heard() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.told, ", ")
}

type fakeConn struct {
	h     *fakeHost
	s     delivery.Session
	epoch uint64
	once  sync.Once
	done  chan struct{}
}

func (c *fakeConn) end(fenced bool) {
	c.once.Do(func() {
		if fenced {
			c.s.Fenced()
		}
		close(c.done)
	})
}

func (c *fakeConn) Replied(string, delivery.Reply) {}

func (c *fakeConn) TurnStarted(_ context.Context, turn, message string) (delivery.Ownership, error) {
	return delivery.Owned, c.h.tell("started", turn, message)
}

func (c *fakeConn) TurnSettled(_ context.Context, turn string, end delivery.End, byPerson bool) error {
	if c.h.hold != nil {
		<-c.h.hold
	}
	return c.h.tell("settled", turn, end.String())
}
func (c *fakeConn) Input(context.Context) error { return c.h.tell("input") }
func (c *fakeConn) Changed()                    { _ = c.h.tell("changed") }
func (c *fakeConn) Shutdown(context.Context) error {
	err := c.h.tell("shutdown")
	c.end(false)
	return err
}
func (c *fakeConn) Close()                { c.end(false) }
func (c *fakeConn) Epoch() uint64         { return c.epoch }
func (c *fakeConn) Done() <-chan struct{} { return c.done }
func (c *fakeConn) Tool(_ context.Context, call piworkflows.ToolCall) piworkflows.ToolResult {
	return c.h.tool(call)
}
