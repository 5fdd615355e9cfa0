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
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// This file is the stand on which the tests of requests play: runs that ask, in
// sessions whose bridge is well behaved.

// bed is a store in memory that checks the row invariants after every command.
// Its twin on SQLite does the same; answers and rows are compared.
type bed struct {
	*bench
	twin   *bench // or nil
	t      testing.TB
	n      int // makes keys, tokens and turns
	epochs map[launch.SessionKey]uint64
	active map[launch.SessionKey]string // turns
	branch map[launch.SessionKey][]string
}

// aloneBed is a bed without a twin.
func aloneBed(t testing.TB) *bed {
	b := &bed{bench: newBench(""), t: t, epochs: map[launch.SessionKey]uint64{}, active: map[launch.SessionKey]string{}, branch: map[launch.SessionKey][]string{}}
	t.Cleanup(b.close)
	return b
}

func newBed(t testing.TB) *bed {
	b := aloneBed(t)
	b.twin = &bench{path: fileIn(t), clock: b.clock, entropy: new(entropy)}
	if err := b.twin.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if x, y := must(b.dump()), must(b.twin.dump()); !t.Failed() && !reflect.DeepEqual(x, y) {
			t.Errorf("memory and SQLite hold different rows:\n%s", strings.Join(diffDumps(x, y), "\n"))
		}
		b.twin.close()
	})
	return b
}

// reopen opens the store again, as another process does.
func (b *bed) reopen() error {
	n := b.entropy.n
	err := b.bench.reopen()
	if b.twin != nil && err == nil {
		b.twin.entropy.n = n
		err = b.twin.reopen()
	}
	return err
}

// try carries a command out and returns its refusal, which is no fault.
func try[A any](b *bed, c store.Command[A]) (A, error) {
	b.t.Helper()
	answer, err := store.Do(bg, b.store, c)
	if b.twin != nil {
		if answer2, err2 := store.Do(bg, b.twin.store, c); !reflect.DeepEqual(answer, answer2) && err == nil || fmt.Sprint(err) != fmt.Sprint(err2) {
			b.t.Fatalf("%T: in memory %+v, %v; on SQLite %+v, %v", c, answer, err, answer2, err2)
		}
	}
	var refused *launch.Refusal
	if err != nil && (!errors.As(err, &refused) || refused.Kind == launch.ErrInternal) {
		b.t.Fatalf("%T: %v", c, err)
	}
	if err := rowInvariants(must(b.all())); err != nil {
		b.t.Fatalf("after %T: %v", c, err)
	}
	return answer, err
}

// carry carries a command out that is not refused.
func carry[A any](b *bed, c store.Command[A]) A {
	b.t.Helper()
	answer, err := try(b, c)
	if err != nil {
		b.t.Fatalf("%T%+v: %v", c, c, err)
	}
	return answer
}

func (b *bed) next(what string) string {
	b.n++
	return fmt.Sprint(what, b.n)
}

// connect connects a session's bridge and reports it free.
func (b *bed) connect(k launch.SessionKey) {
	b.t.Helper()
	b.epochs[k] = carry(b, store.Connect{Session: k, Connect: session.Connect{Host: "A", Process: "p1"}})
	b.report(k)
}

func (b *bed) see(k launch.SessionKey, saw session.Command) store.Seen {
	b.t.Helper()
	return carry(b, store.Observe{Session: k, Saw: saw})
}

// report reports the session as free, with what its branch shows.
func (b *bed) report(k launch.SessionKey) {
	b.t.Helper()
	r := session.Report{Epoch: b.epochs[k], Idle: b.active[k] == ""}
	for _, id := range must(b.store.Asked(bg, k)).Names {
		at := slices.Contains(b.branch[k], id)
		r.Evidence = append(r.Evidence, session.Evidence{Message: id, Present: at, Durable: at})
	}
	b.see(k, r)
}

// deliver sends what is due in a session until a message of a request opens a
// turn, and begins that turn. Messages before it open none, or one that ends.
func (b *bed) deliver(k launch.SessionKey) session.Message {
	b.t.Helper()
	for range 20 {
		b.report(k)
		m := b.send(k)
		if m == nil {
			b.t.Fatalf("nothing is due in the session")
		}
		if !m.Kind.StartsTurn() {
			continue
		}
		b.begin(k, m.ID)
		b.report(k) // which shows that it is on the branch
		if m.Request != "" {
			return *m
		}
		b.end(k, session.Completed)
	}
	b.t.Fatal("no message of a request comes")
	return session.Message{}
}

