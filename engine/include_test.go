package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine"
)

// part is a workflow of one node, which is its exit.
func part(version string) *engine.Builder[Task] {
	w := engine.New[Task]("part", version)
	engine.Exit(w, "done", engine.Compute(w, "a", w.Input(), pass[Task, Draft]))
	return w
}

// trim is a workflow that takes a draft, shortens it and judges it.
func trim() (w *engine.Builder[Draft], long engine.ExitOf[Draft], short engine.ExitOf[Verdict]) {
	w = engine.New[Draft]("trim", "2")
	w.Validate(func(in Draft) error {
		switch in.Text {
		case "":
			return engine.Explain("the draft is empty", nil)
		case "mute":
			return errors.New(secret)
		case "panic":
			panic(secret)
		}
		return nil
	})
	cut := engine.Compute(w, "cut", w.Input(), func(_ context.Context, in Draft) (Draft, error) {
		return Draft{strings.TrimSuffix(in.Text, "!")}, nil
	})
	judge := engine.Compute(w, "judge", engine.Both(w.Input(), engine.Both(cut, engine.Maybe(cut))),
		func(_ context.Context, in engine.Pair[Draft, engine.Pair[Draft, *Draft]]) (Verdict, error) {
			if in.A == in.B.A || *in.B.B != in.B.A {
				return Bad, nil
			}
			return Good, nil
		})
	good := engine.Compute(w, "good", judge, func(_ context.Context, v Verdict) (Verdict, error) { return v, nil })
	again := engine.Compute(w, "again", cut, func(_ context.Context, in Draft) (Draft, error) { return in, nil })
	engine.Then(cut, judge)
	engine.Switch(judge, engine.Case(Good, good), engine.Case(Bad, again))
	return w, engine.Exit(w, "too long", again), engine.Exit(w, "short", good)
}

// nested includes trim at "m", which a workflow at "outer" includes twice.
func nested() *engine.Builder[Task] {
	sub, long, short := trim()
	mid := engine.New[string]("mid", "1")
	wrap := engine.Compute(mid, "wrap", mid.Input(), func(_ context.Context, s string) (Draft, error) { return Draft{s}, nil })
	m := engine.Include(mid, "m", sub, wrap)
	engine.Then(wrap, m)
	fail := engine.Compute(mid, "long", engine.At(m, long), func(_ context.Context, in Draft) (string, error) {
		return "long: " + in.Text, nil
	})
	engine.Then(engine.At(m, long), fail)
	engine.Exit(mid, "long", fail)
	done := engine.Compute(mid, "done", engine.Both(wrap, engine.At(m, short)), func(_ context.Context, in engine.Pair[Draft, Verdict]) (string, error) {
		return "done: " + in.A.Text, nil
	})
	engine.Then(engine.At(m, short), done)
	exit := engine.Exit(mid, "done", done)

	w := engine.New[Task]("outer", "1")
	title := engine.Compute(w, "title", w.Input(), func(_ context.Context, in Task) (string, error) { return in.Title, nil })
	one := engine.Include(w, "one", mid, title)
	two := engine.Include(w, "two", mid, engine.At(one, exit))
	engine.Then(title, one)
	engine.Then(engine.At(one, exit), two)
	return w
}

func TestInclude(t *testing.T) {
	wf := must(nested().Build())
	const want = `workflow outer version 1, at most 100 steps
  one/ is workflow mid version 1
  two/ is workflow mid version 1
  title: compute; then one/wrap
  one/wrap: compute reads title; then one/m/cut
  one/m/cut: compute reads one/wrap; then one/m/judge
  one/m/judge: compute reads one/m/cut, one/wrap, one/m/cut?; on output: bad -> one/m/again, good -> one/m/good
  one/m/good: compute reads one/m/judge; then one/done
  one/m/again: compute reads one/m/cut; then one/long
  one/long: compute reads one/m/again; then ends
  one/done: compute reads one/m/good, one/wrap; then two/wrap
  two/wrap: compute reads one/done; then two/m/cut
  two/m/cut: compute reads two/wrap; then two/m/judge
  two/m/judge: compute reads two/m/cut, two/wrap, two/m/cut?; on output: bad -> two/m/again, good -> two/m/good
  two/m/good: compute reads two/m/judge; then two/done
  two/m/again: compute reads two/m/cut; then two/long
  two/long: compute reads two/m/again; then ends
  two/done: compute reads two/m/good, two/wrap; then ends
`
	if diff := cmp.Diff(want, wf.Describe()); diff != "" {
		t.Fatal(diff)
	}
	h := newHost(wf)
	works(t, h, job(wf, `{"title":"x!"}`),
		`title 1.1 ok "x!"`, `one/wrap 1.1 ok {"text":"x!"}`, `one/m/cut 1.1 ok {"text":"x"}`, `one/m/judge 1.1 ok "good"`,
		`one/m/good 1.1 ok "good"`, `one/done 1.1 ok "done: x!"`, `two/wrap 1.1 ok {"text":"done: x!"}`,
		`two/m/cut 1.1 ok {"text":"done: x"}`, `two/m/judge 1.1 ok "good"`, `two/m/good 1.1 ok "good"`, `two/done 1.1 ok "done: done: x!"`)
}

