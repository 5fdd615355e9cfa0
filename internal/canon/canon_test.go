package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ why, in, want string }{
		{"white space goes", " { \"b\" : [ 1 , true ,\tnull ] ,\n\"a\" : {} } ", `{"a":{},"b":[1,true,null]}`},
		{"numbers of the RFC's sample", `[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]`,
			`[333333333.3333333,1e+30,4.5,0.002,1e-27]`},
		{"edges of the two number forms", `[1e21,999999999999999900000,1e-6,1e-7,123e-9,-1.5e300]`,
			`[1e+21,999999999999999900000,0.000001,1e-7,1.23e-7,-1.5e+300]`},
		{"minus zero and underflow are zero", `[-0,-0.0,1e-400]`, `[0,0,0]`},
		{"least and greatest double", `[5e-324,1.7976931348623157e308]`, `[5e-324,1.7976931348623157e+308]`},
		{"strings of the RFC's sample", `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`, `"€$\u000f\nA'B\"\\\\\"/"`},
		{"short escapes", `"\b\t\n\f\r\u0000\u007f"`, "\"\\b\\t\\n\\f\\r\\u0000\u007f\""},
		{"surrogate pairs become characters", `"\ud83d\uDE02"`, `"😂"`},
		{"keys sort by UTF-16 units: an astral key before U+FB33", `{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"\r":4,"1":5,"\u0080":6,"":7}`,
			"{\"\":7,\"\\r\":4,\"1\":5,\"\u0080\":6,\"€\":3,\"😀\":2,\"\ufb33\":1}"},
		{"equal keys in different objects", `{"a":{"a":1}}`, `{"a":{"a":1}}`},
		{"at the depth bound", strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
			strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)},
	} {
		got, err := Canonical([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
		} else if d := cmp.Diff(c.want, string(got)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.why, d)
		}
	}
}

var refused = []struct{ why, in, says string }{
	{"nothing", "", "not valid JSON"},
	{"only white space", " \n", "not valid JSON"},
	{"byte order mark", "\ufeff1", "not valid JSON"},
	{"invalid UTF-8", "\"\xff\"", "not valid UTF-8"},
	{"encoded surrogate", "\"\xed\xa0\x80\"", "not valid UTF-8"},
	{"lone high surrogate", `"\ud800"`, "lone surrogate"},
	{"lone low surrogate", `"\udc00x"`, "lone surrogate"},
	{"two high surrogates", `"\ud800\ud800"`, "lone surrogate"},
	{"high surrogate before another escape", `"\ud800\n"`, "lone surrogate"},
	{"short escape", `"\u12"`, "not valid JSON"},
	{"unknown escape", `"\x"`, "not valid JSON"},
	{"escape at the end", `"\`, "not valid JSON"},
	{"unfinished string", `"abc`, "unfinished string"},
	{"control character", "\"a\nb\"", "control character"},
	{"control character after an escape", "\"\\n\x00\"", "control character"},
	{"duplicate key", `{"a":1,"b":2,"a":3}`, "duplicate key"},
	{"duplicate key by escape", `{"a":1,"\u0061":2}`, "duplicate key"},
	{"something after", `1 2`, "after its value"},
	{"comma after the last item", `[1,]`, "not valid JSON"},
	{"comma after the last member", `{"a":1,}`, "not valid JSON"},
	{"key without quotes", `{a:1}`, "not valid JSON"},
	{"no colon", `{"a" 1}`, "not valid JSON"},
	{"open array", `[1`, "not valid JSON"},
	{"open object", `{"a":1`, "not valid JSON"},
	{"leading zero", `01`, "after its value"},
	{"plus sign", `+1`, "not valid JSON"},
	{"bare minus", `-`, "not valid JSON"},
	{"no fraction digits", `1.`, "not valid JSON"},
	{"no exponent digits", `1e+`, "not valid JSON"},
	{"NaN", `NaN`, "not valid JSON"},
	{"infinity", `-Infinity`, "not valid JSON"},
	{"number beyond a double", `1e400`, "range of a double"},
	{"misspelt word", `nul`, "not valid JSON"},
	{"beyond the depth bound", strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), "deeper than 64"},
	{"depth bomb", strings.Repeat(`{"a":[`, 100_000), "deeper than 64"},
}

func TestRefused(t *testing.T) {
	for _, c := range refused {
		_, err := Canonical([]byte(c.in))
		wantRefusal(t, c.why, err, c.says)
		var into any
		wantRefusal(t, c.why, Decode([]byte(c.in), 1<<20, "options", &into), c.says)
	}
}

func wantRefusal(t *testing.T, why string, err error, says string) {
	t.Helper()
	var r *launch.Refusal
	if !errors.As(err, &r) || r.Kind != launch.ErrInvalid || !strings.Contains(r.Message, says) || r.Field == "" {
		t.Errorf("%s: got %v, want invalid input naming its field and %q", why, err, says)
	}
}

func TestStrings(t *testing.T) {
	got, err := Strings("a", "", "\"\\\n\x01<é😀")
	if want := `["a","","\"\\\n\u0001<é😀"]`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if got, _ := Strings(); string(got) != "[]" {
		t.Errorf("no parts: got %s", got)
	}
	_, err = Strings("a", "\xff")
	wantRefusal(t, "invalid UTF-8", err, "string 1")
}

// Canonical agrees with encoding/json on the value, is idempotent, and does
// not depend on the order of keys.
func TestCanonicalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawJSON(t, 4)
		in, err := json.Marshal(v) // sorts keys by bytes
		if err != nil {
			t.Fatal(err)
		}
		once, err := Canonical(in)
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("not idempotent: %s, then %s, %v", once, twice, err)
		}
		var back any
		if err := json.Unmarshal(once, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(v, back); d != "" {
			t.Fatalf("another value (-want +got):\n%s", d)
		}
	})
}

func drawJSON(t *rapid.T, depth int) any {
	top := 5
	if depth == 0 {
		top = 3
	}
	switch rapid.IntRange(0, top).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		f := rapid.Float64().Draw(t, "number")
		if f == 0 || math.IsInf(f, 0) || math.IsNaN(f) {
			return 0.0
		}
		return f
	case 3:
		return rapid.String().Draw(t, "string")
	case 4:
		items := make([]any, rapid.IntRange(0, 4).Draw(t, "items"))
		for i := range items {
			items[i] = drawJSON(t, depth-1)
		}
		return items
	default:
		members := make(map[string]any)
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			members[rapid.String().Draw(t, "key")] = drawJSON(t, depth-1)
		}
		return members
	}
}

// The order of keys is that of their UTF-16 code units, for any two strings.
func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.SliceOfN(rapid.SampledFrom([]rune{'a', 'b', 'é', 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}), 0, 4)
		a, b := string(runes.Draw(t, "a")), string(runes.Draw(t, "b"))
		if got, want := sign(compareUTF16(a, b)), sign(slowCompare(a, b)); got != want {
			t.Fatalf("compare %q with %q: got %d, want %d", a, b, got, want)
		}
	})
}
