package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine"
)

type (
	Tree   struct{ Left, Right *Tree }
	List   []List
	Custom struct{ io.Reader }
	Loud   string
	Inner  struct{ A int }
	Same   struct {
		Inner
		B int `json:"A"`
	}
	Quoted struct {
		A int `json:",string"`
	}
	None string
	Wild string
)

func (Loud) MarshalJSON() ([]byte, error) { return []byte(`"!"`), nil }
func (None) Choices() []None              { return nil }
func (Wild) Choices() []Wild              { panic("secret") }

func TestBuildRefusals(t *testing.T) {
	type w = *engine.Builder[Task]
	start := func(w w) engine.Node[Draft] { return engine.Compute(w, "a", w.Input(), pass[Task, Draft]) }
	judge := func(w w) engine.Node[Verdict] { return engine.Compute(w, "a", w.Input(), pass[Task, Verdict]) }
	other := func() engine.Node[Draft] { return start(engine.New[Task]("other", "1")) }
	for _, c := range []struct {
		why   string
		build func(w)
		want  string
	}{
		{"one node is enough", func(w w) { start(w) }, ""},
		{"no node", func(w w) {}, "workflow t has no node"},
		{"nil function", func(w w) { engine.Compute[Task, Task, Draft](w, "a", w.Input(), nil) }, "node a: needs a function"},
		{"nil action", func(w w) { engine.Action[Task, Task, Draft](w, "a", w.Input(), nil, engine.Repeatable()) }, "node a: needs a function"},
		{"nil source", func(w w) { engine.Compute(w, "a", nil, pass[Task, Draft]) }, "node a: reads nothing"},
		{"zero handle as source", func(w w) { engine.Compute(w, "a", engine.Node[Draft]{}, pass[Draft, Draft]) }, "node a: reads nothing"},
		{"nil inside Both", func(w w) {
			engine.Compute(w, "a", engine.Both[Task, Draft](w.Input(), nil), pass[engine.Pair[Task, Draft], Draft])
		}, "node a: reads nothing"},
		{"zero handle inside Maybe", func(w w) { engine.Compute(w, "a", engine.Maybe(engine.Node[Draft]{}), pass[*Draft, Draft]) }, "node a: reads nothing"},
		{"foreign node as source", func(w w) { engine.Compute(w, "a", other(), pass[Draft, Draft]) }, "node a: reads from another"},
		{"foreign input", func(w w) { engine.Compute(w, "a", engine.New[Task]("other", "1").Input(), pass[Task, Draft]) }, "node a: reads from another"},
		{"foreign target", func(w w) { engine.Then(start(w), other()) }, "joins it to another workflow"},
		{"foreign origin", func(w w) { a := start(w); engine.Then(other(), a) }, "joins it to another workflow"},
		{"node without a builder", func(w w) { engine.Then(start(w), engine.Compute[Task](nil, "b", nil, pass[Task, Draft])) }, "joins it to another workflow"},
		{"nil target", func(w w) { engine.Then(start(w), nil) }, "nil target"},
		{"zero target", func(w w) { engine.Then(start(w), engine.Node[Draft]{}) }, "zero handle"},
		{"edges of nothing are nothing", func(w w) { start(w); engine.Then(nil, nil); engine.OnOutcome(nil) }, ""},
		{"duplicate name", func(w w) { start(w); start(w) }, "node a: name is used twice"},
		{"bad name", func(w w) { engine.Compute(w, "A b", w.Input(), pass[Task, Draft]) }, "must match"},
		{"format verbs in a name", func(w w) { engine.Compute(w, "%d%s", w.Input(), pass[Task, Draft]) }, "%d%s"},
		{"a name like a path", func(w w) { engine.Compute(w, "a/b", w.Input(), pass[Task, Draft]) }, "no '/'"},
		{"action without policy", func(w w) { engine.Action(w, "a", w.Input(), act[Task, Draft], nil) }, "node a: needs a policy"},
		{"nil observer", func(w w) {
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Observed[Task, Draft](nil))
		}, "node a: Observed needs a function"},
		{"observer of other types", func(w w) { engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Observed(look[Task, string])) }, "node a: its observer"},
		{"missing case", func(w w) { a := judge(w); engine.Switch(a, engine.Case(Good, a)) }, `node a: the switch has no case for "bad"`},
		{"extra case", func(w w) {
			a := judge(w)
			engine.Switch(a, engine.Case(Good, a), engine.Case(Bad, a), engine.Case(Verdict("ugly"), a))
		}, `unknown case "ugly"`},
		{"case without target", func(w w) { a := judge(w); engine.Switch(a, engine.Case(Good, a), engine.Case(Bad, nil)) }, "nil target"},
		{"outcome outside the set", func(w w) { a := start(w); engine.OnOutcome(a, engine.When(0, a)) }, "unknown case"},
		{"two ways on", func(w w) { a := start(w); engine.Then(a, a); engine.OnOutcome(a, engine.When(engine.OK, a)) }, "node a: has more than one outgoing edge"},
		{"unreachable", func(w w) { start(w); engine.Compute(w, "b", w.Input(), pass[Task, Draft]) }, "node b: no path"},
		{"a read that may be missing", func(w w) {
			a := judge(w)
			b := engine.Compute(w, "b", w.Input(), pass[Task, Draft])
			c := engine.Compute(w, "c", b, pass[Draft, Draft])
			engine.Switch(a, engine.Case(Good, b), engine.Case(Bad, c))
			engine.Then(b, c)
		}, "node c: reads node b"},
		{"no steps", func(w w) { start(w); w.MaxSteps(0) }, "max steps is 0"},
		{"nil check", func(w w) { start(w); w.Validate(nil) }, "Validate needs"},
		{"two activation checks", func(w w) {
			start(w)
			w.OnActivate(pass2)
			w.OnActivate(pass2)
		}, "OnActivate needs"},
		{"a type that contains itself", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Tree]) }, "Tree contains itself"},
		{"a list of itself", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, List]) }, "List contains itself"},
		{"a function as output", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, func()]) }, "no JSON form"},
		{"a channel deep down", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, map[string][]*struct{ C chan int }]) }, "C: type chan int"},
		{"an open interface", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, any]) }, "no JSON form"},
		{"an embedded interface", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Custom]) }, "only structs can be embedded"},
		{"its own JSON form", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Loud]) }, "its own JSON form"},
		{"map keys that are numbers", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, map[int]string]) }, "plain strings as keys"},
		{"one json name twice", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Same]) }, "A is used twice"},
		{"numbers as strings", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Quoted]) }, "option string"},
		{"empty closed set", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, None]) }, "0 choices"},
		{"a closed set that panics", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Wild]) }, "node a: output: panic"},
	} {
		t.Run(c.why, func(t *testing.T) {
			b := engine.New[Task]("t", "1")
			c.build(b)
			wf, err := b.Build()
			wantErr(t, err, c.want)
			if (wf == nil) != (err != nil) {
				t.Fatal("Build returns a workflow or an error")
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Fatalf("the error repeats a panic: %v", err)
			}
		})
	}
}

