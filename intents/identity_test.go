package intents

import (
	"errors"
	"os"
	"strings"
	"testing"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

const (
	testSession = launch.SessionKey("header@0123456789abcdef0123456789abcdef")
	testRun     = launch.RunID("autoimplement-01J8ZQ4T9G7W2N5X8Y1R3KVB6M")
)

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := canon.Decode(b, 1<<20, path, into); err != nil {
		t.Fatal(err)
	}
}

// want fails unless err is a refusal of that kind that says so.
func want(t *testing.T, why string, err error, kind launch.Kind, says string) {
	t.Helper()
	var r *launch.Refusal
	if !errors.As(err, &r) || r.Kind != kind || !strings.Contains(r.Message, says) {
		t.Errorf("%s: got %v, want %v saying %q", why, err, kind, says)
	}
}

func TestVectors(t *testing.T) {
	var file struct {
		About   string `json:"about"`
		Vectors []struct {
			Why         string            `json:"why"`
			Session     launch.SessionKey `json:"session"`
			Run         launch.RunID      `json:"run"`
			SourceEvent string            `json:"sourceEvent"`
			Node        string            `json:"node"`
			Attempt     string            `json:"attempt"`
			Cause       Cause             `json:"cause"`
			Canonical   string            `json:"canonical"`
			ID          string            `json:"id"`
		} `json:"vectors"`
	}
	readJSON(t, "../testdata/vectors/intents.json", &file)
	seen := make(map[string]string)
	causes := make(map[Cause]bool)
	for _, v := range file.Vectors {
		got, err := ID(Identity{v.Session, v.Run, v.SourceEvent, v.Node, v.Attempt, v.Cause})
		if err != nil || got != v.ID {
			t.Errorf("%s: got %s, %v; want %s", v.Why, got, err, v.ID)
		}
		if sum := launch.DigestOf([]byte(v.Canonical)); v.ID != "deferred-turn:"+sum.String() {
			t.Errorf("%s: the canonical text has another digest", v.Why)
		}
		if seen[v.ID] != "" {
			t.Errorf("%s and %s have the same id", v.Why, seen[v.ID])
		}
		seen[v.ID], causes[v.Cause] = v.Why, true
	}
	if len(causes) != len(Causes()) {
		t.Errorf("the vectors cover %d of %d causes", len(causes), len(Causes()))
	}
}

func TestSourceEvent(t *testing.T) {
	got, err := SourceEvent(testRun, 17, "failed")
	if want := "run:" + string(testRun) + ":17:failed"; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	_, err = SourceEvent("no-ulid", 1, "failed")
	want(t, "a run id without a ULID", err, launch.ErrInvalid, "run id")
	_, err = SourceEvent(testRun, 1, "")
	want(t, "no transition", err, launch.ErrInvalid, "transition")
	_, err = SourceEvent(testRun, 1, strings.Repeat("x", 500))
	want(t, "longer than a key", err, launch.ErrInvalid, "source event")
	_, err = SourceEvent(testRun, 1, "a\nb")
	want(t, "not printable", err, launch.ErrInvalid, "transition")
}

func TestIdentityRefused(t *testing.T) {
	good := Identity{testSession, testRun, "run:" + string(testRun) + ":1:failed", "", "", Failed}
	if _, err := ID(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		edit func(*Identity)
		says string
	}{
		{"no session: a headless run owes nothing", func(i *Identity) { i.Session = "" }, "session key"},
		{"a session key that no session has", func(i *Identity) { i.Session = "x" }, "session key"},
		{"no run", func(i *Identity) { i.Run = "" }, "run id"},
		{"no source event", func(i *Identity) { i.SourceEvent = "" }, "source event"},
		{"a source event of another run", func(i *Identity) { i.SourceEvent = "run:other-01J8ZQ4T9G7W2N5X8Y1R3KVB6M:1:failed" }, "source event"},
		{"a revision that is no number", func(i *Identity) { i.SourceEvent = "run:" + string(i.Run) + ":x:failed" }, "source event"},
		{"a revision written in another way", func(i *Identity) { i.SourceEvent = "run:" + string(i.Run) + ":01:failed" }, "source event"},
		{"no transition", func(i *Identity) { i.SourceEvent = "run:" + string(i.Run) + ":1:" }, "source event"},
		{"a node that reads as the default", func(i *Identity) { i.Node = "$run" }, "node must not start"},
		{"an attempt that reads as the default", func(i *Identity) { i.Attempt = "$none" }, "attempt must not start"},
		{"a node beyond the bound", func(i *Identity) { i.Node = strings.Repeat("n", launch.MaxKey+1) }, "node has 513 bytes"},
		{"an attempt with a control character", func(i *Identity) { i.Attempt = "a\x00" }, "attempt"},
		{"a node that is not UTF-8", func(i *Identity) { i.Node = "\xff" }, "node is not valid UTF-8"},
		{"no cause", func(i *Identity) { i.Cause = 0 }, "cause"},
		{"an unknown cause", func(i *Identity) { i.Cause = 200 }, "cause"},
	} {
		i := good
		c.edit(&i)
		_, err := ID(i)
		want(t, c.why, err, launch.ErrInvalid, c.says)
	}
}
