package engine

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// schemaOf describes the JSON form of T as a JSON Schema. It is part of the
// digest, so the same type gives the same bytes. loose is a part of T, or nil,
// that does not decode all that fits the schema.
func schemaOf[T any]() (form json.RawMessage, loose reflect.Type, err error) {
	w := walk{}
	s, err := w.of(reflect.TypeFor[T]())
	if err != nil {
		return nil, nil, err
	}
	form, err = json.Marshal(s)
	return form, w.loose, err
}

// walk is one walk over a type; above are the named types that it is inside of.
type walk struct {
	above []reflect.Type
	loose reflect.Type
}

type schema = map[string]any

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	byteType = reflect.TypeFor[byte]()

	jsonIn  = reflect.TypeFor[json.Unmarshaler]()
	jsonOut = reflect.TypeFor[json.Marshaler]()
	textIn  = reflect.TypeFor[encoding.TextUnmarshaler]()
	textOut = reflect.TypeFor[encoding.TextMarshaler]()
)

func (w *walk) of(t reflect.Type) (schema, error) {
	if t.Name() != "" { // only a named type can contain itself
		if slices.Contains(w.above, t) {
			return nil, fmt.Errorf("type %s contains itself; use json.RawMessage", t)
		}
		w.above = append(w.above, t)
		defer func() { w.above = w.above[:len(w.above)-1] }()
	}
	switch p := reflect.PointerTo(t); {
	case t == timeType:
		return schema{"type": "string", "format": "date-time"}, nil
	case t == rawType:
		return schema{}, nil
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface: // below
	case p.Implements(jsonIn) || p.Implements(jsonOut):
		return nil, fmt.Errorf("type %s has its own JSON form; use json.RawMessage", t)
	case p.Implements(textIn) && t.Implements(textOut):
		w.loose = t
		return schema{"type": "string"}, nil
	case p.Implements(textIn) || p.Implements(textOut):
		return nil, fmt.Errorf("type %s has half a text form; give it both MarshalText, on the value, and UnmarshalText", t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return schema{"type": "boolean"}, nil
	case reflect.String:
		return schema{"type": "string"}, nil
	case reflect.Int8, reflect.Int16, reflect.Int32:
		most := int64(1)<<(t.Bits()-1) - 1
		return schema{"type": "integer", "minimum": -most - 1, "maximum": most}, nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return schema{"type": "integer", "minimum": 0, "maximum": int64(1)<<t.Bits() - 1}, nil
	case reflect.Int, reflect.Int64: // without a range an integer is one of 64 bits
		return schema{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}, nil
	case reflect.Float32:
		return schema{"type": "number", "minimum": -math.MaxFloat32, "maximum": math.MaxFloat32}, nil
	case reflect.Float64:
		return schema{"type": "number"}, nil
	case reflect.Pointer:
		s, err := w.of(t.Elem())
		return orNull(s), err
	case reflect.Slice:
		if t.Elem() == byteType {
			return orNull(schema{"type": "string", "contentEncoding": "base64"}), nil
		}
		items, err := w.of(t.Elem())
		return orNull(schema{"type": "array", "items": items}), err
	case reflect.Map:
		if t.Key().Kind() != reflect.String || t.Key().Implements(textOut) {
			return nil, fmt.Errorf("type %s needs plain strings as keys", t)
		}
		values, err := w.of(t.Elem())
		return orNull(schema{"type": "object", "additionalProperties": values}), err
	case reflect.Struct:
		return w.object(t)
	}
	return nil, fmt.Errorf("type %s has no JSON form here; use structs, maps with string keys, slices, pointers, strings, numbers, bools, time.Time or json.RawMessage", t)
}

func (w *walk) object(t reflect.Type) (schema, error) {
	properties := schema{}
	if err := w.fields(t, properties); err != nil {
		return nil, err
	}
	return schema{"type": "object", "properties": properties, "additionalProperties": false}, nil
}

func (w *walk) fields(t reflect.Type, into schema) error {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || f.Type == timeType {
				return fmt.Errorf("field %s.%s: only structs can be embedded; give it a name", t, f.Name)
			}
			if err := w.fields(f.Type, into); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		switch {
		case slices.Contains(strings.Split(options, ","), "string"):
			return fmt.Errorf("field %s.%s: the json option string is not supported", t, f.Name)
		case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' }):
			return fmt.Errorf("field %s.%s: its json name may have letters, digits, '_' and '-'", t, f.Name)
		case into[name] != nil:
			return fmt.Errorf("field %s.%s: json name %s is used twice", t, f.Name, name)
		}
		s, err := w.of(f.Type)
		if err != nil {
			return fmt.Errorf("field %s.%s: %w", t, f.Name, err)
		}
		into[name] = s
	}
	return nil
}

// orNull makes a schema that null fits too.
func orNull(s schema) schema {
	if one, ok := s["type"].(string); ok {
		s["type"] = []string{one, "null"}
	}
	return s
}

// encode writes v as JSON. Its errors are explained and hold no part of v.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it would make the text longer than its author counted
	err := e.Encode(v)
	if err == nil {
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
	}
	if _, ok := errors.AsType[*json.UnsupportedValueError](err); ok {
		return nil, Explain("has a number that is NaN or infinite, or a cycle; JSON has neither", nil)
	}
	return nil, Explain("has a part without a JSON form, such as a json.RawMessage that is not valid JSON", nil)
}