// send lets the bridge take the next message of a session, if there is one.
func (b *bed) send(k launch.SessionKey) *session.Message {
	b.t.Helper()
	token := launch.DigestOf([]byte(b.next("send")))
	s := carry(b, store.Try{Session: k, Epoch: b.epochs[k], Token: token})
	if s.Message == nil {
		return nil
	}
	carry(b, store.Answer{Session: k, Answer: session.Answer{Message: s.Message.ID, Token: token, Verdict: session.Taken}})
	b.branch[k] = append(b.branch[k], s.Message.ID)
	return s.Message
}

func (b *bed) begin(k launch.SessionKey, message string) store.Seen {
	b.t.Helper()
	b.active[k] = b.next("turn")
	return b.see(k, session.TurnStarted{Epoch: b.epochs[k], Turn: b.active[k], Message: message})
}

// end settles the active turn of a session, by the provider, model or host.
func (b *bed) end(k launch.SessionKey, how session.End) { b.t.Helper(); b.settle(k, how, false, nil) }

func (b *bed) settle(k launch.SessionKey, how session.End, byPerson bool, said *store.Reply) {
	b.t.Helper()
	turn := b.active[k]
	b.active[k] = ""
	carry(b, store.Observe{Session: k, Saw: session.TurnSettled{Epoch: b.epochs[k], Turn: turn, End: how, ByPerson: byPerson}, Reply: said})
}

// ride is a run with what its worker knows.
type ride struct {
	*bed
	run     launch.RunID
	session launch.SessionKey // empty when headless
	plan    *run.Plan
	auth    launch.Authority
	at      store.Next
	ids     []string // of its requests, the latest last
}

// start starts a run of a plan, in a session or headless.
func (b *bed) start(k launch.SessionKey, p *run.Plan) *ride {
	b.t.Helper()
	if err := p.Validate(); err != nil {
		b.t.Fatal(err)
	}
	r := headless(b.t, b.store)
	if k != "" {
		r.Mode, r.Session, r.Actor = launch.Interactive, k, launch.Person
	}
	carry(b, store.Start{Request: r})
	return &ride{bed: b, run: r.ID, session: k, plan: p}
}

// claim takes the run, as the next generation.
func (r *ride) claim() store.Claimed {
	r.t.Helper()
	a, err := r.tryClaim(store.Claim{})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *ride) tryClaim(c store.Claim) (store.Claimed, error) {
	r.t.Helper()
	d := claimOf(r.run, r.next("token"), "one")
	d.Plan, d.Lost, d.Generation = r.plan, c.Lost, c.Generation
	if c.Digest != (launch.Digest{}) {
		d.Digest = c.Digest
	}
	a, err := try(r.bed, d)
	if err == nil && a.State.Claimed() {
		r.auth, r.at = launch.Authority{Runner: d.Runner, Token: d.Token, Generation: a.Generation}, a.Next
	}
	return a, err
}

// proposal is what the worker says of the current execution.
func (r *ride) proposal() store.Propose {
	return store.Propose{Run: r.run, Authority: r.auth, Plan: r.plan, Node: r.at.Node, Visit: r.at.Visit, Attempt: r.at.Attempt}
}

func (r *ride) propose(p store.Propose) store.Next {
	r.t.Helper()
	n := carry(r.bed, p)
	if !n.Ended && !n.Parked {
		r.at = n
	}
	return n
}

func (r *ride) ok(output string) store.Next {
	r.t.Helper()
	p := r.proposal()
	p.Outcome, p.Output = run.OK, []byte(output)
	return r.propose(p)
}

func (r *ride) verdict(v store.Verdict, why string) (store.Next, error) {
	r.t.Helper()
	p := r.proposal()
	p.Verdict = v
	if v == store.Rejected {
		p.Failure = launch.NewSafeError(launch.CodeNodeFailed, why)
	}
	n, err := try(r.bed, p)
	if err == nil && !n.Ended && !n.Parked {
		r.at = n
	}
	return n, err
}

// ask opens the request of the current node, and remembers its id.
func (r *ride) ask() string {
	r.t.Helper()
	p := r.proposal()
	p.Ask = &store.Ask{Task: "Do it.", Subject: launch.DigestOf([]byte("proposal"))}
	if r.plan.Node(r.at.Node).Kind == run.Decision {
		p.Ask.Title = "May it be done?"
	}
	if n := r.propose(p); !n.Parked {
		r.t.Fatalf("a run that asks goes on: %+v", n)
	}
	id := request.ID(r.run, r.at.Node, r.at.Visit, r.at.Attempt)
	r.ids = append(r.ids, id)
	return id
}

// id is the request that was opened last.
func (r *ride) id() string { return r.ids[len(r.ids)-1] }

