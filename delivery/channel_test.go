package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"github.com/google/go-cmp/cmp"
)

// wall is a channel that notes what it is told. What fails is up to the test.
type wall struct {
	mu    sync.Mutex
	calls []string // "show <title>" and "over <title> <state>"
	seen  []delivery.Presentation
	at    func(call string) error // before the call is noted, without the lock
}

func (w *wall) Deliver(_ context.Context, p delivery.Presentation) error {
	return w.note("show", "", p)
}
func (w *wall) Settle(_ context.Context, p delivery.Presentation) error {
	return w.note("over", " "+p.State, p)
}

func (w *wall) note(what, how string, p delivery.Presentation) error {
	call := what + " " + p.Contract.Title + how
	if w.at != nil {
		if err := w.at(call); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
	w.seen = append(w.seen, p)
	return nil
}

// told wants the calls since it was asked last, in this order.
func (w *wall) told(b *bench, why string, want ...string) {
	b.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := cmp.Diff(want, w.calls); d != "" {
		b.Errorf("%s (-want +got):\n%s", why, d)
	}
	w.calls = nil
}

// present drives a channel for a host that has no sessions, on a store of its own
// as each process has one.
func (b *bench) present(s *store.Store, name string, c delivery.Channel) *delivery.Presenter {
	b.Helper()
	p, err := delivery.NewPresenter(delivery.ChannelOptions{Store: s, Name: name, Channel: c})
	if err != nil {
		b.Fatalf("presenter: %v", err)
	}
	synctest.Wait()
	return p
}

const secretSubject = "SUBJECT-5d1e"

// decision has a run ask a person, through a store. The run is its own.
func (b *bench) decision(s *store.Store, title string, change ...func(*run.Node)) (id string, of launch.RunID) {
	b.Helper()
	ulid, err := s.NewID()
	if err != nil {
		b.Fatalf("id: %v", err)
	}
	node := run.Node{Path: "ask", Kind: run.Decision, Choices: []string{"approve", "reject"}, Ask: &run.Ask{Form: []byte("{}"), Audience: "the team",
		Texts: []run.TextInput{{Choice: "reject", Max: 20}}}}
	for _, f := range change {
		f(&node)
	}
	plan := &run.Plan{MaxSteps: 10, Start: "ask", Nodes: []run.Node{node}}
	of = launch.NewRunID("w", ulid)
	token := launch.DigestOf([]byte(ulid))
	done := func(what string, err error) {
		if err != nil {
			b.Fatalf("%s: %v", what, err)
		}
	}
	_, err = store.Do(bg, s, store.Start{Request: launch.Request{ID: of, Workflow: "w", Source: "test", Digest: launch.DigestOf(nil), Mode: launch.Headless,
		Input: []byte(`{"in":"` + secretSubject + `"}`), Actor: launch.Host}})
	done("start", err)
	c, err := store.Do(bg, s, store.Claim{Run: of, Runner: "r", Token: token, Lease: launch.MaxLease, Digest: launch.DigestOf(nil), Source: "test",
		Plan: plan, Capacity: 1 << 20, Begin: true})
	done("claim", err)
	_, err = store.Do(bg, s, store.Propose{Run: of, Authority: launch.Authority{Runner: "r", Token: token, Generation: c.Generation}, Plan: plan, Node: "ask", Visit: 1, Attempt: 1,
		Ask: &store.Ask{Title: title, Task: "May it " + title + "?", Subject: launch.DigestOf([]byte(secretSubject))}})
	done("propose", err)
	return request.ID(of, "ask", 1, 1), of
}

// decide lets a person decide, through a store.
func (b *bench) decide(s *store.Store, id, choice string) {
	b.Helper()
	r, err := store.Do(bg, s, store.Respond{Act: request.Act{Request: id, Action: request.ActDecide, Actor: launch.Person, Key: "k-" + id, Revision: 1,
		Payload: []byte(`{"choice":"` + choice + `"}`), Person: "ada", Channel: "chat", Event: "e1"}})
	if err != nil || r.Refused != nil {
		b.Fatalf("decide: %v %v", err, r.Refused)
	}
}

// process is a store on the bench's file, as another process has it.
func (b *bench) process() *store.Store { return store.New(b.engine, store.Options{}) }

func TestChannelTellsOnce(t *testing.T) {
	for _, c := range []struct {
		why  string
		node func(*run.Node)
		end  func(b *bench, s *store.Store, id string, of launch.RunID)
		over string
	}{
		{"decided elsewhere", nil, func(b *bench, s *store.Store, id string, _ launch.RunID) { b.decide(s, id, "approve") }, "accepted"},
		{"expired", func(n *run.Node) { n.Ask.Expires = time.Minute }, func(b *bench, s *store.Store, _ string, _ launch.RunID) {
			after(2 * time.Minute)
			if _, err := store.Do(bg, s, store.Lapse{}); err != nil {
				b.Fatalf("lapse: %v", err)
			}
		}, "expired"},
		{"expired with a default", func(n *run.Node) { n.Ask.Expires, n.Ask.Default = time.Minute, []byte(`"reject"`) }, func(b *bench, s *store.Store, _ string, _ launch.RunID) {
			after(2 * time.Minute)
			if _, err := store.Do(bg, s, store.Lapse{}); err != nil {
				b.Fatalf("lapse: %v", err)
			}
		}, "accepted"},
		{"its run was cancelled", nil, func(b *bench, s *store.Store, _ string, of launch.RunID) {
			if _, err := store.Do(bg, s, store.Cancel{Run: of, Actor: launch.Person}); err != nil {
				b.Fatalf("cancel: %v", err)
			}
		}, "cancelled"},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var changes []func(*run.Node)
				if c.node != nil {
					changes = append(changes, c.node)
				}
				s, w := b.process(), &wall{}
				p := b.present(s, "wall", w)
				id, of := b.decision(s, "fly", changes...)
				w.told(b, "it is asked", "show fly")
				p.Wake()
				w.told(b, "nothing happened")
				p.Close()

				p = b.present(b.process(), "wall", w)
				w.told(b, "the host opens again")
				p.Close()

				c.end(b, s, id, of) // while the channel's host is down
				p = b.present(b.process(), "wall", w)
				w.told(b, "it is over", "over fly "+c.over)
				p.Wake()
				w.told(b, "nothing happened since")
				p.Close()
				p = b.present(b.process(), "wall", w)
				w.told(b, "the host opens again after the end")
				p.Close()
			})
		})
	}
}

