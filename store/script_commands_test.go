package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// actor carries out the commands of a script on one store.
type actor struct {
	b        *bench
	names    map[string]string // by id
	ids      map[string]string // by name
	count    map[string]int
	replaced []string
	epochs   map[string]uint64 // of sessions, as the script's bridge knows them
	claims   map[string]*held
	attempts map[string]attempt
}

// held is what a worker of the script knows of its claim.
type held struct {
	run  launch.RunID
	auth launch.Authority
	plan string
	next store.Next
}

type attempt struct {
	message string
	token   launch.Digest
}

func newActor(b *bench) *actor {
	a := &actor{b: b, names: map[string]string{}, ids: map[string]string{}, count: map[string]int{}, epochs: map[string]uint64{},
		claims: map[string]*held{}, attempts: map[string]attempt{}}
	for _, d := range []string{"d1", "d2"} {
		a.replaced = append(a.replaced, digestNamed(d).String(), d, digestNamed(d).String()[:12], d)
	}
	return a
}

func digestNamed(name string) launch.Digest { return launch.DigestOf([]byte(name)) }

// args are the arguments of one command.
type args struct {
	words []string
	a     *actor
	err   error
}

func (g *args) opt(key, missing string) string {
	for _, w := range g.words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return missing
}

func (g *args) need(key string) string {
	v := g.opt(key, "\x00")
	if v == "\x00" {
		g.fail("%s= is missing", key)
	}
	return v
}

func (g *args) has(flag string) bool {
	for _, w := range g.words {
		if w == flag {
			return true
		}
	}
	return false
}

func (g *args) fail(format string, v ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, v...)
	}
}

func (g *args) number(key string, missing uint64) uint64 {
	v := g.opt(key, "")
	if v == "" {
		return missing
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		g.fail("%s: %w", key, err)
	}
	return n
}

func (g *args) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		g.fail("%w", err)
	}
	return d
}

// id returns the id behind a name; an unknown name is an id of nothing.
func (g *args) id(name string) string {
	if id := g.a.ids[name]; id != "" {
		return id
	}
	return name
}

func (g *args) run() launch.RunID { return launch.RunID(g.id(g.need("run"))) }

// session returns the key of a session, which exists by being named.
func (g *args) session() launch.SessionKey {
	name := g.need("session")
	if id := g.a.ids[name]; id != "" {
		return launch.SessionKey(id)
	}
	if name == "" || name[0] != 'S' {
		return launch.SessionKey(name)
	}
	k, err := launch.NewSessionKey(strings.ToLower(name), "/sessions/"+name)
	if err != nil {
		g.fail("%w", err)
	}
	g.a.bind(name, string(k))
	return k
}

func (g *args) epoch() uint64 { return g.number("epoch", g.a.epochs[g.need("session")]) }

func (g *args) actor(missing string) launch.Actor {
	name := g.opt("actor", missing)
	for _, a := range []launch.Actor{launch.Model, launch.Person, launch.Host, launch.Worker, launch.Timer} {
		if a.String() == name {
			return a
		}
	}
	g.fail("no actor %s", name)
	return 0
}

func (g *args) safe() launch.SafeError {
	code := g.opt("code", "")
	if code == "" {
		return launch.SafeError{}
	}
	return launch.NewSafeError(launch.Code(code), g.opt("message", ""))
}

// claim returns what a worker shows, which the script may falsify.
func (g *args) claim() (*held, launch.Authority) {
	h := g.a.claims[g.need("claim")]
	if h == nil {
		g.fail("no claim of that name")
		return &held{plan: "one"}, launch.Authority{}
	}
	auth := h.auth
	auth.Runner = g.opt("runner", auth.Runner)
	auth.Generation = g.number("generation", auth.Generation)
	if g.has("forged-token") {
		auth.Token = digestNamed("forged")
	}
	if g.has("no-token") {
		auth.Token = launch.Digest{}
	}
	return h, auth
}

func (g *args) plan(missing string) *run.Plan {
	p := graphs[g.opt("plan", missing)]
	if p == nil {
		g.fail("no plan of that name")
	}
	return p
}

// list returns the ids behind comma separated names.
func (g *args) list(key string) (ids []string) {
	for _, n := range strings.Split(g.opt(key, ""), ",") {
		if n != "" {
			ids = append(ids, g.id(n))
		}
	}
	return ids
}

// do carries out one command and returns its printout without events.
func (a *actor) do(words []string) (string, error) {
	g := &args{words: words[1:], a: a}
	f := scriptCommands[words[0]]
	if f == nil {
		return "", fmt.Errorf("no command %s", words[0])
	}
	printed, err := f(a, g)
	if g.err != nil {
		return "", g.err
	}
	return printed, err
}

