// Package view turns the facts of a run into the one live view that every
// client and handler uses (rule view/one). It is a pure function: the view is
// computed, never stored, and reading it grants nothing.
package view

import (
	"encoding/json"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Facts are the rows of one run. Each has one owner; none is inferred from
// another.
type Facts struct {
	Now      launch.Now
	Launch   launch.Launch
	Run      *run.Run         // nil before the run has a record
	Effect   *effect.Effect   // of the node at which the run stands, or nil
	Request  *request.Request // of the run's current attempt, or nil
	Session  *session.Session // nil when headless
	Messages []session.Message
	Intents  []intents.Intent // pending
}

// Status is the one label of a run.
type Status string

// The statuses. Precedence: ended, paused, ambiguous, waiting, running, queued.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Waiting   Status = "waiting"
	Paused    Status = "paused"
	Completed Status = "completed"
	Failed    Status = "failed"
	TimedOut  Status = "timed_out"
	Cancelled Status = "cancelled"
	Ambiguous Status = "ambiguous"
)

// View is what a client shows of a run.
type View struct {
	Workflow    string            `json:"workflow"`
	Run         launch.RunID      `json:"runId"`
	Status      Status            `json:"status"`
	LaunchState string            `json:"launchState"`
	WaitsFor    string            `json:"waitsFor,omitempty"`  // who or what is waited for
	Node        string            `json:"node,omitempty"`      // where the run stands
	Request     *Request          `json:"request,omitempty"`   // what is asked, while it is
	Effect      string            `json:"effectId,omitempty"`  // what a person has to find out about
	Error       *launch.SafeError `json:"-"`                   // of a failed run
	ErrorCode   string            `json:"errorCode,omitempty"` // see Error
	ErrorText   string            `json:"error,omitempty"`
	Owner       string            `json:"owner,omitempty"`            // live, expired
	Turn        string            `json:"turn,omitempty"`             // owed, sending, blocked
	Blocked     string            `json:"blockedMessage,omitempty"`   // id of a message that a call re-opens
	Session     string            `json:"session,omitempty"`          // connected, idle, busy, held, disconnected
	Actions     []string          `json:"actions,omitempty"`          // that would be accepted now
	Recovery    string            `json:"recovery,omitempty"`         // what a lost host would lead to
	Settings    uint32            `json:"settingsRevision,omitempty"` // what configure names; 0 = there are none
	Revision    uint64            `json:"revision"`                   // changes whenever the view may have
	RunRevision uint64            `json:"runRevision"`                // what commands use
	Created     string            `json:"createdAt"`
	Finished    string            `json:"finishedAt,omitempty"`
}

// Of computes the view.
func Of(f Facts) View {
	l := &f.Launch
	v := View{
		Workflow: l.Workflow, Run: l.ID, Status: status(&f), LaunchState: l.State.String(),
		Revision: l.Events, Created: l.Created.String(), Actions: Actions(f),
	}
	if l.Finished != 0 {
		v.Finished = l.Finished.String()
	}
	if !l.Error.IsZero() {
		e := l.Error
		v.Error, v.ErrorCode, v.ErrorText = &e, string(e.Code), e.Message
	}
	if f.Run != nil {
		v.RunRevision, v.Settings = f.Run.Revision, f.Run.Settings
		if !l.State.Terminal() {
			v.Node = f.Run.Node
		}
	}
	if q := open(&f); q != nil {
		v.Request = describe(q, f.Now)
		v.Revision += q.Revision
	}
	if resolvable(&f) {
		v.Effect = f.Effect.Key.ID().String()
	}
	if l.State.Claimed() {
		v.Owner = "live"
		if l.Claim.Expired(f.Now) {
			v.Owner = "expired"
		}
		v.Recovery = recovery(&f)
	}
	if f.Session != nil {
		v.Revision += f.Session.Events
		v.Session = activity(f.Session, f.Now)
		v.Turn, v.Blocked = turn(&f)
	}
	v.WaitsFor = waits(&f)
	return v
}

func status(f *Facts) Status {
	l := &f.Launch
	switch l.State {
	case launch.Done:
		return Completed
	case launch.Failed:
		if l.Error.Code == launch.CodeTimedOut {
			return TimedOut
		}
		return Failed
	case launch.Cancelled:
		return Cancelled
	}
	switch {
	case l.Paused || l.Park == launch.ParkPaused:
		return Paused
	case l.Attention == launch.EffectAmbiguous:
		return Ambiguous
	case l.Park == launch.ParkWaiting || l.Park == launch.ParkAttention:
		return Waiting
	case l.State == launch.Running:
		return Running
	}
	return Queued
}

func waits(f *Facts) string {
	l := &f.Launch
	switch {
	case l.State.Terminal():
		return ""
	case l.Paused || l.Park == launch.ParkPaused:
		if q := open(f); q != nil && q.Latest == session.Error {
			return "a person to resume it, after the model's last turn ended with a provider's error"
		}
		return "a person to resume it"
	case !observable(f):
		return "a person to find out whether the effect of node " + f.Run.Node + " happened, and to resolve it or cancel the run"
	case l.Park == launch.ParkAttention:
		return "a person to resume, cancel or restart it (" + l.Attention.String() + ")"
	case l.Park == launch.ParkWaiting && f.Run != nil && f.Run.Due != 0:
		return "its next retry at " + f.Run.Due.String()
	case l.Park == launch.ParkWaiting:
		return answerer(f)
	case l.State.Claimed() && l.Claim.Expired(f.Now):
		return "its host to return, or another to take over"
	case l.State.Claimed():
		return ""
	case f.Session != nil && !l.HasRecord():
		if why := f.Session.Boundary(f.Now); why != "" {
			return "the boundary of its session: " + why
		}
	case f.Session != nil && !f.Session.Connected():
		return "its session to connect"
	}
	return "a free slot"
}

