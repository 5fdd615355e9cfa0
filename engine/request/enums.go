package request

import (
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Action is what someone does to a request.
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

var actionNames = [...]string{"none", "submit", "update", "respond", "answer", "decide", "timeout", "expire", "end"}

// Actions returns all actions in their order.
func Actions() []Action {
	return []Action{ActSubmit, ActUpdate, ActRespond, ActAnswer, ActDecide, ActDefault, ActExpire, ActEnd}
}

// String returns the wire name.
func (a Action) String() string { return actionNames[min(int(a), len(actionNames)-1)] }

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

var stateNames = [...]string{"none", "pending", "validating", "accepted", "expired", "cancelled"}

// States returns all states in their order.
func States() []State { return []State{Pending, Validating, Accepted, Expired, Cancelled} }

// String returns the wire name.
func (s State) String() string { return stateNames[min(int(s), len(stateNames)-1)] }

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
	ClaimLost         // the caller's connection or claim is not current
	Started           // the node's own code checks the answer now
)

var outcomeNames = [...]string{"none", "accepted", "adopted", "rejected", "conflict", "notFound", "claimLost", "validating"}

// String returns the wire name.
func (o Outcome) String() string { return outcomeNames[min(int(o), len(outcomeNames)-1)] }

// Cell says that requests of a kind take an action from some actors.
type Cell struct {
	Action Action
	Kind   run.Kind
	By     []launch.Actor
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

// Matrix returns which kind takes which action from whom (rule request/matrix).
// It is the only such list; testdata/contract holds it as data.
func Matrix() []Cell { return matrix }

// takes returns the cell of an action and a kind, or nil.
func takes(a Action, k run.Kind) *Cell {
	for i := range matrix {
		if matrix[i].Action == a && matrix[i].Kind == k {
			return &matrix[i]
		}
	}
	return nil
}
