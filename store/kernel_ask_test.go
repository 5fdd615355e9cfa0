package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// This file draws what is asked and answered in [TestKernelProperty].

// askGraphs are the plans with nodes that ask, in which everything that a plan
// can declare occurs.
var askGraphs = map[string]*run.Plan{
	"flow": {MaxSteps: 30, Start: "draft", Settings: &run.Settings{Defaults: json.RawMessage(`{"tone":"dry","n":1}`), Form: json.RawMessage(`{"type":"object","properties":{"tone":{},"n":{}}}`), Model: []string{"tone"}},
		Nodes: []run.Node{
			{Path: "draft", Kind: run.Agent, Budget: 30 * time.Second, Ask: &run.Ask{Form: json.RawMessage(`{"type":"integer"}`), Validates: true, Updates: true},
				Retry: &run.Retry{Max: 2, Backoff: 10 * time.Second, On: []run.Outcome{run.Failed, run.TimedOut}}},
			{Path: "check", Kind: run.Checkpoint, Choices: []string{"fine", "again"}, Ask: &run.Ask{Form: json.RawMessage(`{"type":"string"}`), Expires: time.Minute, Default: json.RawMessage(`"fine"`)}},
			decision("ok"), approved("post"),
			{Path: "say", Kind: run.Notify, Final: true}},
		Edges: []run.Edge{leads("draft", "check"), forks("check", run.OnOutput, "fine", "ok", "again", "draft"), forks("ok", run.OnOutput, "yes", "post", "no", "draft"),
			forks("post", run.OnOutcome, "ok", "say", "failed", "draft")}},
	"talk": {MaxSteps: 30, Start: "m/talk",
		Nodes: []run.Node{
			{Path: "m/talk", Kind: run.Assistant, Budget: 30 * time.Second, Ask: &run.Ask{Form: json.RawMessage(`{"type":"string"}`)}},
			{Path: "say", Kind: run.Notify}},
		Edges: []run.Edge{leads("m/talk", "say"), leads("say", "m/talk")}},
	"poll": {MaxSteps: 30, Start: "vote",
		Nodes: []run.Node{
			{Path: "check", Kind: run.Checkpoint, Ask: &run.Ask{Form: json.RawMessage(`{"type":"integer"}`), Validates: true, Expires: time.Hour},
				Retry: &run.Retry{Max: 2, Backoff: time.Minute, On: []run.Outcome{run.TimedOut}}},
			{Path: "say", Kind: run.Notify},
			{Path: "vote", Kind: run.Checkpoint, Ask: &run.Ask{Form: json.RawMessage(`{"type":"integer"}`), Expires: time.Minute, Default: json.RawMessage(`1`)}}},
		Edges: []run.Edge{leads("check", "say"), leads("say", "vote"), leads("vote", "check")}},
	"gate": {MaxSteps: 30, Start: "ok", Settings: &run.Settings{Defaults: json.RawMessage(`{}`), Form: json.RawMessage(`{"type":"object"}`)},
		Nodes: []run.Node{
			decision("ok"), approved("post"),
			{Path: "work", Kind: run.Compute, Budget: 40 * time.Second, Retry: &run.Retry{Max: 1, On: []run.Outcome{run.Failed}}}},
		Edges: []run.Edge{forks("ok", run.OnOutput, "yes", "post", "no", "work"), leads("post", "work"), leads("work", "ok")}},
}

func leads(from, to string) run.Edge { return run.Edge{From: from, On: run.Plain, To: to} }

func forks(from string, on run.On, pairs ...string) run.Edge {
	e := run.Edge{From: from, On: on}
	for i := 0; i < len(pairs); i += 2 {
		e.Cases = append(e.Cases, run.Case{Value: pairs[i], To: pairs[i+1]})
	}
	return e
}

func decision(path string) run.Node {
	return run.Node{Path: path, Kind: run.Decision, Choices: []string{"yes", "no"}, Ask: &run.Ask{Form: json.RawMessage(`{"type":"string"}`), Audience: "reviewers",
		Texts: []run.TextInput{{Choice: "no", Max: 20, Required: true}}, Expires: time.Hour, Default: json.RawMessage(`"yes"`)}}
}

func approved(path string) run.Node {
	return run.Node{Path: path, Kind: run.Action, Policy: run.Observed, Reads: []string{"ok"}, Approval: "ok", Approving: []string{"yes"}}
}

func init() {
	maps.Copy(graphs, askGraphs)
	for name, p := range askGraphs {
		if err := p.Validate(); err != nil {
			panic(fmt.Sprintf("plan %s: %v", name, err)) // a fault of the test
		}
	}
}

// subject is what every decision is about.
var subject = digestNamed("subject")

