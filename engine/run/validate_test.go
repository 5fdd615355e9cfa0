package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/launch"
)

func compute(path string, reads ...string) Node {
	return Node{Path: path, Kind: Compute, Reads: reads}
}

func choice(path string, set ...string) Node {
	return Node{Path: path, Kind: Compute, Choices: set}
}

func then(from, to string) Edge { return Edge{From: from, On: Plain, To: to} }

func fork(from string, on On, pairs ...string) Edge {
	e := Edge{From: from, On: on}
	for i := 0; i < len(pairs); i += 2 {
		e.Cases = append(e.Cases, Case{pairs[i], pairs[i+1]})
	}
	return e
}

func plan(nodes []Node, edges ...Edge) Plan {
	return Plan{MaxSteps: 100, Start: nodes[0].Path, Nodes: nodes, Edges: edges}
}

func TestValidate(t *testing.T) {
	many := make([]Node, MaxNodes+1)
	for i := range many {
		many[i] = compute(fmt.Sprintf("n%d", i))
	}
	var wide []string
	for i := range MaxChoices + 1 {
		wide = append(wide, fmt.Sprint(i))
	}
	ab := []Node{compute("a"), compute("b")}
	for _, c := range []struct {
		why  string
		plan Plan
		want string // part of the error; "" accepts
	}{
		{"one node is a workflow", plan(ab[:1]), ""},
		{"a node may lead to itself", plan(ab[:1], then("a", "a")), ""},
		{"a mounted node has a path", plan([]Node{compute("m/a"), compute("m/n/b", "m/a")}, then("m/a", "m/n/b")), ""},
		{"no nodes", Plan{MaxSteps: 1}, "0 nodes"},
		{"too many nodes", plan(many), "1001 nodes"},
		{"zero steps run nothing", Plan{Start: "a", Nodes: ab[:1]}, "max steps is 0"},
		{"steps bounded", Plan{MaxSteps: MaxMaxSteps + 1, Start: "a", Nodes: ab[:1]}, "must be 1 to 1000000"},
		{"start must exist", Plan{MaxSteps: 1, Start: "x", Nodes: ab[:1]}, "start node"},
		{"upper case", plan([]Node{compute("A")}), "must match"},
		{"empty segment", plan([]Node{compute("a//b")}), "must match"},
		{"long segment", plan([]Node{compute(strings.Repeat("a", 65))}), "must match"},
		{"long path", plan([]Node{compute(strings.Repeat("a/", 256) + "a")}), "must match"},
		{"line break in a name is quoted", plan([]Node{compute("a\nb")}), `\n`},
		{"same name twice", plan([]Node{compute("a"), compute("a")}), "node a: name is used twice"},
		{"kind of a newer library", plan([]Node{{Path: "a", Kind: 99}}), "node a: kind 99 is unknown"},
		{"an action without policy", plan([]Node{{Path: "a", Kind: Action}}), "node a: an action needs a policy"},
		{"a compute node with a policy", plan([]Node{{Path: "a", Kind: Compute, Policy: Observed}}), "only an action"},
		{"empty closed set", plan([]Node{{Path: "a", Kind: Compute, Choices: []string{}}}), "0 choices"},
		{"too many choices", plan([]Node{choice("a", wide...)}), "33 choices"},
		{"a choice twice", plan([]Node{choice("a", "x", "x")}), `"x" is listed twice`},
		{"a choice that JSON would escape", plan([]Node{choice("a", `x"`)}), "without quotes"},
		{"an edge from nowhere", plan(ab[:1], then("z", "a")), "node z: an edge leaves it"},
		{"an edge to nowhere", plan(ab[:1], then("a", "z")), "node a: its edge leads to z"},
		{"an edge without target", plan(ab[:1], then("a", "")), "leads to (none)"},
		{"two edges from one node", plan(ab, then("a", "b"), then("a", "a")), "node a: has more than one"},
		{"a plain edge with cases", plan(ab, Edge{From: "a", On: Plain, To: "b", Cases: []Case{{"x", "b"}}}), "has no cases"},
		{"a switch with a target", plan(ab, Edge{From: "a", On: OnOutcome, To: "b", Cases: []Case{{"ok", "b"}}}), "no target of its own"},
		{"edge form of a newer library", plan(ab, Edge{From: "a", On: 99, To: "b"}), "form 99 is unknown"},
		{"an open output cannot be switched on", plan(ab, fork("a", OnOutput, "x", "b")), "closed set"},
		{"a missing case", plan([]Node{choice("a", "x", "y"), compute("b")}, fork("a", OnOutput, "x", "b")), `node a: the switch has no case for "y"`},
		{"an extra case", plan([]Node{choice("a", "x"), compute("b")}, fork("a", OnOutput, "x", "b", "y", "b")), `unknown case "y"`},
		{"a case twice", plan([]Node{choice("a", "x"), compute("b")}, fork("a", OnOutput, "x", "b", "x", "b")), `case "x" twice`},
		{"no outcome of that name", plan(ab, fork("a", OnOutcome, "fine", "b")), `unknown case "fine"`},
		{"a switch without cases", plan(ab[:1], fork("a", OnOutcome)), "no case"},
		{"outcomes may be left out", plan(ab, fork("a", OnOutcome, "failed", "b")), ""},
		{"nothing leads to it", plan(ab), "node b: no path"},
		{"an island", plan([]Node{compute("a"), compute("b"), compute("c")}, then("b", "c"), then("c", "b")), "node b: no path"},
	} {
		t.Run(c.why, func(t *testing.T) { checkErr(t, c.plan.Validate(), c.want) })
	}
}

