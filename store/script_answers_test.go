package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// The commands of a script that need more than one line, in the order of
// scriptCommands.

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

func (a *actor) ask(g *args) (string, error) {
	h, auth := g.claim()
	c := store.Propose{
		Run: h.run, Authority: auth, Plan: g.plan(h.plan), Node: g.opt("node", h.next.Node),
		Visit: uint32(g.number("visit", uint64(h.next.Visit))), Attempt: uint32(g.number("attempt", uint64(h.next.Attempt))),
		Ask: &store.Ask{Title: g.opt("title", ""), Task: g.opt("task", "Do it."), Subject: launch.DigestOf([]byte(g.opt("subject", "")))},
	}
	return said(a, g, c, func(n store.Next) string { return "ok " + printNext(n) })
}

// respond carries an action to a request. What is refused begins with the word.
func (a *actor) respond(g *args) (string, error) {
	c := store.Respond{Act: request.Act{
		Request: g.id(g.need("request")), Actor: g.actor("model"), Key: g.need("key"), Revision: g.number("revision", 0), Payload: []byte(g.need("payload")),
		Person: g.opt("person", ""), Channel: g.opt("channel", ""), Event: g.opt("event", ""),
	}}
	for _, action := range request.Actions() {
		if action.String() == g.need("action") {
			c.Action = action
		}
	}
	if g.opt("session", "") != "" {
		c.Session, c.Epoch = g.session(), g.epoch()
	}
	return said(a, g, c, func(r store.Response) string {
		if r.Refused != nil {
			return fmt.Sprintf("refused (%s): %v", r.Outcome, r.Refused)
		}
		return fmt.Sprintf("ok %s: %s is %s, revision %d", r.Outcome, r.Request, r.State, r.Revision)
	})
}

func (a *actor) request(g *args) (string, error) {
	q, err := a.b.store.Request(bg, g.id(g.need("request")))
	s := fmt.Sprintf("%s %s run=%s at=%s/%d/%d %s revision=%d prompts=%d", q.ID, q.Kind, q.Run, q.Node, q.Visit, q.Attempt, q.State, q.Revision, q.Prompts)
	if q.By.Actor != 0 {
		s += fmt.Sprintf(" %s by %s", q.ByAction, q.By.Actor)
	}
	if q.Rejection != "" {
		s += fmt.Sprintf(" rejected(%s)", q.Rejection)
	}
	return s, err
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
