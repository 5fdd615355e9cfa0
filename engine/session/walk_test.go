package session_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/session/sessiontest"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

// blocked refuses a message until it is blocked.
func block(p *play) {
	for range session.MaxRefusals {
		p.report(idle)
		p.answer("a", p.try("a"), session.Refused)
	}
}

func ask(p *play) launch.Digest {
	p.queue(session.Fallback, "a")
	p.report(idle)
	return p.try("a")
}

// The situations of a message "a", in the order of its life.
var situations = []struct {
	name string
	play func(p *play)
}{
	{"pending", func(p *play) { p.queue(session.Fallback, "a") }},
	{"pending, asked", func(p *play) { ask(p) }},
	{"pending, taken", func(p *play) { p.answer("a", ask(p), session.Taken) }},
	{"pending, asked twice, the second refused", func(p *play) {
		ask(p)
		p.report(idle)
		p.answer("a", p.try("a"), session.Refused)
	}},
	{"pending, its turn open", func(p *play) { p.answer("a", ask(p), session.Taken); p.started("t", id("a")) }},
	{"sent, its turn open", func(p *play) { p.sent(session.Fallback, "a") }},
	{"sent and confirmed, its turn open", func(p *play) { p.sent(session.Fallback, "a"); p.report(busy, onDisk(id("a"))) }},
	{"sent and confirmed, its turn over", func(p *play) { p.sent(session.Fallback, "a"); p.settled("turn of a", session.Completed) }},
	{"sent and confirmed, its turn unknown", func(p *play) { p.answer("a", ask(p), session.Taken); p.report(busy, onDisk(id("a"))) }},
	{"sent, passive", func(p *play) { p.sent(session.Notice, "a") }},
	{"sent and lost, the second issue pending", func(p *play) {
		p.sent(session.Fallback, "a")
		p.connect("pid-2")
		p.report(idle, absent(id("a")))
	}},
	{"sent, a step, its turn open", func(p *play) { p.sent(session.Step, "a") }},
	{"blocked", func(p *play) { p.queue(session.Fallback, "a"); block(p) }},
	{"blocked, asked", func(p *play) { ask(p); block(p) }},
	{"cancelled", func(p *play) { p.queue(session.Fallback, "a"); p.do(session.Cancel{Subject: "a", Reason: "-"}) }},
	{"cancelled, asked", func(p *play) { ask(p); p.do(session.Cancel{Subject: "a", Reason: "-"}) }},
	{"cancelled, its turn open", func(p *play) {
		p.answer("a", ask(p), session.Taken)
		p.started("t", id("a"))
		p.do(session.Cancel{Subject: "a", Reason: "-"})
	}},
}

// The commands, given to each situation.
var commands = []struct {
	name string
	make func(p *play) session.Command
}{
	{"connect", func(p *play) session.Command { return session.Connect{Host: "host", Process: "pid-1", Durable: true} }},
	{"connect other process", func(p *play) session.Command { return session.Connect{Host: "host", Process: "pid-9", Durable: true} }},
	{"disconnect", func(p *play) session.Command { return session.Disconnect{Epoch: p.epoch()} }},
	{"shutdown", func(p *play) session.Command { return session.Disconnect{Epoch: p.epoch(), Shutdown: true} }},
	{"input", func(p *play) session.Command { return session.Input{Epoch: p.epoch()} }},
	{"its turn starts", func(p *play) session.Command {
		return session.TurnStarted{Epoch: p.epoch(), Turn: "new", Message: id("a")}
	}},
	{"its turn starts, withdrawn", func(p *play) session.Command {
		return session.TurnStarted{Epoch: p.epoch(), Turn: "new", Message: id("a"), Withdrawn: true}
	}},
	{"its start is repeated", func(p *play) session.Command {
		return session.TurnStarted{Epoch: p.epoch(), Turn: p.m("a").Turn.ID, Message: id("a")}
	}},
	{"chat starts", func(p *play) session.Command { return session.TurnStarted{Epoch: p.epoch(), Turn: "chat"} }},
	{"its turn completes", func(p *play) session.Command {
		return session.TurnSettled{Epoch: p.epoch(), Turn: p.m("a").Turn.ID, End: session.Completed}
	}},
	{"its turn is escaped", func(p *play) session.Command {
		return session.TurnSettled{Epoch: p.epoch(), Turn: p.m("a").Turn.ID, End: session.Aborted, ByPerson: true}
	}},
	{"busy, absent", func(p *play) session.Command { return report(p, busy, absent(id("a"))) }},
	{"busy, present", func(p *play) session.Command { return report(p, busy, present(id("a"))) }},
	{"idle, absent", func(p *play) session.Command { return report(p, idle, absent(id("a"))) }},
	{"idle, absent, later", func(p *play) session.Command { p.pass(session.PendingGrace); return report(p, idle, absent(id("a"))) }},
	{"idle, present, later", func(p *play) session.Command {
		p.pass(session.PendingGrace)
		return report(p, idle, present(id("a")))
	}},
	{"idle, replied, first report", func(p *play) session.Command { p.connect("pid-9"); return report(p, idle, replied(id("a"))) }},
	{"idle, absent, first report", func(p *play) session.Command { p.connect("pid-9"); return report(p, idle, absent(id("a"))) }},
	{"try", func(p *play) session.Command {
		return session.Try{Epoch: p.epoch(), Token: launch.DigestOf([]byte("t")), Ready: func(*session.Message) bool { return true }}
	}},
	{"try after a report", func(p *play) session.Command {
		p.report(idle)
		return session.Try{Epoch: p.epoch(), Token: launch.DigestOf([]byte("t")), Ready: func(*session.Message) bool { return true }}
	}},
	{"try, not eligible", func(p *play) session.Command {
		p.report(idle)
		return session.Try{Epoch: p.epoch(), Token: launch.DigestOf([]byte("t")), Ready: func(*session.Message) bool { return false }}
	}},
	{"taken", func(p *play) session.Command { return answer(p, session.Taken) }},
	{"occupied", func(p *play) session.Command { return answer(p, session.Occupied) }},
	{"refused", func(p *play) session.Command { return answer(p, session.Refused) }},
	{"queue", func(p *play) session.Command {
		return session.Queue{Message: session.Message{Kind: p.m("a").Kind, Subject: "a", Run: "run", Intent: p.m("a").Intent, Eligible: p.now.Wall}}
	}},
	{"cancel", func(p *play) session.Command { return session.Cancel{Subject: "a", Reason: "-"} }},
	{"end run", func(p *play) session.Command { return session.EndRun{Run: "run"} }},
	{"abandon", func(p *play) session.Command { return session.Abandon{} }},
	{"reopen", func(p *play) session.Command { return session.Reopen{Message: id("a")} }},
	{"free", func(p *play) session.Command { return session.Free{} }},
	{"count start", func(p *play) session.Command { return session.CountStart{} }},
}

