package deliverytest

import (
	"errors"
	"slices"

	"example.com/piworkflows/delivery"
)

// Errors of a person's actions.
var (
	// ErrProcessing says that a run began between typing and submitting; the
	// text is gone.
	ErrProcessing = errors.New("deliverytest: already processing, the typed text is lost")
	// ErrDead says that the process has ended.
	ErrDead = errors.New("deliverytest: the process is dead")
	// ErrBusy says that the session is not idle.
	ErrBusy = errors.New("deliverytest: the session is busy")
	// ErrNoEntry says that the process knows no such entry.
	ErrNoEntry = errors.New("deliverytest: no such entry")
)

// Prompt types and submits a text, and returns when the run that takes it has
// settled and that was reported, or the process died in it. During a run the
// text steers that run.
func (p *Process) Prompt(text string) error {
	if err := p.Type(text); err != nil {
		return err
	}
	r, err := p.submit()
	if r != nil {
		<-r.done
	}
	return err
}

// Type is the first half of a prompt: the input event. From then to the start
// of the run a bridge holds its sends. During a run the text steers that run,
// and nothing is left to submit.
func (p *Process) Type(text string) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return ErrDead
	}
	p.away = false
	if p.run != nil && !p.run.ending {
		p.steer = append(p.steer, text)
	} else {
		p.typed, p.typedAt = &text, p.now()
	}
	p.out = append(p.out, report{kind: input})
	p.mu.Unlock()
	p.flush()
	return nil
}

// Submit is the second half: it starts the run and does not wait for it. If
// another run has begun meanwhile, the text is lost with [ErrProcessing].
func (p *Process) Submit() error {
	_, err := p.submit()
	return err
}

func (p *Process) submit() (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch text := p.typed; {
	case p.dead:
		return nil, ErrDead
	case text == nil:
		return p.run, nil
	default:
		p.typed = nil
		wait := p.run != nil
		if p.compacting || wait && !p.run.ending {
			return nil, ErrProcessing
		}
		r := p.newRun(Entry{Role: User, Text: *text})
		if wait {
			p.starts = append(p.starts, r)
		} else {
			p.begin(r)
		}
		return r, nil
	}
}

// Escape is the person's key. It stops the run, if there is one. In a retry
// wait (see [PointRetry]) that ends as an error, not as an abort.
func (p *Process) Escape() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		p.abort(p.run, false)
	}
}

// Rewind makes another entry the leaf ("" is before the first). Only memory
// changes: after a restart the last line of the file is the leaf.
func (p *Process) Rewind(entry string) error {
	p.mu.Lock()
	known := entry == "" || slices.ContainsFunc(p.entries, func(e Entry) bool { return e.ID == entry })
	switch {
	case p.dead:
		p.mu.Unlock()
		return ErrDead
	case !p.idle():
		p.mu.Unlock()
		return ErrBusy
	case !known:
		p.mu.Unlock()
		return ErrNoEntry
	}
	p.leaf = entry
	p.mu.Unlock()
	p.changed()
	return nil
}

// Compact begins a compaction of an idle session and returns what ends it. The
// session is not idle meanwhile. The branch keeps all entries.
func (p *Process) Compact() (finish func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, ErrDead
	}
	if !p.idle() {
		return nil, ErrBusy
	}
	p.compacting = true
	return func() {
		p.mu.Lock()
		if !p.dead {
			p.append(Entry{Role: Compaction})
			p.compacting = false
			p.next()
		}
		p.mu.Unlock()
		p.changed()
	}, nil
}

// SendMessage is Pi's own call, as another extension makes it: nothing is
// checked. While a run is under way the message goes into a queue that nothing
// shows; it joins the end of that run, or an abort drops it. In
// settled handlers the turn starts once all of them have returned.
func (p *Process) SendMessage(m delivery.Message) {
	p.mu.Lock()
	if !p.dead {
		p.sendMessage(m)
	}
	p.mu.Unlock()
	p.changed()
}

func (p *Process) sendMessage(m delivery.Message) {
	e := entryOf(m)
	switch {
	case p.idle() && !m.TriggerTurn:
		p.append(e)
	case p.run == nil && !p.compacting && m.TriggerTurn:
		p.begin(p.newRun(e))
	case p.idle() || p.compacting && m.TriggerTurn:
		p.starts = append(p.starts, p.newRun(e))
	default:
		p.hidden = append(p.hidden, e)
	}
}
