package store_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"example.com/piworkflows/launch"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected printouts of testdata/scenarios")

// TestScenarios runs the scripts of testdata/scenarios, each on the reference
// in memory and on SQLite. A script is a comment that tells the story and names
// its rules, and blocks of a command, a line "----" and the whole printout that
// is expected. After every command the row invariants are checked, and a
// refused command must have left every table as it was, a refused answer every
// table but the receipts.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseScript(string(want))
			if err != nil {
				t.Fatal(err)
			}
			onMemory, dumpMemory := s.run(t, newBench(""))
			onSQLite, dumpSQLite := s.run(t, newBench(fileIn(t)))
			if d := lineDiff(onMemory, onSQLite); d != "" {
				t.Fatalf("memory and SQLite print differently:\n%s", d)
			}
			if !reflect.DeepEqual(dumpMemory, dumpSQLite) {
				t.Errorf("memory and SQLite hold different rows")
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(onMemory), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := lineDiff(string(want), onMemory); d != "" {
				t.Errorf("the printout differs (run with -rewrite after checking that it should):\n%s", d)
			}
		})
	}
}

// script is a parsed scenario: lines to keep, and commands among them.
type script struct{ parts []part }

type part struct {
	text string   // a comment or empty line, or the command's line
	cmd  []string // nil for text
}

func parseScript(text string) (*script, error) {
	s := new(script)
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if !strings.HasPrefix(lines[0], "# ") {
		return nil, errors.New("a scenario begins with a comment that tells why it exists")
	}
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if line == "" || strings.HasPrefix(line, "#") {
			s.parts = append(s.parts, part{text: line})
			continue
		}
		words, err := splitWords(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		s.parts = append(s.parts, part{line, words})
		for i+1 < len(lines) && lines[i+1] != "" { // the printout
			i++
		}
	}
	return s, nil
}

// splitWords splits at spaces outside single quotes, which are dropped.
func splitWords(line string) (words []string, err error) {
	var b strings.Builder
	quoted, has := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, has = !quoted, true
		case r == ' ' && !quoted:
			if has {
				words = append(words, b.String())
			}
			b.Reset()
			has = false
		default:
			b.WriteRune(r)
			has = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if has {
		words = append(words, b.String())
	}
	return words, nil
}

// run carries the script out and returns it with the printouts, and what the
// tables hold in the end.
func (s *script) run(t *testing.T, b *bench) (string, dump) {
	defer func() { b.close() }()
	e := newActor(b)
	var out bytes.Buffer
	before := must(b.dump())
	for _, p := range s.parts {
		if p.cmd == nil {
			fmt.Fprintln(&out, p.text)
			continue
		}
		b.take()
		printed, err := e.do(p.cmd)
		var refused *launch.Refusal
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("%s: %v\nafter\n%s", p.text, err, out.String()[max(0, out.Len()-3000):])
		}
		events := b.take()
		after := must(b.dump())
		e.learn(events)
		fmt.Fprintf(&out, "%s\n----\n", p.text)
		if refused != nil {
			printed = refusal(refused)
			if refused.Kind == launch.ErrInternal {
				t.Errorf("%s: %v", p.text, err)
			}
			if changed := diffDumps(before, after); len(changed) > 0 || len(events) > 0 {
				t.Errorf("%s: refused (%v) and changed %v", p.text, err, changed)
			}
		}
		if strings.HasPrefix(printed, "refused (") { // by a request, which keeps a receipt
			changed := unlikeDumps(before, after)
			if len(events) > 0 || len(changed) > 1 || len(changed) == 1 && changed[0] != "workflow_receipts" {
				t.Errorf("%s: %s, and changed %v", p.text, printed, changed)
			}
		}
		out.WriteString(e.alias(strings.TrimRight(printed, "\n") + "\n"))
		for _, ev := range events {
			out.WriteString(e.alias("  " + e.event(ev) + "\n"))
		}
		if has(p.cmd, "rows") {
			for _, c := range diffDumps(before, after) {
				out.WriteString(e.alias("  " + c + "\n"))
			}
		}
		if b.path == "" {
			all, err := b.all()
			if err != nil {
				t.Fatal(err)
			}
			if err := rowInvariants(all); err != nil {
				t.Errorf("after %s: %v", p.text, err)
			}
		}
		before = after
	}
	return out.String(), before
}

func refusal(r *launch.Refusal) string {
	s := "refused: " + r.Error()
	if r.Run != "" && !strings.Contains(r.Message, string(r.Run)) {
		s += " [run " + string(r.Run) + "]"
	}
	if r.Field != "" {
		s += " [field " + r.Field + "]"
	}
	return s
}

func has(words []string, flag string) bool {
	for _, w := range words[1:] {
		if w == flag {
			return true
		}
	}
	return false
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// lineDiff shows the first lines in which two texts differ.
func lineDiff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := at(w, i), at(g, i)
		if a != b {
			from := max(0, i-4)
			return fmt.Sprintf("line %d, after\n    %s\n- %s\n+ %s", i+1, strings.Join(w[from:min(i, len(w))], "\n    "),
				strings.Join(w[min(i, len(w)):min(i+8, len(w))], "\n- "), strings.Join(g[min(i, len(g)):min(i+8, len(g))], "\n+ "))
		}
	}
	return ""
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}
