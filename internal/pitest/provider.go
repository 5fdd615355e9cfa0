package pitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Model is a scripted model: what it answers to a request. It may wait; ctx
// ends when the agent gives the request up.
type Model func(ctx context.Context, r Request) Reply

// Request is one request to the model.
type Request struct {
	N int // from 1
	// Opener is the text of the last message that is neither the model's nor a
	// tool's: of a person, or of an extension. It is what the turn is about.
	Opener string
	// Step is 1 for the first request after the opener, and one more for each
	// answer of the model since.
	Step int
	// Repeat is 1 for the first request with exactly these messages, and one
	// more for each repetition, as after an error.
	Repeat   int
	Messages []Line
	Tools    []string // names of the tools that the model may call
}

// Line is one message of a request.
type Line struct {
	Role, Text string
	Calls      []Call // of an assistant message
	CallID     string // of a tool's result
}

// Call is a tool call of the model.
type Call struct {
	Tool string
	Args string // a JSON object
}

// Reply is what the model answers.
type Reply struct {
	Text  string
	Calls []Call
	// Status is an HTTP error to answer with instead; 0 means none. Text says
	// what is wrong.
	Status int
	// Hold lets the answer begin and holds back its end until it is closed.
	Hold <-chan struct{}
}

// Provider serves a scripted model to OpenAI-compatible clients on loopback.
type Provider struct {
	URL    string // base URL, which ends in /v1
	server *http.Server
	model  Model
	done   chan struct{}

	mu      sync.Mutex
	log     []Request
	changed chan struct{}
	calls   int
}

// NewProvider starts a provider. Close ends it.
func NewProvider(model Model) (*Provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Provider{URL: "http://" + l.Addr().String() + "/v1", model: model, changed: make(chan struct{}), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.complete)
	p.server = &http.Server{Handler: mux}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // ends with Close
	}()
	return p, nil
}

// Close ends the provider and every request.
func (p *Provider) Close() {
	_ = p.server.Close()
	<-p.done
}

// Requests returns the requests so far.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// Opened returns how many requests so far were the first of a turn that a
// message with that text opened.
func (p *Provider) Opened(match func(opener string) bool) (n int) {
	for _, r := range p.Requests() {
		if r.Step == 1 && match(r.Opener) {
			n++
		}
	}
	return n
}

// Wait returns the first request that matches.
func (p *Provider) Wait(ctx context.Context, match func(Request) bool) (Request, error) {
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.log, match)
		var r Request
		if i >= 0 {
			r = p.log[i]
		}
		changed := p.changed
		p.mu.Unlock()
		if i >= 0 {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, fmt.Errorf("the model got no such request: %w", ctx.Err())
		}
	}
}

// body is the part of a chat completion request that matters here.
type body struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		CallID  string          `json:"tool_call_id"`
		Calls   []struct {
			Function struct{ Name, Arguments string } `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function struct{ Name string } `json:"function"`
	} `json:"tools"`
}

func (b *body) request() (r Request) {
	for _, m := range b.Messages {
		line := Line{Role: m.Role, Text: text(m.Content), CallID: m.CallID}
		for _, c := range m.Calls {
			line.Calls = append(line.Calls, Call{c.Function.Name, c.Function.Arguments})
		}
		switch m.Role {
		case "user":
			r.Opener, r.Step = line.Text, 1
		case "assistant":
			r.Step++
		}
		r.Messages = append(r.Messages, line)
	}
	for _, t := range b.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	return r
}

// text joins the text parts of a content, which is a string or a list of parts.
func text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // null, or something without text
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(p.Text)
	}
	return all.String()
}

func (p *Provider) complete(w http.ResponseWriter, hr *http.Request) {
	var b body
	if err := json.NewDecoder(hr.Body).Decode(&b); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r := b.request()
	p.mu.Lock()
	r.N, r.Repeat = len(p.log)+1, 1
	for _, old := range p.log {
		if slices.EqualFunc(old.Messages, r.Messages, sameLine) {
			r.Repeat++
		}
	}
	p.log = append(p.log, r)
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()

	reply := p.model(hr.Context(), r)
	if reply.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(reply.Status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": reply.Text, "type": "scripted"}})
		return
	}
	p.stream(w, hr, reply)
}

func sameLine(a, b Line) bool {
	return a.Role == b.Role && a.Text == b.Text && a.CallID == b.CallID && slices.Equal(a.Calls, b.Calls)
}

// stream answers as a streaming chat completion.
func (p *Provider) stream(w http.ResponseWriter, hr *http.Request, reply Reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	send := func(delta map[string]any, finish any) error {
		raw, err := json.Marshal(map[string]any{"id": "scripted", "object": "chat.completion.chunk", "created": 1, "model": "mock-1",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", raw)
		}
		return errors.Join(err, flush.Flush())
	}
	if send(map[string]any{"role": "assistant", "content": ""}, nil) != nil {
		return
	}
	if reply.Hold != nil {
		if send(map[string]any{"content": "…"}, nil) != nil {
			return
		}
		select {
		case <-reply.Hold:
		case <-hr.Context().Done():
			return
		}
	}
	if reply.Text != "" && send(map[string]any{"content": reply.Text}, nil) != nil {
		return
	}
	finish := "stop"
	for i, c := range reply.Calls {
		finish = "tool_calls"
		p.mu.Lock()
		p.calls++
		id := fmt.Sprintf("call_%d", p.calls)
		p.mu.Unlock()
		if send(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": id, "type": "function",
			"function": map[string]any{"name": c.Tool, "arguments": c.Args}}}}, nil) != nil {
			return
		}
	}
	if send(map[string]any{}, finish) != nil {
		return
	}
	fmt.Fprint(w, `data: {"id":"scripted","object":"chat.completion.chunk","created":1,"model":"mock-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`+"\n\n")
	fmt.Fprint(w, "data: [DONE]\n\n")
}
