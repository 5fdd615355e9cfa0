package request

import (
	"slices"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Action is what is done to a request.
type Action uint8

// The actions.
const (
	_          Action = iota
	ActSubmit         // the model submits an output
	ActUpdate         // the model reports progress
	ActRespond        // the model's visible text, at the end of its turn
	ActAnswer         // the model or a person answers
	ActDecide         // a verified person decides
	ActDefault        // the declared answer is taken at the deadline
	ActExpire         // time is over
	ActEnd            // its run ended
)

var actionNames = []string{ActSubmit: "submit", ActUpdate: "update", ActRespond: "respond", ActAnswer: "answer",
	ActDecide: "decide", ActDefault: "timeout", ActExpire: "expire", ActEnd: "end"}

// Actions returns all actions in their order.
func Actions() []Action {
	return []Action{ActSubmit, ActUpdate, ActRespond, ActAnswer, ActDecide, ActDefault, ActExpire, ActEnd}
}

// String returns the wire name.
func (a Action) String() string { return nameOf(actionNames, a) }

// Called reports whether the action is a call that somebody makes by the
// request's id.
func (a Action) Called() bool {
	return a == ActSubmit || a == ActUpdate || a == ActAnswer || a == ActDecide
}

// State is where a request stands.
type State uint8

// The states.
const (
	_          State = iota
	Pending          // open
	Validating       // open; a candidate is checked by the node's own code
	Accepted         // answered; final
	Expired          // its time was over; final
	Cancelled        // its run ended; final
)

var stateNames = []string{Pending: "pending", Validating: "validating", Accepted: "accepted", Expired: "expired", Cancelled: "cancelled"}

// States returns all states in their order.
func States() []State { return []State{Pending, Validating, Accepted, Expired, Cancelled} }

// String returns the wire name.
func (s State) String() string { return nameOf(stateNames, s) }

// Over reports whether a request in this state takes no answer any more.
func (s State) Over() bool { return s >= Accepted }

// Outcome is what an action came to.
type Outcome uint8

// The outcomes.
const (
	_         Outcome = iota
	Taken             // it answered the request, or its progress is recorded
	Adopted           // the same was done before; nothing changed
	Rejected          // the payload does not fit; the request stays open
	Conflict          // it cannot be done to this request as it stands
	NotFound          // no such request for this caller
	ClaimLost         // the caller's connection or claim is not current; the host says so
	Started           // the node's own code checks the answer now
)

var outcomeNames = []string{Taken: "accepted", Adopted: "adopted", Rejected: "rejected", Conflict: "conflict",
	NotFound: "notFound", ClaimLost: "claimLost", Started: "validating"}

// String returns the wire name.
func (o Outcome) String() string { return nameOf(outcomeNames, o) }

func nameOf[E ~uint8](names []string, e E) string {
	if e == 0 || int(e) >= len(names) {
		return "none"
	}
	return names[e]
}

// Cell says that requests of a kind take an action from some actors.
type Cell struct {
	Action Action
	Kind   run.Kind
	Actors []launch.Actor
}

var matrix = []Cell{
	{ActSubmit, run.Agent, []launch.Actor{launch.Model}},
	{ActUpdate, run.Agent, []launch.Actor{launch.Model}}, // where its contract allows
	{ActRespond, run.Assistant, []launch.Actor{launch.Model}},
	{ActAnswer, run.Checkpoint, []launch.Actor{launch.Model, launch.Person}},
	{ActDecide, run.Decision, []launch.Actor{launch.Person}},
	{ActDefault, run.Checkpoint, []launch.Actor{launch.Timer}},
	{ActDefault, run.Decision, []launch.Actor{launch.Timer}},
	{ActExpire, run.Agent, []launch.Actor{launch.Timer}},
	{ActExpire, run.Assistant, []launch.Actor{launch.Timer}},
	{ActExpire, run.Checkpoint, []launch.Actor{launch.Timer}},
	{ActExpire, run.Decision, []launch.Actor{launch.Timer}},
	{ActEnd, run.Agent, []launch.Actor{launch.Host}},
	{ActEnd, run.Assistant, []launch.Actor{launch.Host}},
	{ActEnd, run.Checkpoint, []launch.Actor{launch.Host}},
	{ActEnd, run.Decision, []launch.Actor{launch.Host}},
}

// Matrix returns a copy of the table of which kind takes which action from whom
// (rule request/matrix); what is not in it is refused. The timer's and the
// host's actions come as commands to [Apply], all others to [Respond].
func Matrix() []Cell {
	all := slices.Clone(matrix)
	for i := range all {
		all[i].Actors = slices.Clone(all[i].Actors)
	}
	return all
}

// Allows reports whether requests of a kind take an action from an actor.
func Allows(a Action, k run.Kind, by launch.Actor) bool {
	return slices.ContainsFunc(matrix, func(c Cell) bool {
		return c.Action == a && c.Kind == k && slices.Contains(c.Actors, by)
	})
}

// responds reports whether an actor may bring an action to requests of any kind.
func responds(a Action, by launch.Actor) bool {
	return (a.Called() || a == ActRespond) && slices.ContainsFunc(matrix, func(c Cell) bool {
		return c.Action == a && slices.Contains(c.Actors, by)
	})
}

// answering is the action that answers requests of a kind.
func answering(k run.Kind) Action {
	switch k {
	case run.Agent:
		return ActSubmit
	case run.Assistant:
		return ActRespond
	case run.Checkpoint:
		return ActAnswer
	}
	return ActDecide
}