func activity(s *session.Session, now launch.Now) string {
	switch {
	case !s.Connected():
		return "disconnected"
	case s.Held:
		return "held"
	case s.Free(now):
		return "idle"
	case s.Pending && s.Idle:
		return "input pending"
	}
	return "busy"
}

func turn(f *Facts) (out, blocked string) {
	for i := range f.Messages {
		switch m := &f.Messages[i]; {
		case m.State == session.Blocked:
			return "blocked", m.ID
		case m.State == session.Pending && m.Attempts > 0:
			out = "sending"
		}
	}
	if out == "" && len(f.Intents) > 0 {
		out = "owed"
	}
	return out, ""
}

// observable is false when the run stands at an effect that only a person can
// settle.
func observable(f *Facts) bool {
	return f.Launch.Attention != launch.EffectAmbiguous || f.Effect != nil && f.Effect.Observable()
}

// resolvable reports whether a person can say what became of the effect at which
// the run stands or has ended.
func resolvable(f *Facts) bool {
	return f.Effect != nil && (f.Effect.State == effect.Ambiguous || f.Effect.State == effect.Pending && f.Launch.State.Terminal())
}

func recovery(f *Facts) string {
	l := &f.Launch
	switch {
	case !l.HasRecord():
		return "starts again"
	case l.Strikes > 0:
		return "asks a person unless progress is saved first"
	}
	return "goes on from the last accepted output"
}

// open returns the request that the run waits for, or nil.
func open(f *Facts) *request.Request {
	if f.Request == nil || f.Request.State.Over() || f.Launch.State.Terminal() {
		return nil
	}
	return f.Request
}

// answerer says who is waited for.
func answerer(f *Facts) string {
	q := open(f)
	if q == nil {
		return "an answer to its request"
	}
	switch {
	case q.State == request.Validating:
		return "the check of the answer that was given"
	case q.Kind == run.Decision:
		return "a person to decide"
	case q.Kind == run.Checkpoint:
		return "an answer of the model or a person"
	case f.Session != nil && !f.Session.Connected():
		return "its session to connect"
	case f.Session != nil && f.Session.Held:
		return "a person to go on in the session"
	}
	return "the model of its session"
}

// Request is what a client shows of an open request.
type Request struct {
	ID        string          `json:"requestId"`
	Kind      string          `json:"kind"`
	State     string          `json:"state"`
	Revision  uint64          `json:"revision"`
	Since     string          `json:"since"`
	Title     string          `json:"title,omitempty"`
	Choices   []string        `json:"choices,omitempty"`
	Audience  string          `json:"audience,omitempty"`
	Deadline  string          `json:"deadline,omitempty"`
	Rejection string          `json:"rejection,omitempty"` // of the last answer
	Reminders uint8           `json:"reminders,omitempty"`
	Progress  json.RawMessage `json:"progress,omitempty"`
	Rate      float64         `json:"rate,omitempty"`        // units each second
	Left      float64         `json:"secondsLeft,omitempty"` // estimated from the rate
	Actions   []string        `json:"actions,omitempty"`     // that it takes now, of whom its kind takes them
}

func describe(q *request.Request, now launch.Now) *Request {
	r := &Request{ID: q.ID, Kind: q.Kind.String(), State: q.State.String(), Revision: q.Revision, Since: q.Opened.String(),
		Rejection: q.Rejection, Reminders: q.Reminders, Progress: q.Progress}
	if q.Deadline != 0 {
		r.Deadline = q.Deadline.String()
	}
	var c request.Contract
	if json.Unmarshal(q.Contract, &c) == nil {
		r.Title, r.Choices, r.Audience = c.Title, c.Choices, c.Audience
	}
	if rate, left, ok := q.Estimate(now.Wall); ok {
		r.Rate, r.Left = rate, left.Seconds()
	}
	open := q.State == request.Pending && !now.Passed(q.Deadline)
	for _, cell := range request.Matrix() {
		if open && cell.Kind == q.Kind && cell.Action.Called() && (cell.Action != request.ActUpdate || c.Updates) {
			r.Actions = append(r.Actions, cell.Action.String())
		}
	}
	return r
}

// Actions returns the actions on the run that its rules accept now.
func Actions(f Facts) []string {
	l := &f.Launch
	var all []string
	for _, a := range [...]struct {
		name    string
		command launch.Command
	}{
		{"cancel", launch.CancelCommand{Actor: launch.Person}},
		{"pause", launch.PauseCommand{Actor: launch.Person}},
		{"resume", launch.ResumeCommand{Actor: launch.Person}},
	} {
		if a.name == "resume" && !observable(&f) || a.name == "pause" && l.Paused && !l.HostPause {
			continue
		}
		if _, _, err := launch.Apply(*l, a.command, f.Now); err == nil {
			all = append(all, a.name)
		}
	}
	if l.State.Terminal() && l.HasRecord() && (f.Effect == nil || f.Effect.State.Final()) {
		all = append(all, "restart")
	}
	if f.Run != nil && f.Run.Settings > 0 && !l.State.Terminal() {
		all = append(all, "configure")
	}
	if resolvable(&f) {
		all = append(all, "resolve")
	}
	return all
}
