package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// A full disk refuses and loses nothing, and a host with space goes on.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	small, err := store.OpenSQLite(path, store.SQLiteOptions{MaxPages: 120})
	if err != nil {
		t.Fatal(err)
	}
	w := engine.New[struct{ Text string }]("keep", "1")
	engine.Compute(w, "length", w.Input(), func(_ context.Context, in struct{ Text string }) (int, error) { return len(in.Text), nil })
	keep, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	// Nobody runs them meanwhile: the host that fills the disk is of another source.
	rt := host(t, piworkflows.Options{Engine: small, Source: "a"}, keep)
	input := json.RawMessage(`{"Text":"` + strings.Repeat("x", 60_000) + `"}`)
	var kept []launch.RunID
	for {
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "keep", Input: input, Session: deliverytest.NewFile("s", fmt.Sprint("/", len(kept))).Key()})
		if err != nil {
			var r *launch.Refusal
			if !errors.As(err, &r) || r.Kind != launch.ErrFull || !r.Kind.Retryable() {
				t.Fatalf("a start on a full disk: %v, want %v", err, launch.ErrFull)
			}
			break
		}
		if kept = append(kept, s.Run); len(kept) > 100 {
			t.Fatal("the bound has no effect")
		}
	}
	if len(kept) == 0 {
		t.Fatal("nothing fits")
	}
	for _, id := range kept {
		if v, err := rt.Status(bg, id); err != nil || v.LaunchState != "queued" {
			t.Errorf("run %s is %s, %v", id, v.LaunchState, err)
		}
	}
	if err := rt.Close(bg); err != nil {
		t.Errorf("Close on a full disk: %v", err)
	}
	again := host(t, piworkflows.Options{Path: path, Source: "a"}, keep)
	for _, id := range kept {
		if c, err := again.Cancel(bg, id, launch.Host); err != nil || !c.Won {
			t.Errorf("with space again, run %s: %+v, %v", id, c, err)
		}
	}
	if _, err := again.Start(bg, piworkflows.StartOptions{Workflow: "keep", Input: input}); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

// A disk that gets full while runs are under way ends none of them: they go on
// once there is space.
func TestDiskFillsUnderRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.db")
	small, err := store.OpenSQLite(path, store.SQLiteOptions{MaxPages: 90})
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	all, settled := make(chan bool, 16), make(chan bool, 16)
	w := engine.New[number]("big", "1")
	engine.Compute(w, "out", w.Input(), func(context.Context, number) (string, error) {
		if made.Add(1) == 8 {
			all <- true
		}
		return strings.Repeat("x", 100_000), nil
	})
	big, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := piworkflows.Open(piworkflows.Options{Engine: small, Workflows: []*engine.Workflow{big}, Capacity: 8, Lease: launch.MinLease,
		Observe: func(e store.Event) {
			if e.Kind == "run.settled" {
				settled <- true
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	var kept []launch.RunID
	for range 8 {
		s, err := rt.Start(bg, piworkflows.StartOptions{Workflow: "big"})
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, s.Run)
	}
	<-all // of the outputs, of which not all find space
	<-settled
	now, cancel := context.WithCancel(bg)
	cancel()
	if err := rt.Close(now); err != nil {
		t.Errorf("Close on a full disk: %v", err)
	}
	if rows := query(t, path, `SELECT count(*) FROM workflow_run_queue WHERE state = 5`); rows[0] == "8" {
		t.Fatal("the disk did not fill")
	}
	again := host(t, piworkflows.Options{Path: path, Capacity: 8, Lease: launch.MinLease}, big)
	for _, id := range kept {
		if v, err := again.Wait(bg, id); err != nil || v.LaunchState != "done" {
			t.Errorf("with space again run %s ends %s %s, %v", id, v.LaunchState, v.ErrorText, err)
		}
	}
}
