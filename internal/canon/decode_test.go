package canon

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	N int `json:"n"`
}

type outer struct {
	Name  string           `json:"name"`
	Opt   *inner           `json:"opt,omitempty"`
	List  []inner          `json:"list,omitempty"`
	Map   map[string]inner `json:"map,omitempty"`
	Raw   json.RawMessage  `json:"raw,omitempty"`
	Any   any              `json:"any,omitempty"`
	Short uint8            `json:"short"`
	Bare  bool
	Skip  string `json:"-"`
	inner
}

func TestDecode(t *testing.T) {
	in := `{"name":"é","opt":null,"list":[{"n":1}],"map":{"x":{"n":2}},"raw":{"any":"thing"},"any":{"k":null},"Bare":true}`
	var got outer
	if err := Decode([]byte(in), len(in), "options", &got); err != nil {
		t.Fatal(err)
	}
	want := outer{Name: "é", List: []inner{{1}}, Map: map[string]inner{"x": {2}},
		Raw: json.RawMessage(`{"any":"thing"}`), Any: map[string]any{"k": nil}, Bare: true}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(outer{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDecodeRefused(t *testing.T) {
	for _, c := range []struct{ why, in, says string }{
		{"one byte too many", `{"name":"` + strings.Repeat("x", 200) + `"}`, "has 211 bytes; the bound is 210"},
		{"unknown field", `{"name":"a","secret-key":1}`, "unknown field; known are: Bare, any"},
		{"a field's name in another case", `{"NAME":"a"}`, "unknown field"},
		{"both cases", `{"name":"a","Name":"b"}`, "unknown field"},
		{"field that is not for JSON", `{"Skip":"a"}`, "unknown field"},
		{"unknown field in an optional", `{"opt":{"x":1}}`, "unknown field"},
		{"unknown field in a list", `{"list":[{"n":1},{"x":1}]}`, "unknown field"},
		{"unknown field in a map", `{"map":{"a":{"x":1}}}`, "unknown field"},
		{"null for a string", `{"name":null}`, "null where a value"},
		{"null in a list", `{"list":[null]}`, "null where a value"},
		{"null for the whole", `null`, "null where a value"},
		{"wrong type", `{"name":12345678901}`, "wrong type or size in name"},
		{"another shape", `["secret-key"]`, "wrong type"},
		{"number too large for its field", `{"short":999}`, "wrong type or size in short"},
		{"duplicate key inside raw JSON", `{"raw":{"a":1,"a":2}}`, "duplicate key"},
	} {
		var got outer
		err := Decode([]byte(c.in), 210, "options", &got)
		wantRefusal(t, c.why, err, c.says)
		if err != nil && (!strings.Contains(err.Error(), "options") ||
			strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "999") || strings.Contains(err.Error(), "1234")) {
			t.Errorf("%s: %v must name the value and not repeat it", c.why, err)
		}
	}
	if err := Decode([]byte(`{}`), 10, "options", outer{}); err == nil {
		t.Error("decoding into something that cannot be filled must fail")
	}
}

func slowCompare(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

func sign(n int) int { return min(1, max(-1, n)) }

// Whatever Canonical takes, encoding/json takes too, and the canonical form is
// valid, stable and no other value.
func FuzzCanonical(f *testing.F) {
	for _, c := range refused {
		f.Add([]byte(c.in[:min(len(c.in), 300)]))
	}
	f.Add([]byte(`{"\ufb33":[1e21,-0.1,"\ud83d\ude00"],"😀":null}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := Canonical(in)
		if err != nil {
			return
		}
		if !json.Valid(in) || !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("accepted %q as %q", in, out)
		}
		again, err := Canonical(out)
		if err != nil || string(again) != string(out) {
			t.Fatalf("%q became %q, %v", out, again, err)
		}
		var a, b any
		if json.Unmarshal(in, &a) != nil || json.Unmarshal(out, &b) != nil || !cmp.Equal(a, b) {
			t.Fatalf("%q changed its value to %q", in, out)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"é","opt":{"n":1},"list":[{"n":1}],"map":{"x":{"n":2}},"raw":[1],"any":{"k":null}}`))
	f.Add([]byte(`{"Name":null}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var got outer
		if err := Decode(in, 1<<16, "options", &got); err != nil {
			return
		}
		if again, err := json.Marshal(got); err != nil || Decode(again, 1<<20, "options", &got) != nil {
			t.Fatalf("%q decodes, but what it became does not: %q, %v", in, again, err)
		}
	})
}
