package intents

import (
	"encoding/json"
	"strings"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// What marks a fallback message on a session's branch.
const (
	MessageType   = "pi-workflows-deferred-turn"
	MessageSchema = "pi-workflows.deferred-turn-message.v1"
)

// Message is the text of a custom message and its structured details.
type Message struct {
	CustomType string
	Content    string          // at most launch.MaxOptions bytes
	Details    json.RawMessage // canonical JSON
}

// Fallback returns the factual message that serves the intent when nothing
// better does (rule intents/text). It depends on the intent alone, so it is the
// same text however often it is made.
func Fallback(i Intent) (Message, error) {
	if err := i.Check(); err != nil {
		return Message{}, err
	}
	details, err := json.Marshal(struct {
		Schema string       `json:"schema"`
		Intent string       `json:"turnIntentId"`
		Run    launch.RunID `json:"runId"`
		Cause  Cause        `json:"cause"`
	}{MessageSchema, i.ID, i.Run, i.Cause})
	if err != nil {
		return Message{}, launch.Refuse(launch.ErrInternal, "details of a message cannot be encoded")
	}
	if details, err = canon.Canonical(details); err != nil {
		return Message{}, err
	}
	m := Message{CustomType: MessageType, Content: content(i), Details: details}
	return m, launch.CheckSize("message content", len(m.Content), launch.MaxOptions)
}

func content(i Intent) string {
	f := i.Facts
	if i.Cause == LaunchFailed {
		reason := strings.TrimRight(f.Reason, " .")
		if reason == "" {
			reason = "no reason was recorded"
		}
		return "Workflow " + f.Workflow + " failed to start (run " + string(f.Run) + "): " + unframed.Replace(reason) +
			". Inspect the error and call workflow start again only after you correct the cause."
	}
	var b strings.Builder
	b.WriteString("Workflow " + f.Workflow + " " + happened(i) + "\n")
	if f.Handoff {
		b.WriteString("The run has not ended: it is parked and waits for a person to resume, cancel or restart it.\n")
	}
	b.WriteString("Run: " + string(f.Run) + "\n")
	b.WriteString("Observed state: " + f.Observed.String() + "\n")
	for _, line := range [...]struct{ label, fact string }{
		{"Node", f.Node}, {"Attempt", f.Attempt}, {"Reason", f.Reason},
	} {
		if line.fact != "" {
			b.WriteString(line.label + ": " + quote(line.fact) + "\n")
		}
	}
	b.WriteString("This message only reports. It resumes nothing and permits nothing: inspect durable state before any authorized correction.")
	return b.String()
}

// happened completes the sentence that begins with the workflow's name.
func happened(i Intent) string {
	switch i.Cause {
	case AgentCancelled:
		return "was cancelled by the model during a turn of the run, which ended that turn."
	case ControllerInterrupted:
		return "was cancelled by its host during a turn of the run, which ended that turn."
	case TimedOut:
		if i.Node != "" {
			return "had a step that timed out during its turn, which ended that turn."
		}
		return "timed out."
	case ClaimLost:
		if i.Facts.Observed.Terminal() {
			return "was taken over by another runner while a turn of the run was open, and has ended since."
		}
		return "was taken over by another runner while a turn of the run was open. That alone does not mean that it failed."
	case Completed:
		return "completed."
	default:
		return "failed."
	}
}

// unframed keeps a fact from opening or closing a tag.
var unframed = strings.NewReplacer("<", `\u003c`, ">", `\u003e`)

// quote returns a fact as a JSON string on one line, so that it cannot end its
// quotes, its line or a tag around it.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // a string always encodes
		return `""`
	}
	return string(b)
}