func pass2(context.Context, Task) error { return nil }

func TestNewRefusals(t *testing.T) {
	build := func(name, version string) error {
		w := engine.New[Task](name, version)
		engine.Compute(w, "a", w.Input(), pass[Task, Draft])
		_, err := w.Build()
		return err
	}
	wantErr(t, build("", "1"), "workflow name")
	wantErr(t, build("Upper", "1"), "workflow name")
	wantErr(t, build("w", ""), "workflow version")
	wantErr(t, build("w", "a\nb"), "workflow version")
	w := engine.New[chan int]("w", "1")
	engine.Compute(w, "a", w.Input(), pass[chan int, Draft])
	_, err := w.Build()
	wantErr(t, err, "workflow input: type chan int")
}

func TestErrorsAreJoined(t *testing.T) {
	w := engine.New[Task]("t", "")
	engine.Compute[Task, Task, Draft](w, "a", w.Input(), nil)
	engine.Compute(w, "b", w.Input(), pass[Task, Draft])
	_, err := w.Build()
	for _, want := range []string{"workflow version", "node a: needs", "node b: no path"} {
		wantErr(t, err, want)
	}
}

func TestInputSchema(t *testing.T) {
	type inner struct{ Deep *bool }
	type all struct {
		inner
		Name   string `json:"name"`
		Bytes  []byte
		When   time.Time
		Raw    json.RawMessage
		Count  uint16
		Ratio  float32
		Lists  [][]string
		Named  map[string]int
		Hidden int `json:"-"`
		hidden int
	}
	w := engine.New[all]("t", "1")
	engine.Compute(w, "a", w.Input(), func(_ context.Context, in all) (int, error) { return in.hidden, nil })
	wf := must(w.Build())
	const want = `{"additionalProperties":false,"properties":{` +
		`"Bytes":{"contentEncoding":"base64","type":["string","null"]},"Count":{"minimum":0,"type":"integer"},` +
		`"Deep":{"type":["boolean","null"]},` +
		`"Lists":{"items":{"items":{"type":"string"},"type":["array","null"]},"type":["array","null"]},` +
		`"Named":{"additionalProperties":{"type":"integer"},"type":["object","null"]},"Ratio":{"type":"number"},"Raw":{},` +
		`"When":{"format":"date-time","type":"string"},"name":{"type":"string"}},"type":"object"}`
	if got := string(wf.InputSchema()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDigest(t *testing.T) {
	base := must(review("1", nil))
	if base.Digest() != must(review("1", nil)).Digest() {
		t.Error("the same definition has two digests")
	}
	// A fixed vector, so that a stored digest means the same in the next release.
	if got := base.Digest().String()[:16]; got != digestVector {
		t.Errorf("digest starts with %s, want %s", got, digestVector)
	}
	small := func(build func(w *engine.Builder[Task])) *engine.Workflow {
		w := engine.New[Task]("t", "1")
		build(w)
		return must(w.Build())
	}
	seen := map[string]string{}
	for why, wf := range map[string]*engine.Workflow{
		"base":          base,
		"version":       must(review("2", nil)),
		"max steps":     must(review("1", func(w *engine.Builder[Task]) { w.MaxSteps(7) })),
		"one node":      small(func(w *engine.Builder[Task]) { engine.Compute(w, "a", w.Input(), pass[Task, Draft]) }),
		"node name":     small(func(w *engine.Builder[Task]) { engine.Compute(w, "b", w.Input(), pass[Task, Draft]) }),
		"output schema": small(func(w *engine.Builder[Task]) { engine.Compute(w, "a", w.Input(), pass[Task, string]) }),
		"closed set":    small(func(w *engine.Builder[Task]) { engine.Compute(w, "a", w.Input(), pass[Task, Verdict]) }),
		"kind": small(func(w *engine.Builder[Task]) {
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable())
		}),
		"policy": small(func(w *engine.Builder[Task]) {
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Unrepeatable())
		}),
		"edge": small(func(w *engine.Builder[Task]) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			engine.Then(a, a)
		}),
		"input schema": func() *engine.Workflow {
			w := engine.New[Draft]("t", "1")
			engine.Compute(w, "a", w.Input(), pass[Draft, Draft])
			return must(w.Build())
		}(),
	} {
		d := wf.Digest().String()
		if other := seen[d]; other != "" {
			t.Errorf("%s and %s have one digest", why, other)
		}
		seen[d] = why
	}
	order := func(swap bool) *engine.Workflow {
		return small(func(w *engine.Builder[Task]) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Draft])
			b := engine.Compute(w, "b", w.Input(), pass[Task, Draft])
			if swap {
				engine.OnOutcome(b, engine.When(engine.OK, a), engine.When(engine.Failed, b))
			}
			engine.Then(a, b)
			if !swap {
				engine.OnOutcome(b, engine.When(engine.Failed, b), engine.When(engine.OK, a))
			}
		})
	}
	if order(true).Digest() != order(false).Digest() {
		t.Error("the order in which edges are drawn changes the digest")
	}
}

