package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"strconv"
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
		{"a nil option", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], nil) }, "node a: has a nil option"},
		{"an option twice", func(w w) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Budget(1), engine.Budget(2))
		}, "node a: option Budget is given twice"},
		{"no time", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Budget(0)) }, "its budget is 0s; it must be above 0"},
		{"too much time", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Budget(math.MaxInt64)) }, "node a: budget is"},
		{"less than no retry", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Retry(-1, 0, engine.Failed)) }, "retries must be 1 to 100"},
		{"retries of nothing", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Retry(1, 0)) }, "retries need an outcome"},
		{"a compute node that is validated", func(w w) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Validate(fine[Draft]))
		}, "option Validate is for a node that asks, not for compute"},
		{"an action that expires", func(w w) {
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Expires(1))
		}, "option Expires is for a node that asks"},
		{"a notify with a default", func(w w) { engine.Notify(w, "a", w.Input(), pass[Task, string], engine.Default("x")) }, "option Default is for"},
		{"an action with updates", func(w w) {
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Updates())
		}, "option Updates is for"},
		{"a compute node for someone", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Audience("x")) }, "option Audience is for"},
		{"a compute node with a text", func(w w) {
			engine.Compute(w, "a", w.Input(), pass[Task, Verdict], engine.TextFor(Good, 1, false))
		}, "option TextFor is for"},
		{"a final compute node", func(w w) { engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Final()) }, "only a notify says the last word"},
		{"a prompt that is missing", func(w w) { engine.Agent[Draft, Task, Task](w, "a", w.Input(), nil) }, "node a: needs a function"},
		{"a decision that shows nothing", func(w w) { engine.Decide[Verdict, Task, Task](w, "a", w.Input(), nil) }, "node a: needs a function"},
		{"a message that is missing", func(w w) { engine.Notify[Task, Task](w, "a", w.Input(), nil) }, "node a: needs a function"},
		{"a command that is missing", func(w w) { engine.Shell[Task, Task](w, "a", w.Input(), nil, engine.Repeatable()) }, "node a: needs a function"},
		{"a command without policy", func(w w) { engine.Shell(w, "a", w.Input(), act[Task, engine.Command], nil) }, "node a: needs a policy"},
		{"a command and an observer of something else", func(w w) {
			engine.Shell(w, "a", w.Input(), act[Task, engine.Command], engine.Observed(look[Task, Draft]))
		}, "node a: its observer"},
		{"a check of another type", func(w w) { engine.Agent[Draft](w, "a", w.Input(), say[Task], engine.Validate(fine[Task])) },
			"node a: option Validate is of type engine_test.Task, but what answers the node is a engine_test.Draft"},
		{"a check that is missing", func(w w) { engine.Agent[Draft](w, "a", w.Input(), say[Task], engine.Validate[Draft](nil)) }, "option Validate needs a function"},
		{"code that decides", func(w w) { engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Validate(fine[Verdict])) }, "a decision is validated by nobody"},
		{"a visible text with progress", func(w w) { engine.Respond(w, "a", w.Input(), say[Task], engine.Updates()) }, "only an agent takes progress updates"},
		{"a checkpoint with progress", func(w w) { engine.Checkpoint[Draft](w, "a", w.Input(), say[Task], engine.Updates()) }, "only an agent takes progress updates"},
		{"an agent that expires", func(w w) { engine.Agent[Draft](w, "a", w.Input(), say[Task], engine.Expires(time.Hour)) }, "only a checkpoint or a decision expires"},
		{"an assistant with a default", func(w w) { engine.Respond(w, "a", w.Input(), say[Task], engine.Default("x")) }, "only a checkpoint or a decision expires or has a default"},
		{"an expiry in the past", func(w w) { engine.Checkpoint[Draft](w, "a", w.Input(), say[Task], engine.Expires(-1)) }, "it expires after -1ns"},
		{"a default of another type", func(w w) {
			engine.Checkpoint[Draft](w, "a", w.Input(), say[Task], engine.Expires(1), engine.Default("x"))
		}, "option Default is of type string"},
		{"a default that JSON does not have", func(w w) {
			engine.Checkpoint[float64](w, "a", w.Input(), say[Task], engine.Expires(1), engine.Default(math.NaN()))
		}, "its default has a number that is NaN"},
		{"a default without an expiry", func(w w) { engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Default(Bad)) }, "a default needs an expiry"},
		{"a default that is not a choice", func(w w) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Expires(1), engine.Default(Verdict("ugly")))
		}, `default must be one of ["good" "bad"]`},
		{"a default answer that is not a choice", func(w w) {
			engine.Checkpoint[Verdict](w, "a", w.Input(), say[Task], engine.Expires(1), engine.Default(Verdict("ugly")))
		}, `default must be one of ["good" "bad"]`},
		{"a whole decision as a default", func(w w) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Expires(1), engine.Default(engine.Decided[Verdict]{}))
		}, "but what answers the node is a engine_test.Verdict"},
		{"a default that nobody explains", func(w w) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Expires(1), engine.Default(Bad), engine.TextFor(Bad, 1, true))
		}, `default "bad" needs a text`},
		{"an agent with an audience", func(w w) { engine.Agent[Draft](w, "a", w.Input(), say[Task], engine.Audience("x")) }, "only a decision has an audience"},
		{"an audience of nobody", func(w w) { engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Audience("")) }, "its audience is empty"},
		{"an audience of two lines", func(w w) { engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Audience("a\nb")) }, "audience has 3 bytes"},
		{"a text of a checkpoint", func(w w) {
			engine.Checkpoint[Verdict](w, "a", w.Input(), say[Task], engine.TextFor(Good, 1, false))
		}, "only a decision takes texts"},
		{"a text for an unknown choice", func(w w) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.TextFor(Verdict("ugly"), 1, false))
		}, `text for unknown choice "ugly"`},
		{"a text for a choice of another set", func(w w) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.TextFor(Small, 1, false))
		}, "option TextFor is of type engine_test.Size"},
		{"two texts for a choice", func(w w) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.TextFor(Bad, 1, false), engine.TextFor(Bad, 2, false))
		}, `text for choice "bad" is declared twice`},
		{"a text without room", func(w w) { engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.TextFor(Bad, 0, false)) }, "bound of 0 characters"},
		{"a decision over nothing", func(w w) { engine.Decide[None](w, "a", w.Input(), show[Task]) }, "0 choices"},
		{"a decision over a set that panics", func(w w) { engine.Decide[Wild](w, "a", w.Input(), show[Task]) }, "node a: choice: panic"},
		{"a missing case of a decision", func(w w) {
			a := engine.Decide[Verdict](w, "a", w.Input(), show[Task])
			engine.Switch(a, engine.Case(Good, a))
		}, `node a: the switch has no case for "bad"`},
		{"a switch on no decision", func(w w) {
			a := engine.DecisionNode[Verdict]{Node: engine.Compute(w, "a", w.Input(), pass[Task, engine.Decided[Verdict]])}
			engine.Switch(a, engine.Case(Good, a), engine.Case(Bad, a))
		}, "node a: a switch on the output needs an output with a closed set"},
		{"an answer that may not decode", func(w w) { engine.Agent[Loose](w, "a", w.Input(), say[Task]) }, "because engine_test.Hex has a text form of its own"},
		{"which a check finds out", func(w w) { engine.Agent[Loose](w, "a", w.Input(), say[Task], engine.Validate(fine[Loose])) }, ""},
		{"an approval by nothing", func(w w) {
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Approved(engine.DecisionNode[Verdict]{}, Good))
		}, "node a: its approval is a zero handle"},
		{"an approval by what is no decision", func(w w) {
			a := engine.DecisionNode[Verdict]{Node: engine.Compute(w, "a", w.Input(), pass[Task, engine.Decided[Verdict]])}
			b := engine.Action(w, "b", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Approved(a, Good))
			engine.Then(a, b)
		}, "node b: its approval a is not a decision"},
		{"an approval of someone else's", func(w w) {
			d := engine.Decide[Verdict](engine.New[Task]("other", "1"), "d", nil, show[Task])
			engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Approved(d, Good))
		}, "node a: its approval is of another workflow's builder"},
		{"an approval of something else", func(w w) {
			d := engine.Decide[Verdict](w, "d", w.Input(), show[Task])
			a := engine.Action(w, "a", d, act[engine.Decided[Verdict], Draft], engine.Repeatable(), engine.Approved(d, Good))
			engine.Switch(d, engine.Case(Good, a), engine.Case(Bad, d))
		}, "but decision d is about engine_test.Task; what is approved must be what is done"},
		{"an approval without a choice", func(w w) {
			d := engine.Decide[Verdict](w, "d", w.Input(), show[Task])
			engine.Then(d, engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Approved(d)))
		}, "node a: names no choice of decision d"},
		{"an approval that may not have been given", func(w w) {
			a := engine.Compute(w, "a", w.Input(), pass[Task, Verdict])
			d := engine.Decide[Verdict](w, "d", w.Input(), show[Task])
			b := engine.Action(w, "b", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Approved(d, Good))
			engine.Switch(a, engine.Case(Good, b), engine.Case(Bad, d))
			engine.Switch(d, engine.Case(Good, b), engine.Case(Bad, d))
		}, "node b: is approved by node d, which has not decided on some path"},
		{"a compute node that is approved", func(w w) {
			d := engine.Decide[Verdict](w, "d", w.Input(), show[Task])
			engine.Then(d, engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Approved(d, Good)))
		}, "node a: only an action needs an approval"},
		{"an approval that is not defined yet", func(w w) {
			d := engine.DecisionNode[Verdict]{Node: engine.Later[engine.Decided[Verdict]](w, "d")}
			a := engine.Action(w, "a", w.Input(), act[Task, Draft], engine.Repeatable(), engine.Approved(d, Good))
			engine.Then(a, engine.Decide[Verdict](w, "d", w.Input(), show[Task]))
		}, "node a: its approval is not defined yet; define decision d first"},
		{"what comes around", func(w w) {
			a := engine.Compute(w, "a", engine.Maybe(engine.Later[Verdict](w, "b")), pass[*Verdict, Draft])
			b := engine.Choose[Verdict](w, "b", a, say[Draft])
			engine.Then(a, b)
			engine.Then(b, engine.Later[Draft](w, "a"))
		}, ""},
		{"what comes around and may be missing", func(w w) {
			a := engine.Compute(w, "a", engine.Later[Draft](w, "b"), pass[Draft, Draft])
			engine.Then(a, engine.Compute(w, "b", a, pass[Draft, Draft]))
		}, "node a: reads node b, which has no accepted output on some path"},
		{"what never comes", func(w w) { start(w); engine.Later[Draft](w, "b") }, "node b: Later promises it, but it is not defined"},
		{"what comes as another type", func(w w) { start(w); engine.Later[string](w, "a") }, "node a: Later promises outputs of type string, but they are of type engine_test.Draft"},
		{"what comes in another workflow", func(w w) {
			engine.Include(w, "m", part("1"), w.Input())
			engine.Later[Draft](w, "m/a")
		}, "node m/a: Later promises it, but it is not defined"},
		{"an exit that is not defined yet", func(w w) { start(w); engine.Exit(w, "done", engine.Later[Draft](w, "a")) }, "not defined yet"},
		{"settings that are a list", func(w w) { start(w); engine.Settings(w, []string{}) }, "settings: defaults must be a JSON object"},
		{"settings that are nothing", func(w w) { start(w); engine.Settings(w, map[string]int(nil)) }, "settings: defaults must be a JSON object"},
		{"settings of an unknown form", func(w w) { start(w); engine.Settings(w, func() {}) }, "settings: type func()"},
		{"settings that may not decode", func(w w) { start(w); engine.Settings(w, Loose{}) }, "Hex has a text form"},
		{"settings without JSON", func(w w) { start(w); engine.Settings(w, Task{Ratio: math.Inf(1)}) }, "settings: has a number"},
		{"settings too deep", func(w w) {
			start(w)
			engine.Settings(w, Task{Extra: json.RawMessage(strings.Repeat("[", 99) + strings.Repeat("]", 99))})
		}, "deep"},
		{"settings twice", func(w w) { start(w); engine.Settings(w, Task{}); engine.Settings(w, Task{}) }, "Settings are declared twice"},
		{"a path to nothing", func(w w) { start(w); engine.Settings(w, Task{}, "size", "notes.any", "Title") }, "settings: path Title is no member"},
		{"settings of another workflow", func(w w) {
			engine.Compute(w, "a", engine.Settings(engine.New[Task]("other", "1"), Task{}), pass[Task, Draft])
		}, "node a: reads from another"},
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

