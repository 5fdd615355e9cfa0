package deliverytest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/session"
)

// Errors that a host sees.
var (
	errNotNow     = errors.New("deliverytest: asked to fail; ask again later")
	errGone       = errors.New("deliverytest: the connection is gone")
	errAnswerLost = errors.New("deliverytest: the answer was lost")
)

// bridge is one connection's end in the process.
type bridge struct {
	p      *Process
	r      Reporter
	epoch  uint64
	ready  bool // what was unconfirmed is repeated
	fenced bool
}

var _ delivery.Session = (*bridge)(nil)

func (b *bridge) live() bool {
	if b == nil {
		return false
	}
	select {
	case <-b.r.Done():
		return false
	default:
		return true
	}
}

// Look waits until everything is reported that came first, so that the host
// learns all in the order in which it happened.
func (b *bridge) Look(ctx context.Context, names []string) (delivery.Report, error) {
	p := b.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.out) > 0 && p.link == b {
		moved := p.moved
		p.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return delivery.Report{}, ctx.Err()
		}
	}
	switch {
	case p.link != b:
		return delivery.Report{}, errGone
	case p.faults.looks > 0:
		p.faults.looks--
		return delivery.Report{}, errNotNow
	}
	p.stopped = false // the host knows
	r := delivery.Report{Idle: p.free(), Pending: p.typed != nil || len(p.steer)+len(p.starts) > 0}
	branch := p.branch()
	for _, name := range names {
		r.Evidence = append(r.Evidence, p.evidence(branch, name))
	}
	return r, nil
}

// free is isIdle as a careful bridge takes it: settled handlers may have asked
// for a turn.
func (p *Process) free() bool { return p.run == nil && !p.compacting }

func (p *Process) evidence(branch []Entry, name string) delivery.Evidence {
	e := delivery.Evidence{Message: name}
	at := slices.IndexFunc(branch, func(e Entry) bool { return name != "" && e.MessageID() == name })
	if at < 0 {
		return e
	}
	e.Present, e.Durable = true, len(p.unsaved) == 0 && !p.opt.NoDurability
	for _, next := range branch[at+1:] {
		if next.Role == User || next.Role == Custom {
			break // a reply after it is another one's
		}
		e.Replied = e.Replied || next.Role == Assistant && next.Stop == Finished
	}
	return e
}

// Send implements [delivery.Session].
func (b *bridge) Send(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
	h := b.p.takeHold(PointSend)
	if h == nil {
		return b.execute(m)
	}
	close(h.reached)
	type result struct {
		answer delivery.Answer
		err    error
	}
	done := make(chan result, 1)
	go func() { // a caller that gives up does not stop it
		select {
		case <-h.released:
		case <-h.dead:
		}
		a, err := b.execute(m)
		done <- result{a, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return delivery.Answer{}, ctx.Err()
	}
}

func (b *bridge) execute(m delivery.Message) (delivery.Answer, error) {
	p := b.p
	p.mu.Lock()
	call := SendCall{Process: p.name, Message: m}
	if p.dead {
		p.mu.Unlock()
		return call.Answer, errGone
	}
	call.Answer = b.check(m)
	call.Executed = call.Answer.Verdict == delivery.Taken
	if call.Executed {
		if p.faults.lose > 0 {
			p.faults.lose--
		} else {
			p.sendMessage(m)
		}
	}
	if call.Lost = p.faults.answers > 0; call.Lost {
		p.faults.answers--
	}
	p.file.note(func(j *journal) { j.sends = append(j.sends, call) })
	p.mu.Unlock()
	if call.Executed && !m.TriggerTurn {
		p.changed()
	}
	if call.Lost {
		return delivery.Answer{}, errAnswerLost
	}
	return call.Answer, nil
}

// check decides about a send. What is there already is told first, also while
// the session is busy with it: a refusal would say that it is not there.
func (b *bridge) check(m delivery.Message) delivery.Answer {
	p := b.p
	occupied := func(reason string) delivery.Answer {
		return delivery.Answer{Verdict: delivery.Occupied, Reason: reason}
	}
	refused := func(reason string) delivery.Answer { return delivery.Answer{Verdict: delivery.Refused, Reason: reason} }
	var d marks
	now := p.now()
	switch {
	case p.link != b || b.fenced || m.Epoch != b.epoch:
		return refused("the connection is not the current one")
	case p.faults.refuse > 0:
		p.faults.refuse--
		return p.faults.refusal
	case m.ID == "" || json.Unmarshal(m.Details, &d) != nil || d.Message != m.ID:
		return refused("the details do not name the message")
	case p.shows(m):
		return delivery.Answer{Verdict: delivery.Present}
	case m.Deadline != 0 && now >= m.Deadline:
		return refused("the deadline has passed")
	case p.opt.Careless:
	case !p.free():
		return occupied("the session is busy")
	case len(p.steer)+len(p.starts) > 0 || p.typed != nil && now < p.typedAt.Add(session.PendingGrace):
		return occupied("the person's input waits")
	case p.stopped:
		return occupied("the person stopped a turn")
	}
	return delivery.Answer{Verdict: delivery.Taken}
}

// shows reports whether the message, another issue of it or its intent is on
// the active branch, or is being put there.
func (p *Process) shows(m delivery.Message) bool {
	match := func(e Entry) bool {
		id, intent := e.MessageID(), e.IntentID()
		return id != "" && (id == m.ID || slices.Contains(m.Others, id)) || intent != "" && intent == m.Intent
	}
	return slices.ContainsFunc(p.branch(), match) || slices.ContainsFunc(p.hidden, match) ||
		p.run != nil && !p.settling && match(p.run.opener) ||
		slices.ContainsFunc(p.starts, func(r *run) bool { return match(r.opener) })
}

// Abort implements [delivery.Session].
func (b *bridge) Abort(_ context.Context, message string) error {
	p := b.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.link != b {
		return errGone
	}
	r := p.run
	if r == nil || !r.started || p.settling || r.aborted || message == "" || r.message != message {
		return nil
	}
	p.abort(r, true)
	p.file.note(func(j *journal) { j.aborts = append(j.aborts, message) })
	return nil
}

// Fenced implements [delivery.Session].
func (b *bridge) Fenced() {
	p := b.p
	p.mu.Lock()
	defer p.mu.Unlock()
	b.fenced = true
	if p.link == b {
		p.away = true
		p.unlink()
	}
}