// said does a command and prints its answer.
func said[A any](a *actor, g *args, c store.Command[A], print func(A) string) (string, error) {
	if g.err != nil {
		return "", g.err
	}
	answer, err := store.Do(bg, a.b.store, c)
	if err != nil {
		return "", err
	}
	return print(answer), nil
}

func okState(s launch.State) string { return "ok " + s.String() }
func okNothing(struct{}) string     { return "ok" }
func okSeen(s store.Seen) string {
	out := "ok"
	if s.Own != 0 {
		out += " " + s.Own.String()
	}
	if s.Abort != "" {
		out += " abort " + s.Abort
	}
	return out
}

var scriptCommands map[string]func(*actor, *args) (string, error)

func init() {
	scriptCommands = map[string]func(*actor, *args) (string, error){
		"start": (*actor).start, "claim": (*actor).claim, "activate": (*actor).activate, "propose": (*actor).propose,
		"fail-activation": func(a *actor, g *args) (string, error) {
			h, auth := g.claim()
			return said(a, g, store.FailActivation{Run: h.run, Authority: auth, Error: g.safe()}, okState)
		},
		"renew": func(a *actor, g *args) (string, error) {
			h, auth := g.claim()
			return said(a, g, store.Renew{Run: h.run, Authority: auth, Lease: g.duration(g.opt("lease", "30s"))}, func(r store.Renewed) string {
				return "ok " + map[bool]string{true: "pause", false: "go on"}[r.Paused]
			})
		},
		"release": func(a *actor, g *args) (string, error) {
			h, auth := g.claim()
			return said(a, g, store.Release{Run: h.run, Authority: auth}, okState)
		},
		"recover": func(a *actor, g *args) (string, error) {
			return said(a, g, store.Recover{Run: g.run(), Generation: g.number("generation", 1)}, okState)
		},
		"receipt": func(a *actor, g *args) (string, error) {
			h, auth := g.claim()
			return said(a, g, store.Receipt{Run: h.run, Token: auth.Token, Node: g.opt("node", h.next.Node), Visit: h.next.Visit, Applied: g.has("applied")},
				func(recorded bool) string { return fmt.Sprintf("ok recorded=%v", recorded) })
		},
		"cancel": func(a *actor, g *args) (string, error) {
			c := store.Cancel{Run: g.run(), Actor: g.actor("person"), Epoch: g.number("epoch", 0)}
			if g.opt("session", "") != "" {
				c.Session = g.session()
			}
			return said(a, g, c, printCancellation)
		},
		"pause":  func(a *actor, g *args) (string, error) { return said(a, g, store.Pause{Run: g.run()}, okState) },
		"resume": func(a *actor, g *args) (string, error) { return said(a, g, store.Resume{Run: g.run()}, okState) },
		"prompt": func(a *actor, g *args) (string, error) {
			return said(a, g, store.Prompt{Run: g.run(), Text: g.opt("text", "go on")}, okNothing)
		},
		"connect": func(a *actor, g *args) (string, error) {
			c := store.Connect{Session: g.session(), Connect: session.Connect{Host: g.opt("host", "A"), Process: g.opt("process", "p1"), Durable: g.has("durable")}}
			return said(a, g, c, func(epoch uint64) string {
				a.epochs[g.need("session")] = epoch
				return fmt.Sprintf("ok epoch=%d", epoch)
			})
		},
		"disconnect": func(a *actor, g *args) (string, error) {
			return a.observe(g, session.Disconnect{Epoch: g.epoch()})
		},
		"shutdown": func(a *actor, g *args) (string, error) {
			return a.observe(g, session.Disconnect{Epoch: g.epoch(), Shutdown: true})
		},
		"input": func(a *actor, g *args) (string, error) { return a.observe(g, session.Input{Epoch: g.epoch()}) },
		"turn-start": func(a *actor, g *args) (string, error) {
			return a.observe(g, session.TurnStarted{Epoch: g.epoch(), Turn: g.need("turn"), Message: g.id(g.opt("message", ""))})
		},
		"turn-settle": func(a *actor, g *args) (string, error) {
			ends := map[string]session.End{"completed": session.Completed, "aborted": session.Aborted, "error": session.Error, "lost": session.Lost}
			return a.observe(g, session.TurnSettled{Epoch: g.epoch(), Turn: g.need("turn"), End: ends[g.opt("end", "completed")], ByPerson: g.has("by-person")})
		},
		"report": (*actor).report, "try": (*actor).try,
		"answer": func(a *actor, g *args) (string, error) {
			verdicts := map[string]session.Verdict{"taken": session.Taken, "present": session.Present, "occupied": session.Occupied, "refused": session.Refused}
			at, ok := a.attempts[g.need("attempt")]
			if !ok {
				g.fail("no attempt of that name")
			}
			return said(a, g, store.Answer{Session: g.session(), Answer: session.Answer{Message: at.message, Token: at.token, Verdict: verdicts[g.need("verdict")], Reason: g.opt("reason", "")}}, okNothing)
		},
		"reopen": func(a *actor, g *args) (string, error) {
			return said(a, g, store.Reopen{Session: g.session(), Message: g.id(g.need("message"))}, okNothing)
		},
		"advance": func(a *actor, g *args) (string, error) { return a.clock(g, a.b.clock.Advance) },
		"jump":    func(a *actor, g *args) (string, error) { return a.clock(g, a.b.clock.Jump) },
		"late-timer": func(a *actor, g *args) (string, error) {
			return "ok", a.b.store.Distrust(bg)
		},
		"reopen-file": func(a *actor, g *args) (string, error) { return "ok", a.b.reopen() },
		"status":      (*actor).status, "events": (*actor).stored, "intents": (*actor).intents, "secret": (*actor).secret,
		"intent": func(a *actor, g *args) (string, error) {
			i, err := a.b.store.Intent(bg, g.id(g.need("intent")))
			return printIntent(&i), err
		},
		"message": func(a *actor, g *args) (string, error) {
			m, err := a.b.store.Message(bg, g.id(g.need("message")))
			return printMessage(&m), err
		},
		"waiting": (*actor).waiting,
	}
}

