package engine_test

import (
	"context"
	"fmt"
	"strings"

	"example.com/piworkflows/engine"
)

// Change is what the workflow is asked to do.
type Change struct {
	Title string `json:"title"`
}

// Size is a closed set: a switch on it needs a case for each member.
type Size string

const (
	Small Size = "small"
	Large Size = "large"
)

func (Size) Choices() []Size { return []Size{Small, Large} }

// A workflow of three nodes: measure a change, and either merge it or ask for
// a split. Handles join the nodes, so that a wrong type does not compile.
func Example() {
	w := engine.New[Change]("merge-change", "1")
	size := engine.Compute(w, "measure", w.Input(), func(_ context.Context, c Change) (Size, error) {
		if strings.Contains(c.Title, " and ") {
			return Large, nil
		}
		return Small, nil
	})
	merge := engine.Action(w, "merge", w.Input(), func(_ context.Context, a engine.Attempt, c Change) (string, error) {
		return "merged " + c.Title, nil // give a.Key to the outside world
	}, engine.Repeatable())
	split := engine.Compute(w, "split", engine.Both(w.Input(), size), func(_ context.Context, in engine.Pair[Change, Size]) ([]string, error) {
		return strings.Split(in.A.Title, " and "), nil
	})
	engine.Switch(size, engine.Case(Small, merge), engine.Case(Large, split))

	wf, err := w.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(wf.Describe())
	for _, raw := range []string{`{"title":"parser"}`, `{"title":"parser and docs"}`, `{"name":"parser"}`} {
		input, err := wf.CheckInput([]byte(raw))
		if err != nil {
			fmt.Println(err)
			continue
		}
		h := newHost(wf) // a real host is durable
		if err := engine.Work(context.Background(), wf, job(wf, string(input)), h); err != nil {
			fmt.Println(err)
		}
		fmt.Print(h.story())
	}
	// Output:
	// workflow merge-change version 1, at most 100 steps
	//   measure: compute; on output: large -> split, small -> merge
	//   merge: action (repeatable); then ends
	//   split: compute reads measure; then ends
	// measure 1.1 ok "small"
	// merge 1.1 ok "merged parser"
	// measure 1.1 ok "large"
	// split 1.1 ok ["parser","docs"]
	// invalid input: input has an unknown field; known are: title
}
