package delivery

import (
	"context"
	"errors"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Reporter is what a bridge reports to: a [Conn], or what stands in for one.
type Reporter interface {
	TurnStarted(ctx context.Context, turn, message string) (Ownership, error)
	Replied(turn string, r Reply)
	TurnSettled(ctx context.Context, turn string, end End, byPerson bool) error
	Input(ctx context.Context) error
	Changed()
	Shutdown(ctx context.Context) error
	Close()
	Epoch() uint64
	Done() <-chan struct{}
}

// Rejected reports that a report was refused for what it says: to repeat it is
// of no use, and the bridge goes on with the next one. After any other error it
// connects again and repeats it.
func Rejected(err error) bool {
	return errors.Is(err, launch.ErrInvalid) || errors.Is(err, launch.ErrConflict) ||
		errors.Is(err, launch.ErrNotAllowed) || errors.Is(err, launch.ErrNotFound)
}

// Changed says that the session's idle state or branch has changed. Its first
// call says besides that unconfirmed turn reports have been repeated.
func (n *Conn) Changed() {
	n.seen.Add(1)
	n.ready.Store(true)
	n.said.Store(true)
	n.changed.Store(true)
	n.wake()
}

// TurnStarted reports that the agent begins to work. turn is the bridge's key
// of the turn, unique in the session; message is the id of the workflow message
// that opened it, or empty. A retry repeats the report with the same key. The
// answer says to whom the turn belongs; a turn that must not go on is aborted.
func (n *Conn) TurnStarted(ctx context.Context, turn, message string) (Ownership, error) {
	seen, err := n.observe(ctx, store.Observe{Session: n.key, Saw: session.TurnStarted{Epoch: n.epoch, Turn: turn, Message: message}})
	if err == nil && seen.Abort != "" {
		n.stopped.Store(true)
		n.wake()
	}
	return seen.Own, err
}

// stopWait is how long [Conn.Stopped] waits for a bridge that does not answer.
const stopWait = time.Second

// Stopped waits, for a bounded time, until the bridge was told to stop the turn
// that a commit before this call wants stopped, if there is one (rule
// delivery/stopped).
func (n *Conn) Stopped(ctx context.Context) {
	told, late := make(chan struct{}), make(chan struct{})
	timer := n.c.o.Store.Clock().AfterFunc(stopWait, func() { close(late) })
	defer timer.Stop()
	n.waiting.Lock()
	n.waiting.told = append(n.waiting.told, told)
	n.waiting.Unlock()
	n.wake()
	select {
	case <-told:
	case <-late:
	case <-ctx.Done():
	case <-n.done:
	}
}

// Reply is what a turn said; see [Conn.Replied].
type Reply = store.Reply

// Replied says what a turn said, right before it is reported as settled. A bridge
// that cannot tell leaves it out; then visible text answers no request.
func (n *Conn) Replied(turn string, r Reply) {
	n.replies.Lock()
	defer n.replies.Unlock()
	n.replies.turn, n.replies.reply = turn, &r
}

// TurnSettled reports that the agent came to rest after that turn, once for all
// its retries. byPerson says that a person, not this host, aborted it.
func (n *Conn) TurnSettled(ctx context.Context, turn string, end End, byPerson bool) error {
	saw := store.Observe{Session: n.key, Saw: session.TurnSettled{Epoch: n.epoch, Turn: turn, End: end, ByPerson: byPerson}}
	n.replies.Lock()
	if n.replies.turn == turn {
		saw.Reply = n.replies.reply
	}
	n.replies.Unlock()
	_, err := n.observe(ctx, saw)
	return err
}

// Input reports that a person's input arrived: before its turn starts, or into
// the current one.
func (n *Conn) Input(ctx context.Context) error {
	_, err := n.observe(ctx, store.Observe{Session: n.key, Saw: session.Input{Epoch: n.epoch}})
	return err
}

// Shutdown reports that the session announced its end, and ends the connection.
func (n *Conn) Shutdown(ctx context.Context) error {
	_, err := n.observe(ctx, store.Observe{Session: n.key, Saw: session.Disconnect{Epoch: n.epoch, Shutdown: true}})
	n.end(false)
	return err
}

// Close ends the connection without a word of the session.
func (n *Conn) Close() {
	// A fenced or closed host has nothing to record.
	_, err := n.observe(context.Background(), store.Observe{Session: n.key, Saw: session.Disconnect{Epoch: n.epoch}})
	if err != nil && !errors.Is(err, launch.ErrStale) && !errors.Is(err, launch.ErrClosed) {
		n.c.o.Log.Warn("a disconnect could not be recorded", "session", string(n.key), "err", err)
	}
	n.end(false)
}

func (n *Conn) observe(ctx context.Context, saw store.Observe) (store.Seen, error) {
	n.seen.Add(1)
	n.record.Lock()
	seen, err := store.Do(ctx, n.c.o.Store, saw)
	n.record.Unlock()
	if errors.Is(err, launch.ErrStale) {
		n.end(true)
	}
	if err == nil {
		n.changed.Store(true)
		n.wake()
	}
	return seen, err
}
