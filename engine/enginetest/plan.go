package enginetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/piworkflows/engine/run"
	"pgregory.net/rapid"
)

// even draws a number below n, each about equally often; it shrinks to 0.
func even(t *rapid.T, label string, n int) int {
	return int(rapid.Uint32().Draw(t, label) * 2654435761 >> 16 % uint32(n))
}

// one draws an element; repeat an element to draw it more often.
func one[V any](t *rapid.T, label string, from ...V) V { return from[even(t, label, len(from))] }

// odds draws true in about percent of 100 cases.
func odds(t *rapid.T, label string, percent int) bool {
	return even(t, label, 100) >= 100-percent
}

const maxNodes = 6 // of a drawn plan

// Plans generates valid plans of 1 to 6 nodes of every kind: closed sets, loops,
// switches on outputs and outcomes, reads, budgets, retries, deadlines with and
// without a default, validation code, an action that needs an approval, and
// settings.
func Plans() *rapid.Generator[run.Plan] {
	return rapid.Custom(func(t *rapid.T) run.Plan {
		n := 1 + even(t, "nodes", maxNodes)
		p := run.Plan{MaxSteps: uint32(one(t, "max steps", 40, 40, 12, 3)), Start: "n0"}
		for i := range n {
			p.Nodes = append(p.Nodes, node(t, i))
			if d := &p.Nodes[max(i, 1)-1]; i > 0 && d.Kind == run.Decision && odds(t, "then act", 60) {
				p.Nodes[i] = run.Node{Path: path(i), Kind: run.Action, Policy: one(t, "its policy", run.Repeatable, run.Observed, run.Unrepeatable)}
			}
			if e := edge(t, p.Nodes[i], i, n); e != nil {
				p.Edges = append(p.Edges, *e)
			}
		}
		if odds(t, "settings", 50) {
			p.Settings = &run.Settings{Defaults: json.RawMessage(`{"a":1,"b":{"c":2}}`), Form: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"object","properties":{"c":{"type":"integer"}}}}}`), Model: []string{"b.c"}}
		}
		for i := range p.Nodes { // what every path to a node has accepted, it may read
			for j := range i {
				read(&p, i, p.Nodes[j].Path)
			}
			approve(t, &p, i)
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("enginetest: a drawn plan is refused: %v", err)
		}
		return p
	})
}

// path is a name; every other one is mounted.
func path(i int) string { return strings.Repeat("m/", i%2) + fmt.Sprintf("n%d", i) }

func node(t *rapid.T, i int) run.Node {
	n := run.Node{Path: path(i), Kind: one(t, "kind", run.Compute, run.Action, run.Agent, run.Agent, run.Assistant, run.Checkpoint, run.Decision, run.Notify)}
	if n.Kind == run.Action {
		n.Policy = one(t, "policy", run.Repeatable, run.Observed, run.Unrepeatable)
	}
	closed := n.Kind != run.Action && n.Kind != run.Assistant && n.Kind != run.Notify && odds(t, "closed set", 50)
	if closed || n.Kind == run.Decision {
		n.Choices = []string{"x", "y"}
	}
	if n.Kind.Asks() {
		n.Ask = ask(t, &n)
	} else if n.Kind == run.Notify {
		n.Final = odds(t, "final", 30)
	}
	if n.Kind < run.Checkpoint && odds(t, "budget", 40) {
		n.Budget = one(t, "active time", time.Second, time.Minute)
	}
	if n.Approval == "" && odds(t, "retries", 35) {
		n.Retry = &run.Retry{Max: uint32(1 + even(t, "retry max", 2)), Backoff: one(t, "backoff", 0, time.Second, time.Minute),
			On: one(t, "retry on", []run.Outcome{run.Failed}, []run.Outcome{run.TimedOut}, []run.Outcome{run.Failed, run.TimedOut})}
	}
	return n
}

func ask(t *rapid.T, n *run.Node) *run.Ask {
	a := &run.Ask{Form: json.RawMessage(`{"type":"integer"}`), Validates: n.Kind != run.Decision && odds(t, "validates", 40), Updates: n.Kind == run.Agent && odds(t, "updates", 50)}
	if n.Choices != nil || n.Kind == run.Assistant {
		a.Form = json.RawMessage(`{"type":"string"}`)
	}
	if n.Kind == run.Decision {
		a.Audience = one(t, "audience", "", "release managers")
		if odds(t, "text", 50) {
			a.Texts = []run.TextInput{{Choice: "y", Max: 5, Required: odds(t, "required", 50)}}
		}
	}
	if n.Kind >= run.Checkpoint && odds(t, "expires", 50) {
		a.Expires = one(t, "deadline", time.Minute, time.Hour)
		if odds(t, "default", 50) {
			a.Default = json.RawMessage(`1`)
			if n.Choices != nil {
				a.Default = json.RawMessage(`"x"`)
			}
		}
	}
	return a
}

// edge keeps every node on a way from the start: one way leads to the next node.
func edge(t *rapid.T, n run.Node, i, of int) *run.Edge {
	other := func() string { return path(even(t, "target", of)) }
	next := path(i + 1)
	if i == of-1 {
		if odds(t, "ends", 70) {
			return nil
		}
		next = other()
	}
	e := &run.Edge{From: n.Path, On: run.Plain, To: next}
	switch {
	case n.Choices != nil && odds(t, "on output", 60):
		e.On, e.To, e.Cases = run.OnOutput, "", []run.Case{{Value: "x", To: next}, {Value: "y", To: other()}}
	case odds(t, "on outcome", 30):
		e.On, e.To, e.Cases = run.OnOutcome, "", []run.Case{{Value: "ok", To: next}}
		for _, o := range []run.Outcome{run.Failed, run.TimedOut, run.Cancelled} {
			if odds(t, "routed", 50) {
				e.Cases = append(e.Cases, run.Case{Value: o.String(), To: other()})
			}
		}
	}
	return e
}

func read(p *run.Plan, i int, path string) {
	n := &p.Nodes[i]
	before := n.Reads
	n.Reads = append(before[:len(before):len(before)], path)
	if p.Validate() != nil {
		n.Reads = before
	}
}

// approve lets an action need the first decision that it may read.
func approve(t *rapid.T, p *run.Plan, i int) {
	n := &p.Nodes[i]
	at := slices.IndexFunc(p.Nodes, func(d run.Node) bool { return d.Kind == run.Decision && slices.Contains(n.Reads, d.Path) })
	if n.Kind == run.Action && at >= 0 && odds(t, "approval", 80) {
		n.Approval, n.Approving = p.Nodes[at].Path, []string{"x"}
		n.Retry = nil
	}
}

// Output generates outputs that a node takes.
func Output(n *run.Node) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		switch {
		case n.Choices != nil:
			return []byte(one(t, "choice", `"x"`, `"x"`, `"y"`))
		case n.Kind == run.Assistant || n.Kind == run.Notify:
			return []byte(one(t, "text", `"done"`, `"more"`))
		}
		return []byte(one(t, "number", "1", "2"))
	})
}

// Junk generates payloads that no node takes.
func Junk() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		return []byte(one(t, "junk", "", "nul", `{"x":`, `{"x":1,"x":2}`, "\"\xff\"", `1 2`, `[[1]]`, `{"choice":"z"}`))
	})
}
