package delivery_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"github.com/google/go-cmp/cmp"
)

// step is a run that asks the model of a session.
type step struct {
	b       *bench
	id      launch.RunID
	request string
	plan    *run.Plan
}

// asks has a run of one node ask the model of a session, and lets its message be
// sent.
func (h *host) asks(pi *deliverytest.Process, kind run.Kind, budget time.Duration) *step {
	h.b.Helper()
	form := `{"type":"object"}`
	if kind == run.Assistant {
		form = `{"type":"string"}`
	}
	s := &step{h.b, h.queue(pi), "", &run.Plan{MaxSteps: 10, Start: "ask", Nodes: []run.Node{{Path: "ask", Kind: kind, Budget: budget, Ask: &run.Ask{Form: []byte(form)}}}}}
	s.request = request.ID(s.id, "ask", 1, 1)
	a, _ := s.claim(h)
	if _, err := store.Do(bg, h.store, store.Propose{Run: s.id, Authority: a, Plan: s.plan, Node: "ask", Visit: 1, Attempt: 1, Ask: &store.Ask{Task: "Do it."}}); err != nil {
		h.b.Fatalf("propose: %v", err)
	}
	return s
}

// claim has the host take the run and go on with it.
func (s *step) claim(h *host) (launch.Authority, store.Claimed) {
	s.b.Helper()
	synctest.Wait()
	token, err := h.store.NewToken()
	if err != nil {
		s.b.Fatalf("token: %v", err)
	}
	c, err := store.Do(bg, h.store, store.Claim{Run: s.id, Runner: h.name, Token: token.Hash(), Lease: launch.MaxLease,
		Digest: launch.DigestOf(nil), Source: "test", Plan: s.plan, Capacity: 1000, Begin: true})
	if err != nil {
		s.b.Fatalf("claim: %v", err)
	}
	return launch.Authority{Runner: h.name, Token: token.Hash(), Generation: c.Generation}, c
}

// state is that of the run's request.
func (s *step) state() request.State {
	s.b.Helper()
	synctest.Wait()
	q, err := s.b.watch.Request(bg, s.request)
	if err != nil {
		s.b.Fatalf("request: %v", err)
	}
	return q.State
}

// thinking is a model that takes so long for each reply to a step, unless it is
// stopped.
func thinking(d time.Duration) func(context.Context, deliverytest.Turn) deliverytest.Reply {
	return func(ctx context.Context, t deliverytest.Turn) deliverytest.Reply {
		if t.Opener.CustomType == "pi-workflows-deferred-turn" || t.Message == "" {
			return deliverytest.Reply{Text: "ok"}
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return deliverytest.Reply{Text: "thought"}
	}
}

// spy calls the test when the host asks for an abort, before the bridge is.
type spy struct {
	delivery.Session
	abort func()
}

func (s spy) Abort(ctx context.Context, message string) error {
	s.abort()
	return s.Session.Abort(ctx, message)
}

// spied connects a process so.
func (h *host) spied(p *deliverytest.Process, abort func()) {
	h.b.Helper()
	err := p.Connect(deliverytest.Via(func(ctx context.Context, hello delivery.Hello, s delivery.Session) (*delivery.Conn, error) {
		return h.bind(ctx, hello, spy{s, abort})
	}))
	if err != nil {
		h.b.Fatalf("connect: %v", err)
	}
	synctest.Wait()
}

// The active time of an open turn is sampled every ten seconds, and of a session
// at rest or in another turn never.
func TestSampledInItsTurn(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{Model: thinking(65 * time.Second)})
		h := b.host()
		h.connect(pi)
		prompt(b, pi)
		after(time.Hour)
		if n := h.count("after sample"); n != 0 {
			b.Errorf("%d samples without a request", n)
		}
		h.asks(pi, run.Agent, time.Hour)
		before := 0
		for turn := range 3 { // the prompt and two reminders
			after(64 * time.Second)
			if n := h.count("after sample") - before; n != 6 {
				b.Errorf("turn %d: %d samples in 64 s", turn+1, n)
			}
			after(time.Second)
			before = h.count("after sample")
		}
		after(time.Hour)
		if n := h.count("after sample"); n != before {
			b.Errorf("%d samples after the last turn", n-before)
		}
		if n := h.count("abort"); n != 0 {
			b.Errorf("%d aborts", n)
		}
	})
}

