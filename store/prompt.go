package store

import (
	"strconv"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// The custom types of messages that put a request.
const (
	StepType       = "pi-workflows-step"
	CheckpointType = "pi-workflows-checkpoint"
	DecisionType   = "pi-workflows-decision"
	// NotifyType marks what a notify node says.
	NotifyType = "pi-workflows-notification"
)

// tell queues the message that puts a new request to its session.
func (x *tx) tell(l *launchRow, q *requestRow) error {
	if l.Mode == launch.Headless {
		return nil
	}
	switch q.Kind {
	case run.Checkpoint:
		return x.put(l, q, session.Checkpoint, CheckpointType, request.Initial)
	case run.Decision:
		return x.put(l, q, session.Decision, DecisionType, request.Initial)
	}
	return x.put(l, q, session.Step, StepType, request.Initial)
}

// put queues the next message of a request; it replaces the earlier ones.
func (x *tx) put(l *launchRow, q *requestRow, kind session.Kind, custom string, form request.PromptForm) error {
	if earlier := q.Message(); earlier != "" {
		if _, err := x.apply(l.Session, session.Cancel{Subject: earlier, Reason: "a later prompt serves the request"}); err != nil {
			return err
		}
	}
	if err := x.applyRequest(q, request.Prompted{Form: form}); err != nil {
		return err
	}
	text, err := request.Text(q.Request, form)
	if err != nil {
		return err
	}
	body, err := Body{custom, text, request.Details(q.Request, form)}.encode()
	if err != nil {
		return err
	}
	_, err = x.apply(l.Session, session.Queue{Message: session.Message{
		Kind: kind, Subject: q.Message(), Run: l.ID, Request: q.ID, Body: body, Eligible: x.now.Wall,
	}})
	return err
}

// promptAgain looks whether the model has to be told again of a request that it
// did not answer, and carries out what that leads to (rules request/prompts and
// request/reminders).
func (x *tx) promptAgain(id string, resuming bool) error {
	q, err := x.request(id)
	if err != nil || q == nil || q.State != request.Pending {
		return err
	}
	l, err := x.launch(q.Run)
	if err != nil || l.Mode == launch.Headless || l.State.Terminal() {
		return err
	}
	s, err := x.session(l.Session)
	if err != nil {
		return err
	}
	if err := x.list(l.Session); err != nil {
		return err
	}
	now := request.Situation{Held: l.Paused || l.Park == launch.ParkPaused || l.Park == launch.ParkAttention, Resuming: resuming}
	for _, e := range x.messages {
		m := &e.cur
		if m.Session != l.Session || m.Request != q.ID {
			continue
		}
		now.Unsent = now.Unsent || m.State == session.Pending || m.State == session.Blocked
		now.Open = now.Open || s.Open == m.ID
	}
	switch q.Next(now) {
	case request.Remind:
		return x.put(l, q, session.Step, StepType, request.Reminder)
	case request.Prompt:
		return x.put(l, q, session.Step, StepType, request.Resumed)
	case request.GiveUp:
		return x.applyRequest(q, request.Expire{Why: launch.CodeSubmissionMissing})
	case request.NeedPerson:
		return x.applyLaunch(l, launch.AttendCommand{Attention: launch.PromptsLost})
	case request.Hold:
		return x.applyLaunch(l, launch.PauseCommand{Actor: launch.Host})
	}
	return nil
}

// notify queues what a notify node says, once for each visit; it survives the
// end of its run.
func (x *tx) notify(l *launchRow, n *run.Node, visit uint32, text string) error {
	if l.Mode == launch.Headless {
		return nil
	}
	level := "progress"
	if n.Final {
		level = "final"
	}
	subject := "notify:" + launch.DigestOf([]byte(string(l.ID)+"\x00"+n.Path)).String() + ":" + strconv.FormatUint(uint64(visit), 10)
	details := encode(struct {
		Schema string       `json:"schema"`
		Run    launch.RunID `json:"runId"`
		Node   string       `json:"node"`
		Visit  uint32       `json:"visit"`
		Level  string       `json:"level"`
	}{"pi-workflows.notification.v1", l.ID, n.Path, visit, level})
	body, err := Body{NotifyType, "Workflow " + l.Workflow + " (run " + string(l.ID) + "): " + text, details}.encode()
	if err != nil {
		return err
	}
	_, err = x.apply(l.Session, session.Queue{Message: session.Message{
		Kind: session.Notification, Subject: subject, Run: l.ID, Body: body, Eligible: x.now.Wall,
	}})
	return err
}