func TestIncludedInput(t *testing.T) {
	for _, c := range []struct{ why, title, want string }{
		{"fits", "x!", `m/cut 1.1 ok {"text":"x"}`},
		{"is explained", "", "m/cut 1.1 failed: node m/cut did not start: the input of its workflow is refused: the draft is empty"},
		{"is not explained", "mute", "m/cut 1.1 failed: node m/cut did not start: the input of its workflow is refused: its own check does not explain why"},
		{"panics", "panic", "m/cut 1.1 failed: node m/cut did not start: the check of its workflow's input panicked"},
	} {
		t.Run(c.why, func(t *testing.T) {
			sub, _, _ := trim()
			w := engine.New[Task]("w", "1")
			title := engine.Compute(w, "title", w.Input(), func(_ context.Context, in Task) (Draft, error) { return Draft{in.Title}, nil })
			engine.Then(title, engine.Include(w, "m", sub, title))
			h := newHost(must(w.Build()))
			h.answer = func(p engine.Proposal) (engine.Next, bool, error) {
				return engine.Next{Ended: true}, p.Node == "m/cut", nil
			}
			works(t, h, job(h.wf, `{"title":"`+c.title+`"}`), fmt.Sprintf(`title 1.1 ok {"text":%q}`, c.title), c.want)
		})
	}
}

