package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"example.com/piworkflows/internal/pitest"
)

// show prints one event of the conversation.
func show(out io.Writer, e pitest.Event) {
	if e.Type != "message_end" {
		return
	}
	var is struct {
		Message struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"message"`
	}
	var parts []struct {
		Type, Text, Name string
		Arguments        json.RawMessage
	}
	if json.Unmarshal(e.Raw, &is) != nil {
		return
	}
	if json.Unmarshal(is.Message.Content, &parts) != nil {
		var text string
		_ = json.Unmarshal(is.Message.Content, &text) // else there is nothing to show
		parts = append(parts, struct {
			Type, Text, Name string
			Arguments        json.RawMessage
		}{Type: "text", Text: text})
	}
	who := map[string]string{"user": "person", "assistant": "model", "toolResult": "tool", "custom": "workflow"}[is.Message.Role]
	for _, p := range parts {
		text := p.Text
		if p.Type == "toolCall" {
			text = "calls " + p.Name + " " + string(p.Arguments)
		}
		if text = strings.TrimSpace(text); text != "" {
			fmt.Fprintf(out, "%-8s | %s\n", who, strings.ReplaceAll(text, "\n", "\n         | "))
		}
	}
}