// A channel gets to see what the author wrote for people, and how to answer; what
// the decision is about and the run's input never.
func TestChannelNeverSeesTheSubject(t *testing.T) {
	bubble(t, func(b *bench) {
		s, w := b.process(), &wall{}
		p := b.present(s, "wall", w)
		id, of := b.decision(s, "fly")
		w.told(b, "it is asked", "show fly")
		b.decide(s, id, "approve")
		w.told(b, "it is over", "over fly accepted")
		p.Close()
		subject := launch.DigestOf([]byte(secretSubject)).String()
		for _, p := range w.seen {
			raw, err := json.Marshal(p)
			if err != nil {
				b.Fatalf("marshal: %v", err)
			}
			for _, hidden := range []string{secretSubject, subject} {
				if strings.Contains(string(raw), hidden) || strings.Contains(fmt.Sprintf("%+v", p), hidden) {
					b.Errorf("a presentation tells the subject: %s", raw)
				}
			}
		}
		open, over := w.seen[0], w.seen[1]
		if open.Request != id || open.Run != of || open.Revision != 1 || open.Over || open.State != "pending" || open.Workflow != "w" ||
			open.Contract.Task != "May it fly?" || open.Contract.Audience != "the team" || !slices.Equal(open.Contract.Choices, []string{"approve", "reject"}) {
			b.Errorf("shown is %+v", open)
		}
		if !over.Over || over.By.Person != "ada" || over.By.Channel != "chat" {
			b.Errorf("over is %+v", over)
		}
	})
}

