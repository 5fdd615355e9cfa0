package session_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/session/sessiontest"
	"example.com/piworkflows/launch"
)

const start = launch.Time(1e18)

// play writes a story of one session by hand. Every command is checked against
// all invariants.
type play struct {
	t      *testing.T
	w      session.World
	now    launch.Now
	ch     session.Change // of the last command
	told   []session.Event
	tokens uint64
	waits  map[string]bool // messages that are not eligible
}

func newPlay(t *testing.T) *play {
	return &play{t: t, w: session.World{Session: session.Session{Key: sessiontest.Session}}, now: launch.Now{Wall: start}, waits: map[string]bool{}}
}

func (p *play) apply(c session.Command) error {
	p.t.Helper()
	before := p.w
	ch, err := session.Apply(p.w, c, p.now)
	p.w, p.ch, p.told = ch.World, ch, append(p.told, ch.Events...)
	none := func(launch.RunID) bool { return false }
	for _, broken := range []error{
		sessiontest.CheckEntry(sessiontest.Entry{Before: before, Command: c, Now: p.now, Change: ch, Err: err}),
		sessiontest.CheckRows(p.w, none), sessiontest.ReplayAgrees(p.told, p.w),
	} {
		if broken != nil {
			p.t.Fatalf("%T: %v", c, broken)
		}
	}
	return err
}

func (p *play) do(c session.Command) {
	p.t.Helper()
	if err := p.apply(c); err != nil {
		p.t.Fatalf("%+v is refused: %v", c, err)
	}
}

func (p *play) refused(c session.Command, kind launch.Kind) {
	p.t.Helper()
	if err := p.apply(c); !errors.Is(err, kind) {
		p.t.Fatalf("%+v: got %v, want %v", c, err, kind)
	}
}

func (p *play) want(ok bool, what string) {
	p.t.Helper()
	if !ok {
		p.t.Fatalf("want: %s; session %+v; last change %+v", what, p.w.Session, p.ch)
	}
}

func (p *play) pass(d time.Duration) { p.now.Wall = p.now.Wall.Add(d) }

func (p *play) epoch() uint64 { return p.w.Session.Epoch }

func (p *play) connect(process string) {
	p.t.Helper()
	p.do(session.Connect{Host: "host", Process: process, Durable: true})
}

// queue queues a message; its intent, if its kind carries one, is named after
// the subject.
func (p *play) queue(k session.Kind, subject string) {
	p.t.Helper()
	m := session.Message{Kind: k, Subject: subject, Run: "run", Eligible: p.now.Wall, Body: []byte("{}")}
	if k.Recovers() {
		m.Intent = "intent:" + subject
	}
	p.do(session.Queue{Message: m})
}

func id(subject string) string { return session.MessageID(subject, 1) }

// m returns the first issue of a subject.
func (p *play) m(subject string) *session.Message {
	p.t.Helper()
	return p.issue(subject, 1)
}

func (p *play) issue(subject string, n uint8) *session.Message {
	p.t.Helper()
	m := p.w.Message(session.MessageID(subject, n))
	if m == nil {
		p.t.Fatalf("issue %d of %s does not exist", n, subject)
	}
	return m
}

func (p *play) exists(subject string, n uint8) bool {
	return p.w.Message(session.MessageID(subject, n)) != nil
}

var (
	idle = session.Report{Idle: true}
	busy = session.Report{}
)

// report reports that the session is as r says, with evidence.
func (p *play) report(r session.Report, evidence ...session.Evidence) {
	p.t.Helper()
	r.Epoch, r.Evidence = p.epoch(), evidence
	p.do(r)
}

func absent(message string) session.Evidence { return session.Evidence{Message: message} }

func present(message string) session.Evidence {
	return session.Evidence{Message: message, Present: true}
}

func onDisk(message string) session.Evidence {
	return session.Evidence{Message: message, Present: true, Durable: true}
}

func replied(message string) session.Evidence {
	return session.Evidence{Message: message, Present: true, Durable: true, Replied: true}
}

// try asks for the next send and returns its token; the send must be that of
// the subject, or none when it is empty.
func (p *play) try(subject string) launch.Digest {
	p.t.Helper()
	p.tokens++
	token := launch.DigestOf(binary.BigEndian.AppendUint64(nil, p.tokens))
	p.do(session.Try{Epoch: p.epoch(), Token: token, Ready: func(m *session.Message) bool { return !p.waits[m.Subject] }})
	got := ""
	if p.ch.Send != nil {
		got = p.ch.Send.Subject
	}
	if got != subject {
		p.t.Fatalf("try sends %q, want %q; why: %q", got, subject, p.ch.Why)
	}
	return token
}

func (p *play) answer(subject string, token launch.Digest, v session.Verdict) {
	p.t.Helper()
	p.do(session.Answer{Message: id(subject), Token: token, Verdict: v, Reason: "no"})
}

func (p *play) started(turn, message string) {
	p.t.Helper()
	p.do(session.TurnStarted{Epoch: p.epoch(), Turn: turn, Message: message})
}

func (p *play) settled(turn string, end session.End) {
	p.t.Helper()
	p.do(session.TurnSettled{Epoch: p.epoch(), Turn: turn, End: end})
}

func (p *play) escaped(turn string) {
	p.t.Helper()
	p.do(session.TurnSettled{Epoch: p.epoch(), Turn: turn, End: session.Aborted, ByPerson: true})
}

func (p *play) input() { p.t.Helper(); p.do(session.Input{Epoch: p.epoch()}) }

// sent brings a new message of a free session to the branch: its turn has begun
// if its kind starts one, and its entry is not on disk.
func (p *play) sent(k session.Kind, subject string) {
	p.t.Helper()
	p.queue(k, subject)
	p.report(idle)
	token := p.try(subject)
	p.answer(subject, token, session.Taken)
	if k.StartsTurn() {
		p.started("turn of "+subject, id(subject))
	}
	p.report(session.Report{Idle: !k.StartsTurn()}, present(id(subject)))
	p.want(p.m(subject).State == session.Sent && !p.m(subject).Durable, subject+" is sent and not confirmed")
}

// happened counts events of a kind.
func (p *play) happened(k session.EventKind) (n int) {
	for _, e := range p.told {
		if e.Kind == k {
			n++
		}
	}
	return n
}