func (a *actor) observe(g *args, saw session.Command) (string, error) {
	return said(a, g, store.Observe{Session: g.session(), Saw: saw}, okSeen)
}

func (a *actor) clock(g *args, move func(time.Duration)) (string, error) {
	move(g.duration(g.words[0]))
	wall, _ := a.b.clock.Now()
	return since(wall), g.err
}

func (a *actor) start(g *args) (string, error) {
	ulid, err := a.b.store.NewID()
	if err != nil {
		return "", err
	}
	workflow := g.opt("workflow", "build")
	r := launch.Request{
		ID: launch.NewRunID(workflow, ulid), Workflow: workflow, Source: g.opt("source", "src"), Digest: digestNamed(g.opt("digest", "d1")),
		Input: []byte(g.opt("input", "{}")), Group: g.opt("group", ""),
		Scope: g.opt("scope", ""), RequestKey: g.opt("key", ""), Parent: launch.RunID(g.id(g.opt("parent", ""))),
	}
	if o := g.opt("options", ""); o != "" {
		r.Options = []byte(o)
	}
	if id := g.opt("id", ""); id != "" {
		r.ID = launch.RunID(g.id(id))
	}
	c := store.Start{Request: r, ToolCall: g.opt("tool", "")}
	if g.opt("session", "") == "" {
		c.Mode, c.Actor = launch.Headless, g.actor("host")
	} else {
		c.Mode, c.Session, c.Actor = launch.Interactive, g.session(), g.actor("model")
		if c.Actor == launch.Model {
			c.Epoch = g.epoch()
		}
		if c.RequestKey != "" && c.Scope == "" {
			c.Scope = string(c.Session)
		}
	}
	return said(a, g, c, func(s store.Started) string {
		if s.Created {
			a.bind(g.need("run"), string(s.Run))
			return fmt.Sprintf("ok %s created %s", s.Run, s.State)
		}
		return fmt.Sprintf("ok %s adopted %s", s.Run, s.State)
	})
}

func (a *actor) claim(g *args) (string, error) {
	token, err := a.b.store.NewToken()
	if err != nil {
		return "", err
	}
	plan := g.opt("plan", "one")
	c := store.Claim{
		Run: g.run(), Runner: g.opt("by", "A"), Token: token.Hash(), Lease: g.duration(g.opt("lease", "30s")),
		Digest: digestNamed(g.opt("digest", "d1")), Source: g.opt("source", "src"), Plan: g.plan("one"), Capacity: int(g.number("capacity", 4)),
		Begin: g.has("begin"), Lost: g.has("lost"), Generation: g.number("generation", 0),
	}
	return said(a, g, c, func(answer store.Claimed) string {
		if name := g.opt("as", ""); name != "" {
			a.claims[name] = &held{c.Run, launch.Authority{Runner: c.Runner, Token: c.Token, Generation: answer.Generation}, plan, answer.Next}
		}
		return printClaimed(answer)
	})
}

func (a *actor) activate(g *args) (string, error) {
	h, auth := g.claim()
	return said(a, g, store.Activate{Run: h.run, Authority: auth, Plan: g.plan(h.plan)}, func(c store.Claimed) string {
		h.next = c.Next
		return printClaimed(c)
	})
}

