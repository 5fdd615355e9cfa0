package session_test

import (
	"testing"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

func TestTurns(t *testing.T) {
	tell(t, []story{
		{"session/turns", "the message that opened it owns it; a retry repeats the start", func(p *play) {
			p.sent(session.Fallback, "a")
			p.started("turn of a", id("a"))
			p.want(p.ch.Own == session.Owned && len(p.ch.Events) == 0, "owned, and nothing happened")
			p.settled("turn of a", session.Completed)
			p.want(p.m("a").Turn.End == session.Completed && p.w.Session.Open == "", "closed")
		}},
		{"session/turns", "ordinary chat and passive messages own nothing", func(p *play) {
			p.started("chat", "")
			p.want(p.ch.Own == session.None && p.w.Session.Open == "", "nobody's")
			p.settled("chat", session.Completed)
			p.started("unknown", "message:of-another-session")
			p.want(p.ch.Own == session.None && p.w.Session.Open == "", "nobody's")
			p.settled("unknown", session.Completed)
			p.sent(session.Notice, "a")
			p.started("extra", id("a")) // an agent that starts a turn for it all the same
			p.want(p.ch.Own == session.None && p.m("a").Turn == (session.Turn{}), "nobody's")
		}},
		{"session/turns", "a message opens one turn", func(p *play) {
			p.sent(session.Fallback, "a")
			p.settled("turn of a", session.Completed)
			p.started("second", id("a")) // a duplicate that was drained late
			p.want(p.ch.Own == session.Settled && p.w.Session.Open == "" && p.w.Session.Active.Turn == "second", "settled")
			p.started("second", id("a"))
			p.want(p.ch.Own == session.Settled, "settled, repeated")
		}},
		{"session/turns", "a turn of a withdrawn intent or an unneeded message is aborted, also when it is repeated", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.do(session.TurnStarted{Epoch: 1, Turn: "t", Message: id("a"), Withdrawn: true})
			p.want(p.ch.Abort == id("a") && p.ch.Own == session.None, "aborted")
			p.do(session.Cancel{Subject: "a", Reason: "withdrawn"})
			p.started("t", id("a"))
			p.want(p.ch.Abort == id("a") && p.w.Session.Open == "", "aborted again")
			p.do(session.TurnSettled{Epoch: 1, Turn: "t", End: session.Aborted})
			p.want(!p.w.Session.Held, "the host's abort holds nothing")
		}},
		{"session/turns", "a step turn that starts for an ended run is aborted, although its message was seen", func(p *play) {
			p.queue(session.Step, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.report(busy, onDisk(id("a")))
			p.do(session.EndRun{Run: "run"})
			p.started("t", id("a"))
			p.want(p.ch.Abort == id("a") && p.w.Session.Open == "", "aborted")
		}},
		{"session/turns", "confirmed before its start was reported, a message owns its turn all the same", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.report(busy, onDisk(id("a")))
			p.do(session.Cancel{Subject: "a", Reason: "the intent is resolved"})
			p.started("t", id("a"))
			p.want(p.ch.Own == session.Owned, "owned")
		}},
		{"session/turns", "an ended run ends its step turn, but no result, fallback or follow-up turn", func(p *play) {
			for _, k := range []session.Kind{session.Result, session.Fallback, session.FollowUp} {
				p.sent(k, k.String())
				p.do(session.EndRun{Run: "run"})
				p.want(p.w.Session.Open == id(k.String()), "still open")
				p.settled("turn of "+k.String(), session.Completed)
			}
			for _, k := range []session.Kind{session.Step, session.Checkpoint} {
				p.sent(k, k.String())
				p.do(session.EndRun{Run: "run"})
				p.want(p.w.Session.Open == "" && p.m(k.String()).Turn.End == session.Lost, "lost")
				p.started("turn of "+k.String(), id(k.String()))
				p.want(p.ch.Abort == id(k.String()), "its retry is aborted")
				p.settled("turn of "+k.String(), session.Aborted)
				p.want(p.m(k.String()).Turn.End == session.Lost && p.ch.Events[0].Kind == session.EvLateEnd, "its end is recorded and changes nothing")
			}
		}},
		{"session/turns", "an ended run leaves other runs and their messages alone", func(p *play) {
			p.sent(session.Step, "a")
			p.queue(session.Step, "b")
			p.queue(session.Decision, "c")
			p.do(session.EndRun{Run: "other"})
			p.want(len(p.ch.Events) == 0, "nothing happened")
			p.do(session.EndRun{Run: "run"})
			p.want(p.m("b").State == session.Cancelled && p.m("c").State == session.Cancelled, "unsent prompts and decisions end with it")
		}},
		{"session/turns", "one at a time: another start ends the open one", func(p *play) {
			p.sent(session.Fallback, "a")
			p.started("chat", "")
			p.want(p.m("a").Turn.End == session.Lost && p.w.Session.Open == "", "lost")
			p.settled("turn of a", session.Completed)
			p.want(p.m("a").Turn.End == session.Lost && p.ch.Events[0].Kind == session.EvLateEnd, "a late end is recorded and changes nothing")
		}},
		{"session/turns", "a matching repeat of the end is adopted, another end is a conflict", func(p *play) {
			p.sent(session.Fallback, "a")
			p.settled("turn of a", session.Error)
			p.settled("turn of a", session.Error)
			p.want(len(p.ch.Events) == 0, "nothing happened")
			p.refused(session.TurnSettled{Epoch: 1, Turn: "turn of a", End: session.Completed}, launch.ErrConflict)
		}},
		{"session/turns", "one key, two messages: a conflict", func(p *play) {
			p.sent(session.Fallback, "a")
			p.queue(session.Fallback, "b")
			p.refused(session.TurnStarted{Epoch: 1, Turn: "turn of a", Message: id("b")}, launch.ErrConflict)
			p.refused(session.TurnStarted{Epoch: 1, Turn: "turn of a"}, launch.ErrConflict)
		}},
		{"session/turns", "a start that is repeated after its message is needed again owns its turn", func(p *play) {
			p.queue(session.Step, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.do(session.Cancel{Subject: "a", Reason: "paused"})
			p.started("t", id("a"))
			p.want(p.ch.Abort == id("a"), "aborted; the answer is lost")
			p.queue(session.Step, "a")
			p.started("t", id("a"))
			p.want(p.ch.Own == session.Owned, "owned")
		}},
		{"session/turns", "a report names turn and end", func(p *play) {
			p.refused(session.TurnStarted{Epoch: 1}, launch.ErrInvalid)
			p.refused(session.TurnSettled{Epoch: 1, End: session.Aborted, ByPerson: true}, launch.ErrInvalid)
			p.refused(session.TurnSettled{Epoch: 1, Turn: "t"}, launch.ErrInvalid)
			p.refused(session.TurnSettled{Epoch: 1, Turn: "t", End: session.Lost}, launch.ErrInvalid)
		}},
		{"session/turns", "it outlives its connection: the end alone is repeated", func(p *play) {
			p.sent(session.Fallback, "a")
			p.do(session.Disconnect{Epoch: 1})
			p.want(p.w.Session.Open == id("a"), "open")
			p.connect("pid-1")
			p.settled("turn of a", session.Completed)
			p.want(p.m("a").Turn.End == session.Completed, "completed")
		}},
		{"session/turns", "or the start, and it goes on", func(p *play) {
			p.sent(session.Fallback, "a")
			p.connect("pid-1")
			p.started("turn of a", id("a"))
			p.want(p.ch.Own == session.Owned, "owned")
			p.report(busy, present(id("a")))
			p.want(p.w.Session.Open == id("a"), "open")
		}},
		{"session/turns", "also after a reload, which is a shutdown to the host", func(p *play) {
			p.sent(session.Fallback, "a")
			p.do(session.Disconnect{Epoch: 1, Shutdown: true})
			p.connect("pid-1")
			p.started("turn of a", id("a"))
			p.want(p.ch.Own == session.Owned && p.w.Session.Open == id("a"), "owned")
		}},
		{"session/turns", "what another process did is over", func(p *play) {
			p.started("chat", "")
			p.connect("pid-2")
			p.report(busy) // it compacts
			p.report(idle)
			p.want(p.w.Session.Free(p.now), "free")
		}},
		{"session/turns", "or nothing: the first report of a free session closes it, with the reply as evidence", func(p *play) {
			p.sent(session.Fallback, "a")
			p.connect("pid-1")
			p.report(idle, replied(id("a")))
			p.want(p.m("a").Turn.End == session.Completed && !p.m("a").Watched, "completed")
		}},
		{"session/turns", "without a reply it is lost", func(p *play) {
			p.sent(session.Fallback, "a")
			p.connect("pid-2")
			p.report(idle, onDisk(id("a")))
			p.want(p.m("a").Turn.End == session.Lost && p.m("a").Durable, "lost, and the message served")
			p.settled("turn of a", session.Completed)
			p.want(p.m("a").Turn.End == session.Lost && p.ch.Events[0].Kind == session.EvLateEnd, "a late end changes nothing")
		}},
		{"session/turns", "a report records the turn of a message that it shows and that opened none", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.try("a")
			p.connect("pid-2")
			p.report(idle, replied(id("a")))
			p.want(p.m("a").Turn.End == session.Completed && p.happened(session.EvTurnOpened) == 1 && !p.m("a").Watched, "opened and closed")
		}},
		{"session/turns", "settled never comes: idle for long enough, the session closes the turn", func(p *play) {
			p.sent(session.Fallback, "a")
			p.queue(session.Notice, "b")
			p.report(idle, present(id("a")))
			p.want(p.w.Session.Open == id("a"), "the end may be on its way")
			p.try("")
			p.pass(session.PendingGrace)
			p.report(idle, present(id("a")))
			p.want(p.m("a").Turn.End == session.Lost && p.w.Session.Active.Turn == "", "lost")
			p.try("b")
		}},
		{"session/turns", "nor does an unreported end of a chat turn hold the session up", func(p *play) {
			p.queue(session.Notice, "b")
			p.started("chat", "")
			p.report(idle)
			p.pass(session.PendingGrace)
			p.report(idle)
			p.try("b")
		}},
		{"session/turns", "a lost message that is sent again under its id opens a turn anew", func(p *play) {
			p.queue(session.Fallback, "a")
			p.report(idle)
			p.answer("a", p.try("a"), session.Taken)
			p.started("t1", id("a"))
			p.do(session.TurnSettled{Epoch: 1, Turn: "t1", End: session.Aborted}) // before it reached the branch
			p.pass(session.SendDeadline)
			p.report(idle, absent(id("a")))
			p.try("a")
			p.started("t2", id("a"))
			p.want(p.ch.Own == session.Owned && p.m("a").Turn.ID == "t2", "owned")
		}},
		{"session/turns", "starts are counted in the open turn", func(p *play) {
			p.do(session.CountStart{})
			p.sent(session.Fallback, "a")
			p.do(session.CountStart{})
			p.want(p.m("a").Turn.Starts == 1, "counted")
		}},
		{"session/turns", "what a person types into it is remembered, also across a connection", func(p *play) {
			p.sent(session.Fallback, "a")
			p.connect("pid-1")
			p.input()
			p.want(p.m("a").Turn.UserInput && p.w.Session.Active.UserInput && !p.w.Session.Pending, "remembered")
		}},
	})
}

