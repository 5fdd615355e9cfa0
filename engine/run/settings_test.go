package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"example.com/piworkflows/launch"
)

func TestPatch(t *testing.T) {
	const old = `{"a":{"b":1,"c":[1,2]},"d":"x"}`
	for _, c := range []struct {
		why, patch string
		paths      []string // nil: everything
		want       string
		kind       error
		message    string
	}{
		{"nothing", `{}`, nil, old, nil, ""},
		{"a member", `{"d":"y"}`, nil, `{"a":{"b":1,"c":[1,2]},"d":"y"}`, nil, ""},
		{"below a member", `{"a":{"b":2}}`, nil, `{"a":{"b":2,"c":[1,2]},"d":"x"}`, nil, ""},
		{"null removes", `{"a":{"c":null},"d":null}`, nil, `{"a":{"b":1}}`, nil, ""},
		{"lists are replaced", `{"a":{"c":[3]}}`, nil, `{"a":{"b":1,"c":[3]},"d":"x"}`, nil, ""},
		{"an object in place of a value", `{"d":{"e":1}}`, nil, `{"a":{"b":1,"c":[1,2]},"d":{"e":1}}`, nil, ""},
		{"nulls inside a new object are dropped", `{"n":{"e":null,"f":1}}`, nil, `{"a":{"b":1,"c":[1,2]},"d":"x","n":{"f":1}}`, nil, ""},
		{"an allowed path", `{"a":{"b":2}}`, []string{"a.b"}, `{"a":{"b":2,"c":[1,2]},"d":"x"}`, nil, ""},
		{"below an allowed path", `{"a":{"b":{"x":1}}}`, []string{"a"}, `{"a":{"b":{"x":1},"c":[1,2]},"d":"x"}`, nil, ""},
		{"beside an allowed path", `{"a":{"b":1,"c":1}}`, []string{"a.b"}, "", launch.ErrNotAllowed, `"a.c"`},
		{"above an allowed path", `{"a":1}`, []string{"a.b"}, "", launch.ErrNotAllowed, `"a"`},
		{"removing above an allowed path", `{"a":null}`, []string{"a.b"}, "", launch.ErrNotAllowed, `"a"`},
		{"a name that only begins alike", `{"ab":1}`, []string{"a"}, "", launch.ErrNotAllowed, `"ab"`},
		{"a dot in a name is no path", `{"a.b":1}`, []string{"a"}, "", launch.ErrNotAllowed, `"a.b"`},
		{"no path is allowed", `{"d":1}`, []string{}, "", launch.ErrNotAllowed, `"d"`},
		{"not an object", `[]`, nil, "", launch.ErrInvalid, "settings patch"},
		{"null", `null`, nil, "", launch.ErrInvalid, "settings patch"},
		{"broken", `{`, nil, "", launch.ErrInvalid, "settings patch"},
		{"a member twice", `{"d":1,"d":2}`, nil, "", launch.ErrInvalid, "settings patch"},
		{"too much", `{"d":"` + strings.Repeat("x", MaxSettings) + `"}`, nil, "", launch.ErrInvalid, "65536"},
		{"too much together", `{"n":"` + strings.Repeat("x", MaxSettings-20) + `"}`, nil, "", launch.ErrInvalid, "settings has"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := Patch([]byte(old), []byte(c.patch), c.paths)
			if c.kind == nil {
				if err != nil || string(got) != c.want {
					t.Fatalf("got %s, %v; want %s", got, err, c.want)
				}
				return
			}
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.message) {
				t.Fatalf("got %v, want %v with %s", err, c.kind, c.message)
			}
		})
	}
	if got, err := Patch([]byte(`{"a":9007199254740993,"t":"<&>"}`), []byte(`{"b":1}`), nil); err != nil || string(got) != `{"a":9007199254740993,"b":1,"t":"<&>"}` {
		t.Errorf("what is not named stays as it was written: %s, %v", got, err)
	}
	if got, err := Patch([]byte(`{"a":5}`), []byte(`{"a":{"b":1}}`), []string{"a.b"}); !errors.Is(err, launch.ErrNotAllowed) {
		t.Errorf("a value above an allowed path was replaced: %s, %v", got, err)
	}
	if _, err := Patch([]byte(`[`), []byte(`{}`), nil); !errors.Is(err, launch.ErrInternal) {
		t.Errorf("settings that decay: %v", err)
	}
}

