package piworkflows_test

import (
	"os"
	"strings"
	"testing"
)

// The host in the README is the Example that is compiled and run, and has at
// most 25 lines.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	from := strings.Index(string(source), "func Example() {")
	host := strings.TrimSpace(string(source[from:]))
	if !strings.Contains(string(readme), "```go\n"+host+"\n```") {
		t.Error("the host in README.md is not the Example in example_test.go")
	}
	if n := strings.Count(host, "\n") + 1; n > 25 {
		t.Errorf("the host has %d lines; 25 is the bound", n)
	}
	for _, command := range []string{"go run ./examples/quickstart", "go test ./..."} {
		if !strings.Contains(string(readme), command) {
			t.Errorf("README.md does not name %q", command)
		}
	}
}
