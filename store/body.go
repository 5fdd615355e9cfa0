package store

import (
	"encoding/json"

	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// Body is what a bridge appends to a session: a custom message.
type Body struct {
	CustomType string          `json:"customType"`
	Content    string          `json:"content"`
	Details    json.RawMessage `json:"details"`
}

// NoticeType marks passive messages about a run.
const NoticeType = "pi-workflows-notice"

func (b Body) encode() ([]byte, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, launch.Refuse(launch.ErrInternal, "a message body cannot be encoded")
	}
	return raw, launch.CheckSize("message", len(raw), 2*launch.MaxOptions)
}

func noticeBody(l *launchRow, what, text string) ([]byte, error) {
	details, err := json.Marshal(struct {
		Schema string       `json:"schema"`
		Run    launch.RunID `json:"runId"`
		Event  string       `json:"event"`
	}{"pi-workflows.notice.v1", l.ID, what})
	if err != nil {
		return nil, launch.Refuse(launch.ErrInternal, "a notice cannot be encoded")
	}
	return Body{NoticeType, "Workflow " + l.Workflow + " (run " + string(l.ID) + ") " + launch.SafeText(text, 1024) + ".", details}.encode()
}

func fallbackBody(i intents.Intent) ([]byte, error) {
	m, err := intents.Fallback(i)
	if err != nil {
		return nil, err
	}
	return Body{m.CustomType, m.Content, m.Details}.encode()
}
