package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
)

// offered is a store with a free session, in which a run is about to end.
type offered struct {
	t      *testing.T
	store  *store.Store
	engine *flaky
	points []string      // of the probe
	events []store.Event // of the last commit that had any
	end    store.Propose
	told   int
}

// flaky is an engine that may lose a commit, or hold it back.
type flaky struct {
	store.Engine
	lose bool
	hold chan struct{}
}

func (e *flaky) Update(ctx context.Context, fn func(store.Rows) error) error {
	return e.Engine.Update(ctx, func(rows store.Rows) error {
		if err := fn(rows); err != nil {
			return err
		}
		if e.hold != nil {
			<-e.hold
		}
		if e.lose {
			return errors.New("the disk is gone")
		}
		return nil
	})
}

func newOffered(t *testing.T) *offered {
	o := &offered{t: t, engine: &flaky{Engine: storetest.Memory()}}
	o.store = store.New(o.engine, store.Options{Probe: func(point string) { o.points = append(o.points, point) }})
	t.Cleanup(func() {
		if err := o.store.Close(); err != nil {
			t.Error(err)
		}
	})
	o.store.Subscribe(func(e []store.Event) { o.events = e })
	o.do(store.Connect{Session: kernelSessions[0], Connect: session.Connect{Host: "A", Process: "p"}})
	o.report(true)
	r := headless(t, o.store)
	r.Mode, r.Session = launch.Interactive, kernelSessions[0]
	if _, err := store.Do(bg, o.store, store.Start{Request: r}); err != nil {
		t.Fatal(err)
	}
	o.end = ok(r.ID, begin(t, o.store, r.ID, "one"))
	o.points = nil
	return o
}

func (o *offered) do(c store.Connect) {
	o.t.Helper()
	if _, err := store.Do(bg, o.store, c); err != nil {
		o.t.Fatal(err)
	}
}

func (o *offered) report(idle bool) {
	o.t.Helper()
	if _, err := store.Do(bg, o.store, store.Observe{Session: kernelSessions[0], Saw: session.Report{Epoch: 1, Idle: idle}}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *offered) offer(token string) *store.Offer {
	return o.store.Offer(store.Try{Session: kernelSessions[0], Epoch: 1, Token: launch.DigestOf([]byte(token))}, func() { o.told++ })
}

// attempted says whether the last commit recorded an attempt.
func (o *offered) attempted() bool {
	return slices.ContainsFunc(o.events, func(e store.Event) bool { return e.Of == session.EvAttempted })
}

// The commit that ends a run also records the attempt for who has offered to
// make it, if a send may be made then; the end is committed either way.
func TestOffer(t *testing.T) {
	for _, c := range []struct {
		why  string
		with func(o *offered) *store.Offer
		made bool
	}{
		{"the session is free", func(o *offered) *store.Offer { return o.offer("t") }, true},
		{"nobody offers", func(o *offered) *store.Offer { return nil }, false},
		{"the session is busy", func(o *offered) *store.Offer { o.report(false); return o.offer("t") }, false},
		{"the session was connected again", func(o *offered) *store.Offer {
			f := o.offer("t")
			o.do(store.Connect{Session: kernelSessions[0], Connect: session.Connect{Host: "B", Process: "p"}})
			return f
		}, false},
		{"it is withdrawn", func(o *offered) *store.Offer {
			f := o.offer("t")
			f.Withdraw()
			return f
		}, false},
		{"another has replaced it", func(o *offered) *store.Offer {
			f := o.offer("t")
			o.offer("u").Withdraw()
			return f
		}, false},
		{"an older one is withdrawn", func(o *offered) *store.Offer {
			old := o.offer("t")
			f := o.offer("u")
			old.Withdraw()
			return f
		}, true},
		{"the token is missing, which is no reason to refuse the end", func(o *offered) *store.Offer {
			return o.store.Offer(store.Try{Session: kernelSessions[0], Epoch: 1}, func() { o.told++ })
		}, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := newOffered(t)
			f := c.with(o)
			if next, err := store.Do(bg, o.store, o.end); err != nil || !next.Ended {
				t.Fatalf("the end of the run: %+v %v", next, err)
			}
			send, made := f.Withdraw()
			if made != c.made || o.attempted() != c.made || o.told == 1 != c.made {
				t.Fatalf("made %v, recorded %v, told %d times, want %v", made, o.attempted(), o.told, c.made)
			}
			if !made {
				return
			}
			if m := send.Message; m == nil || m.Run != o.end.Run || m.Attempt.Epoch != 1 || len(send.Others) != 2 || len(m.Body) == 0 {
				t.Errorf("the send is %+v", send)
			}
			if got := strings.Join(o.points[len(o.points)-4:], ", "); got != "before propose, before try, after propose, after try" {
				t.Errorf("the probe was called with %q", got)
			}
			if again, made := f.Withdraw(); !made || again.Message != send.Message {
				t.Errorf("a second withdrawal came to %v %+v", made, again)
			}
		})
	}
}

// What is rolled back has used no offer, and who withdraws one waits for the
// transaction that is about to commit.
func TestOfferIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffered(t)
		f := o.offer("t")
		o.engine.lose = true
		if _, err := store.Do(bg, o.store, o.end); err == nil {
			t.Fatal("a commit that was lost succeeded")
		}
		if o.told != 0 {
			t.Error("who offered was told of an attempt that was rolled back")
		}
		o.engine.lose, o.engine.hold = false, make(chan struct{})
		go func() {
			if _, err := store.Do(bg, o.store, o.end); err != nil {
				t.Errorf("the end of the run: %v", err)
			}
		}()
		synctest.Wait() // it is about to commit
		made := false
		go func() { _, made = f.Withdraw() }()
		synctest.Wait()
		if made || o.told != 0 {
			t.Error("an attempt is made that is not committed")
		}
		close(o.engine.hold)
		synctest.Wait()
		if !made || o.told != 1 || !o.attempted() {
			t.Errorf("made %v, told %d times, recorded %v", made, o.told, o.attempted())
		}
	})
}
