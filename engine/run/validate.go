package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// Validate reports everything that is wrong with a plan (rules run/graph and
// run/reads), joined; each error is a [launch.Refusal] of kind
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
	v.edges()
	v.settings()
	if len(v.errs) == 0 { // the analyses need a graph
		v.reachable()
		v.reads()
	}
	return errors.Join(v.errs...)
}

func (v *validator) settings() {
	s := v.p.Settings
	if s == nil {
		return
	}
	bad := func(format string, args ...any) {
		v.errs = append(v.errs, launch.Refuse(launch.ErrInvalid, "settings: "+format, args...))
	}
	switch {
	case len(s.Defaults) > MaxSettings:
		bad("the defaults have %d bytes; the bound is %d", len(s.Defaults), MaxSettings)
	case !validJSON(s.Defaults) || len(s.Defaults) == 0 || s.Defaults[0] != '{':
		bad("the defaults are not one JSON object")
	case len(s.Model) > launch.MaxList:
		bad("%d paths are named; the bound is %d", len(s.Model), launch.MaxList)
	}
}

// declared checks what a node declares about its execution and its request.
func (v *validator) declared(n *Node) {
	codes := n.Kind == Compute || n.Kind == Action || n.Kind.Prompts()
	switch {
	case n.Budget < 0 || n.Budget > MaxBudget:
		v.fail(n.Path, "budget is %v; it must be positive and at most %v", n.Budget, MaxBudget)
	case n.Budget > 0 && !codes:
		v.fail(n.Path, "a node of kind %s has no budget of active time", n.Kind)
	}
	if r := n.Retry; r != nil {
		switch {
		case r.Max < 1 || r.Max > MaxRetries:
			v.fail(n.Path, "declares %d retries; it must be 1 to %d", r.Max, MaxRetries)
		case r.Backoff < 0 || r.Backoff > MaxBackoff:
			v.fail(n.Path, "backoff is %v; it must be 0 to %v", r.Backoff, MaxBackoff)
		case len(r.On) == 0:
			v.fail(n.Path, "retries on no outcome; name failed, timed_out or both")
		}
		for i, o := range r.On {
			if o != Failed && o != TimedOut || slices.Contains(r.On[:i], o) {
				v.fail(n.Path, "retries on outcome %s; name failed, timed_out or both, once each", o)
			}
		}
	}
	if n.Kind.Asks() != (n.Ask != nil) {
		v.fail(n.Path, "a node that asks says what, and no other does")
	} else if n.Ask != nil {
		v.asks(n)
	}
	if n.Final && n.Kind != Notify {
		v.fail(n.Path, "only a notify node has a last word")
	}
	v.approval(n)
}

func (v *validator) asks(n *Node) {
	a := n.Ask
	timed := n.Kind == Checkpoint || n.Kind == Decision
	switch {
	case !validJSON(a.Form) || len(a.Form) > launch.MaxOptions:
		v.fail(n.Path, "the form of its answer is not JSON of at most %d bytes", launch.MaxOptions)
	case a.Validates && n.Kind == Decision:
		v.fail(n.Path, "a decision has no validation code; its choices are its check")
	case a.Updates && n.Kind != Agent:
		v.fail(n.Path, "only an agent's step reports progress")
	case a.Expires < 0 || a.Expires > MaxBudget || a.Expires > 0 && !timed:
		v.fail(n.Path, "expires after %v; only a checkpoint or a decision does, after at most %v", a.Expires, MaxBudget)
	case a.Default != nil && a.Expires == 0:
		v.fail(n.Path, "has a default answer, but never expires; declare when")
	case a.Default != nil && (!validJSON(a.Default) || len(a.Default) > launch.MaxOptions):
		v.fail(n.Path, "the default answer is not JSON of at most %d bytes", launch.MaxOptions)
	case len(a.Audience) > MaxAudience || !utf8.ValidString(a.Audience):
		v.fail(n.Path, "the audience has %d bytes; the bound is %d of valid UTF-8", len(a.Audience), MaxAudience)
	case n.Kind == Decision && len(n.Choices) == 0:
		v.fail(n.Path, "a decision needs a closed set of choices")
	case n.Kind != Decision && (a.Audience != "" || a.Texts != nil):
		v.fail(n.Path, "only a decision has an audience and texts")
	}
	if a.Default != nil && n.Choices != nil {
		if c, ok := choiceOf(a.Default); !ok || !slices.Contains(n.Choices, string(c)) {
			v.fail(n.Path, "the default answer is not one of %q", n.Choices)
		}
	}
	for i, t := range a.Texts {
		switch {
		case !slices.Contains(n.Choices, t.Choice):
			v.fail(n.Path, "takes a text with choice %.80q; known are %q", t.Choice, n.Choices)
		case slices.ContainsFunc(a.Texts[:i], func(o TextInput) bool { return o.Choice == t.Choice }):
			v.fail(n.Path, "declares the text of choice %s twice", t.Choice)
		case t.Max < 1 || t.Max > MaxText:
			v.fail(n.Path, "the text of choice %s has at most %d characters; the bound is 1 to %d", t.Choice, t.Max, MaxText)
		case t.Required && a.Default != nil && bytes.Contains(a.Default, []byte(`"`+t.Choice+`"`)):
			v.fail(n.Path, "choice %s needs a text, which a default cannot give", t.Choice)
		}
	}
}

// approval checks that an action's approval is a decision which is surely made
// before it.
func (v *validator) approval(n *Node) {
	if n.Approval == "" {
		if n.Approving != nil {
			v.fail(n.Path, "names choices that approve, but no decision")
		}
		return
	}
	d := v.p.Node(n.Approval)
	switch {
	case n.Kind != Action:
		v.fail(n.Path, "only an action needs an approval")
	case d == nil || d.Kind != Decision:
		v.fail(n.Path, "its approval %s is not a decision of the plan", quoteUnknown(n.Approval))
	case !slices.Contains(n.Reads, n.Approval):
		v.fail(n.Path, "does not read its approval %s", n.Approval)
	default:
		for _, c := range n.Approving {
			if !slices.Contains(d.Choices, c) {
				v.fail(n.Path, "choice %.80q of %s approves it; known are %q", c, n.Approval, d.Choices)
			}
		}
		if len(n.Approving) == 0 {
			v.fail(n.Path, "no choice of %s approves it", n.Approval)
		}
	}
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
