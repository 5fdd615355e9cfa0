package deliverytest

import (
	"context"
	"errors"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// Reporter is what a bridge reports to.
type Reporter = delivery.Reporter

// Bind registers a bridge with a host.
type Bind func(context.Context, delivery.Hello, delivery.Session) (Reporter, error)

// Via makes a [Bind] of a host's Connect method.
func Via[R Reporter](connect func(context.Context, delivery.Hello, delivery.Session) (R, error)) Bind {
	return func(ctx context.Context, h delivery.Hello, s delivery.Session) (Reporter, error) {
		return connect(ctx, h, s)
	}
}

// ErrAway says that the bridge was fenced and stays away until the person acts
// or the extension starts anew.
var ErrAway = errors.New("deliverytest: another connection took the session over; stay away")

type reportKind uint8

const (
	_ reportKind = iota
	started
	settled
	input
)

// report is something to tell the host, in the order in which it happened, and
// again on the next connection until it is confirmed.
type report struct {
	kind          reportKind
	turn, message string
	end           delivery.End
	byPerson      bool
	reply         *delivery.Reply // of a settled turn
}

// Connect registers the process's bridge. It repeats what the host has not
// confirmed, then asks to be looked at. A live connection is left alone.
func (p *Process) Connect(bind Bind) error {
	p.mu.Lock()
	hello := delivery.Hello{Session: p.file.key, Process: p.name, Durable: !p.opt.NoDurability}
	live := p.link.live()
	dead, away := p.dead, p.away
	p.mu.Unlock()
	switch {
	case dead:
		return ErrDead
	case away:
		return ErrAway
	case live:
		return nil
	}
	b := &bridge{p: p}
	r, err := bind(p.ctx, hello, b)
	if err != nil {
		return err
	}
	p.mu.Lock()
	b.r, b.epoch = r, r.Epoch()
	gone := p.dead || b.fenced
	if gone {
		p.away = true
	} else {
		p.link = b
	}
	p.mu.Unlock()
	if gone {
		r.Close()
		return ErrAway
	}
	p.flush()
	return nil
}

// DropConnection loses the connection without a word. The process goes on and
// keeps what it could not report.
func (p *Process) DropConnection() {
	p.mu.Lock()
	b := p.link
	p.unlink()
	p.mu.Unlock()
	if b != nil {
		b.r.Close()
	}
}

// unlink forgets the connection. Called with the lock.
func (p *Process) unlink() {
	p.link = nil
	p.move()
}

// move wakes who waits for reports to be made.
func (p *Process) move() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// Connected reports whether the bridge has a live connection.
func (p *Process) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link.live()
}

// flush reports what is not reported, one by one, and then asks to be looked
// at. Called without the lock; while another goroutine reports, it waits.
func (p *Process) flush() {
	select {
	case p.sender <- struct{}{}:
	case <-p.ctx.Done():
		return
	}
	defer func() { <-p.sender }()
	for {
		p.mu.Lock()
		if p.link != nil && !p.link.live() { // the host ended it
			p.unlink()
		}
		b, twice := p.link, p.faults.duplicate > 0
		if b == nil || p.faults.delay {
			p.mu.Unlock()
			return
		}
		if len(p.out) == 0 {
			b.ready = true
			p.mu.Unlock()
			b.r.Changed()
			return
		}
		r := p.out[0]
		if twice {
			p.faults.duplicate--
		}
		p.mu.Unlock()

		own, err := b.send(r)
		if twice && err == nil {
			own, err = b.send(r)
		}

		p.mu.Lock()
		if p.link != b { // lost meanwhile: repeat it on the next one
			p.mu.Unlock()
			continue
		}
		if err == nil || refused(err) {
			p.out = p.out[1:]
			p.move()
		} else {
			p.unlink()
		}
		p.file.note(func(j *journal) {
			if err != nil {
				j.faults = append(j.faults, err)
			} else if r.kind == started {
				j.turn(r.turn, func(t *TurnRecord) { t.Own = own })
			}
		})
		lost := p.link == nil
		p.mu.Unlock()
		if lost {
			b.r.Close()
		}
	}
}

// refused reports whether repeating a report is of no use.
func refused(err error) bool {
	for _, k := range []launch.Kind{launch.ErrInvalid, launch.ErrConflict, launch.ErrNotAllowed, launch.ErrNotFound} {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

func (b *bridge) send(report report) (delivery.Ownership, error) {
	switch report.kind {
	case started:
		return b.r.TurnStarted(b.p.ctx, report.turn, report.message)
	case settled:
		b.r.Replied(report.turn, *report.reply)
		return delivery.None, b.r.TurnSettled(b.p.ctx, report.turn, report.end, report.byPerson)
	default:
		return delivery.None, b.r.Input(b.p.ctx)
	}
}

// changed asks to be looked at, if nothing waits to be reported first.
func (p *Process) changed() {
	p.mu.Lock()
	b := p.link
	ask := b != nil && b.ready && len(p.out) == 0
	p.mu.Unlock()
	if ask {
		b.r.Changed()
	}
}
