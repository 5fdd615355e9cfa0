package request_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/launch"
)

const object = `{"type":"object","additionalProperties":false,"required":["name"],"properties":{` +
	`"name":{"type":"string"},"n":{"type":["integer","null"]},"small":{"type":"integer","minimum":-128,"maximum":127},` +
	`"ratio":{"type":"number","minimum":-1.5,"maximum":1.5},` +
	`"at":{"type":"string","format":"date-time"},"raw":{"type":["string","null"],"contentEncoding":"base64"},` +
	`"list":{"type":["array","null"],"items":{"type":"array","items":{"type":"boolean"}}},` +
	`"map":{"type":["object","null"],"additionalProperties":{"type":"integer","minimum":0}},"one":{"enum":["a",1,null,[2]]},"any":{}}}`

var forms = []struct{ why, form, payload, says string }{
	{"all members", object, `{"name":"é","n":1,"small":-128,"ratio":1.5,"at":"2026-01-02T03:04:05.6+02:00","raw":"aGk=","list":[[true],[]],"map":{"x":0},"one":[2],"any":{"y":[null]}}`, ""},
	{"nulls where they fit", object, `{"name":"","n":null,"raw":null,"list":null,"map":null,"one":null,"any":null}`, ""},
	{"missing member", object, `{}`, "output needs the member name"},
	{"another type", object, `{"name":1}`, "output.name must be of type string"},
	{"null where none fits", object, `{"name":null}`, "output.name must be of type string"},
	{"two types", object, `{"name":"","n":"x"}`, "output.n must be of type integer or null"},
	{"another shape", object, `["secret-value"]`, "output must be of type object"},
	{"undeclared member", object, `{"name":"","secret-name":1}`, "output has a member that its form does not have; it has any, at, list, map, n, name"},
	{"member in another case", object, `{"Name":""}`, "needs the member name"},
	{"fraction for an integer", object, `{"name":"","n":1.0}`, "output.n must be of type integer or null"},
	{"exponent for an integer", object, `{"name":"","n":1e3}`, "output.n must be of type integer or null"},
	{"least", object, `{"name":"","small":-129}`, "output.small must be at least -128"},
	{"most", object, `{"name":"","small":128}`, "output.small must be at most 127"},
	{"most of a number", object, `{"name":"","ratio":1.50000001}`, "output.ratio must be at most 1.5"},
	{"integer in a number's range", object, `{"name":"","ratio":-1}`, ""},
	{"minus zero where a sign fits", object, `{"name":"","small":-0}`, ""},
	{"minus zero where none fits", object, `{"name":"","map":{"secret-key":-0}}`, "output.map.* must be at least 0"},
	{"64 bits", object, `{"name":"","n":9223372036854775807}`, ""},
	{"65 bits", object, `{"name":"","n":9223372036854775808}`, "output.n must be at most 9223372036854775807"},
	{"65 bits below", object, `{"name":"","n":-9223372036854775809}`, "output.n must be at least -9223372036854775808"},
	{"64 bits without a sign", object, `{"name":"","map":{"x":18446744073709551615}}`, ""},
	{"65 bits without a sign", object, `{"name":"","map":{"x":18446744073709551616}}`, "output.map.* must be at most 18446744073709551615"},
	{"64 bits with a sign", `{"type":"integer","minimum":-5}`, `9223372036854775808`, "output must be at most 9223372036854775807"},
	{"many digits", object, `{"name":"","n":` + strings.Repeat("9", 300) + `}`, "output.n must be at most"},
	{"place in a list", object, `{"name":"","list":[[true],[false,0]]}`, "output.list[1][1] must be of type boolean"},
	{"bad time", object, `{"name":"","at":"2026-01-02 03:04:05"}`, "output.at must be a time"},
	{"day that no month has", object, `{"name":"","at":"2026-02-30T03:04:05Z"}`, "output.at must be a time"},
	{"bad base64", object, `{"name":"","raw":"aGk"}`, "output.raw must be base64"},
	{"outside the enum", object, `{"name":"","one":"b"}`, "output.one must be one of the 4 values"},
	{"enum of another number", object, `{"name":"","one":2}`, "output.one must be one of the 4 values"},
	{"no form", ``, `{"any":[1e3]}`, ""},
	{"form of everything", `{}`, `[null]`, ""},
	{"members of any name", `{"type":"object","additionalProperties":true}`, `{"x":1}`, ""},
	{"members that are not spoken of", `{"type":"object"}`, `{"x":1}`, ""},
	{"no members at all", `{"additionalProperties":false}`, `{"x":1}`, "it has none"},
	{"what the form says besides", `{"type":"string","description":"x","pattern":"y"}`, `"z"`, ""},
	{"duplicate key", `{}`, `{"a":1,"a":2}`, "duplicate key"},
	{"something after", `{}`, `1 2`, "after its value"},
	{"no JSON", `{}`, `{`, "not valid JSON"},
	{"nothing", `{}`, ``, "not valid JSON"},
	{"no UTF-8", `{}`, "\"\xff\"", "not valid UTF-8"},
	{"too deep", `{}`, strings.Repeat("[", 65) + strings.Repeat("]", 65), "deeper than 64"},
	{"too large", `{}`, `"` + strings.Repeat("x", launch.MaxOutput) + `"`, "output has 1048578 bytes; the bound is 1048576"},
}

