package sessiontest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/piworkflows/engine/follow"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Session is the session of every [World].
const Session = launch.SessionKey("kit@0123456789abcdef0123456789abcdef")

// World plays one session: the rows as a store keeps them, the coordinator that
// looks and sends, and the agent processes on the session's file.
type World struct {
	Rows   session.World // with every message, watched or not
	Events []session.Event
	Disk   []Line
	Last   Entry // the last command that was applied

	agents  []*agent
	asks    []ask   // sends on their way
	replies []reply // answers on their way
	awaited launch.Digest
	seen    *session.Report // a look that is not recorded yet
	intents map[string]*intent
	ended   map[launch.RunID]bool
	subject map[string]session.Kind

	wall     launch.Time
	distrust int // steps for which the clock is distrusted
	serial   int
	tokens   uint64
	named    map[string]int // how often it happened: commands, events, verdicts
	broken   error
}

// intent is what the world knows of an intent: enough to see that its claim
// and its messages agree.
type intent struct {
	subject          string
	claim            launch.Digest // first token of the attempt that carries it
	waits            bool          // it is not eligible
	ended, withdrawn bool
}

// NewWorld returns a session that was never connected.
func NewWorld() *World {
	return &World{
		Rows:    session.World{Session: session.Session{Key: Session}},
		intents: map[string]*intent{}, ended: map[launch.RunID]bool{}, subject: map[string]session.Kind{},
		named: map[string]int{}, wall: launch.Time(1e18),
	}
}

// Happened counts what happened so far: ops, commands, events, verdicts.
func (w *World) Happened() map[string]int { return w.named }

func (w *World) note(name string) { w.named[name]++ }

func (w *World) now() launch.Now { return launch.Now{Wall: w.wall, Distrust: w.distrust > 0} }

// Apply applies a command as a store does in one transaction: to the session,
// its watched messages, and the named ones. It carries out what follows, checks
// every invariant, and returns what was broken besides.
func (w *World) Apply(c session.Command, named ...string) (session.Change, error) {
	given := session.World{Session: w.Rows.Session}
	if q, ok := c.(session.Queue); ok {
		for n := uint8(1); n <= session.MaxIssues; n++ {
			named = append(named, session.MessageID(q.Message.Subject, n))
		}
	}
	for _, m := range w.Rows.Messages {
		if m.Watched || slices.Contains(named, m.ID) {
			given.Messages = append(given.Messages, m)
		}
	}
	before := session.World{Session: given.Session, Messages: slices.Clone(given.Messages)}
	ch, err := session.Apply(given, c, w.now())
	w.Last = Entry{Before: before, Command: c, Now: w.now(), Change: ch, Err: err}
	w.note(fmt.Sprintf("%T", c))
	if err == nil {
		w.Rows.Session = ch.World.Session
		for _, m := range ch.World.Messages {
			if at := w.Rows.Message(m.ID); at != nil {
				*at = m
			} else {
				w.Rows.Messages = append(w.Rows.Messages, m)
			}
		}
		w.Events = append(w.Events, ch.Events...)
	}
	w.broken = errors.Join(w.broken, CheckEntry(w.Last), OneAttempt(given))
	for _, e := range ch.Events {
		w.note(e.Kind.String())
		if e.Kind == session.EvQueued || e.Kind == session.EvBlocked {
			w.note(fmt.Sprintf("%s issue %d", e.Kind, e.Issue))
		}
		for _, f := range follow.Session(e) {
			w.follow(f)
		}
	}
	return ch, err
}

// follow carries out what a session's event causes in an intent.
func (w *World) follow(c follow.Command) {
	switch c := c.(type) {
	case follow.Resolve:
		if i := w.intents[c.Intent]; !i.ended {
			w.end(c.Intent, false)
		}
	case follow.Settle:
		w.intents[c.Intent].claim = launch.Digest{}
	}
}

func (w *World) end(id string, withdrawn bool) {
	i := w.intents[id]
	i.ended, i.withdrawn, i.claim = true, withdrawn, launch.Digest{}
	for _, c := range follow.Intent(endOf(id, withdrawn)) {
		cancel := c.(follow.CancelMessages)
		w.Apply(session.Cancel{Subject: i.subject, Reason: cancel.Reason})
	}
}

// check checks what is to hold between steps.
func (w *World) check() error {
	err := errors.Join(w.broken, CheckRows(w.Rows, func(id launch.RunID) bool { return w.ended[id] }),
		ReplayAgrees(w.Events, w.Rows), OncePerPath(w.Disk), w.claimsAgree())
	for _, a := range w.agents {
		err = errors.Join(err, OncePerPath(a.lines))
	}
	return err
}

// claimsAgree: the claim of a pending intent is that of the unsettled attempt
// of a message that carries it, or such a message is on the branch.
func (w *World) claimsAgree() error {
	for id, i := range w.intents {
		if i.ended || i.claim == (launch.Digest{}) {
			continue
		}
		if !slices.ContainsFunc(w.Rows.Messages, func(m session.Message) bool {
			return m.Intent == id && (m.Attempt.First == i.claim || m.State == session.Sent && m.Seen && !m.Durable)
		}) {
			return fmt.Errorf("ClaimsAgree: intent %s is carried by nothing and can never be carried again", id)
		}
	}
	return nil
}

