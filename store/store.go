// Package store makes decisions durable. A command is one transaction: it loads
// the rows that it needs, lets the pure packages decide, and puts row, immutable
// event and follow-on work together, or nothing (rule store/one-commit).
//
// [Open] opens the SQLite file; [New] takes any [Engine]. [Do] carries out a
// command:
//
//	started, err := store.Do(ctx, s, store.Start{...})
//
// The commands, with the rules that they serve, are the types that have an
// Answer in their doc comment. Reads are methods of [Store]; they change no byte.
package store

import (
	"context"
	"crypto/rand"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/launch"
	"github.com/oklog/ulid/v2"
)

// Options of a store. The zero value works.
type Options struct {
	Clock   clock.Clock   // nil: the system's
	Entropy io.Reader     // of ids and tokens; nil: crypto/rand
	Lease   time.Duration // for how long a clock jump is distrusted; 0: launch.DefaultLease
	SQLite  SQLiteOptions // used by [Open]
	// Probe is called around every commit of a command, for crash tests: with
	// "before <command>" once everything is written and not yet committed, and
	// with "after <command>" once it is committed and nobody has been told. What
	// carries out an [Offer] besides is followed by "before try" and "after try".
	Probe func(point string)
}

// Store carries out commands over an engine. It is safe for concurrent use.
type Store struct {
	engine Engine
	clock  clock.Clock
	lease  time.Duration
	mono   string // identity of the clock's monotonic readings

	ids struct {
		sync.Mutex
		entropy io.Reader
		ulids   *ulid.MonotonicEntropy
	}
	watch launch.Watch // used only inside Update, which is serial, as is
	tx    tx           // the running command
	probe func(point string)
	out   publisher

	offers offers
}

// Open opens or creates the SQLite file at path. See [OpenSQLite] for what it
// refuses.
func Open(path string, o Options) (*Store, error) {
	engine, err := OpenSQLite(path, o.SQLite)
	if err != nil {
		return nil, err
	}
	return New(engine, o), nil
}

// New returns a store over an engine, which it owns from now on.
func New(engine Engine, o Options) *Store {
	s := &Store{engine: engine, clock: o.Clock, lease: o.Lease, probe: o.Probe}
	if s.clock == nil {
		s.clock = clock.System()
	}
	if s.lease == 0 {
		s.lease = launch.DefaultLease
	}
	s.ids.entropy = o.Entropy
	if s.ids.entropy == nil {
		s.ids.entropy = rand.Reader
	}
	s.ids.ulids = ulid.Monotonic(s.ids.entropy, 0)
	if id, err := s.NewID(); err == nil { // without one no active time is measured
		s.mono = id
	}
	s.offers.ended.L = &s.offers.mu
	return s
}

// Close waits for commands that have begun and closes the engine.
func (s *Store) Close() error { return s.engine.Close() }

// Clock returns the store's clock.
func (s *Store) Clock() clock.Clock { return s.clock }

// Version changes whenever anyone, of this process or another, commits.
func (s *Store) Version(ctx context.Context) (int64, error) { return s.engine.Version(ctx) }

// NewID returns a new ULID in its text form. Ids of one store rise.
func (s *Store) NewID() (string, error) {
	wall, _ := s.clock.Now()
	s.ids.Lock()
	defer s.ids.Unlock()
	id, err := ulid.New(ulid.Timestamp(wall.Std()), s.ids.ulids)
	if err != nil {
		return "", launch.Refuse(launch.ErrInternal, "no new id: the random source failed")
	}
	return id.String(), nil
}

// Token is a random secret; only its hash is stored.
type Token [32]byte

// Hash returns what is stored of a token.
func (t Token) Hash() launch.Digest { return launch.DigestOf(t[:]) }

// String hides the token from logs.
func (t Token) String() string { return "[token]" }

// NewToken returns a new token.
func (s *Store) NewToken() (t Token, err error) {
	s.ids.Lock()
	defer s.ids.Unlock()
	if _, err := io.ReadFull(s.ids.entropy, t[:]); err != nil {
		return t, launch.Refuse(launch.ErrInternal, "no new token: the random source failed")
	}
	return t, nil
}

