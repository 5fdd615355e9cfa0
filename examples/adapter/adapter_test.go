package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/delivery/deliverytest"
)

// TestMain makes the test binary the agent too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestBridge runs the conformance kit on real processes.
func TestBridge(t *testing.T) {
	deliverytest.Run(t, func(tb deliverytest.TB, host deliverytest.Host) deliverytest.Subject {
		a := &driven{host: host, path: filepath.Join(tb.TempDir(), "transcript")}
		tb.Cleanup(func() {
			if a.bridge != nil {
				a.kill()
			}
		})
		return deliverytest.Subject{
			Agent:    a,
			Cannot:   deliverytest.Queue | deliverytest.Retry | deliverytest.Rewind | deliverytest.Fork,
			Patience: time.Minute,
		}
	})
}

// driven is the line agent as the kit drives it.
type driven struct {
	*bridge
	host deliverytest.Host
	path string
}

func (a *driven) Start() (err error) {
	a.bridge, err = start(a.path, connector(a.host.Connect), a.host.Model)
	return err
}

func (a *driven) Stop() error              { a.end(); return nil }
func (a *driven) Kill() error              { a.kill(); return nil }
func (a *driven) Prompt(text string) error { return a.prompt(text) }
func (a *driven) Escape() error            { a.escape(); return nil }
func (a *driven) Rewind(string) error      { return errors.ErrUnsupported }
func (a *driven) Fork() error              { return errors.ErrUnsupported }

func (a *driven) Branch() ([]deliverytest.Entry, error) {
	a.Lock()
	defer a.Unlock()
	var all []deliverytest.Entry
	for _, e := range a.entries[:a.kept] {
		all = append(all, e.forKit())
	}
	return all, nil
}

func (a *driven) Disk() ([]deliverytest.Entry, error) {
	lines, err := readTranscript(a.path)
	var all []deliverytest.Entry
	for line := range bytes.Lines(lines) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		all = append(all, e.forKit())
	}
	return all, err
}

func (e entry) forKit() deliverytest.Entry {
	role := map[string]deliverytest.Role{"user": deliverytest.User, "assistant": deliverytest.Assistant, "message": deliverytest.Custom}[e.Role]
	return deliverytest.Entry{Role: role, Text: e.Text, CustomType: e.Type, Details: e.Details}
}

// TestDemo: the agent is told once how the run ended, and answers.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := demo(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Workflow greet queued", "message: Workflow greet completed.", "assistant: I have read it."} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("%q is there %d times:\n%s", want, n, out.String())
		}
	}
}

// TestTornLine: what a death left of a line is dropped, and the rest stays.
func TestTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "transcript")
	whole := `{"role":"user","text":"x"}` + "\n"
	if err := os.WriteFile(path, []byte(whole+`{"role":"assis`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	note := `{"role":"message","text":"y"}` + "\n"
	if err := agent(path, strings.NewReader("note "+note+"nonsense\n"), &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "entry "+whole+"ready\nentry "+note+"bye\n"; got != want {
		t.Errorf("it printed:\n%s", got)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != whole+note {
		t.Errorf("the file has, %v:\n%s", err, got)
	}
}