const digestVector = "473f3daa10952d83"

func TestRegistry(t *testing.T) {
	one, w := must(review("1", nil)), engine.New[Task]("a", "1")
	engine.Compute(w, "a", w.Input(), pass[Task, Draft])
	r, err := engine.NewRegistry("example.com/host", one, must(w.Build()))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := r.Lookup("review"); !ok || got != one || r.Source() != "example.com/host" {
		t.Error("a registered workflow is not found")
	}
	if _, ok := r.Lookup("other"); ok {
		t.Error("found what nobody registered")
	}
	if got := strings.Join(r.Names(), " "); got != "a review" {
		t.Errorf("names are %q, want them sorted", got)
	}
	for _, c := range []struct {
		why, source string
		ws          []*engine.Workflow
		want        string
	}{
		{"no source", "", nil, "source identity"},
		{"long source", strings.Repeat("x", 513), nil, "source identity"},
		{"two of one name", "s", []*engine.Workflow{one, must(review("2", nil))}, "review is registered twice"},
		{"nil", "s", []*engine.Workflow{nil}, "workflow 1"},
		{"zero", "s", []*engine.Workflow{one, {}}, "workflow 2"},
	} {
		_, err := engine.NewRegistry(c.source, c.ws...)
		t.Run(c.why, func(t *testing.T) { wantErr(t, err, c.want) })
	}
}
