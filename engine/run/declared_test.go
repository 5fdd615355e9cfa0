package run

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/launch"
)

// approved is a decision that lets an action take effect.
func approved(spoil func(*Plan)) Plan {
	p := plan([]Node{
		{Path: "a", Kind: Decision, Choices: []string{"yes", "no"}, Ask: &Ask{Form: []byte(`{"type":"string"}`), Expires: time.Hour,
			Default: []byte(`"no"`), Audience: "owners", Texts: []TextInput{{Choice: "no", Max: MaxText}}}},
		{Path: "b", Kind: Action, Policy: Repeatable, Shell: true, Approval: "a", Approving: []string{"yes"}, Budget: MaxBudget},
		{Path: "c", Kind: Notify, Final: true, Retry: &Retry{Max: MaxRetries, Backoff: MaxBackoff, On: []Outcome{Failed, TimedOut}}},
		{Path: "d", Kind: Agent, Ask: &Ask{Form: []byte(`{}`), Updates: true, Validates: true}},
		{Path: "e", Kind: Checkpoint, Ask: &Ask{Form: []byte(`{}`), Expires: MaxBudget, Default: []byte(`{"any":1}`)}},
		{Path: "f", Kind: Assistant, Ask: &Ask{Form: []byte(`{}`)}},
	}, fork("a", OnOutput, "yes", "b", "no", "c"), then("b", "d"), then("d", "e"), then("e", "f"))
	p.Settings = &Settings{Defaults: []byte(`{"a":{"b":1}}`), Model: []string{"a.b", "free.x"},
		Form: []byte(`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{}}},"free":{"additionalProperties":{}}}}`)}
	if spoil != nil {
		spoil(&p)
	}
	return p
}

