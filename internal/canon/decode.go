package canon

import (
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"example.com/piworkflows/launch"
)

// Decode reads one JSON value of at most maxBytes bytes into the Go value that
// into points at, strictly (rule canon/strict): besides, object keys must name
// a struct field exactly (also in upper and lower case), and null is refused
// where the Go value has none. field names the value in errors, each a
// [launch.Refusal] of kind [launch.ErrInvalid] (rule canon/quiet). On error
// into may be partly filled.
func Decode(data []byte, maxBytes int, field string, into any) error {
	if len(data) > maxBytes {
		return invalid(field, "has %d bytes; the bound is %d", len(data), maxBytes)
	}
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return launch.Refuse(launch.ErrInternal, "decoding %s needs a pointer to fill", field)
	}
	v, refusal := parse(data, field)
	if refusal != nil {
		return refusal
	}
	if refusal := fits(&v, target.Type().Elem(), field); refusal != nil {
		return refusal
	}
	if err := json.Unmarshal(data, into); err != nil {
		var refusal *launch.Refusal
		if errors.As(err, &refusal) {
			return refusal
		}
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) && mismatch.Field != "" {
			return invalid(field, "has a value of the wrong type or size in %s", mismatch.Field)
		}
		return invalid(field, "has a value of the wrong type or size")
	}
	return nil
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// fits refuses keys and nulls that encoding/json would take silently. A type
// that decodes itself is left to do so.
func fits(v *value, t reflect.Type, field string) *launch.Refusal {
	if p := reflect.PointerTo(t); p.Implements(jsonUnmarshaler) {
		return nil
	} else if p.Implements(textUnmarshaler) && v.kind != kindNull {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		if v.kind == kindNull {
			return nil
		}
		return fits(v, t.Elem(), field)
	case reflect.Interface:
		return nil
	case reflect.Slice, reflect.Array:
		for i := range v.items {
			if r := fits(&v.items[i], t.Elem(), field); r != nil {
				return r
			}
		}
	case reflect.Map:
		for i := range v.members {
			if r := fits(&v.members[i].value, t.Elem(), field); r != nil {
				return r
			}
		}
	case reflect.Struct:
		for i := range v.members {
			f, ok := fieldsOf(t)[v.members[i].key]
			if !ok {
				known := slices.Sorted(maps.Keys(fieldsOf(t)))
				return invalid(field, "has an unknown field; known are: %s", strings.Join(known, ", "))
			}
			if r := fits(&v.members[i].value, f, field); r != nil {
				return r
			}
		}
	}
	if v.kind == kindNull && t.Kind() != reflect.Slice && t.Kind() != reflect.Map {
		return invalid(field, "has a null where a value is needed")
	}
	return nil
}

// fields caches the JSON field types of a struct type by name.
var fields sync.Map // reflect.Type -> map[string]reflect.Type

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if m, ok := fields.Load(t); ok {
		return m.(map[string]reflect.Type)
	}
	m := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := jsonName(f); ok {
			m[name] = f.Type
		}
	}
	fields.Store(t, m)
	return m
}

func jsonName(f reflect.StructField) (string, bool) {
	tag := f.Tag.Get("json")
	name, _, _ := strings.Cut(tag, ",")
	switch {
	case !f.IsExported() || tag == "-":
		return "", false
	case name != "":
		return name, true
	case f.Anonymous: // its own fields are visible
		return "", false
	}
	return f.Name, true
}
