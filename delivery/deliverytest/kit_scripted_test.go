package deliverytest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
)

// scripted is the scripted Pi as the kit drives it. A broken bridge changes what
// goes through.
type scripted struct {
	host   deliverytest.Host
	broken broken

	running   sync.WaitGroup // all stay
	switching sync.Mutex     // no connect while a session is left
	mu        sync.Mutex     // guards the rest
	file      *deliverytest.File
	p         *deliverytest.Process
	r         deliverytest.Reporter // the latest
	newest    delivery.Session      // its bridge
	staying   bool
	notes     map[string]string // what a broken bridge remembers
}

// pi makes a scripted Pi whose bridge is broken so.
func pi(b broken) deliverytest.Factory {
	return func(tb deliverytest.TB, host deliverytest.Host) deliverytest.Subject {
		s := &scripted{host: host, broken: b, file: deliverytest.NewFile("s1", "/s1.jsonl"), notes: map[string]string{}}
		tb.Cleanup(func() {
			if p := s.process(); p != nil {
				p.Kill()
			}
			s.running.Wait()
		})
		return deliverytest.Subject{Agent: s, Patience: 20 * time.Second, Cannot: b.cannot}
	}
}

func (s *scripted) process() *deliverytest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p
}

func (s *scripted) Start() error {
	opt := deliverytest.Options{Clock: clock.System(), Careless: s.broken.careless, NoDurability: s.broken.cannot&deliverytest.Durability != 0}
	opt.Model = func(ctx context.Context, _ deliverytest.Turn) deliverytest.Reply {
		text, err := s.host.Model(ctx)
		return deliverytest.Reply{Text: text, Fail: err != nil}
	}
	s.mu.Lock()
	s.p = s.file.Start(opt)
	s.staying = true
	p := s.p
	s.mu.Unlock()
	if s.broken.loses {
		p.LoseSend(1 << 30)
	}
	s.running.Go(func() { s.stay(p) })
	return nil
}

// stay keeps the process connected until it is fenced or dead.
func (s *scripted) stay(p *deliverytest.Process) {
	defer func() {
		s.mu.Lock()
		s.staying = s.staying && s.p != p
		s.mu.Unlock()
	}()
	for first := true; first || !s.broken.once; first = false {
		s.switching.Lock()
		err := p.Connect(s.bind)
		s.switching.Unlock()
		switch {
		case err == nil:
			s.mu.Lock()
			r := s.r
			s.mu.Unlock()
			<-r.Done()
		case errors.Is(err, deliverytest.ErrAway), errors.Is(err, deliverytest.ErrDead):
			return
		default:
			<-time.After(time.Millisecond) // the pause of a bridge whose host is away
		}
	}
}

func (s *scripted) bind(ctx context.Context, h delivery.Hello, b delivery.Session) (deliverytest.Reporter, error) {
	if s.broken.hello != nil {
		s.broken.hello(s, &h)
	}
	wrapped := b
	if s.broken.session != nil {
		wrapped = s.broken.session(s, b)
	}
	r, err := s.host.Connect(ctx, h, wrapped)
	if err != nil {
		return nil, err
	}
	if s.broken.reports != nil {
		r = s.broken.reports(s, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r, s.newest = r, b
	return r, nil
}

func (s *scripted) Stop() error {
	s.switching.Lock()
	defer s.switching.Unlock()
	s.process().Shutdown()
	return nil
}

func (s *scripted) Kill() error {
	s.process().Kill()
	return nil
}

func (s *scripted) Prompt(text string) error {
	p := s.process()
	if err := p.Type(text); err != nil {
		return err
	}
	s.mu.Lock()
	if !s.staying { // a person acts: a fenced bridge may come back
		s.staying = true
		s.running.Go(func() { s.stay(p) })
	}
	s.mu.Unlock()
	return p.Submit()
}

func (s *scripted) Escape() error {
	s.process().Escape()
	return nil
}

func (s *scripted) Rewind(message string) error {
	for _, e := range s.process().Branch() {
		if e.MessageID() == message {
			return s.process().Rewind(e.Parent)
		}
	}
	return deliverytest.ErrNoEntry
}

func (s *scripted) Fork() error {
	s.switching.Lock()
	defer s.switching.Unlock()
	f := s.process().Clone("s2", "/s2.jsonl")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = f
	return nil
}

func (s *scripted) Branch() ([]deliverytest.Entry, error) { return s.process().Branch(), nil }

func (s *scripted) Disk() ([]deliverytest.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Branch(), nil
}

func TestScripted(t *testing.T) { deliverytest.Run(t, pi(broken{})) }

func TestScriptedWithoutDurability(t *testing.T) {
	deliverytest.Run(t, pi(broken{cannot: deliverytest.Durability}))
}
