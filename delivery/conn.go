package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
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

// Conn is one live connection of a bridge. Its methods report what the bridge
// observed, in that order; each returns once the fact is committed. On a fenced
// connection they fail with launch.ErrStale. They are safe for concurrent use.
type Conn struct {
	c       *Coordinator
	key     launch.SessionKey
	epoch   uint64
	session Session

	ctx    context.Context
	cancel context.CancelFunc
	woken  chan struct{}
	done   chan struct{}
	ended  atomic.Bool

	ready   atomic.Bool // the bridge has called Changed
	changed atomic.Bool // a newer look is needed
	said    atomic.Bool // the bridge has called Changed since the last try
	stopped atomic.Bool // a turn that has to be stopped goes on: ask again
	moved   atomic.Bool // a run of the session may stand elsewhere than shown

	// record is held while a report or a look is recorded, so that a look is
	// never recorded after what was reported later.
	record sync.Mutex
	seen   atomic.Uint64 // reports of the bridge so far: a look that overlaps one is repeated

	waiting struct { // calls of Stopped
		sync.Mutex
		told []chan struct{}
	}

	replies struct { // of turns that are not settled yet
		sync.Mutex
		turn  string
		reply *Reply
	}

	// Used by run alone.
	token    launch.Digest // of the next attempt; zero: to be made
	granted  *store.Send   // an attempt that was recorded with what made it due
	timer    clock.Timer   // of the next look
	due      launch.Mono   // when it fires
	failures int           // steps that failed in a row
	refused  int           // sends in a row that were refused or whose answer was lost
	occupied bool          // the last one was refused as occupied
	aborted  string        // message whose turn was asked to stop last
	last     launch.Mono   // when
	shown    shown         // to a Viewer
}

type shown struct {
	run    launch.RunID
	status view.Status
}

const (
	firstPause = 250 * time.Millisecond // after a failure or refusal, doubling
	maxPause   = 30 * time.Second
)

func pauseAfter(times int) time.Duration { return min(firstPause<<min(times, 10), maxPause) }

// Epoch returns the connection's number; a later connection has a higher one.
func (n *Conn) Epoch() uint64 { return n.epoch }

// Session returns the session's key.
func (n *Conn) Session() launch.SessionKey { return n.key }

// Done is closed when the connection has ended.
func (n *Conn) Done() <-chan struct{} { return n.done }

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

// end ends the connection. A bridge that is fenced is told so before it can see
// that the connection is done, so that it does not connect again; it may close
// the connection while it is told.
func (n *Conn) end(fenced bool) {
	if !n.ended.CompareAndSwap(false, true) {
		return
	}
	n.c.forget(n)
	n.cancel()
	if fenced {
		n.session.Fenced()
	}
	close(n.done)
}

func (n *Conn) wake() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// run looks and sends until the connection ends.
func (n *Conn) run() {
	defer n.end(false)
	defer n.disarm()
	for {
		offer := n.offer()
		select {
		case <-n.ctx.Done():
		case <-n.woken:
		}
		if send, ok := offer.Withdraw(); ok {
			n.granted = &send
		}
		if n.ctx.Err() != nil {
			return
		}
		for more := true; more && n.ctx.Err() == nil; {
			var err error
			if more, err = n.step(); err == nil {
				n.failures = 0
				continue
			}
			if n.ctx.Err() != nil {
				return
			}
			if errors.Is(err, launch.ErrStale) {
				n.end(true)
				return
			}
			n.c.o.Log.Warn("delivery is delayed", "session", string(n.key), "err", err)
			n.arm(pauseAfter(n.failures))
			n.failures++
		}
		n.show()
	}
}

// show tells a Viewer how the session's run stands, if that is news. What cannot
// be read now is told with the next change.
func (n *Conn) show() {
	v, ok := n.session.(Viewer)
	if !ok || !n.ready.Load() || !n.moved.Swap(false) {
		return
	}
	run, err := n.c.o.Store.Displayed(n.ctx, n.key)
	if err != nil || run == "" {
		return
	}
	f, err := n.c.o.Store.Facts(n.ctx, run)
	if err != nil {
		return
	}
	if now := (shown{run, view.Of(f).Status}); now != n.shown {
		n.shown = now
		v.Show(now.run, now.status)
	}
}

