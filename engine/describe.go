package engine

import (
	"fmt"
	"strings"

	"example.com/piworkflows/engine/run"
)

// Describe prints the graph, one line for each node in the order of definition.
func (wf *Workflow) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "workflow %s version %s, at most %d steps\n", wf.name, wf.version, wf.plan.MaxSteps)
	if s := wf.plan.Settings; s != nil {
		fmt.Fprintf(&b, "  settings %s", s.Defaults)
		if len(s.Model) > 0 {
			b.WriteString("; the model may change " + strings.Join(s.Model, ", "))
		}
		b.WriteString("\n")
	}
	for _, i := range wf.included {
		fmt.Fprintf(&b, "  %s/ is workflow %s version %s\n", i.path, i.wf.name, i.wf.version)
	}
	for i := range wf.plan.Nodes {
		n := &wf.plan.Nodes[i]
		fmt.Fprintf(&b, "  %s: %s", n.Path, n.Kind)
		if n.Ask != nil && n.Choices != nil {
			b.WriteString(" of " + strings.Join(n.Choices, ", "))
		}
		if traits := traitsOf(n); len(traits) > 0 {
			b.WriteString(" (" + strings.Join(traits, "; ") + ")")
		}
		sep := " reads "
		for _, r := range n.Reads {
			b.WriteString(sep + r)
			sep = ", "
		}
		for _, r := range n.Maybe {
			b.WriteString(sep + r + "?")
			sep = ", "
		}
		b.WriteString(wf.wayOn(n.Path) + "\n")
	}
	return b.String()
}

// traitsOf says what a node declares beyond its kind.
func traitsOf(n *run.Node) (traits []string) {
	add := func(format string, args ...any) { traits = append(traits, fmt.Sprintf(format, args...)) }
	if n.Shell {
		add("shell")
	}
	if n.Policy != 0 {
		add("%s", n.Policy)
	}
	if n.Approval != "" {
		add("approved by %s: %s", n.Approval, strings.Join(n.Approving, ", "))
	}
	if n.Final {
		add("final")
	}
	if a := n.Ask; a != nil {
		if a.Validates {
			add("validated")
		}
		if a.Updates {
			add("updates")
		}
		if a.Audience != "" {
			add("for %s", a.Audience)
		}
		for _, t := range a.Texts {
			need := "may"
			if t.Required {
				need = "must"
			}
			add("%s %s have text, at most %d characters", t.Choice, need, t.Max)
		}
		if a.Expires != 0 {
			add("expires after %s", a.Expires)
		}
		if a.Default != nil {
			add("then %s", a.Default)
		}
	}
	if n.Budget != 0 {
		add("budget %s", n.Budget)
	}
	if r := n.Retry; r != nil {
		on := make([]string, len(r.On))
		for i, o := range r.On {
			on[i] = o.String()
		}
		after := ""
		if r.Backoff != 0 {
			after = " after " + r.Backoff.String()
		}
		add("at most %d more on %s%s", r.Max, strings.Join(on, ", "), after)
	}
	return traits
}

func (wf *Workflow) wayOn(path string) string {
	e := wf.plan.Edge(path)
	switch {
	case e == nil:
		for _, x := range wf.exits {
			if x.n.plan.Path == path {
				return "; then exits as " + x.name
			}
		}
		return "; then ends"
	case e.On == run.Plain:
		return "; then " + e.To
	}
	var cases []string
	for _, c := range e.Cases {
		cases = append(cases, c.Value+" -> "+c.To)
	}
	return "; on " + e.On.String() + ": " + strings.Join(cases, ", ")
}
