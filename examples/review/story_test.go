package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// query reads a file by hand, the columns of each row joined by a space.
func query(db, sql string) (all []string, err error) {
	conn, err := sqlite.OpenConn(db, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	err = sqlitex.Execute(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		columns := make([]string, s.ColumnCount())
		for i := range columns {
			columns[i] = s.ColumnText(i)
		}
		all = append(all, strings.Join(columns, " "))
		return nil
	}})
	return all, err
}

func rows(t *testing.T, db, sql string) []string {
	t.Helper()
	all, err := query(db, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// What the program tells, in its order, and what it leaves behind.
func TestStory(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "review.db")
	var told, runs []string // runs that the file has when a line is told
	err := tell(t.Context(), dir, func(line string) {
		told = append(told, line)
		runs = append(runs, rows(t, db, `SELECT count(*) FROM workflow_run_queue`)...)
	})
	if err != nil {
		t.Fatalf("%v; it told\n%s", err, strings.Join(told, "\n"))
	}
	out, at := strings.Join(told, "\n"), 0
	for _, want := range []struct{ line, why string }{
		{"the model calls start review: Workflow review queued", "a run is queued in a turn of the person's"},
		{"it asks: waiting at draft, for the model of its session", "and asks after that turn"},
		{"the host closes and opens again", "in this state"},
		{"it still asks: waiting at draft", "where it stands"},
		{"/workflow answer … yes: wrong kind: ", "an answer is for a checkpoint"},
		{"the model calls submit: Request … is answered", "and the right submission is taken"},
		{"it asks: waiting at proof/read, for the model of its session", "a step of an included workflow"},
		{"it still asks: waiting at proof/read", "survives too"},
		{"the model calls submit: Request … is answered", "and is answered by its own id"},
		{"it asks: waiting at ask, for an answer of the model or a person", "the checkpoint"},
		{"it still asks: waiting at ask", "survives too"},
		{"/workflow answer … {\"add\":\"So do boats.\"}: Request … is answered", "the person answers"},
		{"it asks: waiting at decide, for a person to decide", "the decision"},
		{"it still asks: waiting at decide", "survives too"},
		{"/workflow decide … again say what a raft is: Request … is answered", "and is sent back"},
		{"the model calls submit: ", "the draft"},
		{"the model calls submit: ", "the proof"},
		{"the model calls answer: ", "the checkpoint, by the model this time"},
		{"it asks: waiting at decide", "in the same run"},
		{"/workflow pause: ", "a pause"},
		{"/workflow decide … approve: Request … is answered", "keeps what is decided"},
		{"it is held: paused at decide, for a person to resume it", "and starts nothing, after a restart of the host either"},
		{"published so far: nothing", "so that nothing is published"},
		{"/workflow resume: ", "until the resume"},
		{"it ends: completed", "after which it ends"},
		{"published, by the one run: Rafts are flat boats. They float.", "with what was approved"},
		{"/workflow restart: Run … is queued again as run …", "a restart is asked for"},
		{"it asks: waiting at draft", "and begins anew"},
		{"the model calls cancel: Run … is cancelled.", "the model cancels it in its own turn"},
		{"it has ended, and the model is told: cancelled", "in a turn that follows"},
		{"successor turns told, for two runs: 2", "and the model is told of each end once"},
	} {
		i := strings.Index(out[at:], want.line)
		if i < 0 {
			t.Fatalf("%q is missing or out of order (%s):\n%s", want.line, want.why, out)
		}
		at += i + len(want.line)
	}
	want := "0"
	for i, line := range told {
		switch {
		case strings.Contains(line, "the model calls start"):
			want = "1"
		case strings.Contains(line, "/workflow restart"):
			want = "2"
		}
		if runs[i] != want {
			t.Errorf("at %q the file has %s runs, want %s", line, runs[i], want)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "published.txt")); err != nil || string(raw) != "Rafts are flat boats. They float.\n" {
		t.Errorf("published is %q, %v", raw, err)
	}
	for what, query := range map[string]string{
		"the restart has steps":    `SELECT node FROM workflow_steps WHERE run_id = (SELECT max(run_id) FROM workflow_run_queue)`,
		"the restart has effects":  `SELECT node FROM workflow_effects WHERE run_id = (SELECT max(run_id) FROM workflow_run_queue)`,
		"an effect is not applied": `SELECT node FROM workflow_effects WHERE state <> 2`,
		"a request is open":        `SELECT node, state FROM workflow_requests WHERE settled_at IS NULL`,
	} {
		if got := rows(t, db, query); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
}