// An attempt without a budget is not sampled.
func TestNoBudgetNoSample(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{Model: thinking(time.Hour)})
		h := b.host()
		h.connect(pi)
		s := h.asks(pi, run.Agent, 0)
		after(30 * time.Minute)
		if n := h.count("after sample"); n != 0 || s.state() != request.Pending {
			b.Errorf("%d samples, the request is %v", n, s.state())
		}
	})
}

// What stops the clock: while it stands, an hour passes and spends nothing.
func TestClockStops(t *testing.T) {
	const budget, first = time.Minute, 25 * time.Second
	for _, c := range []struct {
		why   string
		stop  func(b *bench, h *host, pi *deliverytest.Process, s *step)
		again func(b *bench, h *host, pi *deliverytest.Process, s *step) *host
		spent time.Duration // of the first part
	}{
		{"pause", func(b *bench, h *host, _ *deliverytest.Process, s *step) {
			if _, err := store.Do(bg, h.store, store.Pause{Run: s.id, Actor: launch.Person}); err != nil {
				b.Fatalf("pause: %v", err)
			}
		}, func(b *bench, h *host, _ *deliverytest.Process, s *step) *host {
			if _, err := store.Do(bg, h.store, store.Resume{Run: s.id, Actor: launch.Person}); err != nil {
				b.Fatalf("resume: %v", err)
			}
			return h
		}, first},
		{"disconnect", func(_ *bench, _ *host, pi *deliverytest.Process, _ *step) { pi.DropConnection() },
			func(_ *bench, h *host, pi *deliverytest.Process, _ *step) *host { h.connect(pi); return h }, first},
		{"another process after a polite end", func(_ *bench, h *host, _ *deliverytest.Process, _ *step) { h.close() },
			func(b *bench, _ *host, pi *deliverytest.Process, _ *step) *host {
				h := b.host()
				h.connect(pi)
				return h
			}, first},
		{"another process after a death: what came after the last sample is not known", func(_ *bench, h *host, _ *deliverytest.Process, _ *step) { h.kill() },
			func(b *bench, _ *host, pi *deliverytest.Process, _ *step) *host {
				h := b.host()
				h.connect(pi)
				return h
			}, 20 * time.Second},
		{"pause and disconnect at once", func(b *bench, h *host, pi *deliverytest.Process, s *step) {
			if _, err := store.Do(bg, h.store, store.Pause{Run: s.id, Actor: launch.Person}); err != nil {
				b.Fatalf("pause: %v", err)
			}
			pi.DropConnection()
		}, func(b *bench, h *host, pi *deliverytest.Process, s *step) *host {
			h.connect(pi)
			after(time.Hour)
			if _, err := store.Do(bg, h.store, store.Resume{Run: s.id, Actor: launch.Person}); err != nil {
				b.Fatalf("resume: %v", err)
			}
			return h
		}, first},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{Model: thinking(24 * time.Hour)})
				h := b.host()
				h.connect(pi)
				s := h.asks(pi, run.Agent, budget)
				after(first)
				c.stop(b, h, pi, s)
				samples := h.count("after sample")
				after(time.Hour)
				if n := h.count("after sample") - samples; n != 0 {
					b.Errorf("%d samples while the clock stands", n)
				}
				h = c.again(b, h, pi, s)
				after(budget - c.spent - time.Second)
				if s.state() != request.Pending || h.count("abort") != 0 {
					b.Errorf("it is %v after %d aborts, a second before its time is over", s.state(), h.count("abort"))
				}
				after(2 * time.Second)
				if s.state() != request.Expired || h.count("abort") != 1 {
					b.Errorf("it is %v after %d aborts, a second after its time is over", s.state(), h.count("abort"))
				}
			})
		})
	}
}

