package deliverytest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/launch"
)

var _ deliverytest.Reporter = (*delivery.Conn)(nil)

// host is a host that only listens.
type host struct {
	mu    sync.Mutex
	epoch uint64
	told  []string
	fail  map[string]error // by report, once
	conn  *conn
	after func() // called after each report, before it is answered
}

func (h *host) connect(_ context.Context, hello delivery.Hello, s delivery.Session) (*conn, error) {
	h.mu.Lock()
	old := h.conn
	h.epoch++
	h.conn = &conn{host: h, epoch: h.epoch, hello: hello, session: s, done: make(chan struct{})}
	c := h.conn
	h.mu.Unlock()
	if old != nil && !old.over() {
		close(old.done)
		old.session.Fenced()
	}
	return c, nil
}

func (h *host) tell(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.fail[what]
	delete(h.fail, what)
	if err == nil {
		h.told = append(h.told, what)
	}
	return err
}

// heard returns what was reported since the last call.
func (h *host) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := h.told
	h.told = nil
	return told
}

type conn struct {
	host    *host
	epoch   uint64
	hello   delivery.Hello
	session delivery.Session
	done    chan struct{}
}

func (c *conn) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *conn) report(what string) error {
	if c.over() {
		return launch.Refuse(launch.ErrStale, "an old connection")
	}
	err := c.host.tell(what)
	if c.host.after != nil {
		c.host.after()
	}
	return err
}

func (c *conn) TurnStarted(_ context.Context, turn, message string) (delivery.Ownership, error) {
	if message == "" {
		return delivery.None, c.report("start " + turn)
	}
	return delivery.Owned, c.report("start " + turn + " by " + message)
}

func (c *conn) TurnSettled(_ context.Context, turn string, end delivery.End, byPerson bool) error {
	what := fmt.Sprintf("%v %s", end, turn)
	if byPerson {
		what += " by person"
	}
	return c.report(what)
}

func (c *conn) Replied(string, delivery.Reply) {}
func (c *conn) Input(context.Context) error    { return c.report("input") }
func (c *conn) Changed()                       {}
func (c *conn) Shutdown(context.Context) error { defer c.Close(); return c.report("shutdown") }
func (c *conn) Epoch() uint64                  { return c.epoch }
func (c *conn) Done() <-chan struct{}          { return c.done }
func (c *conn) Close() {
	if !c.over() {
		close(c.done)
	}
}

// message makes one that starts a turn.
func (c *conn) message(id string) delivery.Message {
	details, _ := json.Marshal(map[string]string{"messageId": id, "turnIntentId": "intent-" + id})
	return delivery.Message{ID: id, Intent: "intent-" + id, Epoch: c.epoch, TriggerTurn: true, CustomType: "t", Content: "please", Details: details}
}

func (c *conn) passive(id string) delivery.Message {
	m := c.message(id)
	m.TriggerTurn = false
	return m
}

func send(t *testing.T, c *conn, m delivery.Message, want delivery.Verdict) delivery.Answer {
	t.Helper()
	a, err := c.session.Send(context.Background(), m)
	if err != nil || a.Verdict != want {
		t.Fatalf("send of %s: %v %q, %v; want verdict %v", m.ID, a.Verdict, a.Reason, err, want)
	}
	return a
}

func look(t *testing.T, c *conn, names ...string) delivery.Report {
	t.Helper()
	r, err := c.session.Look(context.Background(), names)
	if err != nil {
		t.Fatalf("look: %v", err)
	}
	return r
}

// open starts a connected process on a file, with one exchange before if it is
// not to be a fresh session.
func open(t *testing.T, fresh bool, opt deliverytest.Options) (*deliverytest.File, *deliverytest.Process, *host, *conn) {
	t.Helper()
	f := deliverytest.NewFile("s1", "/s1.jsonl")
	if !fresh {
		before := f.Start(deliverytest.Options{Process: "before"})
		must(t, before.Prompt("hello"))
		before.Kill()
	}
	opt.Process = "pi"
	p := f.Start(opt)
	t.Cleanup(p.Kill)
	h := &host{fail: map[string]error{}}
	must(t, p.Connect(deliverytest.Via(h.connect)))
	return f, p, h, h.conn
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
