package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// unsent returns the forms of the messages of the run's request that wait to be
// sent.
func (r *ride) unsent() (forms []string) {
	for _, m := range must(r.all()).Messages {
		if m.Request != r.id() || m.State != session.Pending {
			continue
		}
		for _, f := range []request.PromptForm{request.Initial, request.Resumed, request.Reminder} {
			if strings.Contains(string(m.Body), `"form":"`+f.String()+`"`) {
				forms = append(forms, f.String())
			}
		}
	}
	return forms
}

// waits checks which messages of the request wait to be sent.
func (r *ride) waits(what string, forms ...string) {
	r.t.Helper()
	if got := r.unsent(); !slices.Equal(got, forms) {
		r.t.Errorf("%s: %v wait to be sent, want %v", what, got, forms)
	}
}

// turn delivers the message that is due and lets its turn end.
func (r *ride) turn(how session.End) {
	r.t.Helper()
	if m := r.deliver(r.session); m.Request != r.id() {
		r.t.Fatalf("a message of another request is due: %s", m.Request)
	}
	r.end(r.session, how)
}

// lost lets the host that watched the turn go away with its agent, so that
// nobody sees the end of the turn.
func (r *ride) lost() {
	r.t.Helper()
	r.deliver(r.session)
	r.active[r.session] = ""
	r.epochs[r.session] = carry(r.bed, store.Connect{Session: r.session, Connect: session.Connect{Host: "A", Process: r.next("p")}})
	r.report(r.session)
}

// A completed turn without a usable answer is reminded of at most twice, with
// the last rejection; then the request is over and the run fails for it. Chat
// neither spends nor resets the count.
func TestReminders(t *testing.T) {
	for _, k := range []run.Kind{run.Agent, run.Assistant} {
		r := asking(t, planOf(k))
		r.waits("asked", "initial")
		r.deliver(r.session)
		if k == run.Agent {
			r.respond(r.act(request.ActSubmit, launch.Model, `{"n":"x"}`))
		}
		r.waits("while its turn is open")
		r.end(r.session, session.Completed)
		r.waits("without an answer", "reminder")
		r.begin(r.session, "")
		r.end(r.session, session.Completed)
		r.waits("chat changes nothing", "reminder")
		m := r.deliver(r.session)
		if want := "The last answer was rejected: output.n must be of type integer"; k == run.Agent && !strings.Contains(string(m.Body), want) {
			t.Errorf("the reminder does not tell of the rejection: %s", m.Body)
		}
		if !strings.Contains(string(m.Body), r.id()) {
			t.Errorf("the reminder does not name the exact id")
		}
		r.end(r.session, session.Completed)
		r.waits("again", "reminder")
		r.turn(session.Completed)
		r.waits("a third time")
		r.is("given up", request.Expired, launch.Parked, launch.ParkDue)
		if q := r.request(); q.Reminders != 2 || q.Prompts != 3 || q.Why != launch.CodeSubmissionMissing {
			t.Errorf("%d reminders, %d prompts, %s", q.Reminders, q.Prompts, q.Why)
		}
		r.claim()
		if l := r.launch(); l.State != launch.Failed || l.Error.Code != launch.CodeSubmissionMissing {
			t.Errorf("the run is %s, %v", l.State, l.Error)
		}
	}
}

