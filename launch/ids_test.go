package launch_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

func TestCheckKey(t *testing.T) {
	for _, c := range []struct {
		why, key string
		good     bool
	}{
		{"one byte", "a", true},
		{"the bound", strings.Repeat("a", 512), true},
		{"the bound in bytes, not runes", strings.Repeat("ä", 256), true},
		{"a space inside", "a b", true},
		{"a replacement character that the caller wrote", "a\uFFFDb", true},
		{"empty", "", false},
		{"1 byte beyond the bound", strings.Repeat("a", 513), false},
		{"few runes, too many bytes", strings.Repeat("ä", 257), false},
		{"a byte that is not UTF-8", "a\xffb", false},
		{"a surrogate half", "\xed\xa0\x80", false},
		{"a cut rune at the end", "a\xc3", false},
		{"NUL", "a\x00", false},
		{"a line break", "a\nb", false},
		{"DEL", "a\x7f", false},
		{"a no-break space reads as a space and is none", "a\u00a0b", false},
		{"a bidi override", "\u202e", false},
		{"a byte order mark", "\ufeffa", false},
	} {
		err := launch.CheckKey("the field", c.key)
		if c.good && err != nil || !c.good && (!errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), "the field")) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

func FuzzCheckKey(f *testing.F) {
	f.Add("key")
	f.Add("a\xff")
	f.Fuzz(func(t *testing.T, s string) {
		want := len(s) > 0 && len(s) <= launch.MaxKey && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
		if got := launch.CheckKey("key", s) == nil; got != want {
			t.Errorf("%q: accepted %v", s, got)
		}
	})
}

func FuzzRunID(f *testing.F) {
	f.Add("demo-01HZZZZZZZZZZZZZZZZZZZZZZZ")
	f.Add("-01HZZZZZZZZZZZZZZZZZZZZZZZ")
	f.Fuzz(func(t *testing.T, s string) {
		workflow, ulid, ok := launch.RunID(s).Split()
		if ok && (launch.NewRunID(workflow, ulid) != launch.RunID(s) || launch.CheckWorkflowName(workflow) != nil || len(ulid) != 26) {
			t.Errorf("%q splits into %q and %q", s, workflow, ulid)
		}
	})
}

func TestRunID(t *testing.T) {
	for _, c := range []struct {
		why  string
		id   launch.RunID
		good bool
	}{
		{"usual", runID, true},
		{"a name with dashes", "a-b-c-01HZZZZZZZZZZZZZZZZZZZZZZZ", true},
		{"the largest ULID", "a-7ZZZZZZZZZZZZZZZZZZZZZZZZZ", true},
		{"a ULID beyond 128 bits", "a-80000000000000000000000000", false},
		{"lower case", "a-01hzzzzzzzzzzzzzzzzzzzzzzz", false},
		{"a letter that ULIDs avoid", "a-01HZZZZZZZZZZZZZZZZZZZZZZU", false},
		{"no name", "-01HZZZZZZZZZZZZZZZZZZZZZZZ", false},
		{"no dash", "a01HZZZZZZZZZZZZZZZZZZZZZZZ", false},
		{"a name that is none", "A-01HZZZZZZZZZZZZZZZZZZZZZZZ", false},
		{"a name of 65 bytes", launch.RunID(strings.Repeat("a", 65) + "-01HZZZZZZZZZZZZZZZZZZZZZZZ"), false},
		{"empty", "", false},
	} {
		if _, _, ok := c.id.Split(); ok != c.good {
			t.Errorf("%s: Split says %v", c.why, ok)
		}
	}
}

func TestSessionKey(t *testing.T) {
	for _, c := range []struct {
		why, header, file string
		good              bool
	}{
		{"usual", "id", "/s/1.jsonl", true},
		{"the bound", strings.Repeat("i", 400), "/s", true},
		{"an id with an @", "a@b", "/s", true},
		{"1 byte beyond the bound", strings.Repeat("i", 401), "/s", false},
		{"no id", "", "/s", false},
		{"a relative file", "id", "s/1.jsonl", false},
		{"no file", "id", "", false},
	} {
		key, err := launch.NewSessionKey(c.header, c.file)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.why, err)
		}
		if c.good && (launch.CheckSessionKey(key) != nil || !strings.HasPrefix(string(key), c.header+"@")) {
			t.Errorf("%s: %q is not a session key", c.why, key)
		}
	}
	a, _ := launch.NewSessionKey("id", "/a")
	b, _ := launch.NewSessionKey("id", "/b")
	if a == b {
		t.Error("a copied file is another session")
	}
	// printf /a | sha256sum | cut -c1-32
	if want := launch.SessionKey("id@6a50dc8584134c7de537c0052ff6d236"); a != want {
		t.Errorf("the key of id in /a is %q, want %q", a, want)
	}
	for _, bad := range []launch.SessionKey{"", "id", "@0123456789abcdef0123456789abcdef", "id@0123456789ABCDEF0123456789abcdef", "id@0123", "id@0123456789abcdef0123456789abcdef0"} {
		if !errors.Is(launch.CheckSessionKey(bad), launch.ErrInvalid) {
			t.Errorf("%q must be refused", bad)
		}
	}
}

func TestTime(t *testing.T) {
	at := time.Date(2024, 2, 29, 23, 59, 59, 999_999_999, time.FixedZone("x", 3600))
	got := launch.TimeOf(at)
	if !got.Std().Equal(at) || got.String() != "2024-02-29T22:59:59.999Z" || launch.Time(0).String() != "-" {
		t.Errorf("%s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		at := launch.Time(rapid.Int64Range(0, 1<<61).Draw(t, "at"))
		d := time.Duration(rapid.Int64Range(-1<<60, 1<<60).Draw(t, "d"))
		if at.Add(d).Sub(at) != d || launch.Mono(at).Add(d).Sub(launch.Mono(at)) != d {
			t.Fatal("Add and Sub do not agree")
		}
	})
}

// Every kind is a sentinel of its own, also through wrapping.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range launch.Kinds() {
		if seen[k.Error()] || k.Error() == "" || k.Error() == "unknown kind" {
			t.Errorf("kind %d is called %q", k, k)
		}
		seen[k.Error()] = true
		var err error = launch.Refuse(k, "why %d", 1)
		for _, other := range launch.Kinds() {
			if errors.Is(err, other) != (k == other) {
				t.Errorf("a refusal of kind %s is %s", k, other)
			}
		}
		if err.Error() != k.Error()+": why 1" {
			t.Errorf("%q", err)
		}
	}
	for _, k := range []launch.Kind{0, launch.Kind(len(launch.Kinds()) + 1), 255} {
		if k.Error() != "unknown kind" || k.Retryable() {
			t.Errorf("kind %d is outside the set", k)
		}
	}
	fences := map[string]bool{}
	for f := launch.MissingAuthority; f <= launch.EpochChanged; f++ {
		if r := (&launch.Refusal{Kind: launch.ErrStale, Fence: f, Message: "m"}); f.String() == "" || fences[f.String()] || r.Error() != "stale ("+f.String()+"): m" {
			t.Errorf("fence %d is %q", f, f)
		}
		fences[f.String()] = true
	}
}