// ready says of a message whether its intent may be carried now.
func (w *World) ready(m *session.Message) bool {
	i := w.intents[m.Intent]
	return i == nil || !i.ended && !i.waits && (i.claim == (launch.Digest{}) || i.claim == m.Attempt.First)
}

func (w *World) token() launch.Digest {
	w.tokens++
	return launch.DigestOf(binary.BigEndian.AppendUint64(nil, w.tokens))
}

// live returns the process behind the live connection, or nil.
func (w *World) live() *agent {
	for _, a := range w.agents {
		if a.alive && a.epoch != 0 && a.epoch == w.Rows.Session.Epoch && w.Rows.Session.Connected() {
			return a
		}
	}
	return nil
}

// connect registers a process. Its bridge forgets an older connection.
func (w *World) connect(a *agent, durable bool) {
	ch, _ := w.Apply(session.Connect{Host: "host", Process: a.name, Durable: durable})
	a.epoch = ch.World.Session.Epoch
	w.dropped()
}

// dropped forgets what the coordinator had in hand on the old connection.
func (w *World) dropped() { w.awaited, w.seen = launch.Digest{}, nil }

// report hands over the oldest unconfirmed report of a process. Unless lost,
// the bridge learns that it was recorded.
func (w *World) report(a *agent, lost bool) {
	var err error
	var ch session.Change
	switch c := a.out[0].(type) {
	case session.Input:
		c.Epoch = a.epoch
		ch, err = w.Apply(c)
	case session.TurnSettled:
		c.Epoch = a.epoch
		ch, err = w.Apply(c)
	case session.TurnStarted:
		c.Epoch = a.epoch
		if m := w.Rows.Message(c.Message); m != nil && m.Intent != "" {
			c.Withdrawn = w.intents[m.Intent].withdrawn
		}
		ch, err = w.Apply(c, c.Message)
		w.note("own " + ch.Own.String())
	}
	w.seen = nil // a look that overlaps a report is repeated
	switch {
	case errors.Is(err, launch.ErrStale): // fenced: it stays away
		a.epoch = 0
		return
	case err != nil:
		w.broken = errors.Join(w.broken, fmt.Errorf("BridgeRefused: %+v of a correct bridge is refused: %w", a.out[0], err))
	}
	if ch.Abort != "" {
		w.note("abort")
		if a.run != nil && a.run.opener.Message == ch.Abort {
			a.settle(session.Aborted, false)
		}
	}
	if !lost {
		a.out = a.out[1:]
	}
}

// look asks the live bridge, which reports first what it has not reported.
func (w *World) look() {
	a := w.live()
	for len(a.out) > 0 {
		if w.report(a, false); w.live() != a {
			return
		}
	}
	var names []string
	for _, m := range w.Rows.Messages {
		if m.Watched {
			names = append(names, m.ID)
		}
	}
	r := a.look(names)
	r.Asked = w.wall
	a.stopped = false
	w.seen = &r
}

// record records the look that is in hand.
func (w *World) record() {
	r := *w.seen
	w.seen = nil
	var names []string
	for _, e := range r.Evidence {
		names = append(names, e.Message)
	}
	if _, err := w.Apply(r, names...); err != nil {
		w.broken = errors.Join(w.broken, fmt.Errorf("BridgeRefused: a report is refused: %w", err))
	}
}

// try records the next send and puts it on its way.
func (w *World) try() bool {
	token := w.token()
	ch, err := w.Apply(session.Try{Epoch: w.Rows.Session.Epoch, Token: token, Ready: w.ready})
	if err != nil || ch.Send == nil {
		return false
	}
	m := *ch.Send
	if i := w.intents[m.Intent]; i != nil {
		i.claim = m.Attempt.First
	}
	k := ask{to: w.live(), token: token, epoch: w.Rows.Session.Epoch, message: m}
	for n := uint8(1); n <= session.MaxIssues; n++ {
		if id := session.MessageID(m.Subject, n); id != m.ID {
			k.others = append(k.others, id)
		}
	}
	w.asks = append(w.asks, k)
	w.awaited = token
	return true
}

// carryOut lets a process carry out a send.
func (w *World) carryOut(n int, refuse bool) {
	k := w.asks[n]
	w.asks = slices.Delete(w.asks, n, n+1)
	v := w.execute(k, refuse)
	w.note("answer " + [...]string{"", "taken", "present", "occupied", "refused"}[v])
	w.replies = append(w.replies, reply{session.Answer{Message: k.message.ID, Token: k.token, Verdict: v, Reason: "busy"}})
}

// answer records an answer that was on its way.
func (w *World) answer(n int) {
	c := w.replies[n].Answer
	w.replies = slices.Delete(w.replies, n, n+1)
	if w.awaited == c.Token {
		w.awaited = launch.Digest{}
	}
	if _, err := w.Apply(c, c.Message); err != nil {
		w.note("late answer")
	}
}

// pass lets time go by. A send whose deadline has passed is never carried out.
func (w *World) pass(d time.Duration) {
	w.wall = w.wall.Add(d)
	w.distrust = max(0, w.distrust-1)
	w.asks = slices.DeleteFunc(w.asks, func(k ask) bool { return w.wall >= k.message.Attempt.Deadline })
}
