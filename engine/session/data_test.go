package session_test

import (
	"encoding/json"
	"os"
	"testing"

	"example.com/piworkflows/engine/session"
	"github.com/google/go-cmp/cmp"
)

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// How a kind resolves an intent is compared where that is decided, in package
// follow.
func TestKindsAgreeWithTheirData(t *testing.T) {
	type row struct {
		Kind                              string
		StartsTurn, EndsWithRun, Recovers bool
	}
	var data struct{ Kinds []row }
	readJSON(t, "../../testdata/contract/session-kinds.json", &data)
	var got []row
	for k := session.Step; k.Valid(); k++ {
		got = append(got, row{k.String(), k.StartsTurn(), k.EndsWithRun(), k.Recovers()})
	}
	if diff := cmp.Diff(data.Kinds, got); diff != "" {
		t.Errorf("the kinds differ from their data (-data +go):\n%s", diff)
	}
	for _, k := range []session.Kind{0, session.Notice + 1, 255} {
		if k.Valid() || k.String() != "none" || k.StartsTurn() || k.EndsWithRun() || k.Recovers() {
			t.Errorf("kind %d is none and does nothing", k)
		}
	}
}

func TestMessageIDVectors(t *testing.T) {
	var data struct {
		Vectors []struct {
			Why, Subject, ID string
			Issue            uint8
		}
	}
	readJSON(t, "../../testdata/vectors/messages.json", &data)
	seen := map[string]bool{}
	for _, v := range data.Vectors {
		if got := session.MessageID(v.Subject, v.Issue); got != v.ID || seen[got] {
			t.Errorf("%s: got %s, want %s, once", v.Why, got, v.ID)
		}
		seen[v.ID] = true
	}
}

// Every value of an enum has its own wire name, and the zero value none.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		enum string
		last uint8
		name func(uint8) string
	}{
		{"state", uint8(session.Blocked), func(v uint8) string { return session.State(v).String() }},
		{"end", uint8(session.Lost), func(v uint8) string { return session.End(v).String() }},
		{"event", uint8(session.EvCancelled), func(v uint8) string { return session.EventKind(v).String() }},
		{"ownership", uint8(session.Settled), func(v uint8) string { return session.Ownership(v).String() }},
	} {
		seen := map[string]bool{}
		for v := uint8(0); v <= c.last; v++ {
			if name := c.name(v); name == "" || seen[name] || (name == "none") != (v == 0) || name == "unknown" {
				t.Errorf("%s %d is named %q", c.enum, v, name)
			} else {
				seen[name] = true
			}
		}
		if c.name(255) == "" { // a corrupt row is printed, not a panic
			t.Errorf("%s 255 has no name", c.enum)
		}
	}
}
