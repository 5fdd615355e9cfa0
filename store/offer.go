package store

import (
	"errors"
	"sync"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Rule store/offer: who waits for something to send may leave a [Try] behind. A
// command of the same store that queues a message in that session carries it
// out in its own transaction, and the sender is told once that is committed: no
// second commit, with its sync, lies between a decision and its send. A try that
// is refused is as if it had not been left. Commands of other processes do not
// know of it, so that who leaves one still has to look.

// Offer is a try that was left behind. A command uses it once at most.
type Offer struct {
	all  *offers
	try  Try
	tell func()

	// Under the lock of all.
	used bool // by a transaction that has not ended, or by one that committed
	made bool // that committed
	send Send
}

// Offer leaves a try behind until a command has used it or it is withdrawn. It
// replaces an earlier one in the same session. tell is called once, after the
// commit of the command that used it; it must not block, nor call the store.
func (s *Store) Offer(t Try, tell func()) *Offer {
	o := &Offer{all: &s.offers, try: t, tell: tell}
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	if s.offers.left == nil {
		s.offers.left = map[launch.SessionKey]*Offer{}
	}
	s.offers.left[t.Session] = o
	return o
}

// Withdraw ends the offer and reports whether a command has used it; the attempt
// is then recorded, and the message is to be sent now. It waits for a
// transaction that is about to commit. A nil offer is one that nobody made.
func (o *Offer) Withdraw() (Send, bool) {
	if o == nil {
		return Send{}, false
	}
	p := o.all
	p.mu.Lock()
	defer p.mu.Unlock()
	for o.used && !o.made {
		p.ended.Wait()
	}
	p.forget(o)
	return o.send, o.made
}

// offers are those of a store.
type offers struct {
	mu    sync.Mutex
	ended sync.Cond // a transaction that used an offer has ended
	left  map[launch.SessionKey]*Offer
}

// forget drops an offer. The lock is held.
func (p *offers) forget(o *Offer) {
	if p.left[o.try.Session] == o {
		delete(p.left, o.try.Session)
	}
}

// take returns the offer of a session, used from now on, or nil.
func (p *offers) take(k launch.SessionKey) *Offer {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.left[k]
	if o == nil || o.used {
		return nil
	}
	o.used = true
	return o
}

// settle ends the use of offers by a transaction.
func (p *offers) settle(used []*Offer, committed bool) {
	if len(used) == 0 {
		return
	}
	p.mu.Lock()
	for _, o := range used {
		if o.used, o.made = committed, committed; committed {
			p.forget(o)
		} else {
			o.send = Send{}
		}
	}
	p.ended.Broadcast()
	p.mu.Unlock()
	if committed {
		for _, o := range used {
			o.tell()
		}
	}
}

// use carries out the offers in the sessions in which the command has queued a
// message. It returns those that led to a send, also with an error.
func (p *offers) use(x *tx) (used []*Offer, err error) {
	for _, e := range x.out {
		if e.Of != session.EvQueued {
			continue
		}
		o := p.take(e.Session)
		if o == nil {
			continue
		}
		o.send, err = o.try.run(x)
		if err == nil && o.send.Message != nil {
			used = append(used, o)
			continue
		}
		p.settle([]*Offer{o}, false)
		if errors.Is(err, launch.ErrStale) { // the session was connected again
			continue
		}
		if err = x.contain(e.Session, e.Run, err); err != nil {
			return used, err
		}
	}
	return used, nil
}