// offer has the commit that makes something due record the attempt as well, as
// long as the connection waits (rule delivery/offer).
func (n *Conn) offer() *store.Offer {
	if !n.ready.Load() || n.changed.Load() || n.refused > 0 || n.newToken() != nil {
		return nil
	}
	return n.c.o.Store.Offer(store.Try{Session: n.key, Epoch: n.epoch, Token: n.token}, n.wake)
}

// newToken makes a token for the next attempt unless there is one.
func (n *Conn) newToken() error {
	if n.token != (launch.Digest{}) {
		return nil
	}
	token, err := n.c.o.Store.NewToken()
	if err == nil {
		n.token = token.Hash()
	}
	return err
}

// step does the next thing that is due and reports whether to look again.
func (n *Conn) step() (bool, error) {
	n.disarm()
	granted := n.granted
	n.granted = nil // what is not sent now is asked for again
	if granted != nil {
		return n.send(granted)
	}
	n.waiting.Lock()
	waiting := n.waiting.told
	n.waiting.told = nil
	n.waiting.Unlock()
	st := n.c.o.Store
	asked, err := st.Asked(n.ctx, n.key)
	if err != nil {
		return false, err
	}
	if asked.Session.Epoch != n.epoch {
		return false, launch.Refuse(launch.ErrStale, "the session was connected again")
	}
	if n.stopped.Swap(false) {
		n.aborted = ""
	}
	if m := asked.Session.Abort; m != n.aborted {
		if m != "" {
			if err := n.session.Abort(n.ctx, m); err != nil {
				return false, err
			}
		}
		n.aborted = m
	}
	for _, told := range waiting {
		close(told)
	}
	if !n.ready.Load() {
		return false, nil
	}
	wall, mono := st.Clock().Now()
	if asked.Sample > 1 {
		n.arm(asked.Sample)
	} else if asked.Sample == 1 {
		return true, n.sample(asked.Over)
	}
	if asked.Next != 0 {
		n.arm(asked.Next.Sub(wall))
	}
	stale := !asked.Session.Fresh && (asked.Unsent > 0 || len(asked.Names) > 0)
	if n.changed.Swap(false) || stale || !asked.Session.Reported {
		return n.look(asked.Names)
	}
	if asked.Unsent == 0 {
		return false, nil
	}
	if n.refused > 0 {
		wait := pauseAfter(n.refused - 1)
		if n.occupied && n.said.Load() { // it may be free by now
			wait = firstPause
		}
		if left := n.last.Add(wait).Sub(mono); left > 0 {
			n.arm(left)
			return false, nil
		}
	}
	return n.try(&asked.Session)
}

// abortFirst is how long the record of a timeout may take before the turn is
// stopped without it.
const abortFirst = 250 * time.Millisecond

// sample records the active time of the open turn. over is its message when that
// ends the attempt: the record, with the turn that it owes, comes first and the
// abort after it, unless the store fails or takes too long (rule delivery/abort).
func (n *Conn) sample(over string) error {
	st := n.c.o.Store
	record := func() error {
		n.record.Lock() // the turn's end is recorded after it
		defer n.record.Unlock()
		_, err := store.Do(n.ctx, st, store.Sample{Session: n.key, Epoch: n.epoch})
		return err
	}
	if over == "" {
		return record()
	}
	late := make(chan struct{})
	timer := st.Clock().AfterFunc(abortFirst, func() { close(late) })
	defer timer.Stop()
	done := make(chan error, 1)
	go func() { done <- record() }()
	again := false
	select {
	case err := <-done:
		if err == nil || errors.Is(err, launch.ErrStale) || n.ctx.Err() != nil {
			return err
		}
		again = true
	case <-late:
	}
	n.c.o.Log.Warn("the store is slow; a turn whose time is used up is stopped before that is recorded", "session", string(n.key))
	err := n.session.Abort(n.ctx, over)
	if err == nil {
		n.aborted = over
	}
	if !again && <-done == nil {
		return err
	}
	if failed := record(); failed != nil {
		n.c.o.Log.Error("a turn was stopped and that its time is used up could not be recorded; its successor turn is not guaranteed", "session", string(n.key), "err", failed)
		return failed
	}
	return err
}

