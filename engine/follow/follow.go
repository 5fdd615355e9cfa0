// Package follow says what follows from what: for each event of one aggregate,
// the commands that it causes in others. The store carries them out in the
// transaction of the event. A follow-on never causes its command to be refused
// (rule follow/never-refused): what still contradicts is recorded as a
// violation and the cause commits.
package follow

import (
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Command is a follow-on. Each concerns the run or intent of its event.
type Command interface{ follow() }

// Owe carries a source event to the intents of its run's session: the policy
// decides what it owes.
type Owe struct{ Source intents.Source }

// StopChain ends the automatic future of the run's chain.
type StopChain struct{}

// ChainRan forgets the launch failures of the run's chain.
type ChainRan struct{}

// TakeBack makes an unsent hand-over ineligible, because the run goes on.
type TakeBack struct{}

// EndRun ends what ends with the run: open turn, unsent messages, and the
// intents that may not stay ineligible.
type EndRun struct{}

// EndRequest cancels the request that the run waits for.
type EndRequest struct{}

// StopClock closes the active interval of the run's attempt.
type StopClock struct{}

// PauseRun holds the run because a person stopped one of its turns; LiftPause
// takes that back because the stop turned out to be a disconnect.
type (
	PauseRun  struct{ Run launch.RunID }
	LiftPause struct{ Run launch.RunID }
)

// TurnOpened and TurnClosed tell a request what became of the turn that one of
// its messages opened.
type (
	TurnOpened struct{ Request string }
	TurnClosed struct {
		Request, Turn string
		End           session.End
	}
)

// Prompt looks whether the model has to be told again of a request.
type Prompt struct{ Request string }

// Notice queues a passive message about the run.
type Notice struct{ Text string }

// QueueFallback queues the message that serves an eligible intent.
type QueueFallback struct{ Intent string }

// CancelMessages ends the unsent messages of an ended intent.
type CancelMessages struct{ Intent, Reason string }

// Resolve resolves an intent because its message was confirmed.
type Resolve struct {
	Intent, Message string
	By              intents.Resolution
}

// Settle frees an intent from an attempt that did not carry it, and joins two
// uncarried intents of one run.
type Settle struct{ Intent string }

func (EndRequest) follow()     {}
func (StopClock) follow()      {}
func (PauseRun) follow()       {}
func (LiftPause) follow()      {}
func (TurnOpened) follow()     {}
func (TurnClosed) follow()     {}
func (Prompt) follow()         {}
func (Owe) follow()            {}
func (StopChain) follow()      {}
func (ChainRan) follow()       {}
func (TakeBack) follow()       {}
func (EndRun) follow()         {}
func (Notice) follow()         {}
func (QueueFallback) follow()  {}
func (CancelMessages) follow() {}
func (Resolve) follow()        {}
func (Settle) follow()         {}

// Launch returns what a launch's event causes. l is the launch after the event;
// activeTurn says that a turn of that very run was open.
func Launch(e launch.Event, l *launch.Launch, activeTurn bool) []Command {
	var all []Command
	switch {
	case l.State.Terminal() && l.HasRecord():
		all = append(all, EndRequest{})
	case e.Kind == launch.EvPaused:
		all = append(all, StopClock{})
	}
	if l.Mode == launch.Headless {
		return all
	}
	return append(all, interactive(e, l, activeTurn)...)
}

// interactive is what an event of a session's run causes besides.
func interactive(e launch.Event, l *launch.Launch, activeTurn bool) []Command {
	source := intents.Source{Actor: e.Actor, ActiveTurn: activeTurn}
	switch e.Kind {
	case launch.EvStarted:
		return []Command{ChainRan{}}
	case launch.EvDone:
		source.Kind, source.Outcome = intents.OnEnded, intents.Completed
		return []Command{Owe{source}, EndRun{}}
	case launch.EvFailed:
		switch {
		case !l.HasRecord():
			source.Kind = intents.OnActivationFailed
		case e.Code == launch.CodeTimedOut:
			source.Kind, source.Outcome = intents.OnEnded, intents.TimedOut
		default:
			source.Kind, source.Outcome = intents.OnEnded, intents.Failed
		}
		return []Command{Owe{source}, EndRun{}}
	case launch.EvCancelled:
		source.Kind = intents.OnCancel
		if e.Actor == launch.Person {
			return []Command{StopChain{}, Owe{source}, EndRun{}, Notice{"was cancelled by a person; nothing of it runs on"}}
		}
		return []Command{Owe{source}, EndRun{}}
	case launch.EvParked, launch.EvReleased, launch.EvRecovered:
		var all []Command
		if e.Kind == launch.EvRecovered {
			source.Kind = intents.OnTakenOver
			all = append(all, Owe{source})
		}
		if e.Park == launch.ParkAttention {
			source.Kind = intents.OnAttention
			all = append(all, Owe{source})
		}
		return all
	case launch.EvResumed, launch.EvWoken:
		return []Command{TakeBack{}}
	}
	return nil
}

// PersonCancelsEnded is what a person's cancel of a run that had ended already
// causes: the chain stops all the same.
func PersonCancelsEnded() []Command {
	return []Command{StopChain{}, Owe{intents.Source{Kind: intents.OnCancel, Actor: launch.Person}}}
}

// Intent returns what an intent's event causes.
func Intent(e intents.Event) []Command {
	switch e.Kind {
	case intents.EvEligible:
		return []Command{QueueFallback{e.Intent}}
	case intents.EvResolved:
		return []Command{CancelMessages{e.Intent, "the intent is resolved"}}
	case intents.EvWithdrawn:
		return []Command{CancelMessages{e.Intent, "the intent is withdrawn"}}
	}
	return nil
}

// Session returns what a session's event causes. Whether a request has to be put
// again is looked at once everything else is done.
func Session(e session.Event) []Command {
	switch {
	case e.Kind == session.EvHeld && e.Run != "":
		return []Command{PauseRun{e.Run}}
	case e.Kind == session.EvFreed && e.Run != "":
		return []Command{LiftPause{e.Run}}
	case e.Kind == session.EvTurnOpened && e.Request != "":
		return []Command{TurnOpened{e.Request}}
	case e.Kind == session.EvTurnClosed && e.Request != "":
		return []Command{TurnClosed{e.Request, e.Turn, e.End}, Prompt{e.Request}}
	case e.Kind == session.EvSent && e.Request != "": // its turn may be over already
		return []Command{Prompt{e.Request}}
	}
	if e.Intent == "" {
		return nil
	}
	switch e.Kind {
	case session.EvConfirmed:
		if by := resolution(e.Of); by != 0 {
			return []Command{Resolve{e.Intent, e.Message, by}}
		}
	case session.EvRefused, session.EvUncarried:
		if e.Unanswered {
			return nil
		}
		return []Command{Settle{e.Intent}}
	}
	return nil
}

// resolution is how a message of that kind resolves an intent, or zero for
// never.
func resolution(k session.Kind) intents.Resolution {
	switch k {
	case session.Step:
		return intents.ByWorkflowPrompt
	case session.Checkpoint, session.Result:
		return intents.ByPresentation
	case session.Fallback:
		return intents.ByFallback
	}
	return 0
}
