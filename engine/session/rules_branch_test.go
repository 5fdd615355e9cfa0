package session_test

import (
	"testing"
	"time"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

func TestBranch(t *testing.T) {
	tell(t, []story{
		{"session/evidence", "an answer makes nothing sent, the branch does", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Present)
			p.started("t", id("a"))
			p.settled("t", session.Completed)
			p.want(p.m("a").State == session.Pending, "still pending")
			p.report(idle, replied(id("a")))
			p.want(p.m("a").State == session.Sent && p.m("a").Durable && !p.m("a").Watched, "sent and done with")
		}},
		{"session/evidence", "a report of a busy session is evidence of presence", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.started("t", id("a"))
			p.report(busy, present(id("a")))
			p.want(p.m("a").State == session.Sent && p.m("a").Attempt.Epoch == 0, "sent, the attempt settled")
		}},
		{"session/evidence", "a cancelled message that turns up is sent", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.do(session.Cancel{Subject: "a", Reason: "withdrawn"})
			p.want(p.m("a").State == session.Cancelled && p.m("a").Watched, "still asked about")
			p.report(idle, onDisk(id("a")))
			p.want(p.m("a").State == session.Sent && !p.m("a").Watched, "sent")
		}},
		{"session/evidence", "a blocked message that turns up is sent", func(p *play) {
			p.queue(session.Fallback, "a")
			for range session.MaxRefusals { // refused with an error after it was taken
				p.report(idle)
				p.answer("a", p.try("a"), session.Refused)
			}
			p.report(idle, replied(id("a")))
			p.want(p.m("a").State == session.Sent, "sent")
		}},
		{"session/evidence", "a pending message proves nothing by being absent", func(p *play) {
			p.queue(session.Step, "old")
			p.report(idle)
			p.answer("old", p.try("old"), session.Taken)
			p.queue(session.Step, "new")
			p.report(idle, absent(id("new")))
			p.want(p.m("old").State == session.Pending && p.m("new").State == session.Pending && len(p.ch.Events) == 0, "nothing happened")
		}},
		{"session/evidence", "shown and missed in one report is shown", func(p *play) {
			p.sent(session.Fallback, "a")
			p.settled("turn of a", session.Error)
			p.report(idle, absent(id("a")), onDisk(id("a")), absent(id("a")))
			p.want(p.m("a").Seen && p.m("a").Durable, "shown")
		}},
		{"session/evidence", "a report answers about a bounded number of messages", func(p *play) {
			p.refused(session.Report{Epoch: 1, Evidence: make([]session.Evidence, launch.MaxList+1)}, launch.ErrInvalid)
			p.do(session.Report{Epoch: 1, Evidence: make([]session.Evidence, launch.MaxList)})
		}},
		{"session/confirm", "on disk is enough while the turn runs", func(p *play) {
			p.sent(session.Fallback, "a")
			p.report(busy, onDisk(id("a")))
			p.want(p.m("a").Durable && p.m("a").Watched, "confirmed, and watched for its turn")
		}},
		{"session/confirm", "so is the end of its turn, however it ended", func(p *play) {
			p.sent(session.Fallback, "a")
			p.settled("turn of a", session.Error)
			p.want(p.m("a").Durable && !p.m("a").Watched, "confirmed at settled")
		}},
		{"session/confirm", "a bridge that cannot tell is believed", func(p *play) {
			p.do(session.Connect{Host: "host", Process: "pid-1"})
			p.queue(session.Notice, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.report(idle, present(id("a")))
			p.want(p.m("a").Durable, "confirmed")
		}},
		{"session/confirm", "a passive message has no turn, so only its entry counts", func(p *play) {
			p.sent(session.Notification, "a")
			p.report(idle, present(id("a")))
			p.want(!p.m("a").Durable && p.m("a").Watched, "not confirmed")
			p.report(idle, onDisk(id("a")))
			p.want(p.m("a").Durable && !p.m("a").Watched, "confirmed")
		}},
		{"session/issues", "lost before it was on disk: sent again under a new id, three times at most, then blocked", func(p *play) {
			p.sent(session.Fallback, "a")
			for n := uint8(1); n <= session.MaxIssues; n++ {
				p.connect("pid-" + string('1'+rune(n)))
				p.report(idle, absent(session.MessageID("a", n)))
				if n == session.MaxIssues {
					break
				}
				m := p.issue("a", n+1)
				p.want(m.State == session.Pending && m.Intent == "intent:a" && m.Eligible == p.m("a").Eligible, "the next issue waits in the same place")
				p.try("a")
				p.report(busy, present(m.ID))
			}
			p.want(p.issue("a", session.MaxIssues).State == session.Blocked && p.happened(session.EvUncarried) == session.MaxIssues, "blocked")
			p.do(session.Reopen{Message: session.MessageID("a", session.MaxIssues)})
			p.report(idle)
			p.try("a")
		}},
		{"session/issues", "not in a report of a busy session, nor without being named", func(p *play) {
			p.sent(session.Fallback, "a")
			p.report(busy, absent(id("a")))
			p.settled("turn of a", session.Completed)
			p.report(idle)
			p.want(!p.exists("a", 2), "nothing is proven")
		}},
		{"session/issues", "what was confirmed is not issued again when a person moves in the tree", func(p *play) {
			p.sent(session.Fallback, "a")
			p.settled("turn of a", session.Completed)
			p.report(idle, absent(id("a")))
			p.want(!p.exists("a", 2), "served is served")
		}},
		{"session/issues", "nor what was withdrawn after it was seen", func(p *play) {
			p.sent(session.Fallback, "a")
			p.do(session.Cancel{Subject: "a", Reason: "withdrawn"})
			p.connect("pid-2")
			p.report(idle, absent(id("a")))
			p.want(!p.exists("a", 2) && !p.m("a").Watched && p.happened(session.EvUncarried) == 1, "lost, told once, and not missed")
			p.report(idle, absent(id("a")))
			p.want(p.happened(session.EvUncarried) == 1, "told once")
		}},
		{"session/issues", "nor a step of a run that has ended", func(p *play) {
			p.sent(session.Step, "a")
			p.do(session.EndRun{Run: "run"})
			p.connect("pid-2")
			p.report(idle, absent(id("a")))
			p.want(!p.exists("a", 2) && !p.m("a").Watched, "an ended run owes no prompt")
		}},
		{"session/issues", "a notification survives the end of its run", func(p *play) {
			p.sent(session.Notification, "a")
			p.do(session.EndRun{Run: "run"})
			p.connect("pid-2")
			p.report(idle, absent(id("a")))
			p.want(p.exists("a", 2), "issued again")
		}},
		{"session/issues", "the old issue comes back: no second message, and none is made anew", func(p *play) {
			p.sent(session.Notification, "a")
			p.report(idle, absent(id("a")))
			p.want(p.issue("a", 2).State == session.Pending && p.m("a").Watched, "the first is asked about, too")
			p.report(idle, present(id("a")), absent(session.MessageID("a", 2)))
			p.want(p.issue("a", 2).State == session.Cancelled, "the first satisfies it")
			p.report(idle)
			p.try("")
			p.report(idle, absent(id("a")), absent(session.MessageID("a", 2)))
			p.want(p.issue("a", 2).State == session.Pending && !p.exists("a", 3), "gone again: the second is opened again")
		}},
		{"session/issues", "back on the old branch after the second was sent: the first serves, no third is made", func(p *play) {
			p.sent(session.Notification, "a")
			p.report(idle, absent(id("a")))
			p.try("a")
			p.report(idle, absent(id("a")), present(session.MessageID("a", 2)))
			p.report(idle, absent(session.MessageID("a", 2)), present(id("a")))
			p.want(!p.exists("a", 3) && p.m("a").Seen && !p.issue("a", 2).Seen, "the first serves")
		}},
		{"session/issues", "what became of an unanswered second issue settles nothing while the first is on the branch", func(p *play) {
			p.sent(session.Notification, "a")
			p.report(idle, absent(id("a")))
			p.want(!p.ch.Events[0].Unanswered, "nothing else may have got through")
			p.try("a")
			p.report(idle, present(id("a")))
			p.pass(session.SendDeadline)
			p.report(idle, absent(session.MessageID("a", 2)))
			p.want(p.ch.Events[0].Kind == session.EvUncarried && p.ch.Events[0].Unanswered, "the first has got through")
		}},
		{"session/issues", "once one is confirmed the lost ones are forgotten", func(p *play) {
			p.sent(session.Fallback, "a")
			p.connect("pid-2")
			p.report(idle, absent(id("a")))
			p.try("a")
			p.report(idle, absent(id("a")), replied(session.MessageID("a", 2)))
			p.want(!p.m("a").Watched && !p.issue("a", 2).Watched && p.m("a").Eligible == 0, "nothing is asked about the subject")
		}},
		{"session/issues", "queued again it is neither doubled nor sent twice", func(p *play) {
			p.queue(session.Fallback, "a")
			p.pass(time.Second)
			p.queue(session.Fallback, "a")
			p.want(len(p.w.Messages) == 1 && p.m("a").Eligible == p.now.Wall, "the unsent one is adopted")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.started("t", id("a"))
			p.report(busy, present(id("a")))
			p.queue(session.Fallback, "a")
			p.want(len(p.w.Messages) == 1 && p.m("a").State == session.Sent && p.m("a").Turn.Open(), "the one on the branch serves")
		}},
		{"session/issues", "queued again after a cancel, the same message is opened again", func(p *play) {
			p.queue(session.Step, "a")
			p.report(idle)
			token := p.try("a")
			p.do(session.Cancel{Subject: "a", Reason: "paused"})
			p.queue(session.Step, "a")
			p.want(len(p.w.Messages) == 1 && p.m("a").State == session.Pending && p.m("a").Attempt.Token == token, "pending, its attempt as it was")
		}},
		{"session/issues", "queued again after its issues were used up, it is blocked until a call", func(p *play) {
			p.sent(session.Step, "a")
			for n := uint8(1); n < session.MaxIssues; n++ {
				p.connect("pid-" + string('1'+rune(n)))
				p.report(idle, absent(session.MessageID("a", n)))
				p.try("a")
				p.report(busy, present(session.MessageID("a", n+1)))
			}
			p.do(session.Cancel{Subject: "a", Reason: "paused"})
			p.report(idle, absent(session.MessageID("a", session.MaxIssues)))
			p.want(!p.m("a").Watched, "lost and not needed")
			p.queue(session.Step, "a")
			p.want(p.issue("a", session.MaxIssues).State == session.Blocked, "blocked")
		}},
		{"session/issues", "a message has a kind", func(p *play) {
			p.refused(session.Queue{Message: session.Message{Subject: "a"}}, launch.ErrInternal)
			p.refused(session.Queue{Message: session.Message{Subject: "a", Kind: session.Notice + 1}}, launch.ErrInternal)
		}},
		{"session/watched", "cancelled before it was tried, nothing is asked about it", func(p *play) {
			p.queue(session.Fallback, "a")
			p.do(session.Cancel{Subject: "a", Reason: "withdrawn"})
			p.want(!p.m("a").Watched, "not watched")
		}},
		{"session/watched", "cancelled with an open turn, the turn is still closed by a report", func(p *play) {
			p.queue(session.Step, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Refused) // with an error after it was taken
			p.started("t", id("a"))
			p.do(session.Cancel{Subject: "a", Reason: "a later prompt"})
			p.want(p.m("a").Watched && p.w.Session.Open == id("a"), "watched")
			p.connect("pid-2")
			p.report(idle, absent(id("a")))
			p.want(p.w.Session.Open == "" && !p.m("a").Watched, "closed and done with")
		}},
		{"session/watched", "confirmed but lost before its turn was known, it is done with", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.report(busy, onDisk(id("a")))
			p.want(p.m("a").Durable && p.m("a").Watched, "its turn is not known")
			p.report(idle, absent(id("a")))
			p.want(!p.m("a").Watched && !p.exists("a", 2), "and will never be")
		}},
	})
}
