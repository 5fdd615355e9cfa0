package canon

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is one parsed JSON value; members are sorted by key (rule canon/form).
type value struct {
	kind    kind
	truth   bool
	number  float64
	text    string
	items   []value
	members []member
}

type member struct {
	key   string
	value value
}

// parser reads one value; field names it in errors.
type parser struct {
	data  []byte
	pos   int
	field string
}

func parse(data []byte, field string) (value, *launch.Refusal) {
	if !utf8.Valid(data) {
		return value{}, invalid(field, "is not valid UTF-8")
	}
	p := parser{data: data, field: field}
	v, err := p.value(0)
	if err != nil {
		return value{}, err
	}
	if p.space(); p.pos < len(p.data) {
		return value{}, p.fail("has something after its value")
	}
	return v, nil
}

func (p *parser) fail(what string) *launch.Refusal {
	return invalid(p.field, "%s at byte %d", what, p.pos)
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end; NUL is not legal JSON anywhere.
func (p *parser) peek() byte {
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *parser) value(depth int) (value, *launch.Refusal) {
	p.space()
	switch c := p.peek(); {
	case c == '{' || c == '[':
		if depth == MaxDepth {
			return value{}, invalid(p.field, "nests deeper than %d levels", MaxDepth)
		}
		if c == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case c == '"':
		s, err := p.string()
		return value{kind: kindString, text: s}, err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, w := range [...]struct {
		word string
		v    value
	}{
		{"null", value{}},
		{"true", value{kind: kindBool, truth: true}},
		{"false", value{kind: kindBool}},
	} {
		if rest := p.data[p.pos:]; len(rest) >= len(w.word) && string(rest[:len(w.word)]) == w.word {
			p.pos += len(w.word)
			return w.v, nil
		}
	}
	return value{}, p.fail("is not valid JSON")
}

func (p *parser) array(depth int) (value, *launch.Refusal) {
	v := value{kind: kindArray}
	p.pos++
	if p.space(); p.peek() == ']' {
		p.pos++
		return v, nil
	}
	for {
		item, err := p.value(depth)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
		case ']':
			p.pos++
			return v, nil
		default:
			return value{}, p.fail("is not valid JSON")
		}
	}
}

func (p *parser) object(depth int) (value, *launch.Refusal) {
	v := value{kind: kindObject}
	p.pos++
	if p.space(); p.peek() == '}' {
		p.pos++
		return v, nil
	}
	for {
		if p.space(); p.peek() != '"' {
			return value{}, p.fail("is not valid JSON")
		}
		key, err := p.string()
		if err != nil {
			return value{}, err
		}
		if p.space(); p.peek() != ':' {
			return value{}, p.fail("is not valid JSON")
		}
		p.pos++
		val, err := p.value(depth)
		if err != nil {
			return value{}, err
		}
		v.members = append(v.members, member{key, val})
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
			continue
		case '}':
			p.pos++
		default:
			return value{}, p.fail("is not valid JSON")
		}
		slices.SortFunc(v.members, func(a, b member) int { return compareUTF16(a.key, b.key) })
		for i := 1; i < len(v.members); i++ {
			if v.members[i].key == v.members[i-1].key {
				return value{}, p.fail("has a duplicate key in the object that ends")
			}
		}
		return v, nil
	}
}

func (p *parser) number() (value, *launch.Refusal) {
	start := p.pos
	digits := func() bool {
		from := p.pos
		for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
			p.pos++
		}
		return p.pos > from
	}
	if p.peek() == '-' {
		p.pos++
	}
	if p.peek() == '0' {
		p.pos++
	} else if !digits() {
		return value{}, p.fail("is not valid JSON")
	}
	if p.peek() == '.' {
		if p.pos++; !digits() {
			return value{}, p.fail("is not valid JSON")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if !digits() {
			return value{}, p.fail("is not valid JSON")
		}
	}
	f, err := strconv.ParseFloat(string(p.data[start:p.pos]), 64)
	if err != nil {
		return value{}, p.fail("has a number beyond the range of a double that ends")
	}
	return value{kind: kindNumber, number: f}, nil
}

func (p *parser) string() (string, *launch.Refusal) {
	p.pos++
	start := p.pos
	for p.pos < len(p.data) && p.data[p.pos] != '"' && p.data[p.pos] != '\\' && p.data[p.pos] >= ' ' {
		p.pos++
	}
	if p.peek() == '"' { // the usual string has no escapes
		p.pos++
		return string(p.data[start : p.pos-1]), nil
	}
	out := append([]byte(nil), p.data[start:p.pos]...)
	for {
		switch c := p.peek(); {
		case c < ' ':
			return "", p.fail("has an unfinished string or a control character in one")
		case c == '"':
			p.pos++
			return string(out), nil
		case c != '\\':
			out = append(out, c)
			p.pos++
		default:
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		}
	}
}

func (p *parser) escape() (rune, *launch.Refusal) {
	p.pos++
	c := p.peek()
	if c == 'u' {
		p.pos++
		r, ok := p.hex4()
		if !ok {
			return 0, p.fail("is not valid JSON")
		}
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		if p.peek() == '\\' {
			if p.pos++; p.peek() == 'u' {
				p.pos++
				if low, ok := p.hex4(); ok {
					if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
						return r, nil
					}
				}
			}
		}
		return 0, p.fail("has a lone surrogate")
	}
	if i := strings.IndexByte(`"\/bfnrt`, c); c != 0 && i >= 0 {
		p.pos++
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	return 0, p.fail("is not valid JSON")
}

func (p *parser) hex4() (rune, bool) {
	if len(p.data)-p.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range p.data[p.pos : p.pos+4] {
		d := strings.IndexByte("0123456789abcdef", c|0x20)
		if d < 0 || c < '0' {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	p.pos += 4
	return r, true
}

// compareUTF16 orders strings by their UTF-16 code units. It differs from the
// order of bytes only between U+E000..U+FFFF and the characters beyond, whose
// first unit is a surrogate.
func compareUTF16(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) {
		return len(a) - len(b)
	}
	x, y := a[i], b[i]
	if x >= 0xEE && y >= 0xEE { // lead bytes of U+E000 and above
		if (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
	}
	return int(x) - int(y)
}
