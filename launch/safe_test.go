package launch_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

var (
	launchCodes = []launch.Code{"workflow_not_found", "workflow_invalid", "input_invalid", "source_changed", "store_unavailable", "activation_failed", "cancelled"}
	runCodes    = []launch.Code{"node_failed", "timed_out", "step_limit", "request_expired", "submission_missing", "record_unreadable"}
)

func TestCodes(t *testing.T) {
	for _, c := range launchCodes {
		if !c.OfLaunch() || c.OfRun() || !c.Valid() {
			t.Errorf("%s must be a code of a launch only", c)
		}
	}
	for _, c := range runCodes {
		if c.OfLaunch() || !c.OfRun() || !c.Valid() {
			t.Errorf("%s must be a code of a run only", c)
		}
	}
	for _, c := range []launch.Code{"", "Cancelled", "cancelled ", "unknown"} {
		if c.OfLaunch() || c.OfRun() || c.Valid() {
			t.Errorf("%q must not be a code", c)
		}
	}
}

func TestFixedTexts(t *testing.T) {
	seen := map[string]launch.Code{}
	for _, c := range append(append([]launch.Code{}, launchCodes...), runCodes...) {
		e := launch.NewSafeError(c, " \n\x00\t")
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if other, ok := seen[e.Message]; ok {
			t.Errorf("%s and %s say the same", c, other)
		}
		seen[e.Message] = c
		if !strings.Contains(e.Message, ";") {
			t.Errorf("%s: %q must name the check and the correction", c, e.Message)
		}
		if again := launch.NewSafeError(c, e.Message); again != e {
			t.Errorf("%s: its own text becomes %q", c, again.Message)
		}
	}
}

func TestSafeErrorCheck(t *testing.T) {
	for _, c := range []struct {
		why   string
		e     launch.SafeError
		field string // "" means accepted
	}{
		{"shortest", launch.SafeError{Code: "cancelled", Message: "x"}, ""},
		{"longest", launch.SafeError{Code: "node_failed", Message: strings.Repeat("x", 2048)}, ""},
		{"other scripts and joiners are text", launch.SafeError{Code: "node_failed", Message: "größer 👩\u200d🔧 می\u200cخواهم"}, ""},
		{"zero value means no error", launch.SafeError{}, "code"},
		{"code outside the set", launch.SafeError{Code: "boom", Message: "x"}, "code"},
		{"empty message", launch.SafeError{Code: "cancelled"}, "message"},
		{"one byte too long", launch.SafeError{Code: "cancelled", Message: strings.Repeat("x", 2049)}, "message"},
		{"not UTF-8", launch.SafeError{Code: "cancelled", Message: "a\xff"}, "message"},
		{"two lines", launch.SafeError{Code: "cancelled", Message: "a\nb"}, "message"},
		{"two lines by a Unicode separator", launch.SafeError{Code: "cancelled", Message: "a\u2028b"}, "message"},
		{"control character", launch.SafeError{Code: "cancelled", Message: "a\x1bb"}, "message"},
		{"text direction changed", launch.SafeError{Code: "cancelled", Message: "a\u202eb"}, "message"},
	} {
		err := c.e.Check()
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
			continue
		}
		var r *launch.Refusal
		if !errors.As(err, &r) || !errors.Is(err, launch.ErrInvalid) || r.Field != c.field {
			t.Errorf("%s: got %v, want a refusal of field %s", c.why, err, c.field)
		}
	}
	if !(launch.SafeError{}).IsZero() || launch.NewSafeError("cancelled", "").IsZero() {
		t.Error("only the zero value is zero")
	}
}