// What makes a reminder void, and what never gets one.
func TestRemindersAreVoid(t *testing.T) {
	for _, c := range []struct {
		why  string
		plan *run.Plan
		do   func(r *ride)
		left []string
	}{
		{"answered in the turn", planOf(run.Agent), func(r *ride) {
			r.deliver(r.session)
			r.answer()
			r.end(r.session, session.Completed)
		}, nil},
		{"answered before it is sent", planOf(run.Agent), func(r *ride) { r.turn(session.Completed); r.answer() }, nil},
		{"cancelled before it is sent", planOf(run.Agent), func(r *ride) {
			r.turn(session.Completed)
			carry(r.bed, store.Cancel{Run: r.run, Actor: launch.Person})
		}, nil},
		{"paused in the turn", planOf(run.Agent), func(r *ride) {
			r.deliver(r.session)
			carry(r.bed, store.Pause{Run: r.run})
			r.end(r.session, session.Completed)
		}, nil},
		{"and resumed", planOf(run.Agent), func(r *ride) {
			r.deliver(r.session)
			carry(r.bed, store.Pause{Run: r.run})
			r.end(r.session, session.Completed)
			carry(r.bed, store.Resume{Run: r.run})
		}, []string{"reminder"}},
		{"a retried report of the end", planOf(run.Agent), func(r *ride) {
			m := r.deliver(r.session)
			turn := r.active[r.session]
			r.end(r.session, session.Completed)
			for range 3 {
				r.see(r.session, session.TurnStarted{Epoch: r.epochs[r.session], Turn: turn, Message: m.ID})
				r.see(r.session, session.TurnSettled{Epoch: r.epochs[r.session], Turn: turn, End: session.Completed})
			}
		}, []string{"reminder"}},
		{"a reconnect", planOf(run.Agent), func(r *ride) {
			r.turn(session.Completed)
			r.connect(r.session)
		}, []string{"reminder"}},
		{"a checkpoint is put once", planOf(run.Checkpoint), func(r *ride) { r.turn(session.Completed) }, nil},
		{"while a candidate is checked", planOf(run.Agent, validates), func(r *ride) {
			r.deliver(r.session)
			r.answer()
			r.end(r.session, session.Completed)
		}, nil},
		{"after the check refused it", planOf(run.Agent, validates), func(r *ride) {
			r.deliver(r.session)
			r.answer()
			r.end(r.session, session.Completed)
			r.claim()
			if _, err := r.verdict(store.Rejected, "too short"); err != nil {
				r.t.Fatal(err)
			}
		}, []string{"reminder"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := asking(t, c.plan)
			c.do(r)
			r.waits(c.why, c.left...)
			if q := r.request(); q.Reminders > 1 {
				t.Errorf("%d reminders were made", q.Reminders)
			}
		})
	}
	r := asking(t, planOf(run.Decision))
	r.report(r.session)
	if m := r.send(r.session); m == nil || m.Kind.StartsTurn() {
		t.Errorf("a decision is shown and starts no turn: %+v", m)
	}
	r.report(r.session)
	r.begin(r.session, "")
	r.end(r.session, session.Completed)
	r.waits("a human decision is never reminded of")
}

// A turn that came to no end is prompted again, three times, by the same request
// and attempt and without spending a reminder; then a person has to look, who
// gives three more. An answer in between ends all that.
func TestLostTurns(t *testing.T) {
	for name, end := range map[string]func(r *ride){
		"aborted by the host": func(r *ride) { r.turn(session.Aborted) },
		"lost":                (*ride).lost,
	} {
		for _, k := range []run.Kind{run.Agent, run.Assistant} {
			t.Run(name+"/"+k.String(), func(t *testing.T) {
				r := asking(t, planOf(k))
				for round := range 2 { // in the second one the resume itself has prompted once
					for n := range 3 - round {
						end(r)
						r.waits(fmt.Sprintf("round %d, turn %d", round, n), "resumed")
					}
					end(r)
					r.waits("three resumed prompts are enough")
					r.is("a person has to look", request.Pending, launch.Parked, launch.ParkAttention)
					if l := r.launch(); l.Attention != launch.PromptsLost {
						t.Errorf("attention for %s", l.Attention)
					}
					carry(r.bed, store.Resume{Run: r.run})
					r.waits("a person resumes it", "resumed")
				}
				if q := r.request(); q.Reminders != 0 || q.Attempt != 1 {
					t.Errorf("%d reminders, attempt %d", q.Reminders, q.Attempt)
				}
				for range 3 {
					end(r)
				}
				r.is("again", request.Pending, launch.Parked, launch.ParkAttention)
				r.answer()
				r.is("an answer ends the attention", request.Accepted, launch.Parked, launch.ParkDue)
				r.claim()
				if l := r.launch(); l.State != launch.Done {
					t.Errorf("the run is %s", l.State)
				}
			})
		}
	}
}

// A turn may be over before any report has shown its message: the model is told
// again once one does.
func TestTurnOverBeforeItsMessageIsSeen(t *testing.T) {
	for end, then := range map[session.End]string{session.Completed: "reminder", session.Aborted: "resumed"} {
		r := asking(t, planOf(run.Agent))
		m := r.send(r.session)
		r.begin(r.session, m.ID)
		r.end(r.session, end)
		r.waits("the message is not seen yet", "initial")
		r.report(r.session)
		r.waits("it is seen, and its turn is over", then)
	}
}

