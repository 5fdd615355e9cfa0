package pitest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows/internal/pitest"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// world is one Pi with its model, and one host.
type world struct {
	t        *testing.T
	ctx      context.Context
	pi       pitest.Pi
	home     *pitest.Home
	provider *pitest.Provider
	config   hostConfig
	host     *host
	agent    *pitest.Agent
	session  string // file
	stops    *stops

	mu     sync.Mutex
	other  func(context.Context, pitest.Request) (pitest.Reply, bool)
	script map[string]pitest.Model // by "opener" or "opener step"; see model
}

// told matches the acknowledgement of a start.
var told = regexp.MustCompile(`queued \(run ([a-z0-9-]+-[0-9A-Z]{26})\)`)

// about matches a message of ours.
var about = regexp.MustCompile(`^(Workflow|Run|The workflow|The run) `)

// asks matches a message that asks the model: node and request.
var asks = regexp.MustCompile(`^Workflow run \S+ asks .* step (\S+)\. Request id: (\S+)`)

// newWorld starts a host and a Pi connected to it, and has a first chat, so
// that what follows is on disk as soon as it is on the branch.
func newWorld(t *testing.T, settings map[string]any) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, script: map[string]pitest.Model{}}
	var err error
	w.pi, err = pitest.Install(t.Context())
	w.missing(err)
	w.provider, err = pitest.NewProvider(w.model)
	w.ok(err)
	t.Cleanup(w.provider.Close)
	dir := t.TempDir()
	all := map[string]any{"retry": map[string]any{"baseDelayMs": 20}}
	maps.Copy(all, settings)
	w.home, err = pitest.NewHome(filepath.Join(dir, "home"), w.provider.URL, all)
	w.ok(err)
	w.config = hostConfig{DB: filepath.Join(dir, "db", "flows.db"), Dir: filepath.Join(dir, "bridge"), Version: "1"}
	w.stops = newStops(t, filepath.Join(dir, "stops"))
	w.startHost()
	w.startPi()
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// missing skips the test when something is not installed, or fails when that
// is demanded.
func (w *world) missing(err error) {
	w.t.Helper()
	missing(w.t, err)
}

func missing(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, pitest.ErrMissing) && os.Getenv("PIWORKFLOWS_REQUIRE_PI") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) startHost() {
	w.t.Helper()
	h, err := startHost(w.ctx, w.config)
	w.ok(err)
	w.host = h
	w.t.Cleanup(h.kill)
}

// startPi starts Pi on its session and waits until it is connected.
func (w *world) startPi() {
	w.t.Helper()
	mark := w.host.mark()
	w.agent = w.newPi()
	w.connected(mark)
	if w.session == "" {
		s, err := w.agent.State(w.ctx)
		w.ok(err)
		w.session = s.SessionFile
	}
}

func (w *world) newPi() *pitest.Agent {
	w.t.Helper()
	args := []string{"-e", w.host.ext, "-e", w.stops.ext}
	if w.session != "" {
		args = append(args, "--session", w.session)
	}
	a, err := pitest.Start(w.pi, w.home, append(w.stops.env(), w.host.env...), args...)
	w.ok(err)
	w.t.Cleanup(a.Kill)
	return a
}

func (w *world) connected(mark int) {
	w.t.Helper()
	w.event(mark, "session.connected")
}

// event waits for an event of the host.
func (w *world) event(mark int, kind string) line {
	w.t.Helper()
	l, err := w.host.wait(w.ctx, mark, kind, func(l line) bool { return l.Kind == kind })
	w.ok(err)
	return l
}

// runEvent waits for an event of a run.
func (w *world) runEvent(mark int, kind, run string) line {
	w.t.Helper()
	l, err := w.host.wait(w.ctx, mark, kind+" of "+run, func(l line) bool { return l.Kind == kind && l.Run == run })
	w.ok(err)
	return l
}

// over waits until a run has ended and no turn is owed for it.
func (w *world) over(run string) {
	w.t.Helper()
	w.ok(w.host.say("over " + run))
	_, err := w.host.wait(w.ctx, 0, "the end of "+run, func(l line) bool { return l.Over == run })
	w.ok(err)
}

// gate waits until a node waits at the gate.
func (w *world) gate(mark int) {
	w.t.Helper()
	_, err := w.host.wait(w.ctx, mark, "a node at the gate", func(l line) bool { return l.Gate != "" })
	w.ok(err)
}

// on sets what the model answers to an opener, or to a step of it.
func (w *world) on(opener string, m pitest.Model) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script[opener] = m
}

