package launchtest

import (
	"fmt"
	"strings"

	"example.com/piworkflows/launch"
)

// Dot draws a transition table in the language of Graphviz, in its own order.
func Dot(table []launch.Edge) string {
	var b strings.Builder
	b.WriteString("digraph launch {\n")
	for _, e := range table {
		by := make([]string, len(e.By))
		for i, c := range e.By {
			by[i] = c.String()
		}
		fmt.Fprintf(&b, "  %s -> %s [label=%q];\n", e.From, e.To, strings.Join(by, " "))
	}
	b.WriteString("}\n")
	return b.String()
}
