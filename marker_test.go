package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// collector keeps everything that is written to it.
type collector struct {
	mu   sync.Mutex
	text strings.Builder
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

// check fails if what was collected, called what, tells the input.
func (c *collector) check(t *testing.T, what string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(c.text.String()) {
		if strings.Contains(line, marker) {
			t.Errorf("%s tell the input: %s", what, line)
		}
	}
}

type secret struct {
	How string `json:"how"`
}

// leaky fails in every way that user code can fail in, with the input on its
// lips.
func leaky(how string) *engine.Workflow {
	w := engine.New[secret](how, "1")
	fail := func(in secret) (string, error) {
		switch how {
		case "panics":
			panic(in.How)
		case "panics-error":
			panic(fmt.Errorf("wrapped: %w", errors.New(in.How)))
		case "errs":
			return "", errors.New(in.How)
		case "errs-wrapped":
			return "", fmt.Errorf("%s: %w", in.How, &os.PathError{Op: "open", Path: in.How, Err: os.ErrNotExist})
		case "cause":
			return "", engine.Explain("it went wrong", errors.New(in.How))
		case "exits":
			return in.How, io.EOF
		}
		return in.How, nil
	}
	switch how {
	case "acts", "unknown":
		engine.Action(w, "act", w.Input(), func(_ context.Context, a engine.Attempt, in secret) (string, error) {
			if how == "unknown" {
				return "", engine.Unknown(errors.New(in.How))
			}
			panic(in.How)
		}, engine.Unrepeatable())
	case "checks":
		w.Validate(func(in secret) error {
			if strings.HasSuffix(in.How, "bad") {
				return errors.New(in.How)
			}
			return nil
		})
		w.OnActivate(func(_ context.Context, in secret) error { return errors.New(in.How) })
		fallthrough
	default:
		engine.Compute(w, "node", w.Input(), func(_ context.Context, in secret) (string, error) { return fail(in) })
	}
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// Private input is where it has to be, and nowhere else: not in a result, an
// event, a log line, a message, a status, or another column of the file.
func TestPrivateInputStaysPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	var events, logs, results collector
	var workflows []*engine.Workflow
	ways := []string{"fine", "panics", "panics-error", "errs", "errs-wrapped", "cause", "exits", "acts", "unknown", "checks"}
	for _, how := range ways {
		workflows = append(workflows, leaky(how))
	}
	rt := host(t, piworkflows.Options{
		Path:    path,
		Observe: func(e store.Event) { fmt.Fprintf(&events, "%+v\n", e) },
		Log:     slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, workflows...)
	note := func(v ...any) { fmt.Fprintf(&results, "%+v\n", v) }
	input := `{"how":"` + marker + `"}`
	for n, how := range ways {
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: how, Input: json.RawMessage(input), Scope: "s", RequestKey: how})
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		_, err = rt.Start(bg, piworkflows.StartOptions{Workflow: how, Input: json.RawMessage(`{"how":"` + marker + `-bad"}`), Scope: "s", RequestKey: how})
		note(err)
		if err == nil {
			t.Errorf("%s: another input under the same key is adopted", how)
		}

		a := connect(t, rt, fmt.Sprint("s", n), nil)
		r := a.call(`{"action":"start","workflow":"`+how+`","input":`+input+`}`, "k")
		note(r.Text, string(r.Details))
		run := runID(t, r)
		r = a.call(`{"action":"start","workflow":"`+how+`","input":{"how":"`+marker+`-bad"}}`, "k")
		note(r.Text, string(r.Details))
		for _, id := range []launch.RunID{s.Run, run} {
			if how == "acts" || how == "unknown" { // it waits for a person
				until(t, how+" waits for a person", func() bool { v, err := rt.Status(bg, id); return err == nil && v.Status == "ambiguous" })
				note(rt.Resume(bg, id))
				v, err := rt.Status(bg, id)
				note(v, err)
				note(rt.Cancel(bg, id, launch.Host))
			}
			v, err := rt.Wait(bg, id)
			note(v, v.Error, err)
		}
		r = a.call(`{"action":"status"}`, "k")
		note(r.Text, string(r.Details))
		// The message about the end has arrived, or none is owed.
		s2 := openStore(t, path)
		until(t, "nothing is owed for "+how, func() bool {
			pending, err := s2.Intents(bg, a.file.Key())
			return err == nil && len(pending) == 0
		})
		a.pi.Wait()
		for _, e := range a.file.Entries() {
			if e.Role == deliverytest.Custom {
				note(e.Text, string(e.Details))
			}
		}
	}
	if err := rt.Close(bg); err != nil {
		t.Fatal(err)
	}
	results.check(t, "results")
	events.check(t, "events")
	logs.check(t, "log lines")

	allowed := map[string]bool{"workflow_run_queue.input": true, "workflow_runs.input": true, "workflow_steps.output": true}
	found := 0
	for _, table := range store.Schema {
		for _, c := range table.Columns {
			column := table.Name + "." + c.Name
			rows := query(t, path, "SELECT count(*) FROM "+table.Name+" WHERE instr(CAST("+c.Name+" AS BLOB), CAST('"+marker+"' AS BLOB)) > 0")
			if rows[0] == "0" {
				continue
			}
			if found++; !allowed[column] {
				t.Errorf("%s rows of %s tell the input", rows[0], column)
			}
		}
	}
	if found != 2 {
		t.Errorf("the marker is in %d columns; the test looks for it in vain unless it is in run inputs and outputs", found)
	}
	if rows := query(t, path, `SELECT count(*) FROM workflow_run_queue WHERE input IS NOT NULL`); rows[0] != "0" {
		t.Errorf("%s launches keep their input after the start", rows[0])
	}
}