func (r *ride) request() request.Request { r.t.Helper(); return must(r.store.Request(bg, r.id())) }

func (r *ride) launch() launch.Launch { r.t.Helper(); return must(r.store.Launch(bg, r.run)) }

// record is the run's own row.
func (r *ride) record() run.Run {
	for _, one := range must(r.all()).Runs {
		if one.ID == r.run {
			return one
		}
	}
	r.t.Fatal("the run has no record")
	return run.Run{}
}

// act is an action of an actor on this run's request, with a new key.
func (r *ride) act(a request.Action, by launch.Actor, payload string) store.Respond {
	c := store.Respond{Act: request.Act{Request: r.id(), Action: a, Actor: by, Key: r.next("key"), Payload: []byte(payload)}}
	r.as(&c)
	return c
}

// as lets an action come from where its actor is.
func (r *ride) as(c *store.Respond) {
	switch c.Actor {
	case launch.Model:
		c.Session, c.Epoch = r.session, r.epochs[r.session]
	case launch.Person:
		c.Person, c.Channel, c.Event = "ada", "pi", "event"
		if q, err := r.store.Request(bg, c.Request); err == nil {
			c.Revision = q.Revision
		}
	}
}

// respond carries an action out and returns the whole answer.
func (r *ride) respond(c store.Respond) store.Response { r.t.Helper(); return carry(r.bed, c) }

// answer answers the run's request as it wants to be answered.
func (r *ride) answer() store.Response {
	r.t.Helper()
	k := r.request().Kind
	a := r.respond(r.act(fits[k].action, fits[k].by, fits[k].payload))
	if a.Refused != nil {
		r.t.Fatalf("the right answer is refused: %v", a.Refused)
	}
	return a
}

// fits is how each kind is answered.
var fits = map[run.Kind]struct {
	action         request.Action
	by             launch.Actor
	payload, other string
}{
	run.Agent:      {request.ActSubmit, launch.Model, `{"n":1}`, `{"n":2}`},
	run.Assistant:  {request.ActRespond, launch.Model, `"done"`, `"done otherwise"`},
	run.Checkpoint: {request.ActAnswer, launch.Person, `{"n":1}`, `{"n":2}`},
	run.Decision:   {request.ActDecide, launch.Person, `{"choice":"approve"}`, `{"choice":"reject"}`},
}

const (
	formObject = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`
	formText   = `{"type":"string"}`
)

// planOf is a plan of one node that asks.
func planOf(k run.Kind, change ...func(*run.Node)) *run.Plan {
	n := run.Node{Path: "ask", Kind: k, Ask: &run.Ask{Form: []byte(formObject)}}
	switch k {
	case run.Assistant:
		n.Ask.Form = []byte(formText)
	case run.Decision:
		n.Ask.Form, n.Choices = []byte(`{}`), []string{"approve", "reject"}
	}
	for _, f := range change {
		f(&n)
	}
	return &run.Plan{MaxSteps: 100, Start: "ask", Nodes: []run.Node{n}}
}

// then adds a node behind the last one.
func then(p *run.Plan, n run.Node) *run.Plan {
	last := p.Nodes[len(p.Nodes)-1].Path
	p.Nodes = append(p.Nodes, n)
	p.Edges = append(p.Edges, run.Edge{From: last, On: run.Plain, To: n.Path})
	return p
}

func validates(n *run.Node) { n.Ask.Validates = true }

// timed lets an attempt of any kind come to its end, so that it is tried again:
// by its budget, or by its deadline.
func timed(n *run.Node) {
	n.Retry = &run.Retry{Max: 5, On: []run.Outcome{run.TimedOut}}
	if n.Kind.Prompts() {
		n.Budget = time.Minute
	} else {
		n.Ask.Expires = time.Hour
	}
}

// expire ends the open attempt of a timed request.
func (r *ride) expire() {
	r.t.Helper()
	if !r.request().Kind.Prompts() {
		r.clock.Advance(2 * time.Hour)
		if n := carry(r.bed, store.Lapse{}); n != 1 {
			r.t.Fatalf("%d deadlines have passed", n)
		}
		return
	}
	r.deliver(r.session)
	carry(r.bed, store.Sample{Session: r.session, Epoch: r.epochs[r.session]})
	r.clock.Advance(time.Minute)
	if !carry(r.bed, store.Sample{Session: r.session, Epoch: r.epochs[r.session]}).TimedOut {
		r.t.Fatal("the budget is used up and the attempt goes on")
	}
	r.end(r.session, session.Aborted)
	r.report(r.session)
}