// A provider's error holds the run until a person resumes it; the request is
// prompted again then, however often that happens.
func TestProviderErrors(t *testing.T) {
	r := asking(t, planOf(run.Agent))
	for range 5 {
		r.turn(session.Error)
		r.waits("after an error")
		r.is("held", request.Pending, launch.Parked, launch.ParkPaused)
		if _, err := r.tryClaim(store.Claim{}); !errors.Is(err, launch.ErrPaused) {
			t.Errorf("a claim: %v", err)
		}
		carry(r.bed, store.Resume{Run: r.run})
		r.waits("resumed", "resumed")
	}
	r.deliver(r.session)
	r.answer()
	r.end(r.session, session.Error)
	r.is("an answered request is not held", request.Accepted, launch.Parked, launch.ParkDue)
}

// Escape in the run's own turn holds the run and the session. A person's resume
// frees both; so does a shutdown that follows, for the abort was a disconnect
// then, unless the person typed in between.
func TestEscape(t *testing.T) {
	escaped := func(t *testing.T) *ride {
		r := asking(t, planOf(run.Agent))
		r.deliver(r.session)
		r.settle(r.session, session.Aborted, true, nil)
		r.is("held", request.Pending, launch.Parked, launch.ParkPaused)
		r.waits("held")
		if s := must(r.all()).Sessions[0]; !s.Held || s.HeldRun != r.run {
			t.Errorf("the session: held %v, run %s", s.Held, s.HeldRun)
		}
		return r
	}
	held := func(r *ride, want bool) {
		r.t.Helper()
		if s, l := must(r.all()).Sessions[0], r.launch(); s.Held != want && want || l.Paused != want {
			r.t.Errorf("session held %v, run paused %v; want %v", s.Held, l.Paused, want)
		}
	}
	t.Run("resume", func(t *testing.T) {
		r := escaped(t)
		carry(r.bed, store.Resume{Run: r.run})
		held(r, false)
		r.waits("resumed by a person", "resumed")
		r.turn(session.Completed)
	})
	t.Run("shutdown", func(t *testing.T) {
		r := escaped(t)
		r.see(r.session, session.Disconnect{Epoch: r.epochs[r.session], Shutdown: true})
		held(r, false)
		r.connect(r.session)
		r.waits("the session is back", "resumed")
	})
	t.Run("disconnect alone", func(t *testing.T) {
		r := escaped(t)
		r.see(r.session, session.Disconnect{Epoch: r.epochs[r.session]})
		r.connect(r.session)
		held(r, true)
	})
	t.Run("paused besides, then shutdown", func(t *testing.T) {
		r := escaped(t)
		carry(r.bed, store.Pause{Run: r.run})
		r.see(r.session, session.Disconnect{Epoch: r.epochs[r.session], Shutdown: true})
		if !r.launch().Paused {
			t.Error("a person's own pause is lifted by a shutdown")
		}
	})
	t.Run("input, then shutdown", func(t *testing.T) {
		r := escaped(t)
		r.see(r.session, session.Input{Epoch: r.epochs[r.session]})
		r.see(r.session, session.Disconnect{Epoch: r.epochs[r.session], Shutdown: true})
		if !r.launch().Paused {
			t.Error("the person typed, so that the shutdown is another matter")
		}
	})
	t.Run("answered while held", func(t *testing.T) {
		r := escaped(t)
		r.answer()
		r.is("held", request.Accepted, launch.Parked, launch.ParkPaused)
		carry(r.bed, store.Resume{Run: r.run})
		r.claim()
		if l := r.launch(); l.State != launch.Done {
			t.Errorf("the run is %s", l.State)
		}
	})
}

// spent is what the attempt's budget has spent, and how many intervals are
// closed.
func (r *ride) spent() (time.Duration, int) {
	n := 0
	for _, iv := range must(r.all()).Spent {
		if iv.Run == r.run {
			n++
		}
	}
	return r.record().Active.Spent, n
}

func (r *ride) sample() store.Sampled {
	r.t.Helper()
	return carry(r.bed, store.Sample{Session: r.session, Epoch: r.epochs[r.session]})
}