func TestIncludeRefusals(t *testing.T) {
	type w = *engine.Builder[Task]
	for _, c := range []struct {
		why   string
		build func(w)
		want  string
	}{
		{"as the first node", func(w w) { engine.Include(w, "m", part("1"), w.Input()) }, ""},
		{"one workflow twice", func(w w) {
			p := engine.New[Task]("p", "1")
			e := engine.Exit(p, "done", engine.Compute(p, "a", p.Input(), pass[Task, Draft]))
			one := engine.Include(w, "one", p, w.Input())
			engine.Then(engine.At(one, e), engine.Include(w, "two", p, w.Input()))
		}, ""},
		{"nothing", func(w w) { engine.Include[Task](w, "m", nil, w.Input()) }, "node m: includes itself, or a workflow without nodes"},
		{"no nodes", func(w w) { engine.Include(w, "m", engine.New[Task]("p", "1"), w.Input()) }, "node m: includes itself, or a workflow without nodes"},
		{"a builder that New did not make", func(w w) { engine.Include(w, "m", &engine.Builder[Task]{}, w.Input()) }, "without nodes"},
		{"itself", func(w w) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			engine.Include(w, "m", w, w.Input())
		}, "node m: includes itself"},
		{"each other", func(w w) {
			p := part("1")
			engine.Include(w, "m", p, w.Input())
			engine.Include(p, "n", w, p.Input())
		}, "workflow part is changed after workflow t included it"},
		{"into nothing", func(w w) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			engine.Then(engine.Include[Task, Task](nil, "m", part("1"), nil), nil)
		}, ""},
		{"no source", func(w w) { engine.Include(w, "m", part("1"), nil) }, "node m: reads nothing, or from another"},
		{"a source of its own", func(w w) { p := part("1"); engine.Include(w, "m", p, p.Input()) }, "node m: reads nothing, or from another"},
		{"a source that may be missing", func(w w) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Verdict])
			b := engine.Compute(w, "b", w.Input(), pass[Task, Task])
			m := engine.Include(w, "m", part("1"), b)
			engine.Switch(a, engine.Case(Good, b), engine.Case(Bad, m))
			engine.Then(b, m)
		}, "node m/a: reads node b"},
		{"a name twice", func(w w) {
			engine.Compute(w, "m", w.Input(), pass[Task, Draft])
			engine.Include(w, "m", part("1"), w.Input())
		}, "node m: name is used twice"},
		{"a bad name", func(w w) { engine.Include(w, "A b", part("1"), w.Input()) }, "must match"},
		{"a name like a path", func(w w) { engine.Include(w, "a/b", part("1"), w.Input()) }, "no '/'"},
		{"no name", func(w w) { engine.Include(w, "", part("1"), w.Input()) }, "must match"},
		{"an end that is no exit", func(w w) {
			p := engine.New[Task]("p", "1")
			engine.Compute(p, "a", p.Input(), pass[Task, Draft])
			engine.Include(w, "m", p, w.Input())
		}, "node m/a: the included workflow can end here on outcome ok, but the node is no Exit"},
		{"an end by an outcome that is left out", func(w w) {
			p := engine.New[Task]("p", "1")
			a := engine.Compute(p, "a", p.Input(), pass[Task, Draft])
			engine.OnOutcome(a, engine.When(engine.Failed, a))
			engine.Include(w, "m", p, w.Input())
		}, "node m/a: the included workflow can end here"},
		{"a failure may end the run", func(w w) {
			p := engine.New[Task]("p", "1")
			a := engine.Compute(p, "a", p.Input(), pass[Task, Draft])
			engine.OnOutcome(a, engine.When(engine.OK, a))
			engine.Include(w, "m", p, w.Input())
		}, ""},
		{"an end of an inner workflow", func(w w) {
			p := engine.New[Task]("p", "1")
			engine.Include(p, "n", part("1"), p.Input())
			engine.Include(w, "m", p, w.Input())
		}, "node m/n/a: the included workflow can end here"},
		{"an exit that goes on", func(w w) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			engine.Exit(w, "done", a)
			engine.Then(a, a)
		}, "node a: is exit done and has a way on"},
		{"an exit twice", func(w w) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			engine.Exit(w, "done", a)
			engine.Exit(w, "again", a)
		}, "node a: exit again, or another one at the same node, is declared already"},
		{"two exits of one name", func(w w) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			b := engine.Compute(w, "b", w.Input(), pass[Task, Draft])
			engine.OnOutcome(a, engine.When(engine.OK, b))
			engine.Exit(w, "done", b)
			engine.Exit(w, "done", a)
		}, "exit done, or another one"},
		{"an exit without a name", func(w w) { engine.Exit(w, "", engine.Compute(w, "a", w.Input(), pass[Task, Draft])) }, "exit name has 0 bytes"},
		{"an exit at nothing", func(w w) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			engine.Exit(w, "done", engine.Node[Draft]{})
		}, "exit done is a zero handle"},
		{"an exit of another workflow", func(w w) {
			p := engine.New[Task]("p", "1")
			e := engine.Exit(p, "done", engine.Compute(p, "a", p.Input(), pass[Task, Draft]))
			engine.At(engine.Include(w, "m", part("1"), w.Input()), e)
		}, "node m: At needs an exit of the workflow that is included there"},
		{"at no mount", func(w w) {
			engine.Then(engine.At(engine.Include(w, "m", part("1"), w.Input()), engine.ExitOf[Draft]{}), nil)
		}, "At needs an exit"},
		{"from a zero mount", func(w w) {
			engine.Then(engine.Compute(w, "a", w.Input(), pass[Task, Draft]), engine.At(engine.Mount{}, engine.ExitOf[Draft]{}))
		}, "zero handle"},
		{"to a zero mount", func(w w) { engine.Then(engine.Compute(w, "a", w.Input(), pass[Task, Draft]), engine.Mount{}) }, "zero handle"},
		{"a node of the included workflow", func(w w) {
			p := engine.New[Task]("p", "1")
			a := engine.Compute(p, "a", p.Input(), pass[Task, Draft])
			engine.Exit(p, "done", a)
			engine.Include(w, "m", p, w.Input())
			engine.Then(engine.Compute(w, "b", w.Input(), pass[Task, Draft]), a)
		}, "joins it to another workflow"},
		{"an activation check", func(w w) {
			p := part("1")
			p.OnActivate(pass2)
			engine.Include(w, "m", p, w.Input())
		}, "node m: the workflow that it includes has an activation check or settings"},
		{"settings", func(w w) {
			p := part("1")
			engine.Settings(p, Task{})
			engine.Include(w, "m", p, w.Input())
		}, "node m: the workflow that it includes has an activation check or settings"},
		{"its own mistakes", func(w w) {
			p := part("")
			engine.Include(w, "m", p, w.Input())
		}, "the workflow that node m includes: invalid input: workflow version"},
		{"too many nodes", func(w w) {
			p := engine.New[Task]("p0", "1")
			last := engine.Exit(p, "done", engine.Compute(p, "a", p.Input(), pass[Task, Task]))
			for i := range 10 {
				q := engine.New[Task](fmt.Sprintf("p%d", i+1), "1")
				one := engine.Include(q, "one", p, q.Input())
				two := engine.Include(q, "two", p, q.Input())
				engine.Then(engine.At(one, last), two)
				last = engine.Exit(q, "done", engine.At(two, last))
				p = q
			}
			engine.Include(w, "m", p, w.Input())
		}, "too many here; all together may have 1000"},
	} {
		t.Run(c.why, func(t *testing.T) {
			b := engine.New[Task]("t", "1")
			c.build(b)
			_, err := b.Build()
			wantErr(t, err, c.want)
		})
	}
}

