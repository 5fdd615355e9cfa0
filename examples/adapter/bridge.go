package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// conn is what the bridge reports to; the runtime's Connect makes one.
type conn interface {
	TurnStarted(ctx context.Context, turn, message string) (delivery.Ownership, error)
	TurnSettled(ctx context.Context, turn string, end delivery.End, byPerson bool) error
	Input(ctx context.Context) error
	Changed()
	Shutdown(ctx context.Context) error
	Close()
	Epoch() uint64
	Done() <-chan struct{}
}

// link is the bridge's end of one connection. Everything that reaches the agent
// passes under the lock of its process, so that a send is one step.
type link struct {
	*process
	epoch  uint64
	fenced bool
}

func (l *link) Send(_ context.Context, m delivery.Message) (delivery.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	message := entry{Role: "message", Text: m.Content, Type: m.CustomType, Details: m.Details}
	there := func(e entry) bool {
		id, intent := e.marks()
		return id != "" && (id == m.ID || slices.Contains(m.Others, id)) || intent != "" && intent == m.Intent
	}
	switch id, _ := message.marks(); {
	case l.link != l || l.fenced || l.ended || m.Epoch != l.epoch:
		return delivery.Answer{Verdict: delivery.Refused, Reason: "the connection is not the current one"}, nil
	case id != m.ID:
		return delivery.Answer{Verdict: delivery.Refused, Reason: "the details do not name the message"}, nil
	case slices.ContainsFunc(l.entries, there), slices.ContainsFunc(l.flight, there):
		return delivery.Answer{Verdict: delivery.Present}, nil
	case launch.TimeOf(time.Now()) >= m.Deadline:
		return delivery.Answer{Verdict: delivery.Refused, Reason: "the deadline has passed"}, nil
	case l.busy():
		return delivery.Answer{Verdict: delivery.Occupied, Reason: "the session is busy"}, nil
	case len(l.out) > 0: // a person's input, or that a person stopped a turn
		return delivery.Answer{Verdict: delivery.Occupied, Reason: "the host does not know yet what happened"}, nil
	}
	if m.TriggerTurn {
		l.begin(message)
	} else {
		l.append("note", message)
	}
	return delivery.Answer{Verdict: delivery.Taken}, nil
}

func (l *link) Look(_ context.Context, names []string) (delivery.Report, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.out) > 0 && l.link == l { // what happened first is told first
		l.moved.Wait()
	}
	if l.link != l {
		return delivery.Report{}, errors.New("the connection is over")
	}
	r := delivery.Report{Idle: !l.busy()}
	for _, name := range names {
		e, its := delivery.Evidence{Message: name}, false
		for _, line := range l.entries {
			if line.Role == "assistant" {
				e.Replied = e.Replied || its && line.Stop == "completed"
			} else if id, _ := line.marks(); id == name && name != "" {
				e.Present, e.Durable, its = true, true, true // the agent writes before it prints
			} else {
				its = false // an answer after it is somebody else's
			}
		}
		r.Evidence = append(r.Evidence, e)
	}
	return r, nil
}

func (l *link) Abort(_ context.Context, message string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.turn; t != nil && message != "" && t.message == message {
		l.stop(true)
	}
	return nil
}

func (l *link) Fenced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fenced = true
	l.away = l.away || l.link == nil || l.link == l // a newer one of this process goes on
}

// stay keeps the process connected until it ends. Once fenced it waits for the
// person.
func (p *process) stay(connect connector) {
	defer close(p.left)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		p.mu.Lock()
		away, ended := p.away, p.ended
		p.mu.Unlock()
		l := &link{process: p}
		switch {
		case ended:
			return
		case away:
			<-p.wake
			continue
		}
		c, err := connect(context.Background(), p.hello, l)
		if err == nil {
			p.serve(l, c)
			pause = 10 * time.Millisecond
			continue
		}
		select {
		case <-time.After(pause):
		case <-p.wake:
		}
	}
}

// serve reports on one connection, in order, each thing until it is confirmed.
func (p *process) serve(l *link, c conn) {
	p.mu.Lock()
	p.link, l.epoch = l, c.Epoch()
	p.mu.Unlock()
	defer func() {
		c.Close()
		p.mu.Lock()
		p.link = nil
		p.moved.Broadcast()
		p.mu.Unlock()
	}()
	for {
		p.mu.Lock()
		var report func(conn) error
		if len(p.out) > 0 {
			report = p.out[0]
		}
		ended, polite := p.ended, p.polite
		p.mu.Unlock()
		switch {
		case report != nil:
			if err := report(c); err != nil && !useless(err) {
				return // and again on the next connection
			}
			p.mu.Lock()
			p.out = p.out[1:]
			p.moved.Broadcast()
			p.mu.Unlock()
			continue
		case ended:
			if polite {
				_ = c.Shutdown(context.Background())
			}
			return
		}
		c.Changed()
		select {
		case <-p.wake:
		case <-c.Done():
			return
		}
	}
}

// useless says that to repeat a report would not help.
func useless(err error) bool {
	return errors.Is(err, launch.ErrInvalid) || errors.Is(err, launch.ErrConflict) || errors.Is(err, launch.ErrNotAllowed)
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
