package request

import "example.com/piworkflows/engine/session"

// Due is what has to be done about an open request.
type Due uint8

// What is due.
const (
	Nothing    Due = iota
	Remind         // queue a reminder
	Prompt         // queue a resumed prompt
	GiveUp         // it is over: the model was reminded in vain
	NeedPerson     // park its run for attention
	Hold           // pause its run: the provider failed
)

// Situation is what [Request.Next] has to know besides the request.
type Situation struct {
	Held     bool // its run is paused or parked for attention
	Unsent   bool // a message of it waits to be sent, or is blocked
	Open     bool // a turn of it is open
	Resuming bool // a person has just resumed its run
}

// Next says whether the model has to be told again (rules request/prompts and
// request/reminders).
func (r *Request) Next(s Situation) Due {
	if r.State != Pending || !r.Kind.Prompts() || s.Held || s.Unsent || s.Open {
		return Nothing
	}
	switch r.Latest {
	case session.Completed:
		if r.Reminders < MaxReminders {
			return Remind
		}
		return GiveUp
	case session.Error:
		if !s.Resuming {
			return Hold
		}
		fallthrough
	case session.Lost, session.Aborted:
		if r.Resumed < MaxResumed {
			return Prompt
		}
		return NeedPerson
	}
	return Nothing
}
