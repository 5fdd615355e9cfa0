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
	for _, c := range []struct {
		why, settings, patch string
		paths                []string // nil: everything
		want                 string   // result, or part of the error
		kind                 launch.Kind
	}{
		{"a member changes", `{"a":"b"}`, `{"a":"c"}`, nil, `{"a":"c"}`, 0},
		{"a member is new", `{"a":"b"}`, `{"b":"c"}`, nil, `{"a":"b","b":"c"}`, 0},
		{"null removes", `{"a":"b","b":"c"}`, `{"a":null}`, nil, `{"b":"c"}`, 0},
		{"null removes what is not there", `{}`, `{"a":null}`, nil, `{}`, 0},
		{"a list is replaced", `{"a":["b"]}`, `{"a":[1,null]}`, nil, `{"a":[1,null]}`, 0},
		{"objects merge", `{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, nil, `{"a":{"b":"d"}}`, 0},
		{"an object replaces a value, without its nulls", `{"a":"b"}`, `{"a":{"bb":{"ccc":null}}}`, nil, `{"a":{"bb":{}}}`, 0},
		{"nothing changes nothing", `{"a":1}`, `{}`, nil, `{"a":1}`, 0},
		{"large numbers stay what they are", `{"a":9007199254740993}`, `{"b":1}`, nil, `{"a":9007199254740993,"b":1}`, 0},

		{"an allowed member", `{"a":1,"b":2}`, `{"a":3}`, []string{"a"}, `{"a":3,"b":2}`, 0},
		{"what is below one", `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, []string{"a.b"}, `{"a":{"b":{"c":2}}}`, 0},
		{"an allowed member is removed", `{"a":{"b":1,"c":2}}`, `{"a":{"b":null}}`, []string{"a.b"}, `{"a":{"c":2}}`, 0},
		{"above it nothing was", `{}`, `{"a":{"b":1}}`, []string{"a.b"}, `{"a":{"b":1}}`, 0},
		{"another member", `{}`, `{"b":1}`, []string{"a"}, `"b" may not be changed`, launch.ErrNotAllowed},
		{"a sibling", `{}`, `{"a":{"b":1,"c":2}}`, []string{"a.b"}, `"a.c" may not be changed`, launch.ErrNotAllowed},
		{"the first is named", `{}`, `{"z":1,"y":1}`, []string{"a"}, `"y" may not`, launch.ErrNotAllowed},
		{"what is above it is not removed", `{"a":{"c":1}}`, `{"a":null}`, []string{"a.b"}, `"a" may not`, launch.ErrNotAllowed},
		{"nor replaced", `{"a":{"c":1}}`, `{"a":[]}`, []string{"a.b"}, `"a" may not`, launch.ErrNotAllowed},
		{"nor made an object", `{"a":5}`, `{"a":{"b":1}}`, []string{"a.b"}, `"a" may not`, launch.ErrNotAllowed},
		{"a name that only begins like one", `{}`, `{"ab":1}`, []string{"a"}, `"ab" may not`, launch.ErrNotAllowed},
		{"nothing is allowed", `{}`, `{"a":1}`, []string{}, `"a" may not`, launch.ErrNotAllowed},

		{"null is no object", `{}`, `null`, nil, "must be a JSON object", launch.ErrInvalid},
		{"a list is none", `{}`, `[]`, nil, "settings patch", launch.ErrInvalid},
		{"half a patch", `{}`, `{"a":`, nil, "settings patch", launch.ErrInvalid},
		{"a member twice", `{}`, `{"a":1,"a":2}`, nil, "settings patch", launch.ErrInvalid},
		{"not UTF-8", `{}`, "{\"a\":\"\xff\"}", nil, "settings patch", launch.ErrInvalid},
		{"a patch beyond its bound", `{}`, `{"a":"` + strings.Repeat("x", MaxSettings) + `"}`, nil, "settings patch", launch.ErrInvalid},
		{"settings that grow beyond their bound", `{"b":"` + strings.Repeat("x", MaxSettings-20) + `"}`, `{"a":"` + strings.Repeat("x", 20) + `"}`, nil, "settings", launch.ErrInvalid},
		{"stored settings that are broken", `{`, `{}`, nil, "cannot be read", launch.ErrInternal},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := Patch([]byte(c.settings), []byte(c.patch), c.paths)
			if c.kind != 0 {
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %s, %v, want %v with %q", got, err, c.kind, c.want)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Fatalf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestConfigure(t *testing.T) {
	p := one(compute("a"))
	p.Settings = &Settings{Defaults: json.RawMessage(`{}`)}
	p.Edges = []Edge{then("a", "a")}
	r, err := Begin("w-1", p, []byte(`{}`), 1)
	if err != nil || r.Settings != 1 || r.Seen != 1 {
		t.Fatalf("begins at revision %d, sees %d, %v", r.Settings, r.Seen, err)
	}
	res := apply(t, p, r, 1, "c", Configure{Revision: 1})
	if r = res.Run; r.Settings != 2 || r.Seen != 1 || len(res.Events) != 1 || res.Events[0].Kind != Configured {
		t.Fatalf("revision %d, the attempt sees %d, %+v", r.Settings, r.Seen, res.Events)
	}
	if _, err := Apply(r, Configure{Revision: 1}, p, nil, launch.Now{}); !errors.Is(err, launch.ErrStale) {
		t.Fatalf("a change against an old revision: %v", err)
	}
	if again := apply(t, p, r, 2, "c", Reattempt{}).Run; again.Seen != 2 {
		t.Errorf("a new attempt sees revision %d", again.Seen)
	}
	if next := apply(t, p, r, 2, "c", ok(r, "1")).Run; next.Seen != 2 {
		t.Errorf("a new visit sees revision %d", next.Seen)
	}
	r.Settings = 0
	if _, err := Apply(r, Configure{}, p, nil, launch.Now{}); !errors.Is(err, launch.ErrNotAllowed) {
		t.Fatalf("a workflow without settings: %v", err)
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
