package pi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

const fixtures = "../../testdata/pi"

// example is one line of a file of examples.
type example struct {
	Why   string `json:"why"`
	Frame string `json:"frame"`          // the line, without its end
	Says  string `json:"says,omitempty"` // a part of the refusal
}

func examples(t testing.TB, name string) []example {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var e example
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s line %d: %v", name, i+1, err)
		}
		all = append(all, e)
	}
	return all
}

var sides = map[side]string{fromExtension: "extension.jsonl", fromHost: "host.jsonl"}

// Every kind has an example, and each example is the canonical form of what it
// decodes to.
func TestExamples(t *testing.T) {
	for from, name := range sides {
		seen := map[string]bool{}
		for _, e := range examples(t, name) {
			id, b, err := decode(from, []byte(e.Frame), MaxFrame)
			if err != nil {
				t.Errorf("%s: %s: %v", name, e.Why, err)
				continue
			}
			seen[b.kind()] = true
			line, err := encode(id, b)
			if err != nil {
				t.Errorf("%s: %s: %v", name, e.Why, err)
				continue
			}
			if d := cmp.Diff(canonical(t, e.Frame), canonical(t, string(line))); d != "" {
				t.Errorf("%s: %s (-example +encoded):\n%s", name, e.Why, d)
			}
		}
		for _, make := range bodies[from] {
			if kind := make().kind(); !seen[kind] {
				t.Errorf("%s has no example of %s", name, kind)
			}
		}
	}
}

