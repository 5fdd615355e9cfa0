package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

func withChecks() *engine.Workflow {
	return must(review("1", func(w *engine.Builder[Task]) {
		w.Validate(func(in Task) error {
			switch in.Title {
			case "":
				return engine.Explain("title is empty; name the task", nil)
			case "panic":
				panic(in.Title)
			case "mute":
				return errors.New("secret " + in.Title)
			}
			return nil
		})
		w.OnActivate(func(ctx context.Context, in Task) error {
			switch in.Title {
			case "no tool":
				return engine.Explain("git is not installed; install it", errors.New("secret"))
			case "panic":
				panic("secret")
			case "mute":
				return errors.New("secret")
			case "slow":
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
	}))
}

func TestCheckInput(t *testing.T) {
	wf := withChecks()
	for _, c := range []struct{ why, in, want, err string }{
		{"white space, order and spelling go", " {\"size\":3 , \"title\":\"\\u0061\"}", `{"title":"a","size":3}`, ""},
		{"a key in other case is unknown", `{"TITLE":"secret"}`, "", "unknown field"},
		{"an unknown field", `{"title":"a","secret":1}`, "", "unknown field"},
		{"a key twice", `{"title":"a","title":"secret"}`, "", "input"},
		{"a wrong type", `{"title":7}`, "", "title"},
		{"a number out of range", `{"title":"a","size":300}`, "", "size"},
		{"null for a string", `{"title":null}`, "", "null"},
		{"NaN is no JSON", `{"title":"a","ratio":NaN}`, "", "input"},
		{"infinite", `{"title":"a","ratio":1e999}`, "", "input"},
		{"too deep", `{"title":"a","extra":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "", "input"},
		{"not UTF-8", "{\"title\":\"secret\xff\"}", "", "UTF-8"},
		{"two values", `{"title":"a"} {"title":"secret"}`, "", "input"},
		{"nothing", ``, "", "input"},
		{"not an object", `"secret"`, "", "input"},
		{"too long", `{"title":"` + strings.Repeat("a", launch.MaxInput) + `"}`, "", "1048576"},
		{"raw JSON stays", `{"title":"<a>","extra":{"b": [1,2]}}`, `{"title":"<a>","extra":{"b":[1,2]}}`, ""},
		{"the author's check explains", `{}`, "", "title is empty; name the task"},
		{"the author's check does not explain", `{"title":"mute"}`, "", "does not explain why"},
		{"the author's check panics", `{"title":"panic"}`, "", "check panicked"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := wf.CheckInput([]byte(c.in))
			wantErr(t, err, c.err)
			if string(got) != c.want {
				t.Fatalf("normalized to %s, want %s", got, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "mute")) {
				t.Fatalf("the error repeats the input: %v", err)
			}
		})
	}
}

func FuzzCheckInput(f *testing.F) {
	wf := withChecks()
	for _, s := range []string{`{}`, `{"title":"a","tags":["x"],"notes":{"a":"b"},"ratio":1e3,"extra":{"a":[1]}}`, `{"title":"\ud800"}`, `[[[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := wf.CheckInput(raw)
		if err != nil {
			if !errors.Is(err, launch.ErrInvalid) {
				t.Fatalf("not a typed refusal: %v", err)
			}
			return
		}
		twice, err := wf.CheckInput(once)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("normalizing %s again gives %s, %v", once, twice, err)
		}
	})
}

func TestActivate(t *testing.T) {
	plain := must(review("1", nil))
	if plain.HasActivation() || plain.Activate(t.Context(), []byte(`{}`)) != nil {
		t.Error("no activation check always passes")
	}
	wf := withChecks()
	if !wf.HasActivation() {
		t.Error("it has an activation check")
	}
	for title, want := range map[string]string{
		"fine":    "",
		"no tool": "activation check of workflow review failed: git is not installed; install it",
		"mute":    "activation check of workflow review failed: it returned an error that does not explain why",
		"panic":   "activation check of workflow review failed: it panicked",
	} {
		err := wf.Activate(t.Context(), []byte(`{"title":"`+title+`"}`))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: got %v, want %q", title, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := wf.Activate(ctx, []byte(`{"title":"slow"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("our own stop reads %v", err)
	}
}
