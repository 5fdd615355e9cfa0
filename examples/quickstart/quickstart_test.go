package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"example.com/piworkflows/launch"
)

// TestMain makes the test binary the quickstart itself when it is asked to, so
// that the process that the quickstart starts is the quickstart too.
func TestMain(m *testing.M) {
	if os.Getenv("QUICKSTART") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// quickstart runs the program to its end and returns what it printed.
func quickstart(t *testing.T, args ...string) (out string, end syscall.WaitStatus) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "QUICKSTART=1")
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
		return err.Error(), 0
	}
	return both.String(), cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// tellsOK runs the program and expects that it ends well.
func tellsOK(t *testing.T, args ...string) string {
	t.Helper()
	out, end := quickstart(t, args...)
	if !end.Exited() || end.ExitStatus() != 0 || lastLine(out) != "ok" {
		t.Fatalf("quickstart %q ended with %d, not with ok and 0:\n%s", args, end, out)
	}
	return out
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	return lines[len(lines)-1]
}

var (
	runID = `[a-z0-9-]+-[0-9A-HJKMNP-TV-Z]{26}`
	// told matches what the model was told, which is an acknowledgement; queued
	// what an observer was told after the commit.
	told    = regexp.MustCompile(`Workflow [a-z]+ queued \(run (` + runID + `)\)`)
	queued  = regexp.MustCompile(`(?m)^\S+ (` + runID + `) → queued`)
	someRun = regexp.MustCompile(runID)
)