func TestCheckForm(t *testing.T) {
	for _, c := range forms {
		got, err := request.CheckForm(json.RawMessage(c.form), nil, []byte(c.payload), "output")
		if c.says == "" {
			if err != nil || string(got) != c.payload {
				t.Errorf("%s: %s, %v", c.why, got, err)
			}
			continue
		}
		r := wantKind(t, c.why, err, launch.ErrInvalid)
		if !strings.Contains(r.Message, c.says) || r.Field == "" || !strings.HasPrefix(r.Message, r.Field) || got != nil || strings.Contains(r.Message, "secret") {
			t.Errorf("%s: %+v says not %q at its field", c.why, r, c.says)
		}
	}
	choices := []string{"yes", "no"}
	for payload, fits := range map[string]bool{`"yes"`: true, ` "no" `: true, `"\u006eo"`: true, `"YES"`: false, `1`: false, `null`: false, `["yes"]`: false} {
		if got, err := request.CheckForm(json.RawMessage(`{"type":"string"}`), choices, []byte(payload), "output"); (err == nil) != fits || fits && string(got) != strings.TrimSpace(payload) {
			t.Errorf("%s of a closed set: %s, %v", payload, got, err)
		} else if !fits {
			wantKind(t, payload, err, launch.ErrInvalid)
		}
	}
	if got, err := request.CheckForm(json.RawMessage(object), nil, []byte("{ \"name\" :\n\"a b\" }\t"), "output"); err != nil || string(got) != `{"name":"a b"}` {
		t.Errorf("white space: %s, %v", got, err)
	}
	for _, form := range []string{`{`, `[]`, `{"type":5}`, `{"properties":{"a":true}}`, `{"additionalProperties":1}`} {
		_, err := request.CheckForm(json.RawMessage(form), nil, []byte(`{}`), "output")
		wantKind(t, form, err, launch.ErrInternal)
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf(`"m%02d":{}`, i)
	}
	_, err := request.CheckForm(json.RawMessage(`{"additionalProperties":false,"properties":{`+strings.Join(many, ",")+`}}`), nil, []byte(`{"x":1}`), "output")
	if r := wantKind(t, "many members", err, launch.ErrInvalid); !strings.HasSuffix(r.Message, "m31 and others") {
		t.Errorf("many members: %s", r.Message)
	}
}

// The bounds of sized integers agree with what Go decodes.
func TestFormAgreesWithGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,21})`).Draw(t, "digits")
		for _, c := range []struct {
			form string
			into any
		}{
			{`{"type":"integer","minimum":-128,"maximum":127}`, new(int8)},
			{`{"type":"integer","minimum":0,"maximum":65535}`, new(uint16)},
			{`{"type":"integer"}`, new(int64)},
			{`{"type":"integer","minimum":0}`, new(uint64)},
		} {
			_, err := request.CheckForm(json.RawMessage(c.form), nil, []byte(digits), "output")
			if want := json.Unmarshal([]byte(digits), c.into); (err == nil) != (want == nil) {
				t.Fatalf("%s of %s: %v; Go says %v", digits, c.form, err, want)
			}
		}
	})
}

func FuzzCheckForm(f *testing.F) {
	for _, c := range forms {
		f.Add([]byte(c.form), []byte(c.payload[:min(len(c.payload), 400)]))
	}
	f.Fuzz(func(t *testing.T, form, payload []byte) {
		out, err := request.CheckForm(form, nil, payload, "output")
		if err != nil {
			if r, ok := errors.AsType[*launch.Refusal](err); !ok || r.Kind != launch.ErrInvalid && r.Kind != launch.ErrInternal || out != nil {
				t.Fatalf("%q: %v", payload, err)
			}
			return
		}
		if !json.Valid(out) || len(out) > len(payload) {
			t.Fatalf("%q became %q", payload, out)
		}
		if again, err := request.CheckForm(form, nil, out, "output"); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q became %q, then %q, %v", payload, out, again, err)
		}
	})
}
