package request

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// CheckForm checks outside JSON of at most [launch.MaxOutput] bytes strictly
// against a form and, where choices is not nil, a closed set of strings, and
// returns it without white space. A form is the JSON Schema that definitions are
// made of: type, properties, required, additionalProperties, items, enum,
// minimum, maximum, format date-time and contentEncoding base64; what else it
// says is not checked, and an empty one takes everything. An integer has at most
// 64 bits. field names the value in errors. They are of kind
// [launch.ErrInvalid], name place and bound, and never repeat what was sent.
func CheckForm(form json.RawMessage, choices []string, payload []byte, field string) ([]byte, error) {
	var raw json.RawMessage
	if err := canon.Decode(payload, launch.MaxOutput, field, &raw); err != nil {
		return nil, err
	}
	var v any
	var clean bytes.Buffer
	if decode(raw, &v) != nil || json.Compact(&clean, raw) != nil {
		return nil, invalid(field, "is not one JSON value")
	}
	if choices != nil {
		if s, ok := v.(string); !ok || !slices.Contains(choices, s) {
			return nil, invalid(field, "must be one of %q", choices)
		}
	}
	if len(form) > 0 {
		var s schema
		if decode(form, &s) != nil {
			return nil, launch.Refuse(launch.ErrInternal, "the form of %s cannot be read; register a workflow with a valid one", field)
		}
		if err := s.fits(v, field); err != nil {
			return nil, err
		}
	}
	return clean.Bytes(), nil
}

// decode keeps numbers as they are written.
func decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

type schema struct {
	Type       types              `json:"type"`
	Enum       []any              `json:"enum"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional additional         `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	Minimum    json.Number        `json:"minimum"`
	Maximum    json.Number        `json:"maximum"`
	Format     string             `json:"format"`
	Encoding   string             `json:"contentEncoding"`
}

// types is one name of a type or a list of them.
type types []string

func (t *types) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = types{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// additional says whether other members than the properties may be there, and
// of what form. The zero value takes all.
type additional struct {
	none bool
	form *schema
}

func (a *additional) UnmarshalJSON(raw []byte) error {
	var yes bool
	if json.Unmarshal(raw, &yes) == nil {
		a.none = !yes
		return nil
	}
	return decode(raw, &a.form)
}

// fits checks a value at a place. A nil schema takes everything.
func (s *schema) fits(v any, at string) error {
	if s == nil {
		return nil
	}
	if len(s.Type) > 0 && !slices.ContainsFunc(s.Type, func(t string) bool { return isType(t, v) }) {
		return invalid(at, "must be of type %s", strings.Join(s.Type, " or "))
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		return invalid(at, "must be one of the %d values that its form lists", len(s.Enum))
	}
	switch v := v.(type) {
	case string:
		return s.fitsString(v, at)
	case json.Number:
		switch least, most := s.bounds(); {
		case least != "" && compare(v, least) < 0:
			return invalid(at, "must be at least %s", least)
		case most != "" && compare(v, most) > 0:
			return invalid(at, "must be at most %s", most)
		}
	case []any:
		for i := range v {
			if err := s.Items.fits(v[i], at+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
	case map[string]any:
		return s.fitsObject(v, at)
	}
	return nil
}

func isType(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case json.Number:
		return t == "number" || t == "integer" && isInteger(v)
	case []any:
		return t == "array"
	default:
		return t == "object"
	}
}

// isInteger reports whether a number is written as one: what decodes it later
// takes no fraction and no exponent.
func isInteger(n json.Number) bool { return !strings.ContainsAny(string(n), ".eE") }

// bounds is the range of a number, empty for none. An integer that has no other
// range is one of 64 bits, without a sign if its minimum has none.
func (s *schema) bounds() (least, most json.Number) {
	least, most = s.Minimum, s.Maximum
	if !slices.Contains(s.Type, "integer") {
		return least, most
	}
	widest := json.Number("9223372036854775807")
	if least != "" && least[0] != '-' {
		widest = "18446744073709551615"
	}
	return cmp.Or(least, "-9223372036854775808"), cmp.Or(most, widest)
}

// compare compares two JSON numbers, integers of any length exactly.
func compare(a, b json.Number) int {
	if isInteger(a) && isInteger(b) {
		x, minusX := strings.CutPrefix(string(a), "-")
		y, minusY := strings.CutPrefix(string(b), "-")
		size := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		switch {
		case minusX && minusY:
			return -size
		case minusX:
			return -1
		case minusY:
			return 1
		}
		return size
	}
	x, _ := a.Float64() // beyond the range of a double it is infinite, which compares right
	y, _ := b.Float64()
	return cmp.Compare(x, y)
}

func (s *schema) fitsString(v, at string) error {
	if s.Format == "date-time" && new(time.Time).UnmarshalText([]byte(v)) != nil {
		return invalid(at, "must be a time such as 2006-01-02T15:04:05Z")
	}
	if s.Encoding == "base64" {
		if _, err := base64.StdEncoding.DecodeString(v); err != nil {
			return invalid(at, "must be base64, with padding")
		}
	}
	return nil
}

func (s *schema) fitsObject(v map[string]any, at string) error {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return invalid(at, "needs the member %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		form, declared := s.Properties[name]
		below := at + "." + name
		if !declared { // a name that somebody made up is not repeated
			if s.Additional.none {
				return invalid(at, "has a member that its form does not have; it has %s", s.members())
			}
			form, below = s.Additional.form, at+".*"
		}
		if err := form.fits(v[name], below); err != nil {
			return err
		}
	}
	return nil
}

// members lists the first of the declared members.
func (s *schema) members() string {
	names := slices.Sorted(maps.Keys(s.Properties))
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > 32:
		return strings.Join(names[:32], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
