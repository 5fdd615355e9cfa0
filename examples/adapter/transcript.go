package main

import (
	"encoding/json"
	"slices"

	"example.com/piworkflows/delivery"
)

// shows reports whether the message need not be sent any more.
func (p *process) shows(m delivery.Message) bool {
	return slices.ContainsFunc(p.entries, func(e entry) bool {
		id, intent := e.marks()
		return id != "" && (id == m.ID || slices.Contains(m.Others, id)) || intent != "" && intent == m.Intent
	})
}

// evidence says what the agent's file shows of a message.
func (p *process) evidence(name string) delivery.Evidence {
	e, its := delivery.Evidence{Message: name}, false
	for _, line := range p.entries[:p.kept] {
		if line.Role == "assistant" {
			e.Replied = e.Replied || its && line.Stop == "completed"
		} else if id, _ := line.marks(); id == name && name != "" {
			e.Present, e.Durable, its = true, true, true
		} else {
			its = false // an answer after it is somebody else's
		}
	}
	return e
}

// marks are the ids by which a message is known.
func (e entry) marks() (message, intent string) {
	var d struct {
		Message string `json:"messageId"`
		Intent  string `json:"turnIntentId"`
	}
	if e.Role != "message" || json.Unmarshal(e.Details, &d) != nil {
		return "", ""
	}
	return d.Message, d.Intent
}
