package request

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// CheckForm checks outside JSON strictly against a JSON Schema of the kind that
// definitions have: type, properties, required, additionalProperties, items,
// enum, minimum, maximum, format date-time and contentEncoding base64. It returns
// the payload without white space. Errors name the place and the bound and never
// repeat a value.
func CheckForm(form json.RawMessage, choices []string, payload []byte, field string) ([]byte, error) {
	if err := launch.CheckSize(field, len(payload), launch.MaxOutput); err != nil {
		return nil, err
	}
	if _, err := canon.Canonical(payload); err != nil {
		return nil, launch.Refuse(launch.ErrInvalid, "%s is not one strict JSON value in UTF-8", field)
	}
	v, err := decode(payload)
	if err != nil {
		return nil, launch.Refuse(launch.ErrInvalid, "%s is not one JSON value in UTF-8", field)
	}
	if choices != nil {
		if s, ok := v.(string); !ok || !slices.Contains(choices, s) {
			return nil, launch.Refuse(launch.ErrInvalid, "%s must be one of %q", field, choices)
		}
	}
	if len(form) > 0 {
		s, err := decode(form)
		if err != nil {
			return nil, launch.Refuse(launch.ErrInternal, "the form of %s cannot be read", field)
		}
		schema, _ := s.(map[string]any)
		if err := fits(schema, v, field); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	if json.Compact(&b, payload) != nil {
		return nil, launch.Refuse(launch.ErrInvalid, "%s is not one JSON value in UTF-8", field)
	}
	return b.Bytes(), nil
}

func decode(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v)
}

func misfit(at, format string, args ...any) error {
	return launch.Refuse(launch.ErrInvalid, "%s %s", at, fmt.Sprintf(format, args...))
}

// fits checks a value at a place against a schema.
func fits(schema map[string]any, v any, at string) error {
	types := typesOf(schema["type"])
	if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isType(t, v) }) {
		return misfit(at, "must be %s", strings.Join(types, " or "))
	}
	if set, ok := schema["enum"].([]any); ok && !slices.ContainsFunc(set, func(o any) bool { return equal(o, v) }) {
		return misfit(at, "is not one of the %d values of its set", len(set))
	}
	switch v := v.(type) {
	case string:
		return fitsString(schema, v, at)
	case json.Number:
		return fitsNumber(schema, v, at)
	case []any:
		items, ok := schema["items"].(map[string]any)
		for i := range v {
			if !ok {
				break
			}
			if err := fits(items, v[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return fitsObject(schema, v, at)
	}
	return nil
}

func typesOf(v any) (types []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, t := range v {
			if s, ok := t.(string); ok {
				types = append(types, s)
			}
		}
	}
	return types
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
		return t == "number" || t == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	}
	return false
}

func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func fitsString(schema map[string]any, v, at string) error {
	if schema["format"] == "date-time" {
		if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
			return misfit(at, "must be a time as in 2006-01-02T15:04:05Z")
		}
	}
	if schema["contentEncoding"] == "base64" {
		if _, err := base64.StdEncoding.DecodeString(v); err != nil {
			return misfit(at, "must be base64")
		}
	}
	return nil
}

func fitsNumber(schema map[string]any, v json.Number, at string) error {
	for _, bound := range [...]struct {
		name string
		sign int
		word string
	}{{"minimum", -1, "least"}, {"maximum", 1, "most"}} {
		limit, ok := schema[bound.name].(json.Number)
		if !ok {
			continue
		}
		x, okX := new(big.Float).SetPrec(128).SetString(v.String())
		y, okY := new(big.Float).SetPrec(128).SetString(limit.String())
		if !okX || !okY || x.Cmp(y) == bound.sign {
			return misfit(at, "must be at %s %s", bound.word, limit)
		}
	}
	return nil
}

func fitsObject(schema map[string]any, v map[string]any, at string) error {
	properties, _ := schema["properties"].(map[string]any)
	if required, ok := schema["required"].([]any); ok {
		for _, name := range required {
			if s, ok := name.(string); ok {
				if _, has := v[s]; !has {
					return misfit(at, "needs member %s", s)
				}
			}
		}
	}
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		below, known := properties[name].(map[string]any)
		if !known {
			switch more := schema["additionalProperties"].(type) {
			case bool:
				if !more {
					return misfit(at, "has a member that its form does not have; it has %s", members(properties))
				}
			case map[string]any:
				below, known = more, true
			}
		}
		if !known {
			continue
		}
		if err := fits(below, v[name], at+"."+shown(name)); err != nil {
			return err
		}
	}
	return nil
}

func members(properties map[string]any) string {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names[:min(len(names), 32)], ", ")
}

// shown is a member's name as an error may show it.
func shown(name string) string {
	if len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) {
		return name
	}
	return "(member)"
}