// look asks the bridge for a report and records it.
func (n *Conn) look(names []string) (bool, error) {
	before := n.seen.Load()
	wall, _ := n.c.o.Store.Clock().Now()
	report, err := n.session.Look(n.ctx, names)
	if err != nil {
		n.changed.Store(true)
		return false, err
	}
	r := session.Report{Epoch: n.epoch, Asked: wall, Idle: report.Idle, Pending: report.Pending}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	for _, e := range report.Evidence {
		if asked[e.Message] {
			r.Evidence = append(r.Evidence, session.Evidence(e))
		}
	}
	n.record.Lock()
	defer n.record.Unlock()
	if n.seen.Load() != before { // something was reported meanwhile: look at what is now
		n.changed.Store(true)
		return true, nil
	}
	if _, err := store.Do(n.ctx, n.c.o.Store, store.Observe{Session: n.key, Saw: r}); err != nil {
		n.changed.Store(true)
		return false, err
	}
	n.c.o.Reported(n.key)
	return true, nil
}

// try records the next send that is due, and carries it out.
func (n *Conn) try(s *session.Session) (bool, error) {
	if err := n.newToken(); err != nil {
		return false, err
	}
	send, err := store.Do(n.ctx, n.c.o.Store, store.Try{Session: n.key, Epoch: n.epoch, Token: n.token})
	if err != nil {
		return false, err
	}
	if send.Message == nil {
		// What an idle session waits for ends by itself; no deadline tells when
		// if the clock is distrusted.
		if s.Idle && !s.Held && send.Why != "" {
			n.arm(maxPause)
		}
		return false, nil
	}
	return n.send(&send)
}

// send asks the bridge for a send that was recorded, and records the answer.
func (n *Conn) send(s *store.Send) (bool, error) {
	token := n.token
	n.token = launch.Digest{}
	n.said.Store(false)
	m, err := message(s, n.epoch)
	if err != nil {
		n.backOff(false)
		return false, err
	}
	answer, err := n.session.Send(n.ctx, m)
	if err == nil {
		record := session.Answer{Message: m.ID, Token: token, Verdict: answer.Verdict, Reason: answer.Reason}
		_, err = store.Do(context.WithoutCancel(n.ctx), n.c.o.Store, store.Answer{Session: n.key, Answer: record})
		if errors.Is(err, launch.ErrStale) { // the attempt is settled already
			return true, nil
		}
	}
	switch {
	case err != nil: // the answer is lost: ask again for the same message, a little later
		n.backOff(false)
		return false, err
	case answer.Verdict == Occupied || answer.Verdict == Refused:
		n.backOff(answer.Verdict == Occupied)
	default:
		n.refused = 0
	}
	return true, nil
}

// message is what a bridge is asked to append.
func message(s *store.Send, epoch uint64) (Message, error) {
	var body store.Body
	if err := json.Unmarshal(s.Message.Body, &body); err != nil {
		return Message{}, launch.Refuse(launch.ErrInternal, "the stored body of a message cannot be read")
	}
	inner, ok := bytes.CutPrefix(body.Details, []byte("{"))
	if !ok {
		return Message{}, launch.Refuse(launch.ErrInternal, "the stored details of a message are no object")
	}
	details := append(make([]byte, 0, len(inner)+len(s.Message.ID)+20), `{"messageId":"`...)
	details = append(append(details, s.Message.ID...), '"') // an id needs no escapes
	if len(inner) > 1 {
		details = append(details, ',')
	}
	details = append(details, inner...)
	return Message{
		ID: s.Message.ID, Others: s.Others, Intent: s.Message.Intent, Epoch: epoch, Deadline: s.Message.Attempt.Deadline,
		TriggerTurn: s.Message.Kind.StartsTurn(), CustomType: body.CustomType, Content: body.Content, Details: details,
	}, nil
}

// backOff makes the next try wait, longer after each refusal in a row.
func (n *Conn) backOff(occupied bool) {
	_, n.last = n.c.o.Store.Clock().Now()
	n.occupied = occupied
	n.refused++
}

// arm makes the connection look again in that time, if it would not earlier.
func (n *Conn) arm(in time.Duration) {
	_, mono := n.c.o.Store.Clock().Now()
	due := mono.Add(in)
	if n.timer != nil && n.due <= due {
		return
	}
	n.disarm()
	n.due = due
	n.timer = n.c.o.Store.Clock().AfterFunc(in, func() {
		n.changed.Store(true)
		n.wake()
	})
}

func (n *Conn) disarm() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}
