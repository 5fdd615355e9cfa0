package engine_test

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// Plan is what the model submits.
type Plan struct {
	Steps []string `json:"steps"`
}

// An agent step: the model submits a Plan, which code of the workflow checks
// before it is accepted. The step has an hour of active time and is tried once
// more when that is used up.
func ExampleAgent() {
	w := engine.New[Change]("plan-change", "1")
	plan := engine.Agent[Plan](w, "plan", w.Input(), func(_ context.Context, c Change) (string, error) {
		return "Plan how to do this: " + c.Title, nil
	}, engine.Validate(func(_ context.Context, p Plan) error {
		if len(p.Steps) == 0 {
			return engine.Explain("steps is empty; name at least one", nil)
		}
		return nil
	}), engine.Updates(), engine.Budget(time.Hour), engine.Retry(1, time.Minute, engine.TimedOut))
	report := engine.Respond(w, "report", plan, func(_ context.Context, p Plan) (string, error) {
		return "Tell the user about these steps: " + strings.Join(p.Steps, ", "), nil
	})
	engine.Then(plan, report)
	describe(w.Build())
	// Output:
	// workflow plan-change version 1, at most 100 steps
	//   plan: agent (validated; updates; budget 1h0m0s; at most 1 more on timed_out after 1m0s); then report
	//   report: assistant reads plan; then ends
}

// A checkpoint asks in the middle of a run, and its answer is the output. When
// nobody answers for a day, a default does.
func ExampleCheckpoint() {
	w := engine.New[Change]("size-change", "1")
	size := engine.Checkpoint[Size](w, "size", w.Input(), func(_ context.Context, c Change) (string, error) {
		return "How large is " + c.Title + "?", nil
	}, engine.Expires(24*time.Hour), engine.Default(Large))
	small := engine.Notify(w, "small", w.Input(), func(_ context.Context, c Change) (string, error) {
		return c.Title + " needs no review.", nil
	}, engine.Final())
	large := engine.Notify(w, "large", w.Input(), func(_ context.Context, c Change) (string, error) {
		return c.Title + " needs a review.", nil
	})
	engine.Switch(size, engine.Case(Small, small), engine.Case(Large, large))
	describe(w.Build())
	// Output:
	// workflow size-change version 1, at most 100 steps
	//   size: checkpoint of small, large (expires after 24h0m0s; then "large"); on output: large -> large, small -> small
	//   small: notify (final); then ends
	//   large: notify; then ends
}

// Ruling is what a person decides.
type Ruling string

const (
	Approve  Ruling = "approve"
	SendBack Ruling = "send-back"
)

func (Ruling) Choices() []Ruling { return []Ruling{Approve, SendBack} }

// A person decides about a draft before exactly that draft is published. Sent
// back, it is written again with what the person wrote.
func ExampleDecide() {
	w := engine.New[Change]("publish", "1")
	last := engine.Maybe(engine.Later[engine.Decided[Ruling]](w, "rule")) // nil at first
	draft := engine.Agent[Draft](w, "draft", engine.Both(w.Input(), last), func(_ context.Context, in engine.Pair[Change, *engine.Decided[Ruling]]) (string, error) {
		if in.B == nil {
			return "Write about " + in.A.Title, nil
		}
		return "Write again about " + in.A.Title + ". The editors say: " + in.B.Text, nil
	})
	rule := engine.Decide[Ruling](w, "rule", draft, func(_ context.Context, d Draft) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish this?", Text: d.Text}, nil
	}, engine.Audience("the editors"), engine.TextFor(SendBack, 2000, true), engine.Expires(72*time.Hour))
	publish := engine.Action(w, "publish", draft, func(_ context.Context, a engine.Attempt, d Draft) (string, error) {
		return "published", nil
	}, engine.Repeatable(), engine.Approved(rule, Approve))
	engine.Then(draft, rule)
	engine.Switch(rule, engine.Case(Approve, publish), engine.Case(SendBack, draft))
	describe(w.Build())
	// Output:
	// workflow publish version 1, at most 100 steps
	//   draft: agent reads rule?; then rule
	//   rule: decision of approve, send-back (for the editors; send-back must have text, at most 2000 characters; expires after 72h0m0s) reads draft; on output: approve -> publish, send-back -> draft
	//   publish: action (repeatable; approved by rule: approve) reads draft; then ends
}

