package deliverytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// heardKind is what the kit's host saw happen.
type heardKind uint8

const (
	_ heardKind = iota
	heardConnect
	heardStart
	heardSettled
	heardInput
	heardChanged
	heardShutdown
	heardClose   // the bridge's end was closed
	heardRequest // to the model
)

// heard is one thing that the kit's host saw. Its place in the log is its time.
type heard struct {
	kind          heardKind
	epoch         uint64 // of the connection; 0 of a request
	turn, message string
	end           delivery.End
	byPerson      bool
	reply         *delivery.Reply // of a settled turn, or nil
	lost          bool            // the answer was an error
}

func (h heard) String() string {
	s := [...]string{"", "connected", "turn started", "turn settled", "input", "changed", "shutdown", "closed", "model request"}[h.kind]
	if h.epoch != 0 {
		s = fmt.Sprintf("%d: %s", h.epoch, s)
	}
	switch h.kind {
	case heardStart:
		s += fmt.Sprintf(" %q, opened by %q", h.turn, h.message)
	case heardSettled:
		s += fmt.Sprintf(" %q, %v, by a person %v", h.turn, h.end, h.byPerson)
		if h.reply != nil {
			s += fmt.Sprintf(", said %.40q, usable %v", h.reply.Text, h.reply.Usable)
		}
	}
	if h.lost {
		s += " (the answer was lost)"
	}
	return s
}

var (
	errAwayHost  = errors.New("deliverytest: the host is away; connect again later")
	errModelDown = errors.New("deliverytest: the provider failed")
)

// kit plays the host and the model for one rule.
type kit struct {
	Subject
	tb   TB
	rule Rule

	mu     sync.Mutex
	log    []heard
	moved  chan struct{} // closed, and made anew, when something is heard
	conn   *kitConn      // the latest
	epoch  uint64
	away   bool             // Connect fails
	window func(heard) bool // see during; true when it took the report
	over   chan struct{}    // closed at the end of the check

	reply string        // of the model
	down  int           // requests that fail
	held  chan struct{} // closed to let the model go on; nil when it is not held
}

func newKit(tb TB, r Rule) *kit {
	return &kit{tb: tb, rule: r, moved: make(chan struct{}), over: make(chan struct{}), epoch: 6, reply: "ok"}
}

// close lets everything go that waits for the kit.
func (k *kit) close() {
	k.release()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = true
	close(k.over)
}

// hear records what happened. Called with the lock.
func (k *kit) hear(h heard) {
	k.log = append(k.log, h)
	close(k.moved)
	k.moved = make(chan struct{})
}

// story prints the end of the log.
func (k *kit) story() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	for _, h := range k.log[max(len(k.log)-30, 0):] {
		fmt.Fprintf(&b, "  %v\n", h)
	}
	return b.String()
}

// connect is the host's Connect: the epoch rises, and the older connection is
// fenced.
func (k *kit) connect(_ context.Context, hello delivery.Hello, s delivery.Session) (Reporter, error) {
	k.mu.Lock()
	if k.away {
		k.mu.Unlock()
		return nil, errAwayHost
	}
	old := k.conn
	k.epoch++
	c := &kitConn{k: k, epoch: k.epoch, hello: hello, session: s, done: make(chan struct{}), replies: map[string]*delivery.Reply{}}
	k.conn = c
	k.hear(heard{kind: heardConnect, epoch: c.epoch})
	k.mu.Unlock()
	if old != nil {
		old.end(true)
	}
	return c, nil
}

// model is the agent's model.
func (k *kit) model(ctx context.Context) (string, error) {
	k.mu.Lock()
	k.hear(heard{kind: heardRequest})
	held, text := k.held, k.reply
	if k.down > 0 {
		k.down--
		k.mu.Unlock()
		return "", errModelDown
	}
	k.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return text, nil
}

// hold makes the model wait from its next request on.
func (k *kit) hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = make(chan struct{})
	}
}

// release lets the model go on.
func (k *kit) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held != nil {
		close(k.held)
		k.held = nil
	}
}

// kitConn is the host's end of one connection. Calls of its session are made
// one at a time, as a host does.
type kitConn struct {
	k       *kit
	epoch   uint64
	hello   delivery.Hello
	session delivery.Session
	once    sync.Once
	done    chan struct{}
	call    sync.Mutex
	replies map[string]*delivery.Reply // by turn; under the kit's lock
}

var _ Reporter = (*kitConn)(nil)

// end ends the connection. A bridge that is fenced is told so before it can see
// that it is over.
func (c *kitConn) end(fenced bool) {
	c.once.Do(func() {
		if fenced {
			c.session.Fenced()
		}
		close(c.done)
	})
}

// report records a report and answers it.
func (c *kitConn) report(ctx context.Context, h heard) error {
	select {
	case <-c.done:
		return launch.Refuse(launch.ErrStale, "the connection is over; connect again and repeat the report")
	default:
	}
	h.epoch = c.epoch
	c.k.mu.Lock()
	window := c.k.window
	c.k.mu.Unlock()
	if window != nil && window(h) {
		return launch.Refuse(launch.ErrStale, "the connection was lost in the report; connect again and repeat it")
	}
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	c.k.hear(h)
	return ctx.Err()
}

func (c *kitConn) TurnStarted(ctx context.Context, turn, message string) (delivery.Ownership, error) {
	own := delivery.None
	if message != "" {
		own = delivery.Owned
	}
	return own, c.report(ctx, heard{kind: heardStart, turn: turn, message: message})
}

func (c *kitConn) Replied(turn string, r delivery.Reply) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	c.replies[turn] = &r
}

func (c *kitConn) TurnSettled(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
	c.k.mu.Lock()
	reply := c.replies[turn]
	c.k.mu.Unlock()
	return c.report(ctx, heard{kind: heardSettled, turn: turn, end: end, byPerson: byPerson, reply: reply})
}

func (c *kitConn) Input(ctx context.Context) error { return c.report(ctx, heard{kind: heardInput}) }

func (c *kitConn) Changed() { _ = c.report(context.Background(), heard{kind: heardChanged}) }

func (c *kitConn) Shutdown(ctx context.Context) error {
	err := c.report(ctx, heard{kind: heardShutdown})
	c.end(false)
	return err
}

func (c *kitConn) Close() {
	_ = c.report(context.Background(), heard{kind: heardClose})
	c.end(false)
}

func (c *kitConn) Epoch() uint64         { return c.epoch }
func (c *kitConn) Done() <-chan struct{} { return c.done }
