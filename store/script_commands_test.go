package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
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
		"ask": (*actor).ask, "respond": (*actor).respond, "request": (*actor).request,
		"lapse": func(a *actor, g *args) (string, error) {
			return said(a, g, store.Lapse{}, func(n int) string { return fmt.Sprintf("ok %d due", n) })
		},
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
		"abandon": func(a *actor, g *args) (string, error) {
			return said(a, g, store.Abandon{Session: g.session()}, okNothing)
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
