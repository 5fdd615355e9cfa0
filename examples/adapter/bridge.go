package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

const firstPause, maxPause = 10 * time.Millisecond, 5 * time.Second // before it connects again

// bridge connects one process of the agent to a host. Everything that reaches the
// agent passes under the lock, so that a send is one step.
type bridge struct {
	hello delivery.Hello
	wake  chan struct{} // something is to be reported or looked at
	left  chan struct{} // closed when the host was told of the end

	sync.Mutex
	process
	out   []func(delivery.Reporter) error // reports that are not confirmed
	epoch uint64                          // of the live connection, or 0
	moved *sync.Cond                      // out or epoch has changed
	away  bool                            // fenced; lifted by the person
}

func (b *bridge) Send(_ context.Context, m delivery.Message) (delivery.Answer, error) {
	b.Lock()
	defer b.Unlock()
	message := entry{Role: "message", Text: m.Content, Type: m.CustomType, Details: m.Details}
	switch {
	case m.Epoch != b.epoch || b.away || b.gone:
		return delivery.Answer{Verdict: delivery.Refused, Reason: "the connection is not the current one"}, nil
	case b.shows(m):
		return delivery.Answer{Verdict: delivery.Present}, nil
	case launch.TimeOf(time.Now()) >= m.Deadline:
		return delivery.Answer{Verdict: delivery.Refused, Reason: "the deadline has passed"}, nil
	case b.busy() || len(b.out) > 0: // reports: of a person's input or Escape, maybe
		return delivery.Answer{Verdict: delivery.Occupied, Reason: "the session is busy"}, nil
	case m.TriggerTurn:
		b.begin(message)
	default:
		b.append("note", message)
	}
	return delivery.Answer{Verdict: delivery.Taken}, nil
}

func (b *bridge) Look(_ context.Context, names []string) (delivery.Report, error) {
	b.Lock()
	defer b.Unlock()
	for len(b.out) > 0 && b.epoch != 0 { // what happened first is told first
		b.moved.Wait()
	}
	if b.epoch == 0 {
		return delivery.Report{}, errors.New("the connection is over")
	}
	r := delivery.Report{Idle: !b.busy()}
	for _, name := range names {
		r.Evidence = append(r.Evidence, b.evidence(name))
	}
	return r, nil
}

func (b *bridge) Abort(_ context.Context, message string) error {
	b.Lock()
	defer b.Unlock()
	if b.turn != nil && message != "" && b.turn.message == message {
		b.stop(true)
	}
	return nil
}

func (b *bridge) Fenced() {
	b.Lock()
	defer b.Unlock()
	b.away = true
}

// stay connects, and connects again, until the agent is gone.
func (b *bridge) stay(connect connector) {
	defer close(b.left)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		b.Lock()
		away, gone := b.away, b.gone
		b.Unlock()
		if gone {
			return
		}
		if away { // until the person acts
			<-b.wake
			continue
		}
		if c, err := connect(context.Background(), b.hello, b); err == nil {
			b.serve(c)
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-b.wake:
		}
	}
}

// serve reports on one connection, in order, each thing until it is confirmed.
func (b *bridge) serve(c delivery.Reporter) {
	b.set(func() { b.epoch = c.Epoch() })
	defer b.set(func() { b.epoch = 0 })
	defer c.Close()
	for {
		b.Lock()
		out, gone := b.out, b.gone
		b.Unlock()
		switch {
		case len(out) > 0:
			if err := out[0](c); err != nil && !delivery.Rejected(err) {
				return // and again on the next connection
			}
			b.set(func() { b.out = b.out[1:] })
		case gone:
			return
		default:
			c.Changed()
			select {
			case <-b.wake:
			case <-c.Done():
				return
			}
		}
	}
}

// set changes what a look waits for.
func (b *bridge) set(change func()) {
	b.Lock()
	defer b.Unlock()
	change()
	b.moved.Broadcast()
}