func report(p *play, r session.Report, e session.Evidence) session.Command {
	r.Epoch, r.Evidence = p.epoch(), []session.Evidence{e}
	return r
}

func answer(p *play, v session.Verdict) session.Command {
	return session.Answer{Message: id("a"), Token: p.m("a").Attempt.Token, Verdict: v, Reason: "no"}
}

// TestWalk gives every command to a message in every situation, checks every
// invariant, and compares what happens with a table that people read.
func TestWalk(t *testing.T) {
	var b strings.Builder
	b.WriteString("# What every command does to a message in every situation of its life: its states afterwards, what is open\n" +
		"# or held, the answer, and the events. A line that is left out: nothing changes and nothing happens.\n")
	for _, s := range situations {
		fmt.Fprintf(&b, "\n%s\n", s.name)
		for _, c := range commands {
			p := newPlay(t)
			p.connect("pid-1")
			s.play(p)
			cmd := c.make(p)
			was := show(p)
			p.ch = session.Change{}
			err := p.apply(cmd) // checks the invariants
			line := show(p)
			if err != nil {
				line = "refused: " + err.Error()
			} else if line == was && len(p.ch.Events) == 0 && p.ch.Send == nil && p.ch.Why == "" && p.ch.Own == 0 && p.ch.Abort == "" {
				continue
			}
			fmt.Fprintf(&b, "  %s: %s\n", c.name, line+happened(p.ch))
		}
	}
	const path = "../../testdata/golden/session-walk.txt"
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s differs (run with -rewrite after checking that it should): %s", path, diff)
	}
}

func show(p *play) string {
	var parts []string
	for n := uint8(1); p.exists("a", n); n++ {
		m := p.issue("a", n)
		part := m.State.String()
		for _, f := range []struct {
			on   bool
			what string
		}{
			{m.Durable, "confirmed"}, {m.State == session.Sent && !m.Seen, "lost"}, {m.Attempt.Epoch != 0, "unsettled"},
			{m.Attempt.Taken, "taken"}, {m.Turn.Open(), "turn open"}, {m.Turn.Closed != 0, "turn " + m.Turn.End.String()},
			{m.Refusals > 0, fmt.Sprintf("%d refusals", m.Refusals)}, {m.Watched, "watched"},
		} {
			if f.on {
				part += ", " + f.what
			}
		}
		parts = append(parts, part)
	}
	if p.w.Session.Held {
		parts = append(parts, "held")
	}
	return strings.Join(parts, " | ")
}

func happened(ch session.Change) (s string) {
	if ch.Own != session.None {
		s += "; own " + ch.Own.String()
	}
	if ch.Abort != "" {
		s += "; abort"
	}
	if ch.Send != nil {
		s += "; send"
	}
	if ch.Why != "" {
		s += "; waits: " + ch.Why
	}
	for n, e := range ch.Events {
		s += map[bool]string{true: "; ", false: ", "}[n == 0] + e.Kind.String()
		if e.Unanswered {
			s += " (unanswered)"
		}
	}
	return s
}

// Apply never changes what it is given.
func TestApplyKeepsItsArgument(t *testing.T) {
	for _, s := range situations {
		for _, c := range commands {
			p := newPlay(t)
			p.connect("pid-1")
			s.play(p)
			cmd := c.make(p)
			given := p.w
			before := session.World{Session: given.Session, Messages: append([]session.Message(nil), given.Messages...)}
			if _, err := session.Apply(given, cmd, p.now); err != nil && !cmp.Equal(given, before) {
				t.Errorf("%s: %s: refused and changed", s.name, c.name)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("%s: %s changed its argument: %s", s.name, c.name, diff)
			}
			if err := sessiontest.MessageIdentity(given); err != nil {
				t.Error(err)
			}
		}
	}
}
