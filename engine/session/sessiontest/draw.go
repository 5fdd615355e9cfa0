package sessiontest

import (
	"fmt"
	"slices"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

// Step is one thing that happens in a [World]; Op says what, the rest which one
// and how. Steps that do not fit the world do nothing.
type Step struct {
	Op   Op
	N    int           // of the message, process, send, answer or line
	Kind session.Kind  // of the message that is queued
	For  time.Duration // that passes
	Lost bool          // the answer is lost, the send refused, or the like
}

// Op is what happens.
type Op string

// The ops.
const (
	Queue    Op = "queue"    // a message of a new subject, or an old one again
	Withdraw Op = "withdraw" // an intent ends unserved, a subject needs nothing
	Wait     Op = "wait"     // an intent is not eligible any more, or is again
	EndRun   Op = "endRun"   // a run ends
	Abandon  Op = "abandon"  // the host gives the session up
	Reopen   Op = "reopen"   // a blocked message is opened again
	Free     Op = "free"     // a person starts something
	Count    Op = "count"    // the model starts a run
	Pass     Op = "pass"     // time
	Jump     Op = "jump"     // the wall clock jumps and is distrusted

	Open     Op = "open"     // a process starts and connects; the old one stays
	Again    Op = "again"    // a process connects again
	Drop     Op = "drop"     // the connection is lost
	Kill     Op = "kill"     // a process dies
	Shutdown Op = "shutdown" // the session ends politely

	Type    Op = "type"    // a person types: input arrives
	Prompt  Op = "prompt"  // what was typed starts its turn
	Command Op = "command" // what was typed starts none
	Escape  Op = "escape"  // a person stops the turn
	Move    Op = "move"    // a person moves in the tree
	Advance Op = "advance" // the turn goes on
	Retry   Op = "retry"   // the provider failed; the agent starts again
	Fail    Op = "fail"    // the turn ends with an error
	Mute    Op = "mute"    // the end of the turn will not be reported
	Tell    Op = "tell"    // the bridge reports

	Look   Op = "look"   // the coordinator asks for a report
	Record Op = "record" // and records it
	Try    Op = "try"    // it records a send
	Carry  Op = "carry"  // a bridge carries a send out
	Answer Op = "answer" // its answer is recorded
	GiveUp Op = "giveUp" // the coordinator waits for an answer no more
	Lose   Op = "lose"   // a send or an answer is lost
)

// Ops returns all ops.
func Ops() []Op {
	return []Op{
		Queue, Withdraw, Wait, EndRun, Abandon, Reopen, Free, Count, Pass, Jump, Open, Again, Drop, Kill, Shutdown, Type, Prompt, Command,
		Escape, Move, Advance, Retry, Fail, Mute, Tell, Look, Record, Try, Carry, Answer, GiveUp, Lose,
	}
}

// Draw draws a step that fits the world as it is.
func (w *World) Draw(t *rapid.T) Step {
	var ops []Op
	add := func(weight int, fits bool, op Op) {
		if fits {
			ops = append(ops, slices.Repeat([]Op{op}, weight)...)
		}
	}
	s := w.Rows.Session
	live := w.live()
	idle := w.awaited == (launch.Digest{}) && w.seen == nil
	unsent, unsaved, refused := 0, false, false
	for _, m := range w.Rows.Messages {
		if m.State == session.Pending {
			unsent++
		}
		unsaved = unsaved || m.Seen && !m.Durable
		refused = refused || m.Refusals > 0
	}
	add(8, unsent < 4, Queue)
	add(1, unsent > 0, Withdraw)
	add(1, unsent > 0, Wait)
	add(1, unsent > 0, EndRun)
	add(1, unsent > 1 || s.Open != "", Abandon)
	add(2, w.blocked() != nil, Reopen)
	add(8, s.Held, Free)
	add(1, s.Open != "", Count)
	add(6, true, Pass)
	add(1, true, Jump)
	add(1, true, Open)
	add(60, w.actor() == nil, Open)
	add(40, live == nil && len(w.agents) > 0, Again)
	add(2, live != nil, Drop)
	add(1, len(w.agents) > 0, Kill)
	add(20, unsaved, Kill) // rare things happen to what was lost or refused before
	add(1, live != nil && s.Held, Shutdown)
	if a := w.actor(); a != nil {
		add(2, !a.typed, Type)
		add(16, a.typed && a.run == nil, Prompt)
		add(4, a.typed, Command)
		add(1, a.run != nil, Escape)
		add(2, a.run == nil && len(a.lines) > 0, Move)
		add(30, a.run != nil, Advance)
		add(2, a.run != nil, Retry)
		add(2, a.run != nil, Fail)
		add(1, a.run != nil, Mute)
		add(12, a == live && len(a.out) > 0, Tell)
	}
	add(20, live != nil && idle && !s.Fresh, Look)
	add(6, live != nil && idle && s.Fresh, Look)
	add(60, live != nil && w.seen != nil, Record)
	add(60, live != nil && idle && s.Fresh && unsent > 0, Try)
	add(4, live != nil && idle && !s.Fresh && unsent > 0, Try)
	add(40, len(w.asks) > 0, Carry)
	add(40, len(w.replies) > 0, Answer)
	add(6, w.awaited != launch.Digest{}, GiveUp)
	add(6, len(w.asks)+len(w.replies) > 0, Lose)
	// The generators favour small numbers; the mix is to be as weighted.
	at := rapid.Uint64().Draw(t, "op") * 0x9e3779b97f4a7c15 >> 33
	step := Step{Op: ops[at%uint64(len(ops))], N: rapid.IntRange(0, 30).Draw(t, "n"), Lost: rapid.IntRange(0, 4).Draw(t, "lost") == 0}
	switch step.Op {
	case Queue:
		step.Kind = session.Kind(rapid.IntRange(int(session.Step), int(session.Notice)).Draw(t, "kind"))
	case Carry:
		step.Lost = step.Lost || refused && at%4 > 0
	case Pass, Jump:
		step.For = time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second
	}
	return step
}

// actor is the process in which things happen: the connected one, or the last
// that lives.
func (w *World) actor() *agent {
	if a := w.live(); a != nil {
		return a
	}
	for _, a := range slices.Backward(w.agents) {
		if a.alive {
			return a
		}
	}
	return nil
}

func (w *World) blocked() *session.Message {
	for i := range w.Rows.Messages {
		if m := &w.Rows.Messages[i]; m.State == session.Blocked {
			return m
		}
	}
	return nil
}

// pick returns the n-th of a list, counted round, or nil.
func pick[T any](list []T, n int) *T {
	if len(list) == 0 {
		return nil
	}
	return &list[n%len(list)]
}

// Do carries out a step and returns what is broken then. It lets a second pass.
func (w *World) Do(s Step) error {
	w.note(string(s.Op))
	w.host(s)
	w.process(s)
	if a := w.actor(); a != nil {
		w.person(a, s)
	}
	w.coordinate(s)
	w.pass(time.Second)
	if err := w.check(); err != nil {
		return fmt.Errorf("after %+v: %w", s, err)
	}
	return nil
}

// host does what other parts of the host do.
func (w *World) host(s Step) {
	m := pick(w.Rows.Messages, s.N)
	switch s.Op {
	case Queue:
		w.queue(s)
	case Withdraw:
		if m == nil {
			return
		}
		if i := w.intents[m.Intent]; i != nil {
			if !i.ended {
				w.end(m.Intent, true)
			}
			return
		}
		w.Apply(session.Cancel{Subject: m.Subject, Reason: "not needed"})
	case Wait:
		if m != nil && m.Intent != "" {
			w.intents[m.Intent].waits = !w.intents[m.Intent].waits
		}
	case EndRun:
		if m != nil {
			w.ended[m.Run] = true
			w.Apply(session.EndRun{Run: m.Run})
		}
	case Abandon:
		for _, m := range slices.Clone(w.Rows.Messages) {
			if i := w.intents[m.Intent]; i != nil && !i.ended {
				w.end(m.Intent, true)
			}
		}
		w.Apply(session.Abandon{})
	case Reopen:
		if b := w.blocked(); b != nil {
			w.Apply(session.Reopen{Message: b.ID}, b.ID)
		}
	case Free:
		w.Apply(session.Free{})
	case Count:
		w.Apply(session.CountStart{})
	case Pass:
		w.pass(s.For)
	case Jump:
		if s.Lost { // back; sends on their way keep the deadline that they were given
			s.For = -s.For
		}
		w.distrust = 8
		w.pass(10 * s.For)
	}
}

// queue queues a message of a new subject, or one of an old subject again,
// unless that has ended.
func (w *World) queue(s Step) {
	m := session.Message{Kind: s.Kind, Eligible: w.wall, Body: []byte("{}")}
	m.Subject = fmt.Sprintf("subject-%d", len(w.subject))
	m.Run = launch.RunID(fmt.Sprintf("run-%d", len(w.subject)))
	if old := pick(w.Rows.Messages, s.N); s.Lost && old != nil {
		m.Subject, m.Kind, m.Run, m.Intent = old.Subject, old.Kind, old.Run, old.Intent
	} else if s.Kind == session.Fallback || s.Kind == session.Result {
		m.Intent = "intent-of-" + m.Subject
		w.intents[m.Intent] = &intent{subject: m.Subject}
	}
	if i := w.intents[m.Intent]; i != nil && i.ended || w.ended[m.Run] {
		return
	}
	w.subject[m.Subject] = m.Kind
	w.Apply(session.Queue{Message: m})
}

func endOf(id string, withdrawn bool) intents.Event {
	if withdrawn {
		return intents.Event{Kind: intents.EvWithdrawn, Intent: id}
	}
	return intents.Event{Kind: intents.EvResolved, Intent: id}
}

// process starts, connects and ends agent processes.
func (w *World) process(s Step) {
	a := w.actor()
	switch s.Op {
	case Open:
		w.serial++
		w.connect(w.open(fmt.Sprintf("pid-%d", w.serial)), s.N%4 != 0)
	case Again:
		if p := pick(w.agents, s.N); p != nil && (*p).alive {
			w.connect(*p, true)
		}
	case Drop:
		if live := w.live(); live != nil {
			if s.Lost {
				w.Apply(session.Disconnect{Epoch: live.epoch})
			}
			live.epoch = 0
			w.dropped()
		}
	case Kill:
		if p := pick(w.agents, s.N); p != nil {
			w.kill(*p)
		}
	case Shutdown:
		if a == nil || a != w.live() {
			return
		}
		if a.run != nil { // looks like a person's abort
			a.settle(session.Aborted, true)
		}
		for len(a.out) > 0 && w.live() == a {
			w.report(a, false)
		}
		if w.live() == a {
			w.Apply(session.Disconnect{Epoch: a.epoch, Shutdown: true})
		}
		w.kill(a)
	}
}

func (w *World) kill(a *agent) {
	if a == w.live() {
		w.dropped()
	}
	a.alive, a.epoch, a.run, a.out = false, 0, nil, nil
	w.asks = slices.DeleteFunc(w.asks, func(k ask) bool { return k.to == a })
	w.agents = slices.DeleteFunc(w.agents, func(o *agent) bool { return o == a })
}

// person does what happens in the agent.
func (w *World) person(a *agent, s Step) {
	switch s.Op {
	case Type:
		a.out = append(a.out, session.Input{})
		a.typed = a.run == nil // else it steers the turn
	case Prompt:
		if a.typed && a.run == nil {
			w.begin(a, Line{})
		}
	case Command:
		a.typed = false
	case Move:
		if l := pick(a.lines, s.N); a.run == nil && l != nil {
			a.leaf = l.Parent
		}
	case Tell:
		if a == w.live() && len(a.out) > 0 {
			w.report(a, s.Lost)
		}
	}
	if a.run == nil {
		return
	}
	switch s.Op {
	case Escape:
		a.settle(session.Aborted, true)
		a.stopped = true
	case Advance:
		w.advance(a)
	case Retry:
		a.out = append(a.out, session.TurnStarted{Turn: a.run.key, Message: a.run.opener.Message})
	case Fail:
		a.settle(session.Error, false)
	case Mute:
		a.run.muted = true
	}
}

// coordinate does what the coordinator does, and the way to the bridge and back.
func (w *World) coordinate(s Step) {
	idle := w.live() != nil && w.awaited == (launch.Digest{}) && w.seen == nil
	switch s.Op {
	case Look:
		if idle {
			w.look()
		}
	case Record:
		if w.live() != nil && w.seen != nil {
			w.record()
		}
	case Try:
		if idle {
			w.try()
		}
	case Carry:
		if len(w.asks) > 0 {
			w.carryOut(s.N%len(w.asks), s.Lost)
		}
	case Answer:
		if len(w.replies) > 0 {
			w.answer(s.N % len(w.replies))
		}
	case GiveUp:
		w.awaited = launch.Digest{}
	case Lose:
		if n := len(w.asks); n > 0 {
			w.asks = slices.Delete(w.asks, s.N%n, s.N%n+1)
		} else if n := len(w.replies); n > 0 {
			w.replies = slices.Delete(w.replies, s.N%n, s.N%n+1)
		}
		w.awaited = launch.Digest{}
	}
}
