package engine_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

// bench holds builders and all handles that were made of them, right and wrong
// ones, for anything to be done with.
type bench struct {
	builders  []*engine.Builder[Task]
	sources   []engine.Source[Task]
	drafts    []engine.Node[Draft]
	verdicts  []engine.Node[Verdict]
	decisions []engine.DecisionNode[Verdict]
	targets   []engine.Target
	mounts    []engine.Mount
	exits     []engine.ExitOf[Draft]
}

func any1[T any](t *rapid.T, what string, of []T) T { return rapid.SampledFrom(of).Draw(t, what) }

func (b *bench) options(t *rapid.T) []engine.Option {
	return rapid.SliceOfN(rapid.SampledFrom([]engine.Option{
		nil, engine.Budget(0), engine.Budget(time.Hour), engine.Retry(1, time.Second, engine.Failed), engine.Retry(-1, -1, 0, engine.OK),
		engine.Validate(fine[Draft]), engine.Validate[Verdict](nil), engine.Updates(), engine.Expires(-1), engine.Expires(time.Hour),
		engine.Default(Draft{}), engine.Default(Bad), engine.Default(Verdict("?")), engine.Default(math.NaN()), engine.Audience("x"), engine.Audience("\n"),
		engine.TextFor(Good, 3, true), engine.TextFor(Verdict("?"), -1, false), engine.Final(), engine.Approved(engine.DecisionNode[Verdict]{}),
		engine.Approved(any1(t, "decision", b.decisions), Good), engine.Approved(any1(t, "decision", b.decisions), Good, Good, "?"),
	}), 0, 3).Draw(t, "options")
}

func (b *bench) node(d engine.Node[Draft]) {
	b.drafts, b.targets = append(b.drafts, d), append(b.targets, d)
}

func (b *bench) verdict(v engine.Node[Verdict]) {
	b.verdicts, b.targets = append(b.verdicts, v), append(b.targets, v)
}

func (b *bench) do(t *rapid.T) {
	w, from := any1(t, "builder", b.builders), any1(t, "source", b.sources)
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "", "A", "a/b", "\x00", "m"}).Draw(t, "name")
	opts := b.options(t)
	to := func() engine.Target { return any1(t, "target", b.targets) }
	switch rapid.IntRange(0, 18).Draw(t, "do") {
	case 0:
		b.node(engine.Compute(w, name, from, pass[Task, Draft], opts...))
	case 1:
		b.verdict(engine.Compute(w, name, from, pass[Task, Verdict], opts...))
	case 2:
		b.node(engine.Action(w, name, from, act[Task, Draft], any1(t, "policy", []engine.Policy{nil, engine.Repeatable(), engine.Observed(look[Task, string])}), opts...))
	case 3:
		b.node(engine.Agent[Draft](w, name, from, say[Task], opts...))
	case 4:
		b.verdict(engine.Choose[Verdict](w, name, from, say[Task], opts...))
	case 5:
		b.targets = append(b.targets, engine.Respond(w, name, from, nil, opts...))
	case 6:
		b.verdict(engine.Checkpoint[Verdict](w, name, from, say[Task], opts...))
	case 7:
		d := engine.Decide[Verdict](w, name, from, show[Task], opts...)
		b.decisions, b.targets = append(b.decisions, d), append(b.targets, d)
	case 8:
		b.targets = append(b.targets, engine.Notify(w, name, from, say[Task], opts...))
	case 9:
		b.targets = append(b.targets, engine.Shell(w, name, from, act[Task, engine.Command], engine.Unrepeatable(), opts...))
	case 10:
		b.sources = append(b.sources, engine.Settings(w, Task{}, name))
	case 11:
		m := engine.Include(w, name, any1(t, "included", b.builders), from)
		b.mounts, b.targets = append(b.mounts, m), append(b.targets, m)
	case 12:
		b.exits = append(b.exits, engine.Exit(w, name, any1(t, "exit", b.drafts)))
	case 13:
		b.node(engine.At(any1(t, "mount", b.mounts), any1(t, "exit", b.exits)))
	case 18:
		b.node(engine.Later[Draft](w, name))
		b.verdict(engine.Later[Verdict](w, name))
	case 14:
		engine.Then(to(), to())
	case 15:
		engine.Switch(any1(t, "verdict", b.verdicts), engine.Case(Good, to()), engine.Case(Bad, to()))
	case 16:
		engine.Switch(any1(t, "decision", b.decisions), engine.Case(Good, to()), engine.Case(Bad, to()))
	case 17:
		engine.OnOutcome(to(), engine.When(engine.OK, to()), engine.When(engine.Outcome(rapid.IntRange(0, 9).Draw(t, "outcome")), to()))
	}
}

// TestMisuse: whatever is done to builders, Build returns a workflow that
// validates, twice the same, or errors that name what is wrong.
func TestMisuse(t *testing.T) {
	built := 0
	rapid.Check(t, func(t *rapid.T) {
		b := &bench{
			builders:  []*engine.Builder[Task]{engine.New[Task]("one", "1"), engine.New[Task]("two", "1"), nil, {}},
			sources:   []engine.Source[Task]{nil, engine.Node[Task]{}},
			drafts:    make([]engine.Node[Draft], 1),
			verdicts:  make([]engine.Node[Verdict], 1),
			decisions: make([]engine.DecisionNode[Verdict], 1),
			targets:   []engine.Target{nil, engine.Node[Draft]{}, engine.DecisionNode[Verdict]{}, engine.Mount{}},
			mounts:    make([]engine.Mount, 1),
			exits:     make([]engine.ExitOf[Draft], 1),
		}
		sound := engine.New[Task]("three", "1") // builds, until it is misused
		b.node(engine.Agent[Draft](sound, "sound", sound.Input(), say[Task]))
		b.builders = append(b.builders, sound)
		for _, w := range b.builders {
			b.sources = append(b.sources, w.Input())
		}
		for range rapid.IntRange(1, 12).Draw(t, "n") {
			b.do(t)
		}
		for _, w := range b.builders {
			if w == nil {
				continue
			}
			wf, err := w.Build()
			again, errAgain := w.Build()
			if err != nil {
				if !errors.Is(err, launch.ErrInvalid) || errAgain == nil || err.Error() != errAgain.Error() || wf != nil {
					t.Fatalf("not a typed refusal, or another one the second time: %v; %v", err, errAgain)
				}
				continue
			}
			built++
			if err := wf.Plan().Validate(); err != nil || wf.Describe() == "" || again.Digest() != wf.Digest() {
				t.Fatalf("built what does not validate, or twice differently: %v", err)
			}
		}
	})
	if built == 0 {
		t.Error("nothing that was drawn builds, so nothing was tried")
	}
}