// A decision that was over before its channel could show it is never shown, also
// when it ended while the channel was busy with another one.
func TestDecidedBeforeShown(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.process()
		first, _ := b.decision(s, "one")
		b.decide(s, first, "approve")
		b.decision(s, "two")
		after(time.Millisecond)
		third, _ := b.decision(s, "three")
		w := &wall{}
		w.at = func(call string) error {
			if call == "show two" {
				b.decide(s, third, "reject")
			}
			return nil
		}
		p := b.present(s, "wall", w)
		w.told(b, "one and three were over", "show two")
		p.Close()
	})
}

// A host that dies between showing and recording it, and a store that fails
// there, leave nothing on show that is over.
func TestShownAndNotRecorded(t *testing.T) {
	bubble(t, func(b *bench) {
		h, w := b.host(), &wall{}
		p := b.present(h.store, "wall", w)
		h.dieAt("before shown")
		id, _ := b.decision(b.watch, "fly")
		p.Wake()
		w.told(b, "the host dies when it has shown it", "show fly")
		p.Close()
		b.decide(b.watch, id, "approve")
		p = b.present(b.process(), "wall", w)
		w.told(b, "it was shown, and nobody recorded that", "over fly accepted")
		p.Close()

		again, _ := b.decision(b.watch, "dive")
		h = b.host()
		p = b.present(h.store, "wall", w)
		w.told(b, "another one", "show dive")
		h.dieAt("before shown")
		b.decide(b.watch, again, "approve")
		p.Wake()
		w.told(b, "the host dies when it has taken it back", "over dive accepted")
		p.Close()
		p = b.present(b.process(), "wall", w)
		w.told(b, "the same call is repeated after the crash", "over dive accepted")
		p.Close()
	})
}

// What fails is tried again, later each time; it holds up nothing else, and
// commits do not make it come earlier.
func TestChannelFails(t *testing.T) {
	bubble(t, func(b *bench) {
		const bad = 150
		s := b.process()
		var mu sync.Mutex
		var at []time.Time // tries of one of them
		healed := false
		w := &wall{}
		w.at = func(call string) error {
			mu.Lock()
			defer mu.Unlock()
			if call == "show bad7" {
				at = append(at, time.Now())
			}
			if strings.HasPrefix(call, "show bad") && !healed {
				return errors.New("not now")
			}
			return nil
		}
		for n := range bad {
			b.decision(s, fmt.Sprint("bad", n))
		}
		after(time.Millisecond)
		b.decision(s, "good")
		p := b.present(s, "wall", w)
		w.told(b, "the failing ones came first", "show good")
		for n := range 20 { // each commit wakes the channel
			id, _ := b.decision(s, fmt.Sprint("more", n))
			synctest.Wait()
			b.decide(s, id, "approve")
			w.told(b, "a later one", fmt.Sprint("show more", n), fmt.Sprintf("over more%d accepted", n))
		}
		mu.Lock()
		if len(at) != 1 {
			b.Errorf("%d tries although no time has passed", len(at))
		}
		mu.Unlock()
		after(10 * time.Minute)
		mu.Lock()
		want := 250 * time.Millisecond
		for i := 1; i < len(at); i++ {
			if got := at[i].Sub(at[i-1]); got != want {
				b.Errorf("try %d came %v after the last one, want %v", i+1, got, want)
			}
			want = min(2*want, 30*time.Second)
		}
		if len(at) < 20 {
			b.Errorf("%d tries in ten minutes", len(at))
		}
		healed = true
		mu.Unlock()
		w.told(b, "nothing new")
		after(30 * time.Second)
		w.mu.Lock()
		if slices.Sort(w.calls); len(w.calls) != bad || len(slices.Compact(w.calls)) != bad {
			b.Errorf("%d calls once it works", len(w.calls))
		}
		w.calls = nil
		w.mu.Unlock()
		after(time.Hour)
		w.told(b, "all is told")
		p.Close()
	})
}

// A decision whose delivery keeps failing is told over all the same: nobody knows
// what the failing call did.
func TestSettleAfterFailedDelivery(t *testing.T) {
	bubble(t, func(b *bench) {
		s, w := b.process(), &wall{}
		w.at = func(call string) error {
			if call == "show fly" {
				return errors.New("not now")
			}
			return nil
		}
		p := b.present(s, "wall", w)
		id, _ := b.decision(s, "fly")
		w.told(b, "it fails")
		b.decide(s, id, "approve")
		after(time.Minute)
		w.told(b, "it may be on show", "over fly accepted")
		p.Close()
	})
}

