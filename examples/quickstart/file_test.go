package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"github.com/oklog/ulid/v2"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// file is what a finished story left: the store, read through its own API, the
// tables, read by hand, and the session's transcript.
type file struct {
	runs     []launch.RunID // by id, which is by time
	launches map[launch.RunID]launch.Launch
	events   map[launch.RunID][]store.Record
	session  []store.Record
	pending  int // intents that the store still shows as pending
	messages map[string]int
	entries  []deliverytest.Entry
	rows     map[string][]string // query name -> rows
}

// queries are answered with nobody else at the file; each names what its rows
// would be if something were wrong.
var queries = map[string]string{
	"the file is damaged":               `SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
	"a claim is left":                   `SELECT hex(run_id) FROM workflow_run_queue WHERE claimed <> 0 OR runner IS NOT NULL OR token_hash IS NOT NULL`,
	"a run has not ended":               `SELECT hex(run_id), state FROM workflow_run_queue WHERE state NOT IN (5, 6)`,
	"a launch and its record disagree":  `SELECT hex(q.run_id) FROM workflow_run_queue q LEFT JOIN workflow_runs r USING (run_id) WHERE (q.state = 5) <> (r.status IS 4)`,
	"private input is left":             `SELECT hex(run_id) FROM workflow_run_queue WHERE input IS NOT NULL`,
	"a visit was settled ok twice":      `SELECT hex(run_id), node, visit FROM workflow_steps WHERE outcome = 1 GROUP BY 1, 2, 3 HAVING count(*) > 1`,
	"a visit was settled after its end": `SELECT hex(a.run_id) FROM workflow_steps a JOIN workflow_steps b USING (run_id, node, visit) WHERE a.outcome = 1 AND b.attempt > a.attempt`,
	"an effect is unsettled":            `SELECT hex(run_id), node FROM workflow_effects WHERE state <> 2`,
	"an intent is pending":              `SELECT intent_id FROM workflow_turn_intents WHERE resolved_at IS NULL AND withdrawn_at IS NULL`,
	"a run has more than one intent":    `SELECT run_id, count(*) FROM workflow_turn_intents GROUP BY run_id HAVING count(*) > 1`,
	"an intent was not resolved":        `SELECT intent_id FROM workflow_turn_intents WHERE resolved_at IS NULL OR resolution <> 'fallback'`,
	"a resolution names no message":     `SELECT intent_id FROM workflow_turn_intents WHERE resolution_message_id NOT IN (SELECT message_id FROM workflow_messages WHERE state = 2)`,
	"a message is unsent":               `SELECT message_id, state FROM workflow_messages WHERE state <> 2`,
	"a subject has two messages":        `SELECT subject FROM workflow_messages GROUP BY subject HAVING count(*) > 1`,
	"a turn is open":                    `SELECT session_id FROM workflow_sessions WHERE open_message IS NOT NULL OR held <> 0`,
	"two sessions":                      `SELECT count(*) FROM workflow_sessions HAVING count(*) <> 1`,
}

// readFile reads the file at rest.
func readFile(t *testing.T, db string) *file {
	t.Helper()
	f := &file{launches: map[launch.RunID]launch.Launch{}, events: map[launch.RunID][]store.Record{}, messages: map[string]int{}, rows: map[string][]string{}}
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if info, err := os.Stat(db + suffix); err == nil && info.Size() > 0 {
			t.Errorf("a polite end leaves %s behind", db+suffix)
		}
	}
	conn, err := sqlite.OpenConn(db, sqlite.OpenReadOnly)
	fatal(err)
	rows := func(query string) (all []string) {
		t.Helper()
		fatal(sqlitex.Execute(conn, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			row := ""
			for i := range s.ColumnCount() {
				row += s.ColumnText(i) + " "
			}
			all = append(all, row[:len(row)-1])
			return nil
		}}))
		return all
	}
	for name, query := range queries {
		f.rows[name] = rows(query)
	}
	fatal(sqlitex.Execute(conn, `SELECT workflow, run_id FROM workflow_run_queue ORDER BY run_id`, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		var key ulid.ULID
		if s.ColumnBytes(1, key[:]) != len(key) {
			return fmt.Errorf("a run id has %d bytes", s.ColumnLen(1))
		}
		f.runs = append(f.runs, launch.NewRunID(s.ColumnText(0), key.String()))
		return nil
	}}))
	intents := rows(`SELECT run_id FROM workflow_turn_intents ORDER BY run_id`)
	fatal(conn.Close())

	s, err := store.Open(db, store.Options{})
	fatal(err)
	defer func() { fatal(s.Close()) }()
	ctx := context.Background()
	owes := map[launch.RunID]int{}
	for _, id := range intents {
		owes[launch.RunID(id)]++
	}
	for _, id := range f.runs {
		l, err := s.Launch(ctx, id)
		fatal(err)
		f.launches[id] = l
		f.events[id], err = s.RunEvents(ctx, id, 0)
		fatal(err)
		if owes[id] != 1 {
			t.Errorf("run %s, %s, has %d intents, want one", id, l.State, owes[id])
		}
	}
	session := deliverytest.NewFile("quickstart", db+".session.jsonl").Key()
	f.session, err = s.SessionEvents(ctx, session, 0)
	fatal(err)
	pending, err := s.Intents(ctx, session)
	fatal(err)
	f.pending = len(pending)

	raw, err := os.ReadFile(db + ".session.jsonl")
	fatal(err)
	for line := range bytes.Lines(raw) {
		var e deliverytest.Entry
		fatal(json.Unmarshal(line, &e))
		f.entries = append(f.entries, e)
		if id := e.MessageID(); id != "" {
			f.messages[id]++
		}
	}
	return f
}

// problems says what is wrong in a file whose story is told.
func (f *file) problems() (all []string) {
	bad := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for name, rows := range f.rows {
		if len(rows) > 0 {
			bad("%s: %q", name, rows)
		}
	}
	if f.pending > 0 {
		bad("%d intents are pending", f.pending)
	}
	for id, n := range f.messages {
		if n > 1 {
			bad("message %s is in the transcript %d times", id, n)
		}
	}
	if len(f.messages) != len(f.runs) {
		bad("%d runs and %d messages in the transcript", len(f.runs), len(f.messages))
	}
	for i, e := range f.session {
		if e.N != uint64(i)+1 {
			bad("the session's event %d has the number %d", i+1, e.N)
		}
		if e.Kind == "store.violation" {
			bad("a violation is recorded: %s", e.Data)
		}
	}
	for _, id := range f.runs {
		l := f.launches[id]
		all = append(all, replay(&l, f.events[id])...)
	}
	return all
}

// replay goes through the events of a run and compares where they lead with its
// row.
func replay(l *launch.Launch, events []store.Record) (all []string) {
	bad := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("run %s: "+format, append([]any{l.ID}, args...)...))
	}
	if uint64(len(events)) != l.Events {
		bad("%d events are stored and %d counted", len(events), l.Events)
	}
	legal := map[[2]launch.State]bool{}
	for _, e := range launch.Table() {
		legal[[2]launch.State{e.From, e.To}] = true
	}
	var state launch.State
	var generation uint64
	type visit struct {
		Node           string
		Visit, Attempt uint32
		Outcome        string
	}
	settled := map[string]bool{}
	for i, e := range events {
		if e.N != uint64(i)+1 {
			bad("event %d has the number %d", i+1, e.N)
		}
		if state.Terminal() {
			bad("%s after its end", e.Kind)
		}
		var v visit
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &v); err != nil {
				bad("the data of event %d: %v", e.N, err)
			}
		}
		key := fmt.Sprint(v.Node, " ", v.Visit)
		switch e.Kind {
		case "launch.claimed":
			if state.Claimed() {
				bad("claimed while a claim is live")
			}
			if e.Generation != generation+1 {
				bad("generation %d after %d", e.Generation, generation)
			}
			generation = e.Generation
		case "run.entered", "run.reattempted", "run.settled":
			if settled[key] {
				bad("%s of %s, which was settled", e.Kind, key)
			}
			if !state.Claimed() && e.Kind == "run.settled" {
				bad("%s without a claim", e.Kind)
			}
			if v.Outcome == "ok" {
				settled[key] = true
			}
		}
		if e.Generation != generation {
			bad("event %d, %s, has generation %d, the claim %d", e.N, e.Kind, e.Generation, generation)
		}
		if !isLaunch(e.Kind) {
			continue
		}
		next := launch.State(e.State)
		if next != state && !legal[[2]launch.State{state, next}] {
			bad("%s → %s is no legal change", state, next)
		}
		state = next
	}
	if state != l.State || generation != l.Generation {
		bad("the events lead to %s, generation %d; the row says %s, %d", state, generation, l.State, l.Generation)
	}
	if done := slices.ContainsFunc(events, func(e store.Record) bool { return e.Kind == "run.ended" }); done != (l.State == launch.Done) {
		bad("its record has ended: %v; the launch is %s", done, l.State)
	}
	return all
}

func isLaunch(kind string) bool { return len(kind) > 7 && kind[:7] == "launch." }