// model does what it is told: "start W" starts the workflow W. The opener is
// "asked NODE" for a message that asks the model, and "message" for any other
// message of ours.
func (w *world) model(ctx context.Context, r pitest.Request) pitest.Reply {
	opener := r.Opener
	if m := asks.FindStringSubmatch(opener); m != nil {
		opener = "asked " + m[1]
	} else if about.MatchString(opener) {
		opener = "message"
	}
	w.mu.Lock()
	if w.other != nil {
		if reply, ok := w.other(ctx, r); ok {
			w.mu.Unlock()
			return reply
		}
	}
	m := w.script[fmt.Sprintf("%s %d", opener, r.Step)]
	if m == nil {
		m = w.script[opener]
	}
	w.mu.Unlock()
	if m != nil {
		return m(ctx, r)
	}
	if flow, ok := strings.CutPrefix(opener, "start "); ok && r.Step == 1 {
		return startCall(flow)
	}
	return pitest.Reply{Text: "I have seen it."}
}

func startCall(flow string) pitest.Reply {
	return pitest.Reply{Calls: []pitest.Call{{Tool: "workflow", Args: fmt.Sprintf(`{"action":"start","workflow":%q,"input":{"topic":"x"}}`, flow)}}}
}

// hold makes the answers to an opener wait until the returned function is
// called.
func (w *world) hold(opener string) (release func()) {
	c := make(chan struct{})
	once := sync.OnceFunc(func() { close(c) })
	w.t.Cleanup(once)
	w.on(opener, func(context.Context, pitest.Request) pitest.Reply { return pitest.Reply{Text: "Done.", Hold: c} })
	return once
}

// asked waits for a request.
func (w *world) asked(what string, match func(pitest.Request) bool) pitest.Request {
	w.t.Helper()
	r, err := w.provider.Wait(w.ctx, match)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", what, err, w.host.story())
	}
	return r
}

func opened(by string) func(pitest.Request) bool {
	return func(r pitest.Request) bool { return r.Opener == by }
}

func byMessage(r pitest.Request) bool { return about.MatchString(r.Opener) && r.Step == 1 }

// start has the model start a workflow in a turn and returns the run.
func (w *world) start(flow string) string {
	w.t.Helper()
	w.ok(w.agent.Ask(w.ctx, "start "+flow))
	return w.started(flow)
}

// started returns the run that the model was told of last.
func (w *world) started(flow string) string {
	w.t.Helper()
	r := w.asked("the answer of the start", func(r pitest.Request) bool { return r.Opener == "start "+flow && r.Step == 2 })
	return w.runOf(r)
}

func (w *world) runOf(r pitest.Request) string {
	w.t.Helper()
	last := r.Messages[len(r.Messages)-1].Text
	m := told.FindStringSubmatch(last)
	if m == nil {
		w.t.Fatalf("the model was told %q", last)
	}
	return m[1]
}

// end closes everything and checks what has to be true of every story: each
// workflow message is on the branch once, with at most most requests each, and
// nothing is left to do. It returns the intents, as "run resolution".
func (w *world) end(most int) (intents []string) {
	w.t.Helper()
	w.ok(w.agent.Terminate(w.ctx))
	w.ok(w.host.close(w.ctx))
	all, err := pitest.File(w.session)
	w.ok(err)
	seen := map[string]int{}
	for _, e := range all {
		if id := e.MessageID(); id != "" {
			if seen[id]++; seen[id] > 1 {
				w.t.Errorf("message %s is in the file %d times", id, seen[id])
			}
			if n := w.provider.Opened(func(o string) bool { return o == e.Text() }); n > most {
				w.t.Errorf("%d requests opened with %q, at most %d are right", n, e.Text(), most)
			}
		}
	}
	for what, query := range map[string]string{
		"an intent is pending": `SELECT intent_id FROM workflow_turn_intents WHERE resolved_at IS NULL AND withdrawn_at IS NULL`,
		"a message is unsent":  `SELECT message_id, state FROM workflow_messages WHERE state NOT IN (2, 3)`,
		"a turn is open":       `SELECT open_message FROM workflow_sessions WHERE open_message IS NOT NULL`,
		"two sessions":         `SELECT count(*) FROM workflow_sessions HAVING count(*) > 1`,
	} {
		if got := w.rows(query); len(got) > 0 {
			w.t.Errorf("%s: %q", what, got)
		}
	}
	for _, id := range w.rows(`SELECT message_id FROM workflow_messages WHERE state = 2`) {
		if seen[id] == 0 {
			w.t.Errorf("message %s counts as sent and is not in the file", id)
		}
	}
	return w.rows(`SELECT run_id, ifnull(resolution, withdrawn_reason) FROM workflow_turn_intents ORDER BY run_id`)
}

// rows reads the store's file.
func (w *world) rows(query string) (all []string) {
	w.t.Helper()
	conn, err := sqlite.OpenConn(w.config.DB, sqlite.OpenReadOnly)
	w.ok(err)
	defer func() { w.ok(conn.Close()) }()
	w.ok(sqlitex.Execute(conn, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		row := make([]string, s.ColumnCount())
		for i := range row {
			row[i] = s.ColumnText(i)
		}
		all = append(all, strings.Join(row, " "))
		return nil
	}}))
	return all
}