// Two channels, of two hosts, each show a decision, and the one in which it was
// not decided is told too. A slow one stalls only itself. What another process
// commits is noticed when the host is told to look.
func TestTwoChannels(t *testing.T) {
	bubble(t, func(b *bench) {
		one, two := b.process(), b.process()
		w1, w2 := &wall{}, &wall{}
		p1, p2 := b.present(one, "w1", w1), b.present(two, "w2", w2)
		id, _ := b.decision(one, "fly")
		w1.told(b, "its own host asks", "show fly")
		w2.told(b, "another process asks, and nobody has looked")
		p2.Wake()
		w2.told(b, "it looks", "show fly")

		slow := make(chan struct{})
		w1.at = func(string) error { <-slow; return nil }
		b.decide(two, id, "approve")
		p1.Wake()
		w2.told(b, "decided in it", "over fly accepted")
		b.decision(two, "dive")
		w2.told(b, "the other channel is slow", "show dive")
		w1.told(b, "it is slow")
		close(slow)
		p1.Wake()
		w1.told(b, "it is slow no more", "over fly accepted", "show dive")
		p1.Close()
		p2.Close()
	})
}

// Close waits for the call that runs, whose context ends, and nothing is called
// after it; nothing runs then, or the bubble would not end.
func TestChannelClose(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.process()
		hold := &holding{began: make(chan struct{})}
		p := b.present(s, "wall", hold)
		b.decision(s, "fly")
		b.decision(s, "dive")
		<-hold.began
		p.Close()
		p.Close()
		if hold.ended != 1 {
			b.Errorf("%d calls ended", hold.ended)
		}
		p.Wake()
		b.decision(s, "swim")
		after(time.Hour)
		if hold.ended != 1 {
			b.Errorf("%d calls after the end", hold.ended)
		}
	})
}

// holding is a channel whose calls last until their context ends.
type holding struct {
	began chan struct{}
	once  sync.Once
	ended int
}

func (h *holding) Deliver(ctx context.Context, _ delivery.Presentation) error {
	h.once.Do(func() { close(h.began) })
	<-ctx.Done()
	h.ended++
	return ctx.Err()
}

func (h *holding) Settle(context.Context, delivery.Presentation) error { return nil }

// A channel whose engine is closed under it stops.
func TestChannelOfClosedStore(t *testing.T) {
	bubble(t, func(b *bench) {
		h, w := b.host(), &wall{}
		p := b.present(h.store, "wall", w)
		h.dead.Store(true)
		b.decision(b.watch, "fly")
		p.Wake()
		after(time.Hour)
		w.told(b, "the store is closed")
		p.Close()
	})
}

func TestRefusedChannels(t *testing.T) {
	bubble(t, func(b *bench) {
		for why, o := range map[string]delivery.ChannelOptions{
			"no store":                     {Name: "w", Channel: &wall{}},
			"no channel":                   {Name: "w", Store: b.watch},
			"no name":                      {Store: b.watch, Channel: &wall{}},
			"a name that is too long":      {Name: strings.Repeat("n", 513), Store: b.watch, Channel: &wall{}},
			"a name that is not printable": {Name: "a\nb", Store: b.watch, Channel: &wall{}},
		} {
			if _, err := delivery.NewPresenter(o); !errors.Is(err, launch.ErrInvalid) {
				b.Errorf("%s: %v", why, err)
			}
		}
		id, _ := b.decision(b.watch, "fly")
		for why, c := range map[string]struct {
			c    store.Shown
			kind launch.Kind
		}{
			"never presented": {store.Shown{Channel: "w", Request: id}, launch.ErrNotFound},
			"no such request": {store.Shown{Channel: "w", Request: "req-none"}, launch.ErrNotFound},
			"no request":      {store.Shown{Channel: "w"}, launch.ErrInvalid},
			"no channel":      {store.Shown{Request: id}, launch.ErrInvalid},
		} {
			if _, err := store.Do(bg, b.watch, c.c); !errors.Is(err, c.kind) {
				b.Errorf("%s: %v", why, err)
			}
		}
	})
}
