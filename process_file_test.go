package piworkflows_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"github.com/oklog/ulid/v2"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// query reads rows of a file by hand, the columns of each joined by a space.
func query(t *testing.T, path, sql string) (all []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
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
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// runsOf returns the ids of all runs in a file, oldest first.
func runsOf(t *testing.T, path string) (ids []launch.RunID) {
	t.Helper()
	for _, row := range query(t, path, `SELECT workflow, hex(run_id) FROM workflow_run_queue ORDER BY run_id`) {
		workflow, key, _ := strings.Cut(row, " ")
		raw, err := hex.DecodeString(key)
		if err != nil || len(raw) != len(ulid.ULID{}) {
			t.Fatalf("run id %q: %v", key, err)
		}
		ids = append(ids, launch.NewRunID(workflow, ulid.ULID(raw).String()))
	}
	return ids
}

// span is a claim: from the event that made it to the one that ended it.
type span struct {
	run      launch.RunID
	from, to launch.Time
}

// checkFile looks whether what a file holds could come about by the rules: the
// rows agree with each other, and the events of each run lead to its row.
// Nobody has the file open. It returns the claims that there were.
func checkFile(t *testing.T, path string) (claims []span) {
	t.Helper()
	for what, sql := range map[string]string{
		"the file is damaged":              `SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
		"a claim without a claimed state":  `SELECT hex(run_id) FROM workflow_run_queue WHERE claimed <> (state IN (2, 3))`,
		"private input outlives the start": `SELECT hex(run_id) FROM workflow_run_queue WHERE input IS NOT NULL AND state NOT IN (1, 2)`,
		"a record without a launch":        `SELECT hex(run_id) FROM workflow_runs WHERE run_id NOT IN (SELECT run_id FROM workflow_run_queue)`,
		"queued with a record":             `SELECT hex(run_id) FROM workflow_run_queue JOIN workflow_runs USING (run_id) WHERE state = 1`,
		"terminal states disagree":         `SELECT hex(run_id), state, status FROM workflow_run_queue JOIN workflow_runs USING (run_id) WHERE (state = 5) <> (status = 4) OR (state = 7) <> (status = 7)`,
		"two runs under one request key":   `SELECT scope, request_key FROM workflow_run_queue WHERE request_key IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1`,
		"two ok rows of one visit":         `SELECT hex(run_id), node, visit FROM workflow_steps WHERE outcome = 1 GROUP BY 1, 2, 3 HAVING count(*) > 1`,
		"an intent of a headless run":      `SELECT i.run_id FROM workflow_turn_intents i WHERE i.target_session_id NOT IN (SELECT session_id FROM workflow_sessions)`,
		"two live runs in a session":       `SELECT session_id FROM workflow_run_queue WHERE session_id IS NOT NULL AND state <= 4 GROUP BY 1 HAVING count(*) > 1`,
		"two unsent messages of a subject": `SELECT subject FROM workflow_messages WHERE state = 1 GROUP BY 1 HAVING count(*) > 1`,
	} {
		if rows := query(t, path, sql); len(rows) > 0 {
			t.Errorf("%s: %q", what, rows)
		}
	}
	ids := runsOf(t, path)
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range ids {
		l := launchOf(t, s, id)
		events, err := s.RunEvents(context.Background(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		claims = append(claims, replay(t, &l, events)...)
	}
	return claims
}

// replay goes through the events of a run and compares where they lead with its
// row.
func replay(t *testing.T, l *launch.Launch, events []store.Record) (claims []span) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("run %s: "+format, append([]any{l.ID}, args...)...)
	}
	legal := map[[2]launch.State]bool{}
	for _, e := range launch.Table() {
		legal[[2]launch.State{e.From, e.To}] = true
	}
	var state launch.State
	var generation uint64
	settled, started := map[string]bool{}, map[uint64]int{}
	for i, e := range events {
		if e.N != uint64(i)+1 {
			bad("event %d has the number %d", i+1, e.N)
		}
		var d struct {
			Node           string
			Visit, Attempt uint32
			Outcome        string
		}
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &d); err != nil {
				bad("the data of %s: %v", e.Kind, err)
			}
		}
		visit := fmt.Sprint(d.Node, " ", d.Visit)
		late := e.Kind == "effect.applied" || e.Kind == "effect.rejected"  // a receipt may come late
		late = late || e.Kind == "request.cancelled" && e.At == l.Finished // the end closes what is open
		if state.Terminal() && !late {
			bad("%s after its end", e.Kind)
		}
		switch {
		case e.Kind == "launch.claimed":
			if state.Claimed() {
				bad("claimed while a claim is live")
			}
			if e.Generation <= generation {
				bad("generation %d after %d", e.Generation, generation)
			}
			generation = e.Generation
		case e.Kind == "launch.started":
			if started[generation]++; started[generation] > 1 {
				bad("generation %d started twice", generation)
			}
		case e.Kind == "run.entered", e.Kind == "run.reattempted", e.Kind == "run.settled":
			if settled[visit] {
				bad("%s of %s, which has settled", e.Kind, visit)
			}
			settled[visit] = e.Kind == "run.settled"
		}
		if e.Generation != generation {
			bad("%s has generation %d, the claim %d", e.Kind, e.Generation, generation)
		}
		if !strings.HasPrefix(e.Kind, "launch.") {
			continue
		}
		next := launch.State(e.State)
		if next != state && !legal[[2]launch.State{state, next}] {
			bad("%s → %s is no legal change", state, next)
		}
		switch {
		case next.Claimed() && !state.Claimed():
			claims = append(claims, span{run: l.ID, from: e.At})
		case state.Claimed() && !next.Claimed():
			claims[len(claims)-1].to = e.At
		}
		state = next
	}
	if state != l.State || generation != l.Generation || uint64(len(events)) != l.Events {
		bad("%d events lead to %s, generation %d; the row says %d, %s, %d", len(events), state, generation, l.Events, l.State, l.Generation)
	}
	return claims
}

// mostAtOnce returns how many claims there were at one time. A claim that began
// in the very transaction that ended another counts after it.
func mostAtOnce(claims []span) (most int) {
	type edge struct {
		at   launch.Time
		by   int
		over bool
	}
	var edges []edge
	for _, c := range claims {
		edges = append(edges, edge{at: c.from, by: 1})
		if c.to != 0 {
			edges = append(edges, edge{at: c.to, by: -1, over: true})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		switch {
		case a.at != b.at:
			return int(a.at.Sub(b.at))
		case a.over == b.over:
			return 0
		case a.over:
			return -1
		}
		return 1
	})
	now := 0
	for _, e := range edges {
		now += e.by
		most = max(most, now)
	}
	return most
}
