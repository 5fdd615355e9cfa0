package session_test

import (
	"testing"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

type story struct {
	rule, why string
	play      func(p *play)
}

func tell(t *testing.T, stories []story) {
	for _, s := range stories {
		t.Run(s.rule+"/"+s.why, func(t *testing.T) {
			p := newPlay(t)
			p.connect("pid-1")
			s.play(p)
		})
	}
}

func TestSending(t *testing.T) {
	tell(t, []story{
		{"session/epoch", "an older connection is refused everywhere, the newer is not", func(p *play) {
			p.queue(session.Fallback, "a")
			p.connect("pid-1")
			for _, c := range []session.Command{
				session.Disconnect{Epoch: 1}, session.Input{Epoch: 1}, session.TurnStarted{Epoch: 1, Turn: "t"},
				session.TurnSettled{Epoch: 1, Turn: "t", End: session.Completed}, session.Report{Epoch: 1, Idle: true},
				session.Try{Epoch: 1, Token: launch.DigestOf(nil)},
			} {
				p.refused(c, launch.ErrStale)
			}
			p.report(idle)
			p.try("a")
		}},
		{"session/epoch", "a connection that ended says nothing more", func(p *play) {
			p.do(session.Disconnect{Epoch: 1})
			p.refused(session.Report{Epoch: 1, Idle: true}, launch.ErrStale)
			p.refused(session.Disconnect{Epoch: 1}, launch.ErrStale)
		}},
		{"session/epoch", "a connection needs a host and a process", func(p *play) {
			p.refused(session.Connect{Process: "pid"}, launch.ErrInvalid)
			p.refused(session.Connect{Host: "host", Process: "two\nlines"}, launch.ErrInvalid)
		}},
		{"session/epoch", "who connects again by itself does not take the session from another process", func(p *play) {
			again := session.Connect{Host: "host", Process: "pid-1", After: 1}
			p.do(again) // nobody came between
			p.connect("pid-2")
			p.refused(again, launch.ErrStale)
			p.do(session.Disconnect{Epoch: 3})
			p.refused(again, launch.ErrStale) // its file has moved on
			again.After = 0
			p.do(again) // a person wants it
			again.After = 1
			p.do(again) // the welcome was lost
		}},
		{"session/takeover", "nothing is sent before the other process's deadline", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.connect("pid-2")
			p.report(idle, absent(id("a")))
			p.try("")
			p.pass(session.SendDeadline - 1)
			p.report(idle, absent(id("a")))
			p.try("")
			p.pass(1)
			p.report(idle)
			p.try("a")
		}},
		{"session/takeover", "the clock must be trusted for that", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.connect("pid-2")
			p.now.Distrust = true
			p.pass(time.Hour)
			p.report(idle, absent(id("a")))
			p.try("")
			p.want(p.m("a").Attempt.Epoch == 1, "no deadline has passed yet")
		}},
		{"session/takeover", "a deadline outlasts the return of the first process", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.connect("pid-2")
			p.connect("pid-1")
			p.report(idle)
			p.try("")
		}},
		{"session/takeover", "the same process may ask again at once: it refuses its older epoch", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.connect("pid-1")
			p.report(idle, absent(id("a")))
			p.try("a")
		}},
		{"session/first-report", "a connection sends nothing before it reported", func(p *play) {
			p.queue(session.Fallback, "a")
			p.try("")
			p.report(idle)
			p.connect("pid-1")
			p.try("")
			p.report(idle)
			p.try("a")
		}},
		{"session/first-report", "a report made before the last answer is not the latest", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Occupied)
			p.try("")
			p.report(idle, absent(id("a")))
			p.try("a")
		}},
		{"session/first-report", "nor one made between a send and its answer", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			token := p.try("a")
			p.report(idle, absent(id("a")))
			p.answer("a", token, session.Occupied)
			p.try("")
		}},
		{"session/first-report", "nor one made before a turn ended", func(p *play) {
			p.started("t", "")
			p.report(busy)
			p.settled("t", session.Completed)
			p.want(!p.w.Session.Fresh, "look again")
		}},
		{"session/free", "a busy session is sent nothing", func(p *play) {
			p.queue(session.Notice, "a")
			p.report(busy)
			p.try("")
			p.report(idle)
			p.started("t", "")
			p.report(busy)
			p.try("")
			p.settled("t", session.Completed)
			p.try("")
			p.report(idle)
			p.try("a")
		}},
		{"session/free", "input that lies there for half a minute counts as forgotten", func(p *play) {
			p.queue(session.Notice, "a")
			p.report(idle)
			p.input()
			waiting := session.Report{Idle: true, Pending: true}
			p.report(waiting)
			p.pass(session.PendingGrace - 1)
			p.report(waiting)
			p.try("")
			p.pass(1)
			p.report(waiting)
			p.try("a")
		}},
		{"session/free", "but it has to lie in an idle session for that time", func(p *play) {
			p.queue(session.Notice, "a")
			p.started("t", "")
			p.report(session.Report{Pending: true})
			p.pass(time.Hour)
			p.settled("t", session.Completed)
			p.report(session.Report{Idle: true, Pending: true})
			p.try("")
		}},
		{"session/free", "and new input begins a new wait", func(p *play) {
			p.queue(session.Notice, "a")
			p.input()
			p.report(session.Report{Idle: true, Pending: true})
			p.pass(session.PendingGrace - 1)
			p.input()
			p.pass(1)
			p.report(session.Report{Idle: true, Pending: true})
			p.try("")
		}},
		{"session/free", "a clock that goes back does not make the wait endless", func(p *play) {
			p.queue(session.Notice, "a")
			waiting := session.Report{Idle: true, Pending: true}
			p.report(waiting)
			p.pass(-24 * time.Hour)
			p.report(waiting)
			p.pass(session.PendingGrace)
			p.report(waiting)
			p.try("a")
		}},
		{"session/free", "a distrusted clock forgets nothing", func(p *play) {
			p.queue(session.Notice, "a")
			p.report(session.Report{Idle: true, Pending: true})
			p.now.Distrust = true
			p.pass(time.Hour)
			p.report(session.Report{Idle: true, Pending: true})
			p.try("")
		}},
		{"session/attempt", "the refusal of the only ask settles it", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Occupied)
			p.want(p.m("a").Attempt == (session.Attempt{}) && !p.ch.Events[0].Unanswered, "the attempt is settled")
		}},
		{"session/attempt", "the refusal of a repeated ask settles nothing: the first may have been carried out", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			first := p.try("a")
			p.report(idle, absent(id("a")))
			p.answer("a", p.try("a"), session.Occupied)
			p.want(p.m("a").Attempt.First == first && p.ch.Events[0].Unanswered, "the attempt is open under the first token")
		}},
		{"session/attempt", "not even with the late refusal of the first ask: one between may have been carried out", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			first := p.try("a")
			p.report(idle)
			p.try("a") // its answer is lost
			p.report(idle)
			third := p.try("a")
			p.answer("a", third, session.Occupied)
			p.refused(session.Answer{Message: id("a"), Token: first, Verdict: session.Refused}, launch.ErrStale)
			p.refused(session.Answer{Message: id("a"), Token: third, Verdict: session.Occupied}, launch.ErrStale)
			p.pass(session.SendDeadline)
			p.report(idle, absent(id("a")))
			p.want(p.m("a").Attempt.Epoch == 0, "absence after the deadline settles it")
		}},
		{"session/attempt", "absence proves nothing before the deadline of the last ask", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.pass(session.SendDeadline - 1)
			p.report(idle, absent(id("a")))
			p.try("a")
			p.pass(2)
			p.report(idle, absent(id("a")))
			p.want(p.m("a").Attempt.Epoch != 0, "the second ask may still be carried out")
		}},
		{"session/attempt", "a clock that goes back between two asks shortens nothing", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			deadline := p.m("a").Attempt.Deadline
			p.pass(-time.Hour)
			p.report(idle)
			p.try("a")
			p.want(p.m("a").Attempt.Deadline == deadline, "the first ask may be carried out until then")
		}},
		{"session/attempt", "nor in a report that was asked for before it", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			early := p.now.Wall.Add(session.SendDeadline - 1)
			p.pass(session.SendDeadline + time.Second)
			p.report(session.Report{Idle: true, Asked: early}, absent(id("a")))
			p.want(p.m("a").Attempt.Epoch != 0, "the send may have been carried out since")
			p.report(session.Report{Idle: true, Asked: p.now.Wall}, absent(id("a")))
			p.want(p.m("a").Attempt.Epoch == 0, "now it was not")
		}},
		{"session/attempt", "nor in a report of a busy session, nor when it is not named", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.pass(session.SendDeadline)
			p.report(busy, absent(id("a")))
			p.report(idle)
			p.report(idle, absent("another"))
			p.want(p.m("a").Attempt.Epoch != 0, "nothing is proven")
		}},
		{"session/attempt", "what the bridge took is not asked for again, and nothing else is sent meanwhile", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			token := p.try("a")
			p.pass(1)
			p.queue(session.Notice, "b")
			p.answer("a", token, session.Taken)
			p.report(idle, absent(id("a")))
			p.try("")
			p.pass(session.SendDeadline)
			p.report(idle, absent(id("a")))
			p.try("a")
		}},
		{"session/attempt", "while one is unsettled another message waits, also behind a cancelled one", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.queue(session.Notice, "b")
			p.do(session.Cancel{Subject: "a", Reason: "withdrawn"})
			p.report(idle, absent(id("a")))
			p.try("")
			p.pass(session.SendDeadline)
			p.report(idle, absent(id("a")))
			p.try("b")
		}},
		{"session/attempt", "an answer counts whoever is connected by then", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			token := p.try("a")
			p.connect("pid-2")
			p.answer("a", token, session.Refused)
			p.want(p.m("a").Attempt.Epoch == 0 && p.m("a").Refusals == 1, "the refusal is recorded")
		}},
		{"session/attempt", "the first answer stands", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			token := p.try("a")
			p.answer("a", token, session.Taken)
			p.answer("a", token, session.Present)
			p.refused(session.Answer{Message: id("a"), Token: token, Verdict: session.Refused}, launch.ErrConflict)
			p.want(p.m("a").Attempt.Taken, "taken")
		}},
		{"session/attempt", "a foreign answer is ignored", func(p *play) {
			p.queue(session.Fallback, "a")
			p.refused(session.Answer{Message: id("a"), Verdict: session.Taken}, launch.ErrStale)
			p.report(idle)
			token := p.try("a")
			p.refused(session.Answer{Message: id("a"), Token: launch.DigestOf(nil), Verdict: session.Refused}, launch.ErrStale)
			p.refused(session.Answer{Message: "other", Token: token, Verdict: session.Refused}, launch.ErrNotFound)
			p.refused(session.Answer{Message: id("a"), Token: token}, launch.ErrInvalid)
			p.refused(session.Try{Epoch: 1}, launch.ErrInvalid)
		}},
		{"session/order", "first eligible first, then by intent; what is not eligible is passed over", func(p *play) {
			for _, subject := range []string{"f", "e", "d", "c", "b", "a"} { // as old, and their intents in reverse
				p.queue(session.Fallback, subject)
			}
			p.pass(-time.Second)
			p.queue(session.Fallback, "older")
			p.queue(session.Notice, "waits")
			p.waits["older"], p.waits["waits"] = true, true
			p.report(idle)
			p.answer("a", p.try("a"), session.Occupied)
			p.waits["older"] = false
			p.report(idle)
			p.try("older")
		}},
		{"session/refusals", "occupied counts for nothing, five refusals block and hold nothing back", func(p *play) {
			p.queue(session.Fallback, "a")
			p.pass(time.Second)
			p.queue(session.Notice, "b")
			for range 2 * session.MaxRefusals {
				p.report(idle)
				p.answer("a", p.try("a"), session.Occupied)
			}
			for range session.MaxRefusals {
				p.report(idle)
				p.answer("a", p.try("a"), session.Refused)
			}
			p.want(p.m("a").State == session.Blocked && p.happened(session.EvBlocked) == 1, "blocked, visibly")
			p.report(idle)
			p.try("b")
		}},
		{"session/refusals", "a call re-opens a blocked message, and nothing else", func(p *play) {
			p.queue(session.Fallback, "a")
			p.refused(session.Reopen{Message: id("a")}, launch.ErrNotAllowed)
			p.refused(session.Reopen{Message: "other"}, launch.ErrNotFound)
			for range session.MaxRefusals {
				p.report(idle)
				p.answer("a", p.try("a"), session.Refused)
			}
			p.do(session.Reopen{Message: id("a")})
			p.want(p.m("a").Refusals == 0, "it begins anew")
			p.report(idle)
			p.try("a")
		}},
		{"session/refusals", "sends that leave no trace block as well", func(p *play) {
			p.queue(session.Fallback, "a")
			for range session.MaxRefusals {
				p.report(idle)
				p.answer("a", p.try("a"), session.Taken)
				p.pass(session.SendDeadline)
				p.report(idle, absent(id("a")))
			}
			p.want(p.m("a").State == session.Blocked, "blocked")
		}},
		{"session/refusals", "blocked with an unanswered ask, it holds others back only until that is settled", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.queue(session.Notice, "b")
			for range session.MaxRefusals {
				p.report(idle)
				p.answer("a", p.try("a"), session.Refused)
			}
			p.want(p.m("a").State == session.Blocked && p.m("a").Attempt.Epoch != 0, "blocked, the first ask unanswered")
			p.report(idle, absent(id("a")))
			p.try("")
			p.pass(session.SendDeadline)
			p.report(idle, absent(id("a")))
			p.try("b")
		}},
	})
}
