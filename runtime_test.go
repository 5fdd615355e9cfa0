package piworkflows_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

var bg = context.Background()

// double has one node, which doubles a number.
func double() *engine.Workflow {
	w := engine.New[number]("double", "1")
	engine.Compute(w, "twice", w.Input(), func(_ context.Context, in number) (int, error) { return 2 * in.N, nil })
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// host opens a runtime with some workflows over an engine in memory.
func host(t *testing.T, o piworkflows.Options, workflows ...*engine.Workflow) *piworkflows.Runtime {
	t.Helper()
	if o.Path == "" && o.Engine == nil {
		o.Engine = storetest.Memory()
	}
	o.Workflows = workflows
	rt, err := piworkflows.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(bg); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// wantKind fails unless err is a refusal of that kind whose message has the
// words, and tells no secret.
func wantKind(t *testing.T, err error, kind launch.Kind, words string) {
	t.Helper()
	var r *launch.Refusal
	if !errors.As(err, &r) || r.Kind != kind || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %q with %q", err, kind, words)
	}
	if err != nil && strings.Contains(err.Error(), marker) {
		t.Errorf("the error tells the input: %v", err)
	}
}

// marker stands for what is private.
const marker = "SECRET7f3a"

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	good := []*engine.Workflow{double()}
	for _, c := range []struct {
		why  string
		o    piworkflows.Options
		want string
	}{
		{"the zero value names no file", piworkflows.Options{}, "Options.Path is not set"},
		{"a file and an engine", piworkflows.Options{Path: path, Engine: storetest.Memory()}, "Options.Engine exclude each other"},
		{"a negative wait", piworkflows.Options{Path: path, BusyTimeout: -1}, "Options.BusyTimeout is negative"},
		{"a nil workflow", piworkflows.Options{Path: path, Workflows: []*engine.Workflow{good[0], nil}}, "workflow 2"},
		{"a workflow that nobody built", piworkflows.Options{Path: path, Workflows: []*engine.Workflow{{}}}, "workflow 1"},
		{"one name twice", piworkflows.Options{Path: path, Workflows: []*engine.Workflow{good[0], good[0]}}, "double is registered twice"},
		{"a source that is too long", piworkflows.Options{Path: path, Source: strings.Repeat("s", 513)}, "source identity has 513 bytes"},
		{"a source with a control character", piworkflows.Options{Path: path, Source: "a\x00b"}, "source identity"},
		{"a source that is no UTF-8", piworkflows.Options{Path: path, Source: "a\xffb"}, "source identity"},
		{"capacity below nothing", piworkflows.Options{Path: path, Workflows: good, Capacity: -1}, "capacity is -1"},
		{"capacity above the bound", piworkflows.Options{Path: path, Workflows: good, Capacity: 1001}, "capacity is 1001"},
		{"a lease too short", piworkflows.Options{Path: path, Workflows: good, Lease: time.Millisecond}, "lease is 1ms"},
		{"a lease too long", piworkflows.Options{Path: path, Workflows: good, Lease: 1000 * time.Hour}, "lease is 1000h"},
		{"renewals too rare", piworkflows.Options{Path: path, Workflows: good, Lease: 10 * time.Second, Renew: 6 * time.Second}, "renewal every 6s"},
		{"negative renewals", piworkflows.Options{Path: path, Workflows: good, Renew: -1}, "renewal every -1ns"},
		{"a path with a zero byte", piworkflows.Options{Path: path + "\x00", Workflows: good}, "store path"},
		{"a path that is a directory", piworkflows.Options{Path: filepath.Dir(path), Workflows: good}, "regular file"},
		{"a path that ends as a directory", piworkflows.Options{Path: path + "/", Workflows: good}, "store path"},
	} {
		t.Run(c.why, func(t *testing.T) {
			rt, err := piworkflows.Open(c.o)
			wantKind(t, err, launch.ErrInvalid, c.want)
			if rt != nil {
				t.Error("Open returns a runtime with an error")
			}
		})
	}
	// What was refused on the way is closed again, so that the file is free.
	host(t, piworkflows.Options{Path: path}, good...)
}