// A command in a process group of its own. Its exit code is a result that the
// next node looks at.
func ExampleShell() {
	w := engine.New[Change]("test-change", "1")
	test := engine.Shell(w, "test", w.Input(), func(_ context.Context, a engine.Attempt, c Change) (engine.Command, error) {
		return engine.Command{Path: "echo", Args: []string{"testing", c.Title}}, nil
	}, engine.Repeatable(), engine.Budget(10*time.Minute))
	ok := engine.Compute(w, "ok", test, func(_ context.Context, r engine.ShellResult) (bool, error) { return r.ExitCode == 0, nil })
	engine.Then(test, ok)
	wf, err := w.Build()
	describe(wf, err)
	h := newHost(wf) // a real host is durable
	if err := engine.Work(context.Background(), wf, job(wf, `{"title":"parser"}`), h); err != nil {
		fmt.Println(err)
	}
	fmt.Print(h.story())
	// Output:
	// workflow test-change version 1, at most 100 steps
	//   test: action (shell; repeatable; budget 10m0s); then ok
	//   ok: compute reads test; then ends
	// test 1.1 ok {"exitCode":0,"stdout":"testing parser\n","stderr":""}
	// ok 1.1 ok true
}

// A workflow is built once and included where it is needed. It gets its input
// from a source of the workflow around it, which goes on at its exits.
func ExampleInclude() {
	sub := engine.New[Draft]("check", "3")
	size := engine.Choose[Size](sub, "size", sub.Input(), func(_ context.Context, d Draft) (string, error) {
		return "Is this small or large? " + d.Text, nil
	})
	cut := engine.Agent[Draft](sub, "cut", sub.Input(), func(_ context.Context, d Draft) (string, error) {
		return "Shorten this: " + d.Text, nil
	})
	keep := engine.Compute(sub, "keep", sub.Input(), func(_ context.Context, d Draft) (Draft, error) { return d, nil })
	engine.Switch(size, engine.Case(Small, keep), engine.Case(Large, cut))
	fine := engine.Exit(sub, "fine", keep)
	shortened := engine.Exit(sub, "shortened", cut)
	describe(sub.Build())

	w := engine.New[Change]("write", "1")
	draft := engine.Agent[Draft](w, "draft", w.Input(), func(_ context.Context, c Change) (string, error) {
		return "Write about " + c.Title, nil
	})
	check := engine.Include(w, "check", sub, draft)
	tell := engine.Notify(w, "tell", engine.Maybe(engine.At(check, shortened)), func(_ context.Context, d *Draft) (string, error) {
		return "The draft was shortened.", nil
	})
	done := engine.Compute(w, "done", draft, func(_ context.Context, d Draft) (int, error) { return len(d.Text), nil })
	engine.Then(draft, check)
	engine.Then(engine.At(check, fine), done)
	engine.Then(engine.At(check, shortened), tell)
	engine.Then(tell, done)
	describe(w.Build())
	// Output:
	// workflow check version 3, at most 100 steps
	//   size: agent of small, large; on output: large -> cut, small -> keep
	//   cut: agent; then exits as shortened
	//   keep: compute; then exits as fine
	// workflow write version 1, at most 100 steps
	//   check/ is workflow check version 3
	//   draft: agent; then check/size
	//   check/size: agent of small, large reads draft; on output: large -> check/cut, small -> check/keep
	//   check/cut: agent reads draft; then tell
	//   check/keep: compute reads draft; then done
	//   tell: notify reads check/cut?; then done
	//   done: compute reads draft; then ends
}

func describe(wf *engine.Workflow, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(wf.Describe())
}