// asks makes a proposal of a worker at a node that asks: its question, or what
// its validation code says of the answer.
func (k *kernel) asks(h *held, n *run.Node, c *store.Propose) {
	c.Outcome, c.Output = 0, nil
	if h.next.Candidate != nil {
		switch pickOf(k, "accepted", "accepted", "accepted", "accepted", "rejected", "stopped") {
		case "accepted":
			c.Verdict = store.Accepted
		case "rejected":
			c.Verdict, c.Failure = store.Rejected, launch.NewSafeError(launch.CodeNodeFailed, "too short")
		case "stopped":
			c.Verdict = store.NoVerdict
		}
		return
	}
	c.Ask = &store.Ask{Task: "do it"}
	if n.Kind == run.Decision {
		c.Ask.Title, c.Ask.Subject = "Do it?", subject
	}
}

// reserve asks for the reservation of an approved effect.
func (k *kernel) reserve(h *held) {
	c := store.Reserve{Run: h.run, Authority: h.auth, Plan: graphs[h.plan], Node: h.next.Node, Visit: h.next.Visit, Attempt: h.next.Attempt, Fingerprint: subject}
	if k.odds(10) {
		c.Fingerprint = digestNamed("another proposal")
	}
	if _, err := do[struct{}](k, c); err == nil {
		h.next.Reserve = false
	}
}

// respond acts on a request, mostly as it wants to be acted on.
func (k *kernel) respond() {
	all := k.before.Requests
	if len(all) == 0 {
		return
	}
	q := all[k.one(len(all))]
	for range 4 { // an open one, if there is any
		if q.State == request.Pending {
			break
		}
		q = all[k.one(len(all))]
	}
	k.respondTo(q)
}

func (k *kernel) respondTo(q request.Request) {
	if len(k.acts) > 0 && k.odds(10) { // the same call once more, or its key for another
		c := k.acts[k.one(len(k.acts))]
		if k.odds(30) {
			c.Payload = []byte(`2`)
		}
		do[store.Response](k, c)
		return
	}
	a := request.Act{Request: q.ID, Key: fmt.Sprintf("act-%d", k.n), Session: q.Session, Actor: launch.Model, Revision: q.Revision}
	switch q.Kind {
	case run.Agent:
		a.Action = pickOf(k, request.ActSubmit, request.ActSubmit, request.ActSubmit, request.ActUpdate)
	case run.Assistant:
		a.Action = request.ActRespond
	case run.Checkpoint:
		a.Action, a.Actor = request.ActAnswer, pickOf(k, launch.Model, launch.Person)
	case run.Decision:
		a.Action, a.Actor = request.ActDecide, launch.Person
	}
	if a.Session == "" {
		a.Actor = launch.Person
	}
	if k.odds(25) { // something about it is wrong
		a.Action, a.Actor = pickOf(k, request.Actions()...), pickOf(k, launch.Model, launch.Person, launch.Host, launch.Worker, launch.Timer)
		a.Request = pickOf(k, q.ID, q.ID, "req-invented", request.ID(q.Run, q.Node, q.Visit, q.Attempt+1))
		a.Session = pickOf(k, q.Session, q.Session, kernelSessions[0], kernelSessions[1], "")
		a.Revision = pickOf(k, q.Revision, 0, q.Revision-1, q.Revision+1)
	}
	if a.Actor == launch.Person {
		a.Session, a.Person, a.Channel, a.Event = "", "alice", "pi", a.Key
	}
	a.Payload = []byte(pickOf(k, `1`, `1`, `2`))
	switch {
	case a.Action == request.ActUpdate:
		a.Payload = fmt.Appendf(nil, `{"completed":%d,"total":9}`, k.one(10))
	case a.Action == request.ActDecide:
		a.Payload = []byte(pickOf(k, `{"choice":"yes"}`, `{"choice":"yes"}`, `{"choice":"no","text":"shorter"}`))
	case q.Kind == run.Checkpoint && k.plan(q.Run) == "flow":
		a.Payload = []byte(pickOf(k, `"fine"`, `"again"`))
	case q.Kind == run.Assistant:
		a.Payload = []byte(`"a text"`)
	}
	if k.odds(8) {
		a.Payload = []byte(pickOf(k, ``, `{`, `null`, `[1]`, "\"\xff\"", `{"choice":"maybe"}`, `{"choice":"no"}`))
	}
	c := store.Respond{Act: a}
	if i := k.sessionOf(a.Session); i >= 0 && a.Actor == launch.Model && k.odds(60) {
		c.Epoch = k.epoch(i)
	}
	k.acts = append(k.acts, c)
	do[store.Response](k, c)
}

// awaited does what a parked run waits for, and reports whether it waits.
func (k *kernel) awaited(l launch.Launch) bool {
	wall, _ := k.memory.clock.Now()
	for _, r := range k.before.Runs {
		if r.ID == l.ID && r.Due != 0 {
			k.advance(max(0, r.Due.Sub(wall)))
			do[int](k, store.Lapse{})
			return true
		}
	}
	for _, q := range k.before.Requests {
		if q.Run != l.ID || q.State != request.Pending {
			continue
		}
		if q.Deadline != 0 && k.odds(30) {
			k.advance(max(0, q.Deadline.Sub(wall)))
			do[int](k, store.Lapse{})
		} else {
			k.respondTo(q)
		}
		return true
	}
	return false
}

func (k *kernel) sessionOf(key launch.SessionKey) int {
	for i := range kernelSessions {
		if kernelSessions[i] == key {
			return i
		}
	}
	return -1
}