func TestReads(t *testing.T) {
	maybe := func(path, read string) Node { return Node{Path: path, Kind: Compute, Maybe: []string{read}} }
	for _, c := range []struct {
		why  string
		plan Plan
		want string
	}{
		{"straight line", plan([]Node{compute("a"), compute("b", "a"), compute("c", "a", "b")}, then("a", "b"), then("b", "c")), ""},
		{"itself on first entry", plan([]Node{compute("a", "a")}), "node a: reads node a"},
		{"itself in a loop, still the first entry", plan([]Node{compute("a", "a")}, then("a", "a")), "reads node a"},
		{"itself as optional", plan([]Node{maybe("a", "a")}, then("a", "a")), ""},
		{"a later node", plan([]Node{compute("a", "b"), compute("b")}, then("a", "b")), "reads node b"},
		{"unknown", plan([]Node{compute("a", "z")}), "reads z, which is not"},
		{"unknown optional", plan([]Node{maybe("a", "z")}), "reads z, which is not"},
		{"one branch of two", plan([]Node{choice("a", "x", "y"), compute("b"), compute("c"), compute("d", "b")},
			fork("a", OnOutput, "x", "b", "y", "c"), then("b", "d"), then("c", "d")), "node d: reads node b"},
		{"before the branches", plan([]Node{choice("a", "x", "y"), compute("b"), compute("c"), compute("d", "a")},
			fork("a", OnOutput, "x", "b", "y", "c"), then("b", "d"), then("c", "d")), ""},
		{"a failed node has no output", plan([]Node{compute("a"), compute("b", "a")}, fork("a", OnOutcome, "failed", "b")), "node b: reads node a"},
		{"the ok branch has it", plan([]Node{compute("a"), compute("b", "a"), compute("c")}, fork("a", OnOutcome, "ok", "b", "failed", "c")), ""},
		{"ok and failed lead to the same node", plan([]Node{compute("a"), compute("b", "a")}, fork("a", OnOutcome, "ok", "b", "failed", "b")), "reads node a"},
		{"a loop reads what its entry needed", plan([]Node{compute("a"), compute("b", "a"), choice("c", "again", "done"), compute("d", "b", "c")},
			then("a", "b"), then("b", "c"), fork("c", OnOutput, "again", "b", "done", "d")), ""},
		{"the head of a loop does not have its tail", plan([]Node{compute("a", "b"), choice("b", "again", "done"), compute("c")},
			then("a", "b"), fork("b", OnOutput, "again", "a", "done", "c")), "node a: reads node b"},
		{"a retry loop keeps what came before the failure", plan([]Node{compute("a"), compute("b", "a"), compute("c", "a", "b")},
			then("a", "b"), fork("b", OnOutcome, "ok", "c", "failed", "a")), ""},
	} {
		t.Run(c.why, func(t *testing.T) { checkErr(t, c.plan.Validate(), c.want) })
	}
}

func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		return
	}
	if !errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want invalid input with %q", err, want)
	}
}

// FuzzPlan decodes hostile JSON: nothing panics, and what validates encodes
// and decodes to itself.
func FuzzPlan(f *testing.F) {
	for _, p := range []Plan{
		plan([]Node{compute("a"), {Path: "b", Kind: Action, Policy: Observed, Reads: []string{"a"}}}, then("a", "b")),
		plan([]Node{choice("a", "x"), compute("b")}, fork("a", OnOutput, "x", "b")),
		plan([]Node{compute("a")}, fork("a", OnOutcome, "failed", "a")),
		approved(nil),
	} {
		raw, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"nodes":[{"path":"a","kind":"future"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p, q Plan
		if json.Unmarshal(raw, &p) != nil || p.Validate() != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("a valid plan does not encode: %v", err)
		}
		if err := json.Unmarshal(again, &q); err != nil {
			t.Fatal(err)
		}
		last, _ := json.Marshal(q)
		if diff := cmp.Diff(string(again), string(last)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNames(t *testing.T) {
	if Kind(0).String() != "unknown" || Status(99).String() != "unknown" {
		t.Error("values outside a set read unknown")
	}
	if _, err := Outcome(0).MarshalText(); !errors.Is(err, launch.ErrInvalid) {
		t.Errorf("the zero outcome encodes: %v", err)
	}
	var o Outcome
	if err := o.UnmarshalText([]byte("fine")); !errors.Is(err, launch.ErrInvalid) || strings.Contains(err.Error(), "fine") {
		t.Errorf("an unknown name must be refused without repeating it: %v", err)
	}
	for _, want := range Outcomes() {
		b, err := want.MarshalText()
		if err != nil || o.UnmarshalText(b) != nil || o != want {
			t.Errorf("outcome %s does not survive its text form", want)
		}
	}
}