func TestSafeText(t *testing.T) {
	for _, c := range []struct {
		why, in string
		max     int
		want    string
	}{
		{"plain", "a b", 10, "a b"},
		{"one line, single blanks, trimmed", "\n a\r\n\tb\u00a0 \x00c\u2028d \n", 20, "a b c d"},
		{"not UTF-8", "a\xff\xfeb", 20, "a\uFFFDb"},
		{"colours go", "\x1b[1;31mred\x1b[0m", 20, "red"},
		{"a colour between name and value hides nothing", "token\x1b[0m=\x1b[32mabc", 40, "token=" + mark},
		{"cut between runes", "aé", 2, "a"},
		{"cut leaves no blank at the end", "ab cd", 3, "ab"},
		{"exactly the bound", "aé", 3, "aé"},
		{"bound below one rune", "😀", 3, ""},
		{"no room", "a", 0, ""},
		{"negative room", "a", -1, ""},
		{"no bound", "a", math.MaxInt, "a"},
		{"the cut would leave the front of a secret", "x " + github, 14, "x [redacted]"},
		{"the cut falls into the mark", "x " + github, 6, "x [red"},
		{"a secret over a line break", "Authorization:\n Bearer\n abc", 60, "Authorization: Bearer " + mark},
		{"a secret over bytes that are not UTF-8", "password=ab\xffcd", 60, "password=" + mark},
		{"a private key over lines", "a\n" + pemKey + "\nb", 60, "a " + mark + " b"},
		{"a long secret hides nothing after it", "token=" + strings.Repeat("x", 9000) + " why", 40, "token=" + mark + " why"},
		{"a word that the early cut splits is not shown", "token=" + strings.Repeat("x", 12<<10) + " " + strings.Repeat("y", 12<<10), 40, "token=" + mark},
	} {
		got := launch.SafeText(c.in, c.max)
		if got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.why, got, c.want)
		}
	}
}

// Wherever the cut falls, no front of a secret of more than its public prefix
// stays.
func TestCutNeverLeavesHalfASecret(t *testing.T) {
	for _, secret := range []string{github, jwt, "https://bob:hunter2horse@h", "token: hunter2horse", pemKey} {
		s := "é" + secret + " é end"
		for max := range len(s) + 20 {
			got := launch.SafeText(s, max)
			for _, part := range []string{"16C7", "hbGc", "MIIE", "hunt"} {
				if strings.Contains(got, part) {
					t.Fatalf("cut at %d of %q leaves %q", max, s, got)
				}
			}
		}
	}
}

func TestSafeErrorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.SampledFrom(append(append([]launch.Code{}, launchCodes...), runCodes...)).Draw(t, "code")
		s := strings.Repeat(noise().Draw(t, "text"), rapid.SampledFrom([]int{1, 1, 40}).Draw(t, "times"))
		checkSafe(t, code, s)
		max := rapid.IntRange(0, 60).Draw(t, "max")
		got := launch.SafeText(s, max)
		if len(got) > max || !utf8.ValidString(got) || strings.TrimSpace(got) != got {
			t.Fatalf("SafeText(%q, %d) = %q", s, max, got)
		}
		if again := launch.SafeText(got, max); again != got {
			t.Fatalf("SafeText(%q, %d) = %q, and again %q", s, max, got, again)
		}
	})
}

func checkSafe(t interface{ Fatalf(string, ...any) }, code launch.Code, s string) {
	e := launch.NewSafeError(code, s)
	if err := e.Check(); e.Code != code || code.Valid() && err != nil {
		t.Fatalf("NewSafeError(%q, %q) = %+v: %v", code, s, e, err)
	}
	if again := launch.NewSafeError(code, e.Message); again != e {
		t.Fatalf("NewSafeError(%q, %q) = %q, and again %q", code, s, e.Message, again.Message)
	}
}

func FuzzNewSafeError(f *testing.F) {
	for _, s := range []string{
		"", "plain", "a\nb\xff", github, jwt, pemKey, "Authorization: Bearer x", `{"password":"a\"b"}`,
		"https://u:p@h/?token=x&sig=y", "token=abc_key = x", "Cookie: a=b; c=d", strings.Repeat("key: é", 400),
	} {
		f.Add("node_failed", s)
	}
	f.Fuzz(func(t *testing.T, code, s string) {
		checkRedact(t, s)
		checkSafe(t, launch.Code(code), s)
	})
}

func BenchmarkNewSafeError(b *testing.B) {
	message := "node build failed: exit status 2; correct the script and restart the run (log at /var/tmp/run/build.log)"
	for _, n := range []int{1, 10, 100} {
		s := strings.Repeat(message, n)
		b.Run(fmt.Sprint(len(s)), func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				launch.NewSafeError(launch.CodeNodeFailed, s)
			}
		})
	}
}
