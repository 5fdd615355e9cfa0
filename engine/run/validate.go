package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// Validate reports everything that is wrong with a plan (rules run/graph,
// run/reads and what its nodes declare), joined; each error is a [launch.Refusal] of kind
// [launch.ErrInvalid] that names the node. A plan that passes never routes to
// an unknown node and never reads an output that does not exist.
func (p Plan) Validate() error {
	v := validator{p: &p, index: make(map[string]int, len(p.Nodes)), edge: make(map[string]*Edge, len(p.Edges))}
	if p.MaxSteps < 1 || p.MaxSteps > MaxMaxSteps {
		v.errs = append(v.errs, launch.Refuse(launch.ErrInvalid, "max steps is %d; it must be 1 to %d", p.MaxSteps, MaxMaxSteps))
	}
	if len(p.Nodes) == 0 || len(p.Nodes) > MaxNodes {
		v.errs = append(v.errs, launch.Refuse(launch.ErrInvalid, "the plan has %d nodes; it must have 1 to %d", len(p.Nodes), MaxNodes))
		return errors.Join(v.errs...)
	}
	v.nodes()
	v.approvals()
	v.settings()
	v.edges()
	if len(v.errs) == 0 { // the analyses need a graph
		v.reachable()
		v.reads()
	}
	return errors.Join(v.errs...)
}

type validator struct {
	p     *Plan
	index map[string]int
	edge  map[string]*Edge
	errs  []error
}

func (v *validator) fail(path, format string, args ...any) {
	v.errs = append(v.errs, refuseAt(path, format, args...))
}

func (v *validator) nodes() {
	for i := range v.p.Nodes {
		n := &v.p.Nodes[i]
		if !validPath(n.Path) {
			v.fail(fmt.Sprintf("%d (%.80q)", i+1, n.Path), "name must match [a-z0-9_-]{1,%d}", maxSegment)
			continue
		}
		if _, dup := v.index[n.Path]; dup {
			v.fail(n.Path, "name is used twice; give each node its own")
			continue
		}
		v.index[n.Path] = i
		switch {
		case !known(kindNames, n.Kind):
			v.fail(n.Path, "kind %d is unknown", n.Kind)
		case n.Kind == Action && !known(policyNames, n.Policy):
			v.fail(n.Path, "an action needs a policy: one of %q", policyNames[1:])
		case n.Kind != Action && n.Policy != 0:
			v.fail(n.Path, "only an action has an effect policy")
		}
		v.choices(n)
		v.declared(n)
	}
	if _, ok := v.index[v.p.Start]; !ok {
		v.errs = append(v.errs, launch.Refuse(launch.ErrInvalid, "the start node is not one of the plan's nodes"))
	}
}

func (v *validator) choices(n *Node) {
	if n.Choices == nil {
		return
	}
	if len(n.Choices) == 0 || len(n.Choices) > MaxChoices {
		v.fail(n.Path, "the closed set has %d choices; it must have 1 to %d", len(n.Choices), MaxChoices)
	}
	seen := make(map[string]bool, len(n.Choices))
	for _, c := range n.Choices {
		switch {
		case !validChoice(c):
			v.fail(n.Path, "choice %.80q must be 1 to %d printable ASCII bytes without quotes and backslashes", c, maxSegment)
		case seen[c]:
			v.fail(n.Path, "choice %q is listed twice", c)
		}
		seen[c] = true
	}
}

func (v *validator) edges() {
	for i := range v.p.Edges {
		e := &v.p.Edges[i]
		n, ok := v.index[e.From]
		if !ok {
			v.fail(quoteUnknown(e.From), "an edge leaves it, but the plan has no such node")
			continue
		}
		if v.edge[e.From] != nil {
			v.fail(e.From, "has more than one outgoing edge; use one plain edge or one switch")
			continue
		}
		v.edge[e.From] = e
		switch e.On {
		case Plain:
			v.target(e.From, e.To)
			if len(e.Cases) != 0 {
				v.fail(e.From, "a plain edge has no cases")
			}
		case OnOutput:
			if v.p.Nodes[n].Choices == nil {
				v.fail(e.From, "a switch on the output needs an output with a closed set of choices")
				continue
			}
			v.cases(e, v.p.Nodes[n].Choices, true)
		case OnOutcome:
			v.cases(e, outcomeNames[1:], false)
		default:
			v.fail(e.From, "edge form %d is unknown", e.On)
		}
	}
}

// cases checks a switch against the set of its values; all says whether each
// value needs a case.
func (v *validator) cases(e *Edge, set []string, all bool) {
	if e.To != "" {
		v.fail(e.From, "a switch has cases and no target of its own")
	}
	if len(e.Cases) == 0 {
		v.fail(e.From, "the switch has no case")
		return
	}
	missing := make(map[string]bool, len(set))
	for _, s := range set {
		missing[s] = true
	}
	seen := make(map[string]bool, len(e.Cases))
	for _, c := range e.Cases {
		switch {
		case seen[c.Value]:
			v.fail(e.From, "the switch has case %.80q twice", c.Value)
		case !missing[c.Value]:
			v.fail(e.From, "the switch has unknown case %.80q; known are %q", c.Value, set)
		}
		seen[c.Value] = true
		delete(missing, c.Value)
		v.target(e.From, c.To)
	}
	if all {
		for _, s := range set { // in order
			if missing[s] {
				v.fail(e.From, "the switch has no case for %q", s)
			}
		}
	}
}

func (v *validator) target(from, to string) {
	if _, ok := v.index[to]; !ok {
		v.fail(from, "its edge leads to %s, which is not a node of the plan", quoteUnknown(to))
	}
}

func (v *validator) reachable() {
	seen := make([]bool, len(v.p.Nodes))
	todo := []string{v.p.Start}
	for len(todo) > 0 {
		path := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i := v.index[path]; !seen[i] {
			seen[i] = true
			if e := v.edge[path]; e != nil {
				e.targets(func(to string, _ bool) { todo = append(todo, to) })
			}
		}
	}
	for i, ok := range seen {
		if !ok {
			v.fail(v.p.Nodes[i].Path, "no path from the start node reaches it")
		}
	}
}

// targets calls f with each target and whether only outcome ok leads there.
func (e *Edge) targets(f func(to string, onlyOK bool)) {
	if e.On == Plain {
		f(e.To, true)
		return
	}
	for _, c := range e.Cases {
		f(c.To, e.On == OnOutput || c.Value == outcomeNames[OK])
	}
}

func quoteUnknown(s string) string {
	if s == "" {
		return "(none)"
	}
	if validPath(s) {
		return s
	}
	return fmt.Sprintf("%.80q", s)
}

func validPath(path string) bool {
	if len(path) > launch.MaxKey {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		if len(segment) == 0 || len(segment) > maxSegment {
			return false
		}
		for i := range len(segment) {
			c := segment[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
				return false
			}
		}
	}
	return true
}

func validChoice(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxSegment
}

func validJSON(b []byte) bool { return utf8.Valid(b) && json.Valid(b) }
