package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// settling are the events that say how a request ended.
func (r *ride) settlings() int {
	n := r.kinds()
	return n["request.accepted"] + n["request.expired"] + n["request.cancelled"]
}

// A person, the deadline and a cancel compete for one request, in every order:
// the first one wins for ever, and the others are told who did.
func TestPersonDeadlineAndCancel(t *testing.T) {
	const person, deadline, cancel = 0, 1, 2
	names := []string{"person", "deadline", "cancel"}
	for _, k := range []run.Kind{run.Checkpoint, run.Decision} {
		for _, declared := range []bool{false, true} {
			for _, order := range permutations([]int{person, deadline, cancel}) {
				first := order[0]
				name := fmt.Sprintf("%s/default %v/%s, %s, %s", k, declared, names[first], names[order[1]], names[order[2]])
				t.Run(name, func(t *testing.T) {
					r := asking(t, planOf(k, func(n *run.Node) {
						n.Ask.Expires = time.Hour
						if declared {
							n.Ask.Default = []byte(map[run.Kind]string{run.Checkpoint: `{"n":0}`, run.Decision: `"reject"`}[k])
						}
					}))
					answer := r.act(fits[k].action, launch.Person, fits[k].payload)
					for n, who := range order {
						switch who {
						case person:
							got := r.respond(answer)
							want := map[int]launch.Kind{deadline: launch.ErrExpired, cancel: launch.ErrEnded}[first]
							if first == deadline && declared {
								want = launch.ErrAlreadyDecided
								if got.Refused == nil || !strings.Contains(got.Refused.Error(), "deadline") {
									t.Errorf("the person is not told of the declared answer: %v", got.Refused)
								}
							}
							if n == 0 && got.Outcome != request.Taken || n > 0 && !errors.Is(got.Refused, want) {
								t.Errorf("the person is told %s, %v; want %s", got.Outcome, got.Refused, want)
							}
						case deadline:
							r.clock.Advance(2 * time.Hour)
							if got := carry(r.bed, store.Lapse{}); got != map[bool]int{true: 1}[n == 0] {
								t.Errorf("%d deadlines came to something", got)
							}
						case cancel:
							if got := carry(r.bed, store.Cancel{Run: r.run, Actor: launch.Person}); !got.Won {
								t.Errorf("the run is ended by a cancel until it has: %+v", got)
							}
						}
					}
					q := r.request()
					want := map[int]request.State{person: request.Accepted, deadline: request.Expired, cancel: request.Cancelled}[first]
					by := map[int]launch.Actor{person: launch.Person}[first]
					if first == deadline && declared {
						want, by = request.Accepted, launch.Timer
					}
					if q.State != want || q.By.Actor != by || r.settlings() != 1 {
						t.Errorf("the request is %s by %s, settled %d times; want %s by %s, once", q.State, q.By.Actor, r.settlings(), want, by)
					}
					if l := r.launch(); l.State != launch.Cancelled {
						t.Errorf("the run is %s", l.State)
					}
				})
			}
		}
	}
}