// Only the time in which a turn of the request is open, watched and not held is
// spent, on a clock that no adjustment moves.
func TestActiveTime(t *testing.T) {
	wait := func(d time.Duration) func(*ride) { return func(r *ride) { r.clock.Advance(d) } }
	jump := func(d time.Duration) func(*ride) { return func(r *ride) { r.clock.Jump(d) } }
	open := func(r *ride) { r.deliver(r.session) }
	end := func(r *ride) { r.end(r.session, session.Completed) }
	sample := func(r *ride) { r.sample() }
	pause := func(r *ride) { carry(r.bed, store.Pause{Run: r.run}) }
	resume := func(r *ride) { carry(r.bed, store.Resume{Run: r.run}) }
	disconnect := func(r *ride) { r.see(r.session, session.Disconnect{Epoch: r.epochs[r.session]}) }
	connect := func(r *ride) { r.connect(r.session) }
	restart := func(r *ride) {
		if err := r.reopen(); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, c := range []struct {
		why       string
		steps     []func(*ride)
		spent     time.Duration
		intervals int // closed, besides that of the code that asked
	}{
		{"waiting for its turn costs nothing", []func(*ride){wait(time.Hour), open, end}, 0, 1},
		{"a turn", []func(*ride){open, wait(25 * time.Second), end}, 25 * time.Second, 1},
		{"a turn, sampled", []func(*ride){open, wait(10 * time.Second), sample, wait(10 * time.Second), sample, wait(5 * time.Second), end}, 25 * time.Second, 1},
		{"two turns", []func(*ride){open, wait(10 * time.Second), end, wait(time.Hour), open, wait(10 * time.Second), end}, 20 * time.Second, 2},
		{"the wall clock jumps forward", []func(*ride){open, wait(10 * time.Second), jump(time.Hour), sample, wait(10 * time.Second), end}, 20 * time.Second, 1},
		{"and backward", []func(*ride){open, wait(10 * time.Second), jump(-time.Hour), sample, wait(10 * time.Second), end}, 20 * time.Second, 1},
		{"paused in the turn", []func(*ride){open, wait(10 * time.Second), pause, wait(time.Hour), sample, resume, sample, wait(10 * time.Second), end}, 20 * time.Second, 2},
		{"disconnected in the turn", []func(*ride){open, wait(10 * time.Second), disconnect, wait(time.Hour), connect, sample, wait(10 * time.Second), end}, 20 * time.Second, 2},
		{"paused and disconnected, one over the other", []func(*ride){open, wait(10 * time.Second), pause, wait(time.Minute), disconnect, wait(time.Minute),
			resume, wait(time.Minute), connect, sample, wait(10 * time.Second), end}, 20 * time.Second, 2},
		{"disconnected and paused, one over the other", []func(*ride){open, wait(10 * time.Second), disconnect, wait(time.Minute), pause, wait(time.Minute),
			connect, sample, wait(time.Minute), resume, sample, wait(10 * time.Second), end}, 20 * time.Second, 2},
		{"taken over without a word: up to the last sample", []func(*ride){open, wait(10 * time.Second), sample, wait(10 * time.Second), connect}, 10 * time.Second, 1},
		{"another process goes on with the clock", []func(*ride){open, wait(10 * time.Second), sample, wait(5 * time.Second), restart, sample,
			wait(10 * time.Second), end}, 20 * time.Second, 1},
		{"answered in the turn, which goes on", []func(*ride){open, wait(10 * time.Second), func(r *ride) { r.answer() }, wait(time.Minute), end}, 10 * time.Second, 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := asking(t, planOf(run.Agent, func(n *run.Node) { n.Budget = time.Hour }))
			began := r.record().Began
			_, before := r.spent()
			for _, step := range c.steps {
				was, _ := r.spent()
				step(r)
				if now, _ := r.spent(); now < was {
					t.Fatalf("the spent time falls from %v to %v", was, now)
				}
			}
			if spent, n := r.spent(); spent != c.spent || n-before != c.intervals {
				t.Errorf("spent %v in %d intervals, want %v in %d", spent, n-before, c.spent, c.intervals)
			}
			if now := r.record().Began; now != began {
				t.Errorf("the start of the attempt moved from %s to %s", began, now)
			}
		})
	}
}

