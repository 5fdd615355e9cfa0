// Package canon reads outside JSON strictly and writes canonical JSON, the one
// byte string that every implementation makes of the same value (RFC 8785).
//
// # Rules
//
//   - canon/strict: input is one JSON value of valid UTF-8, nested at most
//     [MaxDepth] deep, without duplicate keys, lone surrogates, numbers beyond
//     the range of a double, or anything after the value.
//   - canon/form: keys in the order of their UTF-16 code units, no white space,
//     numbers as ECMAScript prints the nearest double, shortest string escapes.
//   - canon/quiet: an error names the field, the bound and the byte offset and
//     never repeats what it read.
package canon

import (
	"strconv"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// MaxDepth bounds how deep arrays and objects may nest (rule canon/strict).
const MaxDepth = 64

// Canonical returns the canonical form of one JSON value (rule canon/form), or
// a [launch.Refusal] of kind [launch.ErrInvalid] (rule canon/strict). As RFC
// 8785 demands, numbers are doubles: integers beyond 2^53 lose digits.
func Canonical(json []byte) ([]byte, error) {
	v, err := parse(json, "JSON")
	if err != nil {
		return nil, err
	}
	return v.append(make([]byte, 0, len(json))), nil
}

// Strings returns the canonical form of an array of strings, or a refusal when
// one of them is not valid UTF-8.
func Strings(parts ...string) ([]byte, error) {
	n := 2
	for i, s := range parts {
		if !utf8.ValidString(s) {
			return nil, invalid("JSON", "string %d is not valid UTF-8", i)
		}
		n += len(s) + 3
	}
	out := append(make([]byte, 0, n), '[')
	for i, s := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendString(out, s)
	}
	return append(out, ']'), nil
}

func invalid(field, format string, args ...any) *launch.Refusal {
	r := launch.Refuse(launch.ErrInvalid, field+" "+format, args...)
	r.Field = field
	return r
}

func (v *value) append(out []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(out, "null"...)
	case kindBool:
		return strconv.AppendBool(out, v.truth)
	case kindNumber:
		return appendNumber(out, v.number)
	case kindString:
		return appendString(out, v.text)
	case kindArray:
		out = append(out, '[')
		for i := range v.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = v.items[i].append(out)
		}
		return append(out, ']')
	default:
		out = append(out, '{')
		for i := range v.members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendString(out, v.members[i].key), ':')
			out = v.members[i].value.append(out)
		}
		return append(out, '}')
	}
}

// appendNumber prints f as ECMAScript's Number::toString does.
func appendNumber(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0') // also for -0
	}
	if abs := max(f, -f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	out = strconv.AppendFloat(out, f, 'e', -1, 64)
	if n := len(out); out[n-2] == '0' && out[n-3] == '-' { // e-07 is e-7
		out[n-2] = out[n-1]
		out = out[:n-1]
	}
	return out
}

func appendString(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c >= ' ':
			out = append(out, c)
		case c == '\b':
			out = append(out, '\\', 'b')
		case c == '\t':
			out = append(out, '\\', 't')
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\f':
			out = append(out, '\\', 'f')
		case c == '\r':
			out = append(out, '\\', 'r')
		default:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(out, '"')
}