func all(re *regexp.Regexp, out string) (ids []launch.RunID) {
	for _, m := range re.FindAllStringSubmatch(out, -1) {
		if id := launch.RunID(m[len(m)-1]); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestStory(t *testing.T) {
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "QUICKSTART=1", "TMPDIR="+tmp)
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err != nil || lastLine(out) != "ok" {
		t.Fatalf("the story ended with %v:\n%s", err, out)
	}
	runs := all(told, out)
	if len(runs) != 3 {
		t.Fatalf("%d starts were acknowledged, want the report, the stale deploy and the corrected one:\n%s", len(runs), out)
	}
	report, stale, fixed := runs[0], runs[1], runs[2]
	killed := strings.Index(out, "# killed; the second process goes on")
	// Each line once, in this order.
	at := 0
	for _, want := range []struct{ line, why string }{
		{string(report) + " → queued (by model)", "the start is durable"},
		{"# the model is told: Workflow report queued (run " + string(report) + ").", "and only then acknowledged"},
		{string(report) + " queued → starting", "it activates after the turn"},
		{string(report) + " starting → running", "and runs"},
		{string(report) + " node collect settled (ok)", "its first node"},
		{string(report) + " node write settled (ok)", "and its second"},
		{string(report) + " running → done", "it ends"},
		{string(report) + " turn requested (completed)", "in the same commit a turn is owed"},
		{string(report) + " message on the branch", "which is delivered"},
		{string(report) + " turn resolved (completed)", "and resolved"},
		{string(stale) + " → queued (by model)", "the second start"},
		{"# killed; the second process goes on", "survives the death of its process"},
		{string(stale) + " queued → starting", "another process claims it"},
		{string(stale) + " starting → failed (source_changed: ", "and finds another definition"},
		{string(stale) + " turn requested (launchFailed)", "which the model has to know"},
		{string(stale) + " message on the branch", "and is told"},
		{string(stale) + " turn resolved (launchFailed)", "exactly once"},
		{string(fixed) + " queued → starting", "the corrected start"},
		{string(fixed) + " starting → running", "runs"},
		{string(fixed) + " node ship settled (ok)", "its action"},
		{string(fixed) + " running → done", "and ends"},
		{string(fixed) + " turn requested (completed)", "which owes a turn again"},
		{string(fixed) + " message on the branch", "delivered"},
		{string(fixed) + " turn resolved (completed)", "and resolved"},
		{"# 3 successor turns, each delivered once; the last run says \"shipped every launch\"", "the sum"},
	} {
		i := strings.Index(out[at:], want.line)
		if i < 0 {
			t.Fatalf("%q is missing or out of order (%s):\n%s", want.line, want.why, out)
		}
		at += i + len(want.line)
		if n := strings.Count(out, want.line); n != 1 {
			t.Errorf("%q is printed %d times, want once (%s)", want.line, n, want.why)
		}
	}
	if i := strings.Index(out, string(fixed)); i < killed {
		t.Error("the corrected start was made before its cause")
	}
	if n := strings.Count(out, " turn requested "); n != 3 {
		t.Errorf("%d turns were owed, want one for each of 3 runs:\n%s", n, out)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("the story leaves %v behind, %v", left, err)
	}
}

func TestBoundariesAreListed(t *testing.T) {
	out, end := quickstart(t, "-crash", "list")
	if end.ExitStatus() != 0 || out != strings.Join(boundaries(), "\n")+"\n" {
		t.Errorf("-crash list ended with %d and printed\n%s", end, out)
	}
	seen := map[string]bool{}
	for _, b := range boundaries() {
		if seen[b] {
			t.Errorf("boundary %q is listed twice", b)
		}
		seen[b] = true
	}
	if !seen[afterEdit] {
		t.Errorf("the story dies at %q, which is no boundary", afterEdit)
	}
}

func TestMisuse(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	if err := os.WriteFile(other, []byte("this is no database, and nobody may overwrite it"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		args []string
	}{
		{"no such boundary", []string{"-crash", "in the middle"}},
		{"one occurrence too many", []string{"-crash", "before start 9"}},
		{"a file that is no database", []string{"-db", other}},
		{"a path that is a directory", []string{"-db", dir}},
	} {
		t.Run(c.why, func(t *testing.T) {
			out, end := quickstart(t, c.args...)
			if !end.Exited() || end.ExitStatus() != 1 || !strings.HasPrefix(lastLine(out), "not ok: ") {
				t.Errorf("ended with %d, want 1 and a reason:\n%s", end, out)
			}
		})
	}
	if raw, err := os.ReadFile(other); err != nil || string(raw) != "this is no database, and nobody may overwrite it" {
		t.Errorf("a foreign file was changed: %q, %v", raw, err)
	}
}

// A kept file tells the whole story once; afterwards nothing is left to do.
func TestFinishedFileStartsNothing(t *testing.T) {
	db := filepath.Join(t.TempDir(), "flows.db")
	first := tellsOK(t, "-db", db)
	before := readFile(t, db)
	for _, again := range []string{"second", "third"} {
		out := tellsOK(t, "-db", db)
		if strings.Contains(out, "→") || strings.Contains(out, "told") || strings.Contains(out, "turn ") && !strings.Contains(out, "3 successor turns") {
			t.Errorf("the %s run does something:\n%s", again, out)
		}
		if strings.Contains(out, "message on the branch") {
			t.Errorf("the %s run sends something:\n%s", again, out)
		}
	}
	after := readFile(t, db)
	if !slices.Equal(before.runs, after.runs) || len(before.messages) != len(after.messages) {
		t.Errorf("the file had runs %v and %d messages, then %v and %d", before.runs, len(before.messages), after.runs, len(after.messages))
	}
	check(t, db, all(told, first))
}

// At every boundary of the main job the process can be killed, and another one
// brings the story to the same end.
func TestKilledAtEveryBoundary(t *testing.T) {
	type ending struct {
		db            string
		first, second string
		died, ended   syscall.WaitStatus
	}
	stories := make([]ending, len(boundaries()))
	slots := make(chan struct{}, 12) // a story mostly waits, for a lease or a deadline
	var wg sync.WaitGroup
	for i, b := range boundaries() {
		if testing.Short() && i%5 != 0 {
			continue
		}
		s := &stories[i]
		s.db = filepath.Join(t.TempDir(), "flows.db")
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if s.first, s.died = quickstart(t, "-db", s.db, "-crash", b); s.died.Signaled() {
				s.second, s.ended = quickstart(t, "-db", s.db)
			}
		})
	}
	wg.Wait()
	for i, b := range boundaries() {
		s := stories[i]
		if s.db == "" {
			continue
		}
		t.Run(b, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the first process:\n%s\nthe second:\n%s", s.first, s.second)
				}
			}()
			if !s.died.Signaled() || s.died.Signal() != syscall.SIGKILL {
				t.Fatalf("it was to die by SIGKILL and ended with %d", s.died)
			}
			if !s.ended.Exited() || s.ended.ExitStatus() != 0 || lastLine(s.second) != "ok" {
				t.Fatalf("the second process ended with %d, not with ok and 0", s.ended)
			}
			both := s.first + s.second
			f := check(t, s.db, append(all(told, both), all(queued, both)...))
			if strings.Count(both, " node collect settled (ok)") > 1 {
				t.Error("a node that had settled ran again")
			}
			for _, id := range all(someRun, both) {
				if _, known := f.launches[id]; !known {
					t.Errorf("a process speaks of run %s, which is not in the file", id)
				}
			}
		})
	}
}

// check looks whether a finished file holds what was promised: acknowledged
// are the runs that a process has told somebody of.
func check(t *testing.T, db string, acknowledged []launch.RunID) *file {
	t.Helper()
	f := readFile(t, db)
	for _, id := range acknowledged {
		if _, ok := f.launches[id]; !ok {
			t.Errorf("run %s was acknowledged and is lost", id)
		}
	}
	if len(f.launches) == 0 {
		t.Error("the file has no run")
	}
	for _, problem := range f.problems() {
		t.Error(problem)
	}
	if id := f.runs[len(f.runs)-1]; f.launches[id].State != launch.Done || !strings.HasPrefix(string(id), "deploy-") {
		t.Errorf("the last run is %s, %s; want a deploy that is done", id, f.launches[id].State)
	}
	for _, id := range f.runs {
		if l := f.launches[id]; l.State == launch.Failed && l.Error.Code != launch.CodeSourceChanged {
			t.Errorf("run %s failed with %s, the story has only %s", id, l.Error.Code, launch.CodeSourceChanged)
		}
	}
	return f
}