func (a *actor) propose(g *args) (string, error) {
	h, auth := g.claim()
	outcomes := map[string]run.Outcome{"ok": run.OK, "failed": run.Failed, "timed_out": run.TimedOut, "cancelled": run.Cancelled}
	c := store.Propose{
		Run: h.run, Authority: auth, Plan: g.plan(h.plan), Node: g.opt("node", h.next.Node),
		Visit: uint32(g.number("visit", uint64(h.next.Visit))), Attempt: uint32(g.number("attempt", uint64(h.next.Attempt))),
		Outcome: outcomes[g.opt("outcome", "ok")], Failure: g.safe(), Unknown: g.has("unknown"), Observed: g.has("observed"), Applied: g.has("applied"),
	}
	if c.Outcome == run.OK {
		c.Output = []byte(g.opt("output", "1"))
	}
	return said(a, g, c, func(n store.Next) string {
		if !n.Ended && !n.Parked {
			h.next = n
		}
		return "ok " + printNext(n)
	})
}

func (a *actor) report(g *args) (string, error) {
	r := session.Report{Epoch: g.epoch(), Idle: !g.has("busy"), Pending: g.has("pending")}
	for _, m := range g.list("present") {
		r.Evidence = append(r.Evidence, session.Evidence{Message: m, Present: true})
	}
	for _, m := range g.list("durable") {
		r.Evidence = append(r.Evidence, session.Evidence{Message: m, Present: true, Durable: true})
	}
	for _, m := range g.list("replied") {
		r.Evidence = append(r.Evidence, session.Evidence{Message: m, Present: true, Durable: true, Replied: true})
	}
	for _, m := range g.list("absent") {
		r.Evidence = append(r.Evidence, session.Evidence{Message: m})
	}
	return a.observe(g, r)
}

func (a *actor) try(g *args) (string, error) {
	token, err := a.b.store.NewToken()
	if err != nil {
		return "", err
	}
	c := store.Try{Session: g.session(), Epoch: g.epoch(), Token: token.Hash()}
	return said(a, g, c, func(s store.Send) string {
		if s.Message == nil {
			return strings.TrimSuffix("nothing: "+s.Why, ": ")
		}
		a.attempts[g.opt("as", "a1")] = attempt{s.Message.ID, c.Token}
		var body store.Body
		if err := json.Unmarshal(s.Message.Body, &body); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("send %s %s issue=%d deadline=%s %s\n| %s", s.Message.ID, s.Message.Kind, s.Message.Issue, since(s.Message.Attempt.Deadline),
			body.CustomType, strings.ReplaceAll(body.Content, "\n", "\n| "))
	})
}

func (a *actor) status(g *args) (string, error) {
	id := launch.RunID("")
	if g.opt("run", "") != "" {
		id = g.run()
	} else {
		var err error
		if id, err = a.b.store.Displayed(bg, g.session()); err != nil || id == "" {
			return "no run", err
		}
	}
	f, err := a.b.store.Facts(bg, id)
	if err != nil {
		return "", err
	}
	out, err := json.Marshal(view.Of(f))
	return string(out), err
}

func (a *actor) stored(g *args) (string, error) {
	var all []store.Record
	var err error
	if g.opt("run", "") != "" {
		all, err = a.b.store.RunEvents(bg, g.run(), 0)
	} else {
		all, err = a.b.store.SessionEvents(bg, g.session(), 0)
	}
	lines := []string{fmt.Sprintf("%d events", len(all))}
	for _, r := range all {
		lines = append(lines, fmt.Sprintf("%d %s %s state=%d generation=%d %s", r.N, since(r.At), r.Kind, r.State, r.Generation, r.Data))
	}
	return strings.Join(lines, "\n"), err
}

func (a *actor) intents(g *args) (string, error) {
	all, err := a.b.store.Intents(bg, g.session())
	lines := []string{fmt.Sprintf("%d pending", len(all))}
	for i := range all {
		lines = append(lines, printIntent(&all[i]))
	}
	return strings.Join(lines, "\n"), err
}

func (a *actor) secret(g *args) (string, error) {
	d, err := a.b.dump()
	if err != nil {
		return "", err
	}
	found := d.secrets(g.need("marker"))
	if len(found) == 0 {
		return "nowhere", nil
	}
	return "in " + strings.Join(found, ", "), nil
}

// waiting prints what a scheduler and a coordinator would look at.
func (a *actor) waiting(g *args) (string, error) {
	var lines []string
	ready, live, err := a.b.store.Ready(bg, launch.MaxList)
	claims, err2 := a.b.store.Claims(bg, launch.MaxList)
	for _, w := range append(ready, claims...) {
		lines = append(lines, fmt.Sprintf("%s %s due=%s", w.Run, w.State, since(w.Due)))
	}
	return strings.Join(append([]string{fmt.Sprintf("live=%d", live)}, lines...), "\n"), errors.Join(err, err2)
}
