package request

import (
	"encoding/json"
	"fmt"
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

var formNames = [...]string{"none", "initial", "resumed", "reminder"}

// String returns the wire name.
func (f PromptForm) String() string { return formNames[min(int(f), len(formNames)-1)] }

// PromptSchema names the details of a message that puts a request.
const PromptSchema = "pi-workflows.prompt.v1"

// Details returns the structured metadata of a message that puts a request.
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
	if err != nil { // plain strings and numbers always encode
		return json.RawMessage("{}")
	}
	return raw
}

// Text returns what a message of the request says (rule request/text).
func Text(r Request, f PromptForm) (string, error) {
	c, err := r.contract()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Workflow run %s asks at step %s. Request id: %s\n", r.Run, r.Node, r.ID)
	switch f {
	case Resumed:
		b.WriteString("The turn in which this was asked before came to no end. The request is the same and still open; everything that it needs is in this message.\n")
	case Reminder:
		b.WriteString("The turn in which this was asked ended, and no usable answer came. The request is the same and still open.\n")
	}
	if c.Title != "" {
		fmt.Fprintf(&b, "\n%s\n", c.Title)
	}
	fmt.Fprintf(&b, "\n%s\n\n", c.Task)
	how(&b, &r, &c)
	if r.Rejection != "" {
		fmt.Fprintf(&b, "\nThe last answer was refused: %s\n", r.Rejection)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// how says who answers how.
func how(b *strings.Builder, r *Request, c *Contract) {
	switch r.Kind {
	case run.Agent:
		fmt.Fprintf(b, "Do the task now. When it is done, call the tool workflow once with exactly this request id:\n"+
			"{\"action\":\"submit\",\"requestId\":%q,\"output\":<output>}\n", r.ID)
		form(b, c)
		if c.Updates {
			fmt.Fprintf(b, "While you work you may report progress:\n"+
				"{\"action\":\"update\",\"requestId\":%q,\"progress\":{\"status\":\"...\",\"completed\":1,\"total\":3,\"unit\":\"files\"}}\n", r.ID)
		}
		b.WriteString("Nothing else completes this step; an answer in plain text does not.\n")
	case run.Assistant:
		b.WriteString("Answer in this turn with visible text: your final message is taken as the answer. Do not call the tool workflow for it.\n")
	case run.Checkpoint:
		fmt.Fprintf(b, "You answer it by calling the tool workflow with\n"+
			"{\"action\":\"answer\",\"requestId\":%q,\"output\":<output>}\n", r.ID)
		form(b, c)
		fmt.Fprintf(b, "A person may answer instead: /workflow answer %s <output>. Ask the person when the answer is theirs to give.\n", r.ID)
	case run.Decision:
		who := "Only a person decides this"
		if c.Audience != "" {
			who += " (" + c.Audience + ")"
		}
		fmt.Fprintf(b, "%s: /workflow decide %s <choice> [text]\nChoices: %s\n", who, r.ID, strings.Join(c.Choices, ", "))
		for _, t := range c.Texts {
			need := "may"
			if t.Required {
				need = "must"
			}
			fmt.Fprintf(b, "%s %s have a text of at most %d characters.\n", t.Choice, need, t.Max)
		}
	}
	if r.Deadline != 0 {
		fmt.Fprintf(b, "It is open until %s.\n", r.Deadline)
	}
}

func form(b *strings.Builder, c *Contract) {
	if len(c.Choices) > 0 {
		quoted := make([]string, len(c.Choices))
		for i, choice := range c.Choices {
			quoted[i] = `"` + choice + `"`
		}
		fmt.Fprintf(b, "The output is one of %s.\n", strings.Join(quoted, ", "))
		return
	}
	fmt.Fprintf(b, "The output is JSON of this form (JSON Schema): %s\n", c.Form)
}