func TestHold(t *testing.T) {
	held := func(p *play) {
		p.sent(session.Fallback, "a")
		p.escaped("turn of a")
		p.queue(session.Notice, "b")
		p.want(p.w.Session.Held, "held")
	}
	tell(t, []story{
		{"session/hold", "Escape in any turn, chat or not, holds the session", func(p *play) {
			p.queue(session.Notice, "b")
			p.started("chat", "")
			p.escaped("chat")
			p.report(idle)
			p.try("")
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "also when the connection was lost between Escape and its report", func(p *play) {
			p.started("chat", "")
			p.do(session.Disconnect{Epoch: 1})
			p.connect("pid-1")
			p.escaped("chat")
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "an old Escape that is repeated does not hold it again", func(p *play) {
			p.started("chat", "")
			p.escaped("chat")
			p.do(session.Free{})
			p.connect("pid-1")
			p.escaped("chat")
			p.want(!p.w.Session.Held, "free")
		}},
		{"session/hold", "a person starts something", func(p *play) {
			held(p)
			p.do(session.Free{})
			p.report(idle)
			p.try("b")
		}},
		{"session/hold", "user input settles", func(p *play) {
			held(p)
			p.input()
			p.started("chat", "")
			p.want(p.w.Session.Held, "not yet")
			p.settled("chat", session.Completed)
			p.report(idle)
			p.try("b")
		}},
		{"session/hold", "user input that the person stops again does not lift it", func(p *play) {
			held(p)
			p.input()
			p.started("chat", "")
			p.escaped("chat")
			p.report(idle)
			p.want(p.w.Session.Held && p.happened(session.EvHeld) == 1, "held by the first")
		}},
		{"session/hold", "user input that starts no turn settles when the session is idle without it", func(p *play) {
			held(p)
			p.input()
			p.report(session.Report{Idle: true, Pending: true})
			p.want(p.w.Session.Held, "not yet")
			p.report(idle)
			p.try("b")
		}},
		{"session/hold", "and is not counted as input of a later turn", func(p *play) {
			held(p)
			p.input()
			p.report(idle)
			p.started("extension", "")
			p.want(!p.w.Session.Active.UserInput, "no user input in it")
		}},
		{"session/hold", "what was typed into a process that died never settles", func(p *play) {
			held(p)
			p.input()
			p.connect("pid-2")
			p.report(idle)
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "a turn without user input lifts nothing", func(p *play) {
			held(p)
			p.started("extension", "")
			p.settled("extension", session.Completed)
			p.report(idle)
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "nor does a new connection, nor time", func(p *play) {
			held(p)
			p.connect("pid-1")
			p.do(session.Disconnect{Epoch: 2})
			p.connect("pid-2")
			p.pass(1000 * session.PendingGrace)
			p.report(idle)
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "a shutdown right after was what the abort was for", func(p *play) {
			held(p)
			p.do(session.Disconnect{Epoch: 1, Shutdown: true})
			p.want(!p.w.Session.Held, "free")
		}},
		{"session/hold", "but not with user input between", func(p *play) {
			held(p)
			p.input()
			p.do(session.Disconnect{Epoch: 1, Shutdown: true})
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "nor on another connection, nor by a mere disconnect", func(p *play) {
			held(p)
			p.do(session.Disconnect{Epoch: 1})
			p.connect("pid-1")
			p.do(session.Disconnect{Epoch: 2, Shutdown: true})
			p.want(p.w.Session.Held, "held")
		}},
		{"session/hold", "a shutdown lifts only the hold that its own abort began", func(p *play) {
			held(p)
			p.input()
			p.started("chat", "")
			p.escaped("chat") // by the shutdown
			p.do(session.Disconnect{Epoch: 1, Shutdown: true})
			p.want(p.w.Session.Held, "the first Escape holds on")
		}},
	})
}