func TestConfigure(t *testing.T) {
	p := patient(Retry{Max: 1, On: []Outcome{Failed}})
	p.Settings = &Settings{Defaults: []byte(`{}`), Form: []byte(`{}`)}
	r, err := Begin("w-1", p, []byte(`1`), 1)
	if err != nil || r.Settings != 1 || r.Seen != 1 {
		t.Fatalf("begins with %d and sees %d: %v", r.Settings, r.Seen, err)
	}
	r = apply(t, r, Configure{Revision: 1}, p, when(2)).Run
	if r.Settings != 2 || r.Seen != 1 {
		t.Fatalf("an attempt that runs sees revision %d", r.Seen)
	}
	if _, err := Apply(r, Configure{Revision: 1}, p, nil, when(3)); !errors.Is(err, launch.ErrStale) {
		t.Errorf("a change of an old revision: %v", err)
	}
	if got := apply(t, r, Reattempt{}, p, when(3)).Run; got.Seen != 2 {
		t.Errorf("a new attempt sees revision %d", got.Seen)
	}
	if got := apply(t, r, ok(r, `1`), p, when(3)).Run; got.Seen != 2 || got.Node != "b" {
		t.Errorf("the next node sees revision %d", got.Seen)
	}
	if _, err := Apply(begin(t), Configure{}, &loop, nil, when(3)); !errors.Is(err, launch.ErrNotAllowed) {
		t.Errorf("a workflow without settings: %v", err)
	}
}

// FuzzPatch: no patch panics; what it gives is an object in bounds, the same when
// it is applied again, and keeps what no path covers.
func FuzzPatch(f *testing.F) {
	for _, patch := range []string{`{}`, `{"a":1}`, `{"a":{"b":null}}`, `{"a":{"b":{"c":[null]}}}`, `{"x":{}}`, `{"a.b":1}`, `{"a":null}`, `null`} {
		for _, settings := range []string{`{}`, `{"a":{"b":1,"d":2},"x":5}`, `{"a":5}`} {
			f.Add([]byte(settings), []byte(patch))
		}
	}
	f.Fuzz(func(t *testing.T, settings, patch []byte) {
		var old, now map[string]any
		if len(settings) > MaxSettings/2 || json.Unmarshal(settings, &old) != nil || old == nil {
			return
		}
		for _, paths := range [][]string{nil, {"a.b"}} {
			got, err := Patch(settings, patch, paths)
			if err != nil {
				var r *launch.Refusal
				if !errors.As(err, &r) || r.Message == "" {
					t.Fatalf("refused without a kind: %v", err)
				}
				continue
			}
			if json.Unmarshal(got, &now) != nil || now == nil || len(got) > MaxSettings {
				t.Fatalf("%s is no object in bounds", got)
			}
			if again, err := Patch(got, patch, paths); err != nil || !bytes.Equal(again, got) {
				t.Fatalf("applied again it gives %s, %v; before %s", again, err, got)
			}
			if paths != nil && !reflect.DeepEqual(outside(old), outside(now)) {
				t.Fatalf("%s changed %s to %s", patch, settings, got)
			}
			now = nil
		}
	})
}

// outside returns settings without what path a.b covers; an object that is left
// empty counts as none.
func outside(settings map[string]any) map[string]any {
	kept := map[string]any{}
	for name, v := range settings {
		below, isObject := v.(map[string]any)
		if name == "a.b" {
			continue
		}
		if name != "a" || !isObject {
			kept[name] = v
			continue
		}
		rest := map[string]any{}
		for name, v := range below {
			if name != "b" {
				rest[name] = v
			}
		}
		if len(rest) > 0 {
			kept[name] = rest
		}
	}
	return kept
}
