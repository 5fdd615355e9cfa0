package intents

import (
	"strings"
	"testing"

	"example.com/piworkflows/launch"
)

func testFacts() Facts {
	return Facts{
		Workflow: "autoimplement", Run: testRun, Observed: ObservedFailed, Cause: TimedOut,
		Node: "review/draft", Attempt: "draft#2", Reason: "step timed out after 5m", Code: launch.CodeTimedOut,
	}
}

func TestFactsEncode(t *testing.T) {
	b, err := testFacts().Encode()
	wire := `{"attemptId":"draft#2","cause":"timedOut","code":"timed_out","handoff":false,"nodeId":"review/draft",` +
		`"observedState":"failed","reason":"step timed out after 5m","runId":"` + string(testRun) + `",` +
		`"schema":"pi-workflows.deferred-turn-facts.v1","workflowName":"autoimplement"}`
	if err != nil || string(b) != wire {
		t.Fatalf("got %s, %v; want %s", b, err, wire)
	}
	if f, err := DecodeFacts(b); err != nil || f != testFacts() {
		t.Errorf("read back %+v, %v", f, err)
	}
}

func TestFactsBounds(t *testing.T) {
	f := testFacts()
	f.Node, f.Attempt = strings.Repeat(`"`, launch.MaxKey), strings.Repeat(`\`, launch.MaxKey)
	f.Reason = strings.Repeat("😀", MaxReason)
	if b, err := f.Encode(); err != nil || len(b) > MaxFacts {
		t.Errorf("facts at all bounds: %d bytes, %v", len(b), err)
	}
	for _, c := range []struct {
		why  string
		edit func(*Facts)
		says string
	}{
		{"one character too many", func(f *Facts) { f.Reason = strings.Repeat("é", MaxReason+1) }, "8193 characters; the bound is 8192"},
		{"two lines", func(f *Facts) { f.Reason = "a\nb" }, "not safe text"},
		{"a secret", func(f *Facts) { f.Reason = "Authorization: Bearer abcdefgh12345678" }, "not safe text"},
		{"not UTF-8", func(f *Facts) { f.Reason = "a\xff" }, "not safe text"},
		{"a foreign code", func(f *Facts) { f.Code = "oops" }, "code"},
		{"no state", func(f *Facts) { f.Observed = 0 }, "observedState"},
		{"no cause", func(f *Facts) { f.Cause = 0 }, "cause"},
		{"no workflow", func(f *Facts) { f.Workflow = "" }, "workflow name"},
		{"no run", func(f *Facts) { f.Run = "" }, "run id"},
		{"a node beyond the bound", func(f *Facts) { f.Node = strings.Repeat("n", launch.MaxKey+1) }, "node has 513"},
	} {
		f := testFacts()
		c.edit(&f)
		want(t, c.why, f.Check(), launch.ErrInvalid, c.says)
		if _, err := f.Encode(); err == nil {
			t.Errorf("%s: encoded", c.why)
		}
	}
	for _, o := range AllObserved() {
		f := testFacts()
		f.Observed, f.Handoff = o, true
		if err := f.Check(); (err != nil) != o.Terminal() {
			t.Errorf("hand-over of a run observed %s: %v", o, err)
		}
	}
}

func TestFactsSafe(t *testing.T) {
	f := testFacts()
	f.Reason = "first\nline token=abcdef0123456789abcdef " + strings.Repeat("é", MaxReason)
	f = f.Safe()
	if err := f.Check(); err != nil || strings.Contains(f.Reason, "abcdef0123456789") || !strings.HasPrefix(f.Reason, "first line") {
		t.Errorf("%v: %.80q", err, f.Reason)
	}
}

func TestDecodeFactsRefused(t *testing.T) {
	b, _ := testFacts().Encode()
	good := string(b)
	for _, c := range []struct{ why, in, says string }{
		{"an unknown field", strings.Replace(good, `"code"`, `"secret":1,"code"`, 1), "unknown field"},
		{"another schema", strings.Replace(good, "facts.v1", "facts.v2", 1), "schema"},
		{"no schema", `{}`, "schema"},
		{"an unknown state", strings.Replace(good, `"failed"`, `"exploded"`, 1), "observedState"},
		{"an unknown cause", strings.Replace(good, `"timedOut"`, `"bored"`, 1), "cause"},
		{"an unsafe reason", strings.Replace(good, "step timed", `a\nb`, 1), "not safe"},
		{"a hand-over of an ended run", strings.Replace(good, `"handoff":false`, `"handoff":true`, 1), "handoff"},
		{"an object too large", good + strings.Repeat(" ", MaxFacts), "bound is 65536"},
		{"not an object", `[]`, "facts"},
		{"null", `null`, "facts"},
	} {
		_, err := DecodeFacts([]byte(c.in))
		want(t, c.why, err, launch.ErrInvalid, c.says)
	}
}

func TestFactsAdd(t *testing.T) {
	first := testFacts()
	first.Observed, first.Code = ObservedRunning, ""
	got := first.add(Facts{Observed: ObservedFailed, Cause: Failed, Reason: "no route for timed_out", Code: launch.CodeNodeFailed})
	wantFacts := first
	wantFacts.Observed, wantFacts.Code = ObservedFailed, launch.CodeNodeFailed
	wantFacts.Reason = "no route for timed_out; before that: step timed out after 5m"
	if got != wantFacts {
		t.Errorf("got %+v, want %+v", got, wantFacts)
	}
	if again := got.add(Facts{Observed: ObservedFailed, Reason: "no route for timed_out", Code: launch.CodeNodeFailed}); again != got {
		t.Errorf("the same facts once more change %+v to %+v", got, again)
	}
	full := first
	full.Reason = strings.Repeat("x", MaxReason)
	if got := full.add(Facts{Observed: ObservedFailed, Reason: "last"}); !strings.HasPrefix(got.Reason, "last; ") || len(got.Reason) != MaxReason {
		t.Errorf("at the bound the last reason comes first and nothing grows: %d, %.20q", len(got.Reason), got.Reason)
	}
}

// Whatever decodes is in bounds and encodes to the same facts.
func FuzzDecodeFacts(f *testing.F) {
	b, _ := testFacts().Encode()
	f.Add(b)
	f.Add([]byte(`{"schema":"pi-workflows.deferred-turn-facts.v1","handoff":true}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := DecodeFacts(in)
		if err != nil {
			return
		}
		out, err := got.Encode()
		if err != nil {
			t.Fatalf("decoded %q but does not encode: %v", in, err)
		}
		if back, err := DecodeFacts(out); err != nil || back != got {
			t.Fatalf("%q became %q, %v", in, out, err)
		}
	})
}