// inTurn is what the model does in a turn that puts a request.
func (k *kernel) inTurn(s int) bool {
	row := k.sessionRow(s)
	for i := range k.before.Messages {
		m := &k.before.Messages[i]
		if row.Open != m.ID || m.Request == "" {
			continue
		}
		if k.odds(45) {
			k.advance(pickOf(k, 10*time.Second, 40*time.Second))
			do[store.Sampled](k, store.Sample{Session: row.Key, Epoch: k.epoch(s)})
			return true
		}
		for _, q := range k.before.Requests {
			if q.ID == m.Request && q.State == request.Pending && q.Kind != run.Assistant {
				k.respondTo(q)
				return true
			}
		}
	}
	return false
}

// reply is what a settled turn said.
func (k *kernel) reply() *store.Reply {
	if k.odds(20) {
		return nil
	}
	r := &store.Reply{PromptEntry: fmt.Sprintf("p%d", k.n), ReplyEntry: fmt.Sprintf("r%d", k.n), Text: pickOf(k, "a text", "a text", ""), Usable: k.odds(60)}
	if k.odds(3) {
		r.Text = "\xff"
	}
	return r
}

// ask is what people, models and hosts do about requests, effects and settings.
func (k *kernel) ask() {
	switch pickOf(k, "respond", "respond", "respond", "respond", "lapse", "sample", "resolve", "configure", "show", "again") {
	case "respond":
		k.respond()
	case "lapse":
		if k.odds(60) {
			k.advance(pickOf(k, 10*time.Second, time.Minute, time.Hour))
		}
		do[int](k, store.Lapse{})
	case "sample":
		s := k.one(2)
		do[store.Sampled](k, store.Sample{Session: kernelSessions[s], Epoch: k.epoch(s)})
	case "resolve":
		k.resolve()
	case "configure":
		k.configure()
	case "show":
		if all := k.before.Requests; len(all) > 0 {
			id := all[k.one(len(all))].ID
			do[store.Presenting](k, store.Present{Channel: "pi", Request: id})
			do[struct{}](k, store.Shown{Channel: "pi", Request: id, Over: k.odds(50)})
		}
	case "again":
		k.again()
	}
}

func (k *kernel) resolve() {
	all := k.before.Effects
	if len(all) == 0 {
		return
	}
	e := all[k.one(len(all))]
	for range 4 {
		if e.State == effect.Ambiguous {
			break
		}
		e = all[k.one(len(all))]
	}
	c := store.ResolveEffect{Run: e.Key.Run, Effect: e.Key.ID().String(), Actor: pickOf(k, launch.Person, launch.Person, launch.Person, launch.Model),
		Verdict: pickOf(k, effect.SaysApplied, effect.SaysRejected, effect.SaysUnknown), Evidence: pickOf(k, "seen", "seen", "asked", "")}
	if c.Verdict == effect.SaysApplied && k.odds(50) {
		c.Output = []byte(pickOf(k, `1`, `1`, `{`))
	}
	if k.odds(5) {
		c.Effect = digestNamed("no effect").String()
	}
	do[store.Resolved](k, c)
}

func (k *kernel) configure() {
	all := k.before.Runs
	if len(all) == 0 {
		return
	}
	r := all[k.one(len(all))]
	for range 4 {
		if r.Settings > 0 && !r.Status.Terminal() {
			break
		}
		r = all[k.one(len(all))]
	}
	c := store.Configure{Run: r.ID, Plan: graphs[k.plan(r.ID)], Digest: digestNamed(pickOf(k, "d1", "d1", "d1", "d1", "d2")), Revision: pickOf(k, r.Settings, r.Settings, r.Settings, r.Settings-1, r.Settings+1),
		Patch: []byte(pickOf(k, `{"tone":"warm"}`, `{"tone":"warm"}`, `{"n":null}`, `{"tone":{"x":1}}`, `[]`, `{`)), Actor: pickOf(k, launch.Model, launch.Person, launch.Host)}
	for _, l := range k.before.Launches {
		if l.ID == r.ID {
			c.Session = l.Session
		}
	}
	do[uint32](k, c)
}

// again restarts a run, usually one that has ended.
func (k *kernel) again() {
	for _, r := range k.before.Runs {
		if !r.Status.Terminal() && !k.odds(10) || k.odds(50) {
			continue
		}
		for _, l := range k.before.Launches {
			if l.ID != r.ID {
				continue
			}
			c := store.Start{Request: launch.Request{Workflow: l.Workflow, Source: l.Source, Digest: l.Digest, ID: launch.NewRunID("w", fmt.Sprintf("%026d", k.n)),
				Mode: l.Mode, Session: l.Session, Scope: l.Scope, Parent: l.ID, Actor: launch.Person}, Revision: r.Revision}
			if k.odds(20) {
				c.Revision--
			}
			if k.odds(30) {
				c.RequestKey = "again-" + string(l.ID)
			}
			if a, err := do[store.Started](k, c); err == nil && a.Created {
				k.acked = append(k.acked, a.Run)
			}
			return
		}
	}
}