func canonical(t *testing.T, s string) string {
	t.Helper()
	out, err := canon.Canonical([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestBadExamples(t *testing.T) {
	for _, e := range examples(t, "bad.jsonl") {
		_, _, err := decode(fromExtension, []byte(e.Frame), MaxFrame)
		var r *launch.Refusal
		if !errors.As(err, &r) || r.Kind != launch.ErrInvalid || !strings.Contains(r.Message, e.Says) || e.Says == "" {
			t.Errorf("%s: got %v, want invalid input that says %q", e.Why, err, e.Says)
		}
		if err != nil && len(launch.SafeText(err.Error(), maxReason)) > maxReason {
			t.Errorf("%s: the reason is too long", e.Why)
		}
	}
}

// The page names every message and every field of it.
func TestProtocolPage(t *testing.T) {
	page, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []side{fromExtension, fromHost} {
		for _, make := range bodies[from] {
			b := make()
			if !bytes.Contains(page, []byte("`"+b.kind()+"`")) {
				t.Errorf("the page does not name %s", b.kind())
			}
			err := canon.Decode([]byte(`{"?":1}`), 100, "body", b)
			_, known, _ := strings.Cut(fmt.Sprint(err), "known are: ")
			for field := range strings.SplitSeq(known, ", ") {
				if field != "" && !bytes.Contains(page, []byte(field)) {
					t.Errorf("the page does not name %s of %s", field, b.kind())
				}
			}
		}
	}
	if !bytes.Contains(page, fmt.Appendf(nil, "version %d", Version)) {
		t.Errorf("the page does not name version %d", Version)
	}
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for _, c := range []struct {
		why, in string
		max     int
		want    []string
		refused bool
	}{
		{"lines of any length up to the bound", "a\n" + long + "\n\nb\n", 9001, []string{"a", long, "", "b"}, false},
		{"a line without an end is no frame", "a\nb", 10, []string{"a"}, false},
		{"the line end counts", "abc\n", 3, nil, true},
		{"a line beyond the bound is not read to its end", strings.Repeat("x", 1<<20), 8000, nil, true},
		{"carriage returns stay", "a\r\n", 10, []string{"a\r"}, false},
	} {
		f := newFrames(strings.NewReader(c.in))
		var got []string
		var err error
		for {
			var line []byte
			if line, err = f.next(c.max); err != nil {
				break
			}
			got = append(got, string(line))
		}
		var r *launch.Refusal
		if errors.As(err, &r) != c.refused || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q and %v", c.why, got, err)
		}
	}
}

func TestLargeFrames(t *testing.T) {
	var out outgoing
	var in incoming
	line := append(bytes.Repeat([]byte("0123456789abcdef"), 70_000), '\n')
	l, err := out.hold(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	next, err := in.begin(l)
	var whole []byte
	for chunks := 0; whole == nil; chunks++ {
		if err != nil || chunks > 10 {
			t.Fatal(chunks, err)
		}
		c, cerr := out.chunk(next)
		if cerr != nil {
			t.Fatal(cerr)
		}
		if cerr := c.check(); cerr != nil {
			t.Fatal(cerr)
		}
		next, whole, err = in.add(c)
	}
	if !bytes.Equal(whole, line[:len(line)-1]) {
		t.Error("the frame came back as another")
	}
	if _, err := out.chunk(&fetchBody{Digest: l.Digest}); err == nil {
		t.Error("a frame that was fetched is still held")
	}
}

func TestLargeFramesRefused(t *testing.T) {
	digest := launch.DigestOf([]byte("x")).String()
	begin := func(bytes int) *incoming {
		in := &incoming{}
		if _, err := in.begin(&largeBody{Digest: digest, Bytes: bytes}); err != nil {
			t.Fatal(err)
		}
		return in
	}
	for _, c := range []struct {
		why   string
		in    *incoming
		chunk chunkBody
	}{
		{"a chunk of nothing that was named", &incoming{}, chunkBody{digest, 0, []byte("x")}},
		{"a chunk at another place", begin(2), chunkBody{digest, 1, []byte("x")}},
		{"more than was named", begin(1), chunkBody{digest, 0, []byte("xy")}},
		{"another content", begin(1), chunkBody{digest, 0, []byte("y")}},
	} {
		if _, _, err := c.in.add(&c.chunk); !errors.Is(err, launch.ErrInvalid) {
			t.Errorf("%s: got %v", c.why, err)
		}
	}
	in := begin(1)
	for i := range maxLarge {
		_, err := in.begin(&largeBody{Digest: launch.DigestOf([]byte{byte(i)}).String()})
		if refused := err != nil; refused != (i == maxLarge-1) {
			t.Errorf("large frame %d: %v", i+2, err)
		}
	}
	var out outgoing
	for i := range maxLarge + 1 {
		_, err := out.hold([]byte{byte(i), '\n'})
		if refused := err != nil; refused != (i == maxLarge) {
			t.Errorf("held frame %d: %v", i+1, err)
		}
	}
}

// A frame never panics; what is taken is taken again in the same way after it
// was encoded.
func fuzzDecode(f *testing.F, from side) {
	for _, name := range []string{"extension.jsonl", "host.jsonl", "bad.jsonl"} {
		for _, e := range examples(f, name) {
			f.Add([]byte(e.Frame))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		id, b, err := decode(from, line, MaxFrame)
		if err != nil {
			var r *launch.Refusal
			if !errors.As(err, &r) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		again, err := encode(id, b)
		if err != nil {
			t.Fatal(err)
		}
		id2, b2, err := decode(from, again[:len(again)-1], 8*MaxFrame)
		if err != nil || id2 != id {
			t.Fatalf("%s became %s: %v", line, again, err)
		}
		if third, err := encode(id2, b2); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%s became %s: %v", again, third, err)
		}
	})
}

func FuzzFromExtension(f *testing.F) { fuzzDecode(f, fromExtension) }
func FuzzFromHost(f *testing.F)      { fuzzDecode(f, fromHost) }

// Each kind apart, so that the fuzzer need not find its name.
func FuzzBody(f *testing.F) {
	for from, name := range sides {
		for _, e := range examples(f, name) {
			var frame frame
			if err := json.Unmarshal([]byte(e.Frame), &frame); err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(from), frame.Kind, []byte(frame.Body))
		}
	}
	f.Fuzz(func(t *testing.T, from uint8, kind string, raw []byte) {
		b := newBody(side(from), kind)
		if b == nil {
			return
		}
		if canon.Decode(raw, MaxFrame, kind, b) == nil && b.check() == nil {
			if _, err := encode(1, b); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("a\nbb\n\n"), 3)
	f.Add(bytes.Repeat([]byte("x"), 5000), 4999)
	f.Fuzz(func(t *testing.T, in []byte, most int) {
		if most < 1 || most > 1<<20 {
			return
		}
		frames, rest := newFrames(bytes.NewReader(in)), in
		for {
			line, err := frames.next(most)
			at := bytes.IndexByte(rest, '\n')
			if err != nil {
				if at >= 0 && at+1 <= most {
					t.Fatalf("a line of %d bytes was refused: %v", at, err)
				}
				return
			}
			if at < 0 || at+1 > most || !bytes.Equal(line, rest[:at]) {
				t.Fatalf("got %q of %q", line, rest)
			}
			rest = rest[at+1:]
		}
	})
}