// Without workflows a host opens, and can look at and end what is there.
func TestOpenWithoutWorkflows(t *testing.T) {
	rt := host(t, piworkflows.Options{})
	_, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double"})
	wantKind(t, err, launch.ErrNotFound, "it has: none")
}

// A file with another layout is left as it is, and so is its log.
func TestOpenIncompatible(t *testing.T) {
	sql := func(statements ...string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, s := range statements {
				if err := sqlitex.ExecuteTransient(conn, s, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ours := func(change ...string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			rt, err := piworkflows.Open(piworkflows.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			if err := rt.Close(bg); err != nil {
				t.Fatal(err)
			}
			sql(change...)(t, path)
		}
	}
	for _, c := range []struct {
		why  string
		make func(*testing.T, string)
	}{
		{"no database", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("my diary: "+marker), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"another program's database", sql("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('"+marker+"')")},
		{"a newer version", ours("PRAGMA user_version = 2")},
		{"another schema id", ours("UPDATE workflow_store SET schema_id = 'pi-workflows.controller-store.v2'")},
		{"a table more", ours("CREATE TABLE more (x TEXT)")},
		{"a table less", ours("DROP TABLE workflow_chains")},
		{"an index less", ours("DROP INDEX workflow_run_queue_due")},
	} {
		t.Run(c.why, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "flows.db")
			c.make(t, path)
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = piworkflows.Open(piworkflows.Options{Path: path, Workflows: []*engine.Workflow{double()}})
			wantKind(t, err, launch.ErrIncompatible, "")
			if !strings.Contains(fmt.Sprint(err), "back") {
				t.Errorf("the error does not say how to go on: %v", err)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed: %d bytes, then %d, %v", len(before), len(after), err)
			}
			if log, err := os.ReadFile(path + "-wal"); err == nil && len(log) > 0 {
				t.Errorf("a log of %d bytes appeared", len(log))
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	rt := host(t, piworkflows.Options{Path: path}, double())
	session := deliverytest.NewFile("s1", "/s1.jsonl").Key()
	input := func(s string) piworkflows.StartOptions {
		return piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(s)}
	}
	for _, c := range []struct {
		why  string
		o    piworkflows.StartOptions
		kind launch.Kind
		want string
	}{
		{"the zero value", piworkflows.StartOptions{}, launch.ErrNotFound, "it has: double"},
		{"an unknown workflow", piworkflows.StartOptions{Workflow: marker}, launch.ErrNotFound, "it has: double"},
		{"no JSON", input(marker), launch.ErrInvalid, "input"},
		{"an empty input", input(""), launch.ErrInvalid, "input"},
		{"two values", input(`{"n":1} {"n":2}`), launch.ErrInvalid, "after its value"},
		{"an unknown field", input(`{"n":1,"` + marker + `":2}`), launch.ErrInvalid, "unknown field; known are: n"},
		{"a field in other case", input(`{"N":1}`), launch.ErrInvalid, "unknown field"},
		{"a key twice", input(`{"n":1,"n":2}`), launch.ErrInvalid, "input"},
		{"a wrong type", input(`{"n":"` + marker + `"}`), launch.ErrInvalid, "wrong type"},
		{"null for a number", input(`{"n":null}`), launch.ErrInvalid, "null"},
		{"a list", input(`[1]`), launch.ErrInvalid, "wrong type"},
		{"NaN", input(`{"n":NaN}`), launch.ErrInvalid, "input"},
		{"infinity", input(`{"n":Infinity}`), launch.ErrInvalid, "input"},
		{"a number beyond all bounds", input(`{"n":1e999}`), launch.ErrInvalid, "input"},
		{"a fraction for an integer", input(`{"n":1.5}`), launch.ErrInvalid, "input"},
		{"no UTF-8", input("{\"n\":\"\xff\"}"), launch.ErrInvalid, "UTF-8"},
		{"a control character", input("{\"n\":\"\x01\"}"), launch.ErrInvalid, "input"},
		{"half a surrogate pair", input(`{"n":"\ud800"}`), launch.ErrInvalid, "input"},
		{"too many bytes", input(`{"n":1` + strings.Repeat(" ", launch.MaxInput) + `}`), launch.ErrInvalid, fmt.Sprint("the bound is ", launch.MaxInput)},
		{"too deep", input(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), launch.ErrInvalid, "deep"},
		{"a session that is none", piworkflows.StartOptions{Workflow: "double", Session: marker}, launch.ErrInvalid, "session key"},
		{"a session key that is too long", piworkflows.StartOptions{Workflow: "double", Session: launch.SessionKey(strings.Repeat("s", 513))}, launch.ErrInvalid, "session key has 513 bytes"},
		{"a session key with a control character", piworkflows.StartOptions{Workflow: "double", Session: "a\n" + session}, launch.ErrInvalid, "session key"},
		{"a request key without a scope", piworkflows.StartOptions{Workflow: "double", RequestKey: "k"}, launch.ErrInvalid, "needs a scope"},
		{"a request key that is too long", piworkflows.StartOptions{Workflow: "double", Scope: "s", RequestKey: strings.Repeat("k", 513)}, launch.ErrInvalid, "request key has 513 bytes"},
		{"a request key that is no UTF-8", piworkflows.StartOptions{Workflow: "double", Scope: "s", RequestKey: "k\xff"}, launch.ErrInvalid, "request key"},
		{"a scope with a control character", piworkflows.StartOptions{Workflow: "double", Scope: "s\x7f", RequestKey: "k"}, launch.ErrInvalid, "scope"},
		{"a group that is too long", piworkflows.StartOptions{Workflow: "double", Group: strings.Repeat("g", 513)}, launch.ErrInvalid, "group has 513 bytes"},
		{"the model through the back door", piworkflows.StartOptions{Workflow: "double", Actor: launch.Model}, launch.ErrInvalid, "StartOptions.Actor"},
		{"an actor out of range", piworkflows.StartOptions{Workflow: "double", Actor: 99}, launch.ErrInvalid, "StartOptions.Actor"},
	} {
		t.Run(c.why, func(t *testing.T) {
			s, err := rt.Start(bg, c.o)
			wantKind(t, err, c.kind, c.want)
			if s != (piworkflows.Started{}) {
				t.Errorf("a refused start is answered %+v", s)
			}
		})
	}
	for _, table := range store.Schema {
		if rows := query(t, path, "SELECT count(*) FROM "+table.Name); rows[0] != "0" && rows[0] != "1" || rows[0] == "1" && table.Name != "workflow_store" {
			t.Errorf("refused starts left %s rows in %s", rows[0], table.Name)
		}
	}
	// A nil input is the empty object.
	if s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double"}); err != nil || !s.Created {
		t.Errorf("a start without input: %+v, %v", s, err)
	}
}

// Ids that name nothing, or nothing well-formed, are refused everywhere.
func TestUnknownIds(t *testing.T) {
	rt := host(t, piworkflows.Options{}, double())
	s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	_, ulid, _ := s.Run.Split()
	for _, id := range []launch.RunID{"", "x", marker, "double-", launch.NewRunID("other", ulid), launch.NewRunID("double", strings.ToLower(ulid)),
		s.Run + "0", "double-7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "double-8ZZZZZZZZZZZZZZZZZZZZZZZZZ", launch.RunID(strings.Repeat("d", 1<<20)), "\xff\x00"} {
		for what, call := range map[string]func() error{
			"Status": func() error { _, err := rt.Status(bg, id); return err },
			"Wait":   func() error { _, err := rt.Wait(bg, id); return err },
			"Cancel": func() error { _, err := rt.Cancel(bg, id, launch.Person); return err },
			"Pause":  func() error { return rt.Pause(bg, id) },
			"Resume": func() error { return rt.Resume(bg, id) },
		} {
			if err := call(); !errors.Is(err, launch.ErrNotFound) || strings.Contains(err.Error(), marker) {
				t.Errorf("%s of %.40q: %.200v, want %v", what, id, err, launch.ErrNotFound)
			}
		}
	}
	if _, ok, err := rt.Output(bg, s.Run, "nowhere"); ok || err != nil {
		t.Errorf("the output of a node that does not exist: %v, %v", ok, err)
	}
	_, err = rt.Cancel(bg, s.Run, launch.Model)
	wantKind(t, err, launch.ErrInvalid, "launch.Person or launch.Host")
	good := deliverytest.NewFile("s1", "/s1.jsonl").Key()
	if id, err := rt.SessionRun(bg, good); id != "" || err != nil {
		t.Errorf("the run of a session that never had one: %q, %v", id, err)
	}
	for _, key := range []launch.SessionKey{"", "x", marker, good + "0", launch.SessionKey(strings.Repeat("s", 600))} {
		_, err := rt.SessionRun(bg, key)
		wantKind(t, err, launch.ErrInvalid, "session key")
		wantKind(t, rt.Unblock(bg, key, "m"), launch.ErrNotFound, "no such message")
		wantKind(t, rt.AbandonSession(bg, key), launch.ErrInvalid, "session key")
		_, err = rt.Connect(bg, delivery.Hello{Session: key, Process: "p"}, deliverytestBridge{})
		wantKind(t, err, launch.ErrInvalid, "session key")
	}
	if err := rt.Unblock(bg, good, "message:none"); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("an unknown message is unblocked: %v", err)
	}
	wantKind(t, rt.AbandonSession(bg, good), launch.ErrNotFound, "no such session")
	_, err = rt.Connect(bg, delivery.Hello{Session: good, Process: "p"}, nil)
	wantKind(t, err, launch.ErrInvalid, "session")
	_, err = rt.Connect(bg, delivery.Hello{Session: good}, deliverytestBridge{})
	wantKind(t, err, launch.ErrInvalid, "process")
	_, err = rt.Connect(bg, delivery.Hello{Session: good, Process: "p\x00"}, deliverytestBridge{})
	wantKind(t, err, launch.ErrInvalid, "process")
}

// A session that is given up loses its run, whose code is told, and returns, if
// it does, to nothing owed.
func TestAbandonSession(t *testing.T) {
	began, gate := make(chan struct{}), make(chan struct{})
	rt := host(t, piworkflows.Options{}, double(), gated(func() { close(began) }, gate))
	a := connect(t, rt, "s1", nil)
	started := a.call(`{"action":"start","workflow":"gated","input":{"n":1}}`, "k1")
	run := runID(t, started)
	<-began
	a.pi.Kill()
	if err := rt.AbandonSession(bg, a.file.Key()); err != nil {
		t.Fatal(err)
	}
	v, err := rt.Wait(bg, run)
	if err != nil || v.Status != view.Cancelled || v.Turn != "" {
		t.Errorf("the run of an abandoned session: %+v, %v", v, err)
	}
	again, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "double", Input: json.RawMessage(`{"n":1}`), Session: a.file.Key()})
	if err != nil || !again.Created {
		t.Errorf("a start after that: %+v, %v", again, err)
	}
	if err := rt.AbandonSession(bg, a.file.Key()); err != nil {
		t.Errorf("given up again: %v", err)
	}
	if v, err := rt.Status(bg, again.Run); err != nil || v.Status != view.Cancelled {
		t.Errorf("the second run: %+v, %v", v, err)
	}
}

// deliverytestBridge is a bridge that nobody gets to ask.
type deliverytestBridge struct{ delivery.Session }
