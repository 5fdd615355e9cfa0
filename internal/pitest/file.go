package pitest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// Entry is one line of a session file.
type Entry struct {
	Type       string          `json:"type"` // session, message, custom_message, …
	ID         string          `json:"id"`
	Parent     string          `json:"parentId"`
	CustomType string          `json:"customType"`
	Content    json.RawMessage `json:"content"`
	Details    json.RawMessage `json:"details"`
	Message    struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		StopReason string          `json:"stopReason"`
	} `json:"message"`
}

// Text returns the text of a message, custom or not.
func (e Entry) Text() string {
	if e.Type == "message" {
		return text(e.Message.Content)
	}
	return text(e.Content)
}

// MessageID returns the id of a workflow message, or "".
func (e Entry) MessageID() string {
	var d struct {
		ID string `json:"messageId"`
	}
	if e.Type != "custom_message" || json.Unmarshal(e.Details, &d) != nil {
		return ""
	}
	return d.ID
}

// File reads a session file. A torn last line is left out.
func File(path string) (all []Entry, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(raw) {
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		all = append(all, e)
	}
	return all, nil
}

// Branch returns the branch that ends with the last line of a session file,
// from its root on.
func Branch(all []Entry) (branch []Entry) {
	by := map[string]Entry{}
	for _, e := range all {
		if e.Type != "session" {
			by[e.ID] = e
		}
	}
	if len(all) == 0 {
		return nil
	}
	for id := all[len(all)-1].ID; ; {
		e, ok := by[id]
		if !ok {
			break
		}
		branch = append([]Entry{e}, branch...)
		delete(by, id)
		id = e.Parent
	}
	return branch
}

// Files returns the session files of a home.
func (h *Home) Files() ([]string, error) {
	var all []string
	err := filepath.WalkDir(h.Sessions, func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".jsonl" {
			all = append(all, path)
		}
		return err
	})
	return all, err
}