// Distrust records that a timer of this host fired too late, as after a sleep
// (rule launch/clock).
func (s *Store) Distrust(ctx context.Context) error {
	return s.engine.Update(ctx, func(Rows) error {
		_, mono := s.clock.Now()
		s.watch.Late(mono, s.lease)
		return nil
	})
}

// Command is one transaction with an answer of type A. The commands are the
// types of this package that implement it.
type Command[A any] interface {
	run(x *tx) (A, error)
}

// Do carries out a command. A nil error means that it is committed; a refusal
// (launch.Refusal) that it changed nothing. When ctx ends before the command
// has begun, nothing happens; later the caller learns the outcome all the same.
func Do[A any](ctx context.Context, s *Store, c Command[A]) (A, error) {
	var answer A
	err := s.update(ctx, c, func(x *tx) (err error) {
		answer, err = c.run(x)
		return err
	})
	if err != nil {
		var none A
		return none, err
	}
	return answer, nil
}

// commandName names a command for the probe, as "start" or "observe report".
func commandName(c any) string {
	name := reflect.TypeOf(c).Name()
	if o, ok := c.(Observe); ok {
		name += " " + reflect.TypeOf(o.Saw).Name()
	}
	return strings.ToLower(name)
}

// update runs fn as the command c.
func (s *Store) update(ctx context.Context, c any, fn func(*tx) error) error {
	var made struct { // by the last try
		turn   uint64
		events []Event
		used   []*Offer
	}
	err := s.engine.Update(ctx, func(rows Rows) (err error) {
		s.out.done(made.turn, nil) // of an earlier try that was rolled back
		s.offers.settle(made.used, false)
		made.turn, made.events, made.used = s.out.take(), nil, nil
		wall, mono := s.clock.Now()
		x := &s.tx
		now := s.watch.Observe(wall, mono, s.lease)
		now.Mono, now.Clock = mono, s.mono
		x.reset(rows, now)
		if err := fn(x); err != nil {
			return err
		}
		if made.used, err = s.offers.use(x); err != nil {
			return err
		}
		if err := x.flush(); err != nil {
			return err
		}
		made.events = slices.Clone(x.out)
		s.probed("before", c, made.used)
		return nil
	})
	if err != nil {
		made.events = nil
	} else {
		s.probed("after", c, made.used)
	}
	s.offers.settle(made.used, err == nil)
	s.out.done(made.turn, made.events)
	return err
}

func (s *Store) probed(when string, c any, used []*Offer) {
	if s.probe == nil {
		return
	}
	s.probe(when + " " + commandName(c))
	for _, o := range used {
		s.probe(when + " " + commandName(o.try))
	}
}

// Subscribe calls f with the events of every commit of this store, in the
// order of the commits, until the returned function is called. f must not
// block, nor call the store.
func (s *Store) Subscribe(f func([]Event)) (stop func()) { return s.out.subscribe(f) }

// publisher hands committed events on in commit order. A transaction takes a
// turn while it holds the write lock; its events are published when those of
// all earlier turns have been.
type publisher struct {
	mu        sync.Mutex
	last      uint64 // turns taken
	published uint64
	waiting   map[uint64][]Event
	listeners []*func([]Event)
}

func (p *publisher) take() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

func (p *publisher) done(turn uint64, events []Event) {
	if turn == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if turn != p.published+1 {
		if p.waiting == nil {
			p.waiting = map[uint64][]Event{}
		}
		p.waiting[turn] = events
		return
	}
	for ok := true; ok; events, ok = p.waiting[p.published+1] {
		p.published++
		delete(p.waiting, p.published)
		if len(events) == 0 {
			continue
		}
		for _, f := range p.listeners {
			(*f)(events)
		}
	}
}

func (p *publisher) subscribe(f func([]Event)) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := &f
	p.listeners = append(append([]*func([]Event){}, p.listeners...), mine)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		kept := make([]*func([]Event), 0, len(p.listeners))
		for _, l := range p.listeners {
			if l != mine {
				kept = append(kept, l)
			}
		}
		p.listeners = kept
	}
}