// Whatever is added to a workflow after it was included is a mistake.
func TestIncludedIsComplete(t *testing.T) {
	for why, change := range map[string]func(p *engine.Builder[Task], a engine.Node[Draft]){
		"a node": func(p *engine.Builder[Task], _ engine.Node[Draft]) {
			engine.Compute(p, "b", p.Input(), pass[Task, Draft])
		},
		"an edge": func(_ *engine.Builder[Task], a engine.Node[Draft]) { engine.Then(a, a) },
		"a switch": func(_ *engine.Builder[Task], a engine.Node[Draft]) {
			engine.OnOutcome(a, engine.When(engine.Failed, a))
		},
		"an exit":    func(p *engine.Builder[Task], a engine.Node[Draft]) { engine.Exit(p, "more", a) },
		"a promise":  func(p *engine.Builder[Task], _ engine.Node[Draft]) { engine.Later[Draft](p, "a") },
		"a bound":    func(p *engine.Builder[Task], _ engine.Node[Draft]) { p.MaxSteps(7) },
		"a check":    func(p *engine.Builder[Task], _ engine.Node[Draft]) { p.Validate(func(Task) error { return nil }) },
		"activation": func(p *engine.Builder[Task], _ engine.Node[Draft]) { p.OnActivate(pass2) },
		"settings":   func(p *engine.Builder[Task], _ engine.Node[Draft]) { engine.Settings(p, Task{}) },
		"a mount":    func(p *engine.Builder[Task], _ engine.Node[Draft]) { engine.Include(p, "m", part("1"), p.Input()) },
	} {
		t.Run(why, func(t *testing.T) {
			p := engine.New[Task]("p", "1")
			a := engine.Compute(p, "a", p.Input(), pass[Task, Draft])
			engine.Exit(p, "done", a)
			w := engine.New[Task]("w", "1")
			engine.Include(w, "m", p, w.Input())
			change(p, a)
			_, err := w.Build()
			wantErr(t, err, "workflow p is changed after workflow w included it; complete it first")
		})
	}
}

// An included workflow brings its approvals along, and its input may hold what
// the workflow around it has: nodes, input and settings.
func TestIncludedApproval(t *testing.T) {
	type in = engine.Pair[Task, Draft]
	sub := engine.New[in]("sub", "1")
	sub.Validate(func(v in) error {
		if v.B.Text == "" {
			return engine.Explain("no text", nil)
		}
		return nil
	})
	d := engine.Decide[Verdict](sub, "d", sub.Input(), show[in])
	a := engine.Action(sub, "a", sub.Input(), act[in, Draft], engine.Observed(look[in, Draft]), engine.Approved(d, Good))
	done := engine.Compute(sub, "done", d, pass[engine.Decided[Verdict], Draft])
	engine.Switch(d, engine.Case(Good, a), engine.Case(Bad, done))
	engine.Then(a, done)
	exit := engine.Exit(sub, "done", done)

	w := engine.New[Task]("w", "1")
	m := engine.Include(w, "m", sub, engine.Both(w.Input(), engine.Settings(w, Draft{Text: "all"}, "text")))
	engine.Then(engine.At(m, exit), engine.Compute(w, "end", engine.At(m, exit), pass[Draft, string]))
	wf := must(w.Build())
	const want = `workflow w version 1, at most 100 steps
  settings {"text":"all"}; the model may change text
  m/ is workflow sub version 1
  m/d: decision of good, bad; on output: bad -> m/done, good -> m/a
  m/a: action (observed; approved by m/d: good); then m/done
  m/done: compute reads m/d; then end
  end: compute reads m/done; then ends
`
	if diff := cmp.Diff(want, wf.Describe()); diff != "" {
		t.Fatal(diff)
	}
	for _, c := range []struct {
		why, settings string
		next          engine.Next
		want          string
	}{
		{"reads through the mount", `{"text":"x"}`, engine.Next{Node: "m/d"}, "m/d 1.1 asks Merge? All of it."},
		{"is checked before its effect", `{}`, engine.Next{Node: "m/a", Reserve: true}, "m/a 1.1 failed: node m/a did not start: the input of its workflow is refused: no text"},
		{"and cannot be observed", `{}`, engine.Next{Node: "m/a", Recovering: true},
			"m/a 1.1 unknown: node m/a was interrupted and cannot run again: the input of its workflow is refused: no text"},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(wf)
			h.settings = map[uint32]string{2: c.settings}
			h.answer = func(engine.Proposal) (engine.Next, bool, error) { return engine.Next{Parked: true}, true, nil }
			j := job(wf, `{"title":"x"}`)
			j.Current = c.next
			j.Current.Visit, j.Current.Attempt, j.Current.Seen = 1, 1, 2
			works(t, h, j, c.want)
		})
	}
}