// The code of an attempt spends its time up to the last renewal when its host is
// lost, and the attempt that replaces it begins anew.
func TestActiveTimeOfALostWorker(t *testing.T) {
	b := newBed(t)
	r := b.start("", &run.Plan{MaxSteps: 10, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute, Budget: time.Minute}}})
	if a := r.claim(); a.Next.Budget != time.Minute {
		t.Errorf("the worker may spend %v", a.Next.Budget)
	}
	b.clock.Advance(10 * time.Second)
	carry(b, store.Renew{Run: r.run, Authority: r.auth, Lease: launch.DefaultLease})
	b.clock.Advance(15 * time.Second)
	if err := b.reopen(); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Hour)
	if a := r.lose(); a.Next.Attempt != 2 || a.Next.Budget != time.Minute {
		t.Fatalf("%+v", a)
	}
	all := must(b.all()).Spent
	if len(all) != 1 || all[0].Spent != 10*time.Second || all[0].Attempt != 1 {
		t.Errorf("the intervals are %+v, want 10 s of attempt 1", all)
	}
	b.clock.Advance(5 * time.Second)
	r.ok("1")
	all = must(b.all()).Spent
	if len(all) != 2 || all[1].Spent != 5*time.Second || all[1].Attempt != 2 {
		t.Errorf("the intervals are %+v, want 5 s of attempt 2 besides", all)
	}
}

// An attempt that used up its time in its own turn owes the session a turn, in
// the transaction that ends the request and before the turn is stopped; nothing
// of the run starts until that turn is over.
func TestTimeoutInTheActiveTurn(t *testing.T) {
	r := asking(t, then(planOf(run.Agent, timed), run.Node{Path: "after", Kind: run.Compute}))
	m := r.deliver(r.session)
	r.clock.Advance(59 * time.Second)
	if got := r.sample(); got.TimedOut || r.record().Active.Spent != 59*time.Second {
		t.Fatalf("%+v, spent %v", got, r.record().Active.Spent)
	}
	r.clock.Advance(time.Second)
	r.take()
	if !r.sample().TimedOut {
		t.Fatal("the budget is used up")
	}
	var order []string
	for _, e := range r.take() {
		if e.Kind == "request.expired" || e.Turn == intents.EvRequested || e.Of == session.EvTurnClosed {
			order = append(order, e.Kind)
		}
	}
	if !reflect.DeepEqual(order, []string{"request.expired", "intent.requested"}) {
		t.Errorf("it tells %v", order)
	}
	owed := must(r.store.Intents(bg, r.session))
	if len(owed) != 1 || owed[0].Cause != intents.TimedOut || owed[0].Eligible() {
		t.Errorf("owed is %+v", owed)
	}
	s := must(r.all()).Sessions[0]
	if s.Abort != m.ID || s.Open != m.ID {
		t.Errorf("turn %s is open, %s to be stopped; want %s", s.Open, s.Abort, m.ID)
	}
	if got := r.sample(); got.TimedOut {
		t.Error("it times out once")
	}
	if got := r.respond(r.act(request.ActSubmit, launch.Model, `{"n":1}`)); !errors.Is(got.Refused, launch.ErrExpired) {
		t.Errorf("an answer after the end: %+v", got)
	}
	if _, err := r.tryClaim(store.Claim{}); !errors.Is(err, launch.ErrNotAllowed) {
		t.Errorf("a claim while the turn is being stopped: %v", err)
	}
	r.end(r.session, session.Aborted)
	r.waits("a request that is over is not prompted again")
	if a := r.claim(); a.Next.Attempt != 2 || a.Next.Retry != 1 {
		t.Errorf("the declared retry: %+v", a.Next)
	}
	r.ask()
	if d := r.deliver(r.session); d.Intent != owed[0].ID {
		t.Errorf("the next prompt serves intent %q, want %s", d.Intent, owed[0].ID)
	}
	r.report(r.session)
	if i := must(r.store.Intent(bg, owed[0].ID)); i.Resolution != intents.ByWorkflowPrompt {
		t.Errorf("the intent is resolved by %s", i.Resolution)
	}
}

// A turn that begins when its request is answered already is told to stop, and
// holds nothing up: the run goes on at once, however long the turn takes to end.
func TestTurnOfAnAnsweredRequest(t *testing.T) {
	r := asking(t, then(planOf(run.Checkpoint), run.Node{Path: "after", Kind: run.Compute}))
	m := r.send(r.session)
	if got := r.answer(); got.Outcome != request.Taken {
		t.Fatalf("%+v", got)
	}
	if seen := r.begin(r.session, m.ID); seen.Abort != m.ID {
		t.Fatalf("the turn goes on: %+v", seen)
	}
	if a := r.claim(); a.Next.Node != "after" {
		t.Errorf("the run waits for the turn: %+v", a)
	}
}