// Hex has a text form that its schema does not tell.
type Hex struct{}

func (Hex) MarshalText() ([]byte, error)     { return nil, nil }
func (*Hex) UnmarshalText(text []byte) error { return strconv.ErrSyntax }

type Loose struct {
	Sums []Hex `json:"sums"`
}

func fine[O any](context.Context, O) error          { return nil }
func say[D any](context.Context, D) (string, error) { return "do it", nil }
func show[D any](context.Context, D) (engine.Presentation, error) {
	return engine.Presentation{Title: "Merge?", Text: "All of it."}, nil
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
		`"Bytes":{"contentEncoding":"base64","type":["string","null"]},"Count":{"maximum":65535,"minimum":0,"type":"integer"},` +
		`"Deep":{"type":["boolean","null"]},` +
		`"Lists":{"items":{"items":{"type":"string"},"type":["array","null"]},"type":["array","null"]},` +
		`"Named":{"additionalProperties":{"type":"integer"},"type":["object","null"]},"Ratio":{"maximum":3.4028234663852886e+38,"minimum":-3.4028234663852886e+38,"type":"number"},"Raw":{},` +
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
		"budget": small(func(w *engine.Builder[Task]) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Budget(1))
		}),
		"retry": small(func(w *engine.Builder[Task]) {
			engine.Compute(w, "a", w.Input(), pass[Task, Draft], engine.Retry(1, 0, engine.Failed))
		}),
		"settings": small(func(w *engine.Builder[Task]) {
			engine.Compute(w, "a", engine.Settings(w, Task{}), pass[Task, Draft])
		}),
		"other defaults": small(func(w *engine.Builder[Task]) {
			engine.Compute(w, "a", engine.Settings(w, Task{Size: 1}), pass[Task, Draft])
		}),
		"agent":   small(func(w *engine.Builder[Task]) { engine.Agent[Draft](w, "a", w.Input(), say[Task]) }),
		"updates": small(func(w *engine.Builder[Task]) { engine.Agent[Draft](w, "a", w.Input(), say[Task], engine.Updates()) }),
		"validated": small(func(w *engine.Builder[Task]) {
			engine.Agent[Draft](w, "a", w.Input(), say[Task], engine.Validate(fine[Draft]))
		}),
		"assistant":  small(func(w *engine.Builder[Task]) { engine.Respond(w, "a", w.Input(), say[Task]) }),
		"checkpoint": small(func(w *engine.Builder[Task]) { engine.Checkpoint[Draft](w, "a", w.Input(), say[Task]) }),
		"expiry": small(func(w *engine.Builder[Task]) {
			engine.Checkpoint[Draft](w, "a", w.Input(), say[Task], engine.Expires(1))
		}),
		"default": small(func(w *engine.Builder[Task]) {
			engine.Checkpoint[Draft](w, "a", w.Input(), say[Task], engine.Expires(1), engine.Default(Draft{}))
		}),
		"decision": small(func(w *engine.Builder[Task]) { engine.Decide[Verdict](w, "a", w.Input(), show[Task]) }),
		"audience": small(func(w *engine.Builder[Task]) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Audience("x"))
		}),
		"text": small(func(w *engine.Builder[Task]) {
			engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.TextFor(Bad, 1, false))
		}),
		"notify": small(func(w *engine.Builder[Task]) { engine.Notify(w, "a", w.Input(), pass[Task, string]) }),
		"final":  small(func(w *engine.Builder[Task]) { engine.Notify(w, "a", w.Input(), pass[Task, string], engine.Final()) }),
		"shell": small(func(w *engine.Builder[Task]) {
			engine.Shell(w, "a", w.Input(), act[Task, engine.Command], engine.Repeatable())
		}),
		"shell's result of another kind": small(func(w *engine.Builder[Task]) {
			engine.Action(w, "a", w.Input(), act[Task, engine.ShellResult], engine.Repeatable())
		}),
		"included":      small(func(w *engine.Builder[Task]) { engine.Include(w, "m", part("1"), w.Input()) }),
		"included else": small(func(w *engine.Builder[Task]) { engine.Include(w, "m", part("2"), w.Input()) }),
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

const digestVector = "ecebc7a758d50a24"

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
