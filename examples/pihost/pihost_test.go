package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
	"github.com/google/go-cmp/cmp"
)

var runID = regexp.MustCompile(`check-[0-9A-Z]{26}`)

// transcript gives the runs numbers in the order of their first appearance.
func transcript(text string) []string {
	seen := map[string]string{}
	text = runID.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = "check-" + string(rune('1'+len(seen)))
		}
		return seen[id]
	})
	return strings.Split(strings.TrimSpace(text), "\n")
}

// TestDemo: the transcript in the README is what the demonstration prints.
func TestDemo(t *testing.T) {
	if _, err := pitest.Install(t.Context()); errors.Is(err, pitest.ErrMissing) && os.Getenv("PIWORKFLOWS_REQUIRE_PI") != "1" {
		t.Skip(err)
	}
	var out bytes.Buffer
	if err := run(&out, true, "", nil); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```text\n")
	want, _, _ := strings.Cut(rest, "```")
	if diff := cmp.Diff(transcript(want), transcript(out.String())); diff != "" {
		t.Errorf("README.md against what was printed:\n%s", diff)
	}
}

// TestPi: the person's own pi is started with the extension, the way to the
// host, and the person's arguments.
func TestPi(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\ntest -f \"$2\" && test -S \"$PIWORKFLOWS_SOCKET\" && test -n \"$PIWORKFLOWS_TOKEN\" && echo \"$1 $3 $4\"\n"
	if err := os.WriteFile(filepath.Join(dir, "pi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	if err := run(&out, false, filepath.Join(dir, "db", "flows.db"), []string{"--model", "x/y"}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "-e --model x/y\n"; got != want {
		t.Errorf("pi got %q, want %q", got, want)
	}
}