func TestDeclared(t *testing.T) {
	ask := func(i int, f func(*Ask)) func(*Plan) {
		return func(p *Plan) { f(p.Nodes[i].Ask) }
	}
	node := func(i int, f func(*Node)) func(*Plan) {
		return func(p *Plan) { f(&p.Nodes[i]) }
	}
	retry := func(f func(*Retry)) func(*Plan) { return func(p *Plan) { f(p.Nodes[2].Retry) } }
	settings := func(f func(*Settings)) func(*Plan) { return func(p *Plan) { f(p.Settings) } }
	big := json.RawMessage(`{"a":"` + strings.Repeat("x", launch.MaxOptions) + `"}`)
	for _, c := range []struct {
		why   string
		spoil func(*Plan)
		want  string
	}{
		{"every declaration at its bound", nil, ""},
		{"a negative budget", node(0, func(n *Node) { n.Budget = -1 }), "node a: budget is -1ns"},
		{"a budget without end", node(0, func(n *Node) { n.Budget = MaxBudget + 1 }), "must be 0 to 8760h0m0s"},
		{"a command that is no effect", node(2, func(n *Node) { n.Shell = true }), "only an action runs a command"},
		{"a last word that nobody sends", node(0, func(n *Node) { n.Final = true }), "only a notify"},
		{"no retry", retry(func(r *Retry) { r.Max = 0 }), "node c: retries must be 1 to 100"},
		{"endless retries", retry(func(r *Retry) { r.Max = MaxRetries + 1 }), "retries must be 1 to 100"},
		{"a negative backoff", retry(func(r *Retry) { r.Backoff = -1 }), "backoff is -1ns"},
		{"a backoff of more than a day", retry(func(r *Retry) { r.Backoff = MaxBackoff + 1 }), "must be 0 to 24h0m0s"},
		{"a retry on nothing", retry(func(r *Retry) { r.On = nil }), "retries need an outcome"},
		{"a retry of what went well", retry(func(r *Retry) { r.On = []Outcome{OK} }), "retries are on outcomes failed and timed_out"},
		{"a retry of what someone ended", retry(func(r *Retry) { r.On = []Outcome{Cancelled} }), "retries are on outcomes"},
		{"one outcome twice", retry(func(r *Retry) { r.On = []Outcome{Failed, Failed} }), "each at most once"},
		{"a question without a form", node(3, func(n *Node) { n.Ask = nil }), "node d: a node of kind agent needs to say"},
		{"a form of what asks nothing", node(2, func(n *Node) { n.Ask = &Ask{Form: []byte(`{}`)} }), "a node of kind notify asks nothing"},
		{"a form that is no object", ask(3, func(a *Ask) { a.Form = []byte(`[]`) }), "form must be a JSON object"},
		{"no form", ask(3, func(a *Ask) { a.Form = nil }), "form must be a JSON object"},
		{"a broken form", ask(3, func(a *Ask) { a.Form = []byte(`{`) }), "form must be a JSON object"},
		{"a huge form", ask(3, func(a *Ask) { a.Form = big }), "at most 65536 bytes"},
		{"a decision about nothing", func(p *Plan) { p.Nodes[0].Choices, p.Edges[0] = nil, fork("a", OnOutcome, "ok", "b", "failed", "c") }, "a decision needs a closed set"},
		{"code that decides", ask(0, func(a *Ask) { a.Validates = true }), "validated by nobody"},
		{"a checkpoint with progress", ask(4, func(a *Ask) { a.Updates = true }), "only an agent takes progress"},
		{"an agent with an audience", ask(3, func(a *Ask) { a.Audience = "x" }), "only a decision has an audience"},
		{"a long audience", ask(0, func(a *Ask) { a.Audience = strings.Repeat("x", MaxAudience+1) }), "audience has 201 bytes; it must have 1 to 200"},
		{"an audience of two lines", ask(0, func(a *Ask) { a.Audience = "a\nb" }), "audience has 3 bytes"},
		{"an agent that expires", ask(3, func(a *Ask) { a.Expires = 1 }), "only a checkpoint or a decision expires"},
		{"a visible text with a default", ask(5, func(a *Ask) { a.Default = []byte(`""`) }), "only a checkpoint or a decision expires"},
		{"a default that is never taken", ask(4, func(a *Ask) { a.Expires = 0 }), "a default needs an expiry"},
		{"a broken default", ask(4, func(a *Ask) { a.Default = []byte(`{`) }), "default must be JSON"},
		{"a huge default", ask(4, func(a *Ask) { a.Default = big }), "default must be JSON of at most 65536"},
		{"a default that is no choice", ask(0, func(a *Ask) { a.Default = []byte(`"maybe"`) }), `default must be one of ["yes" "no"]`},
		{"a default that is no string", ask(0, func(a *Ask) { a.Default = []byte(`1`) }), "default must be one of"},
		{"a default that nobody can explain", ask(0, func(a *Ask) { a.Texts[0].Required = true }), `default "no" needs a text`},
		{"an expiry in the past", ask(4, func(a *Ask) { a.Expires = -1 }), "expiry is -1ns"},
		{"an expiry beyond all", ask(4, func(a *Ask) { a.Expires = MaxBudget + 1 }), "expiry is"},
		{"a text of a checkpoint", ask(4, func(a *Ask) { a.Texts = []TextInput{{"x", 1, false}} }), "only a decision takes texts"},
		{"a text for no choice", ask(0, func(a *Ask) { a.Texts[0].Choice = "maybe" }), `text for unknown choice "maybe"`},
		{"two texts for a choice", ask(0, func(a *Ask) { a.Texts = append(a.Texts, a.Texts[0]) }), "declared twice"},
		{"an empty text", ask(0, func(a *Ask) { a.Texts[0].Max = 0 }), "bound of 0 characters; it must be 1 to 8192"},
		{"a book", ask(0, func(a *Ask) { a.Texts[0].Max = MaxText + 1 }), "bound of 8193 characters"},
		{"an approval of a question", node(3, func(n *Node) { n.Approval, n.Approving = "a", []string{"yes"} }), "only an action needs an approval"},
		{"an approval by nothing", node(1, func(n *Node) { n.Approval = "z" }), "its approval z is not a decision"},
		{"an approval by an answer", node(1, func(n *Node) { n.Approval = "d" }), "its approval d is not a decision"},
		{"a decision that approves nothing", node(1, func(n *Node) { n.Approving = nil }), "names no choice of decision a"},
		{"an approval for many effects", node(1, func(n *Node) { n.Retry = &Retry{Max: 1, On: []Outcome{Failed}} }), "node b: is not retried"},
		{"approving choices alone", node(1, func(n *Node) { n.Approval = "" }), "approving choices of no decision"},
		{"an unknown approving choice", node(1, func(n *Node) { n.Approving = []string{"maybe"} }), `approving choice "maybe"`},
		{"an approving choice twice", node(1, func(n *Node) { n.Approving = []string{"yes", "yes"} }), `approving choice "yes"`},
		{"an action before its approval", func(p *Plan) {
			*p = plan([]Node{p.Nodes[1], p.Nodes[0]}, then("b", "a"))
		}, "node b: is approved by node a, which has not decided on some path"},
		{"an action after the decision expired", func(p *Plan) {
			*p = plan(p.Nodes[:2], fork("a", OnOutcome, "ok", "b", "timed_out", "b"))
		}, "node b: is approved by node a"},
		{"settings that are no object", settings(func(s *Settings) { s.Defaults = []byte(`1`) }), "settings: defaults must be a JSON object"},
		{"huge settings", settings(func(s *Settings) { s.Defaults = big }), "at most 65536 bytes"},
		{"settings of any form", settings(func(s *Settings) { s.Form = nil }), "settings: form must be"},
		{"a path twice", settings(func(s *Settings) { s.Model = []string{"a", "a"} }), "path a is listed twice"},
		{"a path to nothing", settings(func(s *Settings) { s.Model = []string{"a.c"} }), "path a.c is no member"},
		{"a path into a value", settings(func(s *Settings) { s.Model = []string{"a.b.c"} }), "path a.b.c is no member"},
		{"an empty path", settings(func(s *Settings) { s.Model = []string{""} }), "is no member"},
		{"an empty name in a path", settings(func(s *Settings) { s.Model = []string{"free."} }), "is no member"},
		{"a path with a line break", settings(func(s *Settings) { s.Model = []string{"a\nb"} }), `"a\nb"`},
		{"paths without end", settings(func(s *Settings) { s.Model = make([]string, maxPaths+1) }), "101 paths; the bound is 100"},
	} {
		t.Run(c.why, func(t *testing.T) { checkErr(t, approved(c.spoil).Validate(), c.want) })
	}
}