// The same at once, many times, in memory and on SQLite: one of them wins, and
// every answer agrees with what is stored.
func TestPersonDeadlineAndCancelAtOnce(t *testing.T) {
	for name, path := range map[string]string{"memory": "", "SQLite": fileIn(t)} {
		t.Run(name, func(t *testing.T) {
			b := &bed{bench: newBench(path), t: t}
			defer b.close()
			plan := planOf(run.Decision, func(n *run.Node) { n.Ask.Expires = time.Hour })
			for range 20 {
				id := start(t, b.store)
				c := claimOf(id, b.next("token"), "one")
				c.Plan = plan
				a := must(store.Do(bg, b.store, c))
				must(store.Do(bg, b.store, store.Propose{Run: id, Authority: launch.Authority{Runner: c.Runner, Token: c.Token, Generation: a.Generation},
					Plan: plan, Node: "ask", Visit: 1, Attempt: 1, Ask: &store.Ask{Title: "May it?", Task: "Look."}}))
				r := &ride{bed: b, run: id, plan: plan, ids: []string{request.ID(id, "ask", 1, 1)}}
				act := r.act(request.ActDecide, launch.Person, `{"choice":"approve"}`)
				b.clock.Advance(time.Hour - 1)
				var said store.Response
				var cancelled store.Cancellation
				errs := together(3, func(n int) (err error) {
					switch n {
					case 0:
						said, err = store.Do(bg, b.store, act)
					case 1:
						cancelled, err = store.Do(bg, b.store, store.Cancel{Run: id, Actor: launch.Person})
					case 2:
						b.clock.Advance(1)
						_, err = store.Do(bg, b.store, store.Lapse{})
					}
					return err
				})
				q := must(b.store.Request(bg, r.id()))
				if err := errors.Join(errs...); err != nil || !cancelled.Won {
					t.Fatal(err, cancelled)
				}
				if (said.Refused == nil) != (q.State == request.Accepted) || !q.State.Over() || r.settlings() != 1 {
					t.Fatalf("the person is told %v, the request is %s and settled %d times", said.Refused, q.State, r.settlings())
				}
			}
		})
	}
}

// A deadline passed while no host ran: nothing answers the request any more,
// although nobody has looked, and the first look decides. A clock that jumped
// decides nothing for a lease.
func TestDeadlineWhileNoHostRan(t *testing.T) {
	r := asking(t, then(planOf(run.Checkpoint, func(n *run.Node) {
		n.Ask.Expires, n.Ask.Default = time.Hour, []byte(`{"n":0}`)
	}), run.Node{Path: "after", Kind: run.Compute}))
	wall, _ := r.clock.Now()
	if at := must(r.store.Deadline(bg)); at != wall.Add(time.Hour) {
		t.Errorf("the next deadline is %s", at)
	}
	r.clock.Advance(24 * time.Hour)
	if err := r.reopen(); err != nil {
		t.Fatal(err)
	}
	late := r.act(request.ActAnswer, launch.Person, `{"n":1}`)
	if got := r.respond(late); !errors.Is(got.Refused, launch.ErrExpired) {
		t.Errorf("an answer after the deadline: %+v", got)
	}
	r.is("nobody has looked", request.Pending, launch.Parked, launch.ParkWaiting)
	if n := carry(r.bed, store.Lapse{}); n != 1 {
		t.Fatalf("%d deadlines have passed", n)
	}
	r.connect(r.session)
	r.claim()
	if r.output("ask") != `{"n":0}` {
		t.Errorf("the output is %s, want the default", r.output("ask"))
	}
	if at := must(r.store.Deadline(bg)); at != 0 {
		t.Errorf("a deadline is left: %s", at)
	}
	if n := carry(r.bed, store.Lapse{}); n != 0 {
		t.Errorf("%d deadlines are handled again", n)
	}

	jumped := asking(t, planOf(run.Checkpoint, func(n *run.Node) { n.Ask.Expires = time.Hour }))
	jumped.clock.Jump(3 * time.Hour)
	if n := carry(jumped.bed, store.Lapse{}); n != 0 {
		t.Errorf("a clock that jumped decides %d deadlines", n)
	}
	if got := jumped.answer(); got.Outcome != request.Taken {
		t.Errorf("%+v", got)
	}
	back := asking(t, planOf(run.Checkpoint, func(n *run.Node) { n.Ask.Expires = time.Hour }))
	back.clock.Jump(-3 * time.Hour)
	carry(back.bed, store.Lapse{})
	back.clock.Advance(2 * time.Hour)
	if n := carry(back.bed, store.Lapse{}); n != 0 {
		t.Errorf("a deadline is absolute: %d passed before it", n)
	}
	back.clock.Advance(2 * time.Hour)
	if n := carry(back.bed, store.Lapse{}); n != 1 {
		t.Errorf("%d deadlines passed at last", n)
	}
}