// When the budget is used up in a turn, that and the turn which it owes are
// recorded before the abort; the abort is asked once, the turn's late end changes
// nothing, and exactly one turn follows.
func TestBudgetUsedUp(t *testing.T) {
	for _, c := range []struct {
		why  string
		slow time.Duration // the store, for the record of it
		fail int           // times that the record fails
		// recorded says that the record comes before the abort.
		recorded bool
	}{
		{"a fast store", 0, 0, true},
		{"a store that takes a little", 200 * time.Millisecond, 0, true},
		{"a slow store: the abort goes first, and the record follows", time.Second, 0, false},
		{"a store that fails once: the abort goes first, and the record is repeated", 0, 1, false},
		{"a slow store that fails once", time.Second, 1, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pi := b.pi(deliverytest.Options{Model: thinking(time.Hour)})
				h := b.host()
				var mu sync.Mutex
				var at []string
				aborted := time.Duration(0)
				began := time.Now()
				h.spied(pi, func() {
					owed, err := b.watch.Intents(bg, pi.File().Key())
					if err != nil {
						b.Errorf("intents: %v", err)
					}
					mu.Lock()
					defer mu.Unlock()
					aborted = time.Since(began)
					at = append(at, "abort")
					for _, i := range owed {
						at = append(at, i.Cause.String())
					}
				})
				s := h.asks(pi, run.Agent, time.Minute)
				after(59 * time.Second)
				h.lags(c.slow, c.fail)
				hold := pi.Hold(deliverytest.PointEnd) // so that its end comes late
				after(10 * time.Second)
				mu.Lock()
				want := []string{"abort"}
				if c.recorded {
					want = append(want, intents.TimedOut.String())
				}
				if d := cmp.Diff(want, at); d != "" {
					b.Errorf("the abort, and what was owed at that moment (-want +got):\n%s", d)
				}
				if late := aborted - time.Minute; late < 0 || late > 300*time.Millisecond {
					b.Errorf("the abort came %v after the time was over", late)
				}
				mu.Unlock()
				if s.state() != request.Expired {
					b.Errorf("the request is %v", s.state())
				}
				h.lags(0, 0)
				before := len(b.trace())
				hold.Release()
				synctest.Wait()
				for _, e := range b.trace()[before:] {
					if e.Request != "" || e.Run == s.id && e.Launch != 0 {
						b.Errorf("the late end of the turn: %s", e.Kind)
					}
				}
				_, claimed := s.claim(h)
				if !claimed.Next.Ended {
					b.Errorf("the run goes on: %+v", claimed)
				}
				b.quiet()
				if n := h.count("abort"); n != 1 {
					b.Errorf("%d aborts", n)
				}
				successors := 0
				for _, turn := range pi.File().Turns()[1:] {
					if turn.Message != "" {
						successors++
					}
				}
				if successors != 1 {
					b.Errorf("%d turns follow: %+v", successors, pi.File().Turns())
				}
			})
		})
	}
}

// A store that cannot record a timeout: the turn is stopped all the same, and its
// end records it.
func TestTimeoutNotRecorded(t *testing.T) {
	bubble(t, func(b *bench) {
		pi := b.pi(deliverytest.Options{Model: thinking(time.Hour)})
		h := b.host()
		h.connect(pi)
		s := h.asks(pi, run.Agent, time.Minute)
		after(59 * time.Second)
		h.lags(0, 1<<30)
		after(2 * time.Second)
		if n := len(pi.File().Aborts()); n != 1 || s.state() != request.Expired {
			b.Errorf("%d aborts, and the request is %v", n, s.state())
		}
		s.claim(h)
		b.quiet()
		if v, err := b.watch.Facts(bg, s.id); err != nil || v.Launch.Error.Code != launch.CodeTimedOut {
			b.Errorf("the run ended with %v, %v", v.Launch.Error, err)
		}
		if n := len(pi.File().Turns()); n != 2 {
			b.Errorf("%d turns, want the step's and one that tells its end", n)
		}
	})
}

