package request

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// PromptForm says why a message puts a request.
type PromptForm uint8

// The forms.
const (
	_        PromptForm = iota
	Initial             // it is asked
	Resumed             // its last turn came to no end
	Reminder            // its last turn ended without a usable answer
)

var formNames = []string{Initial: "initial", Resumed: "resumed", Reminder: "reminder"}

// String returns the wire name.
func (f PromptForm) String() string { return nameOf(formNames, f) }

// PromptSchema names the details of a message that puts a request.
const PromptSchema = "pi-workflows.prompt.v1"

// Details returns the structured metadata of a message that puts a request. It
// is of the latest prompt.
func Details(r Request, f PromptForm) json.RawMessage {
	raw, err := json.Marshal(struct {
		Schema  string       `json:"schema"`
		Request string       `json:"requestId"`
		Run     launch.RunID `json:"runId"`
		Node    string       `json:"node"`
		Kind    string       `json:"kind"`
		Form    string       `json:"form"`
		Prompt  uint32       `json:"prompt"`
	}{PromptSchema, r.ID, r.Run, r.Node, r.Kind.String(), f.String(), r.Prompts})
	if err != nil { // strings and numbers always encode
		return json.RawMessage("{}")
	}
	return raw
}

// checkText refuses a request whose longest message, a reminder after some
// rejection, would be too large.
func (r *Request) checkText() error {
	worst := *r
	worst.Rejection = strings.Repeat("<", launch.MaxErrorMessage) // nothing is longer as JSON
	worst.Prompts = math.MaxUint32
	text, err := Text(worst, Reminder)
	if err != nil {
		return err
	}
	if err := launch.CheckSize("message of the request, with its form,", len(text), launch.MaxOptions); err != nil {
		return err
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return launch.Refuse(launch.ErrInternal, "the message of a request cannot be encoded")
	}
	const around = 256 // bytes of the message around text and details
	return launch.CheckSize("message of the request, with its form, as JSON,", len(raw)+len(Details(worst, Reminder))+around, 2*launch.MaxOptions)
}

// Text returns what a message of the request says, at most [launch.MaxOptions]
// bytes (rule request/text).
func Text(r Request, f PromptForm) (string, error) {
	c, err := r.contract()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Workflow run %s asks %s. Request id: %s\n", r.Run, asks(r.Kind, r.Node), r.ID)
	switch f {
	case Resumed:
		b.WriteString("The last turn in which this was asked came to no end. The request is the same and still open; all that it needs is in this message.\n")
	case Reminder:
		fmt.Fprintf(&b, "Reminder %d of %d: the last turn in which this was asked ended without a usable answer. The request is the same and still open; all that it needs is in this message.\n", r.Reminders, MaxReminders)
	}
	if c.Title != "" {
		b.WriteString("\n" + c.Title + "\n")
	}
	frame := frameOf(c.Task)
	b.WriteString("\n" + frame + "\n" + c.Task + "\n" + frame + "\n\n")
	c.how(&b, &r)
	if c.Validates {
		b.WriteString("The workflow checks the answer with code of its own before it takes it. A rejected answer leaves the request open: correct it and call again.\n")
	}
	if r.Deadline != 0 {
		fmt.Fprintf(&b, "The request is open until %s", r.Deadline)
		if c.Default != nil {
			fmt.Fprintf(&b, "; then the answer is %s", c.Default)
		}
		b.WriteString(".\n")
	}
	if r.Rejection != "" {
		b.WriteString("The last answer was rejected: " + r.Rejection + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// asks says who is asked for what.
func asks(k run.Kind, node string) string {
	switch k {
	case run.Agent:
		return "you for the output of step " + node
	case run.Assistant:
		return "you for a visible text at step " + node
	case run.Checkpoint:
		return "a question at step " + node
	}
	return "a person to decide at step " + node
}

// frameOf is a line that the task does not contain, so that it cannot end its
// own frame.
func frameOf(task string) string {
	longest, n := 4, 0
	for i := range len(task) {
		if n++; task[i] != '=' {
			n = 0
		}
		longest = max(longest, n)
	}
	return strings.Repeat("=", longest+1)
}

// how says who answers how, with the exact call.
func (c *Contract) how(b *strings.Builder, r *Request) {
	switch r.Kind {
	case run.Agent:
		fmt.Fprintf(b, "Do the task between the lines now. When it is done, call the tool workflow with exactly this request id:\n"+
			"{\"action\":\"submit\",\"requestId\":%q,\"output\":<output>}\n", r.ID)
		c.form(b)
		if c.Updates {
			fmt.Fprintf(b, "Meanwhile you may report progress; leave out what you do not know:\n"+
				"{\"action\":\"update\",\"requestId\":%q,\"progress\":{\"status\":\"...\",\"completed\":1,\"total\":3,\"unit\":\"files\"}}\n", r.ID)
		}
		b.WriteString("Only the submit completes this step; an answer in plain text does not.\n")
	case run.Assistant:
		b.WriteString("Do the task between the lines now. The final visible text of this turn is taken as the answer; do not call the tool workflow for it.\n")
	case run.Checkpoint:
		fmt.Fprintf(b, "To answer the question between the lines, call the tool workflow with exactly this request id:\n"+
			"{\"action\":\"answer\",\"requestId\":%q,\"output\":<output>}\n", r.ID)
		c.form(b)
		fmt.Fprintf(b, "A person may answer as well, with /workflow answer %s <output>. If the answer is theirs to give, ask them and wait.\n", r.ID)
	case run.Decision:
		fmt.Fprintf(b, "Only a person decides this%s, with /workflow decide %s <choice>\n<choice> is one of %s.\n", c.audience(), r.ID, strings.Join(c.Choices, ", "))
		for _, t := range c.Texts {
			need := "may"
			if t.Required {
				need = "must"
			}
			fmt.Fprintf(b, "A text of at most %d characters %s follow the choice %s.\n", t.Max, need, t.Choice)
		}
	}
}

// form says what the output has to be.
func (c *Contract) form(b *strings.Builder) {
	switch {
	case len(c.Choices) > 0:
		quoted := make([]string, len(c.Choices))
		for i, choice := range c.Choices {
			quoted[i] = `"` + choice + `"`
		}
		b.WriteString("<output> is one of " + strings.Join(quoted, ", ") + ".\n")
	case len(c.Form) > 0:
		fmt.Fprintf(b, "<output> is JSON of this form (JSON Schema): %s\n", c.Form)
	default:
		b.WriteString("<output> is any JSON value.\n")
	}
}