// Whatever happens to the request of a paused run, nothing starts before a
// person resumes it; then what came meanwhile is used.
func TestPauseKeepsTheRequest(t *testing.T) {
	for k := range fits {
		for _, c := range []struct {
			why       string
			meanwhile func(r *ride)
			due       bool   // after the resume
			output    string // of the node, then
		}{
			{"nothing came", func(*ride) {}, false, ""},
			{"it was answered", func(r *ride) { r.answer() }, true, "answer"},
			{"it expired", func(r *ride) {
				if !r.request().Kind.Prompts() {
					r.clock.Advance(2 * time.Hour)
					carry(r.bed, store.Lapse{})
				}
			}, !k.Prompts(), ""},
			{"paused again, by the model too", func(r *ride) {
				carry(r.bed, store.Pause{Run: r.run, Actor: launch.Model, Session: r.session, Epoch: r.epochs[r.session]})
			}, false, ""},
		} {
			t.Run(k.String()+"/"+c.why, func(t *testing.T) {
				r := asking(t, then(planOf(k, func(n *run.Node) {
					if !k.Prompts() {
						n.Ask.Expires = time.Hour
					}
				}), run.Node{Path: "after", Kind: run.Compute}))
				carry(r.bed, store.Pause{Run: r.run})
				c.meanwhile(r)
				if l := r.launch(); l.Park != launch.ParkPaused || l.Ready != 0 {
					t.Errorf("the launch is %s, ready %s", l.Park, l.Ready)
				}
				before := must(r.dump())
				if _, err := r.tryClaim(store.Claim{}); !errors.Is(err, launch.ErrPaused) {
					t.Errorf("a claim while paused: %v", err)
				}
				if _, err := try(r.bed, store.Resume{Run: r.run, Actor: launch.Model, Session: r.session}); !errors.Is(err, launch.ErrNotAllowed) {
					t.Errorf("a resume by the model: %v", err)
				}
				if !reflect.DeepEqual(before, must(r.dump())) {
					t.Error("what was refused changed something")
				}
				carry(r.bed, store.Resume{Run: r.run})
				if l := r.launch(); (l.Ready != 0) != c.due || !c.due && l.Park != launch.ParkWaiting {
					t.Fatalf("after the resume the launch is %s, ready %s", l.Park, l.Ready)
				}
				if !c.due {
					r.answer()
				}
				r.claim()
				if c.due && c.output == "" {
					if l := r.launch(); l.Error.Code != launch.CodeRequestExpired {
						t.Errorf("the run is %s, %v", l.State, l.Error)
					}
				} else if r.at.Node != "after" || r.output("ask") == "" {
					t.Errorf("the run is at %s, the output is %s", r.at.Node, r.output("ask"))
				}
			})
		}
	}
}

// A host whose definition changed cannot go on with a run, and answers are taken
// all the same: they need the contract that is stored with the request alone.
func TestChangedDefinition(t *testing.T) {
	r := asking(t, then(planOf(run.Decision), run.Node{Path: "after", Kind: run.Compute}))
	other := store.Claim{Digest: digestNamed("d2")}
	if _, err := r.tryClaim(other); !errors.Is(err, launch.ErrNotAllowed) {
		t.Errorf("a claim of a run that waits: %v", err)
	}
	r.is("it waits", request.Pending, launch.Parked, launch.ParkWaiting)
	r.answer()
	if a, err := r.tryClaim(other); err != nil || a.State != launch.Parked {
		t.Fatalf("%+v, %v", a, err)
	}
	r.is("a person has to look", request.Accepted, launch.Parked, launch.ParkAttention)
	if got := r.respond(r.act(request.ActDecide, launch.Person, `{"choice":"reject"}`)); !errors.Is(got.Refused, launch.ErrAlreadyDecided) {
		t.Errorf("a later decision: %+v", got)
	}
	carry(r.bed, store.Resume{Run: r.run})
	if a := r.claim(); a.Next.Node != "after" || !strings.Contains(r.output("ask"), `"choice":"approve"`) {
		t.Errorf("with the pinned definition it goes on: %+v, output %s", a, r.output("ask"))
	}

	// It was validating when the definition changed: the candidate stays.
	v := asking(t, planOf(run.Checkpoint, validates))
	v.answer()
	if a, err := v.tryClaim(other); err != nil || a.State != launch.Parked {
		t.Fatalf("%+v, %v", a, err)
	}
	v.is("nobody can check it", request.Validating, launch.Parked, launch.ParkAttention)
	carry(v.bed, store.Resume{Run: v.run})
	if a := v.claim(); a.Next.Candidate == nil {
		t.Errorf("%+v", a)
	}
}