// A turn whose run has ended while its message was on its way is aborted at its
// start report, once.
func TestTurnOfEndedRun(t *testing.T) {
	for _, kind := range []run.Kind{run.Agent, run.Checkpoint} {
		for _, point := range []deliverytest.Point{deliverytest.PointSend, deliverytest.PointAccepted, deliverytest.PointStart} {
			t.Run(kind.String()+" "+point.String(), func(t *testing.T) {
				bubble(t, func(b *bench) {
					pi := b.pi(deliverytest.Options{Model: thinking(time.Hour)})
					h := b.host()
					h.connect(pi)
					hold := pi.Hold(point)
					s := h.asks(pi, kind, 0)
					synctest.Wait()
					hold.Wait()
					if _, err := store.Do(bg, h.store, store.Cancel{Run: s.id, Actor: launch.Person}); err != nil {
						b.Fatalf("cancel: %v", err)
					}
					hold.Release()
					b.quiet()
					if n := h.count("abort"); n != 1 || len(pi.File().Turns()) != 1 {
						b.Errorf("%d aborts in %d turns", n, len(pi.File().Turns()))
					}
					if s.state() != request.Cancelled {
						b.Errorf("the request is %v", s.state())
					}
				})
			})
		}
	}
}

// A model that cancels its own run in the run's turn: the turn is aborted once,
// and exactly one turn is owed.
func TestModelCancelsInItsTurn(t *testing.T) {
	bubble(t, func(b *bench) {
		var h *host
		var pi *deliverytest.Process
		answered := make(chan error, 1)
		tool := func(_ context.Context, _ deliverytest.Call) string {
			a, err := b.watch.Asked(bg, pi.File().Key())
			var id launch.RunID
			if err == nil {
				id, err = b.watch.Displayed(bg, pi.File().Key())
			}
			if err == nil {
				_, err = store.Do(bg, h.store, store.Cancel{Run: id, Actor: launch.Model, Session: pi.File().Key(), Epoch: a.Session.Epoch})
			}
			answered <- err
			return "cancelled"
		}
		pi = b.pi(deliverytest.Options{Tools: map[string]deliverytest.Tool{"cancel": tool}, Model: func(_ context.Context, t deliverytest.Turn) deliverytest.Reply {
			if strings.Contains(t.Opener.Text, "Do it.") && t.Request == 1 {
				return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "cancel"}}}
			}
			return deliverytest.Reply{Text: "ok"}
		}})
		h = b.host()
		h.connect(pi)
		hold := pi.Hold(deliverytest.PointToolDone)
		h.asks(pi, run.Agent, time.Hour)
		synctest.Wait()
		hold.Wait()
		if err := <-answered; err != nil {
			b.Fatalf("cancel: %v", err)
		}
		owed, err := b.watch.Intents(bg, pi.File().Key())
		if err != nil || len(owed) != 1 || owed[0].Cause != intents.AgentCancelled {
			b.Fatalf("owed: %+v, %v", owed, err)
		}
		if n := h.count("abort"); n != 1 {
			b.Errorf("%d aborts", n)
		}
		hold.Release()
		b.quiet()
		b.once(pi.File(), owed[0].ID, "cancelled by the model")
		if n := h.count("abort"); n != 1 || len(pi.File().Turns()) != 2 {
			b.Errorf("%d aborts in %d turns", n, len(pi.File().Turns()))
		}
	})
}

// The final text of a turn answers the request that it was asked, if it is whole
// and nobody typed into the turn.
func TestReplyAnswers(t *testing.T) {
	const reply = "It floats."
	for _, c := range []struct {
		why  string
		end  func(b *bench, h *host, pi *deliverytest.Process)
		want request.State
	}{
		{"whole", func(*bench, *host, *deliverytest.Process) {}, request.Accepted},
		{"stopped by the person", func(_ *bench, _ *host, pi *deliverytest.Process) { pi.Escape() }, request.Pending},
		{"typed into", func(b *bench, _ *host, pi *deliverytest.Process) {
			if err := pi.Type("really?"); err != nil {
				b.Fatalf("type: %v", err)
			}
			if err := pi.Submit(); err != nil {
				b.Fatalf("submit: %v", err)
			}
		}, request.Pending},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				gate := make(chan struct{})
				first := true
				pi := b.pi(deliverytest.Options{Model: func(ctx context.Context, t deliverytest.Turn) deliverytest.Reply {
					if !first {
						return deliverytest.Reply{Text: ""} // which answers nothing
					}
					select {
					case <-gate:
					case <-ctx.Done():
					}
					first = t.Request == 1 && c.why == "typed into"
					return deliverytest.Reply{Text: reply}
				}})
				h := b.host()
				h.connect(pi)
				settled := pi.Hold(deliverytest.PointReported)
				s := h.asks(pi, run.Assistant, 0)
				synctest.Wait()
				c.end(b, h, pi)
				close(gate)
				settled.Wait()
				if got := s.state(); got != c.want {
					b.Errorf("after the turn it is %v, want %v", got, c.want)
				}
				q, err := b.watch.Request(bg, s.request)
				if err != nil || q.PromptEntry == "" || q.ResponseEntry == "" {
					b.Errorf("evidence of the turn: %q and %q, %v", q.PromptEntry, q.ResponseEntry, err)
				}
				settled.Release()
				synctest.Wait()
				if c.want != request.Accepted {
					return
				}
				s.claim(h)
				if output, _, err := b.watch.Output(bg, s.id, "ask"); err != nil || string(output) != `"`+reply+`"` {
					b.Errorf("the node's output is %s, %v", output, err)
				}
			})
		})
	}
}

// A bridge that reports no text, or that of another turn, answers no request with
// it.
func TestNoReplyReported(t *testing.T) {
	whole := delivery.Reply{PromptEntry: "p", ReplyEntry: "r", Text: "It floats.", Usable: true}
	cut := whole
	cut.Usable = false
	for _, c := range []struct {
		why  string
		said func(c *delivery.Conn)
		end  delivery.End
		want request.State
	}{
		{"nothing is reported", func(*delivery.Conn) {}, delivery.Completed, request.Pending},
		{"the text of another turn", func(c *delivery.Conn) { c.Replied("other", whole) }, delivery.Completed, request.Pending},
		{"a text that is not whole", func(c *delivery.Conn) { c.Replied("t", cut) }, delivery.Completed, request.Pending},
		{"a text of a turn that failed", func(c *delivery.Conn) { c.Replied("t", whole) }, delivery.Error, request.Pending},
		{"a text of a turn that was stopped", func(c *delivery.Conn) { c.Replied("t", whole) }, delivery.Aborted, request.Pending},
		{"a later report replaces an earlier one", func(c *delivery.Conn) { c.Replied("t", whole); c.Replied("t", cut) }, delivery.Completed, request.Pending},
		{"whole", func(c *delivery.Conn) { c.Replied("t", whole) }, delivery.Completed, request.Accepted},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				h := b.host()
				sent := make(chan string, 10)
				conn, pi := scripted(b, h, &script{send: func(_ context.Context, m delivery.Message) (delivery.Answer, error) {
					sent <- m.ID
					return delivery.Answer{Verdict: delivery.Taken}, nil
				}})
				s := h.asks(pi, run.Assistant, 0)
				if _, err := conn.TurnStarted(bg, "t", <-sent); err != nil {
					b.Fatalf("started: %v", err)
				}
				c.said(conn)
				if err := conn.TurnSettled(bg, "t", c.end, false); err != nil {
					b.Fatalf("settled: %v", err)
				}
				if got := s.state(); got != c.want {
					b.Errorf("it is %v, want %v", got, c.want)
				}
			})
		})
	}
}