// What a decision of a person leaves is the choice, with who made it; it binds
// the digest of what is decided, and no revision but the current one is decided.
func TestDecisions(t *testing.T) {
	p := planOf(run.Decision, func(n *run.Node) { n.Ask.Texts = []run.TextInput{{Choice: "reject", Max: 10, Required: true}} })
	for _, c := range []struct {
		payload string
		change  func(*store.Respond)
		refused launch.Kind
		output  string
		why     string
	}{
		{`{"choice":"approve"}`, nil, 0, `{"choice":"approve","by":"person","person":"ada"}`, "a choice"},
		{`{"choice":"reject","text":"too dear"}`, nil, 0, `{"choice":"reject","text":"too dear","by":"person","person":"ada"}`, "with its text"},
		{`{"choice":"reject"}`, nil, launch.ErrInvalid, "", "the text is required"},
		{`{"choice":"reject","text":"far too dear"}`, nil, launch.ErrInvalid, "", "the text is too long"},
		{`{"choice":"approve"}`, func(c *store.Respond) { c.Revision = 7 }, launch.ErrStale, "", "another revision than the person saw"},
		{`{"choice":"approve"}`, func(c *store.Respond) { c.Revision = 0 }, launch.ErrStale, "", "no revision at all"},
		{`{"choice":"approve"}`, func(c *store.Respond) { c.Person = "" }, launch.ErrInvalid, "", "nobody in particular"},
		{`{"choice":"approve"}`, func(c *store.Respond) { c.Event = "" }, launch.ErrInvalid, "", "no event of the channel"},
	} {
		r := asking(t, p)
		act := r.act(request.ActDecide, launch.Person, c.payload)
		if c.change != nil {
			c.change(&act)
		}
		got := r.respond(act)
		if (got.Refused == nil) != (c.refused == 0) || c.refused != 0 && !errors.Is(got.Refused, c.refused) {
			t.Errorf("%s: %s, %v; want %s", c.why, got.Outcome, got.Refused, c.refused)
		}
		if c.refused != 0 {
			r.is(c.why, request.Pending, launch.Parked, launch.ParkWaiting)
			continue
		}
		if q := r.request(); q.Subject != launch.DigestOf([]byte("proposal")) || q.By.Person != "ada" || q.By.Channel != "pi" {
			t.Errorf("%s: subject %.8s by %+v", c.why, q.Subject, q.By)
		}
		if r.claim(); r.output("ask") != c.output {
			t.Errorf("%s: the output is %s, want %s", c.why, r.output("ask"), c.output)
		}
	}
	// A key is its actor's: nobody else adopts the decision with it.
	mine := asking(t, p)
	act := mine.act(request.ActDecide, launch.Person, `{"choice":"approve"}`)
	if got := mine.respond(act); got.Outcome != request.Taken {
		t.Fatalf("%+v", got)
	}
	for _, actor := range []launch.Actor{launch.Worker, launch.Timer, launch.Host} {
		act.Actor = actor
		if got := mine.respond(act); got.Outcome != request.Conflict || !errors.Is(got.Refused, launch.ErrNotAllowed) {
			t.Errorf("the %s with the person's key: %+v", actor, got)
		}
	}
	by := asking(t, planOf(run.Decision, func(n *run.Node) { n.Ask.Expires, n.Ask.Default = time.Hour, []byte(`"reject"`) }))
	by.clock.Advance(time.Hour)
	carry(by.bed, store.Lapse{})
	if by.claim(); by.output("ask") != `{"choice":"reject","by":"timeout"}` {
		t.Errorf("the declared answer is %s", by.output("ask"))
	}
}
