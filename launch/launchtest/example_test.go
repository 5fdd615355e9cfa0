package launchtest_test

import (
	"fmt"
	"time"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
)

// A world answers operations as a store must. Give the same ones to your own
// store, compare, and check the invariants of both. A generated sequence comes
// from [launchtest.Draw]; this one is written out.
func Example() {
	w := launchtest.NewWorld()
	start := launch.Request{
		ID: "demo-00000000000000000000000001", Workflow: "demo", Source: "docs", Digest: launch.DigestOf([]byte("graph")),
		Mode: launch.Headless, Input: []byte(`{"task":"write"}`),
	}
	holder := launch.Authority{Runner: "runner-a", Token: launch.DigestOf([]byte("random")), Generation: 1}
	for _, op := range []launchtest.Op{
		{Request: &start},
		{Run: start.ID, Command: launch.ClaimCommand{Authority: holder, Lease: 30 * time.Second, Digest: start.Digest}},
		{Run: start.ID, Command: launch.StartCommand{Authority: holder}},
		{Run: start.ID, Command: launch.RecoverCommand{Generation: 1, Record: launch.Record{Status: launch.RecordRunning}}, Wait: 31 * time.Second},
		{Run: start.ID, Command: launch.FinishCommand{Authority: holder}},
	} {
		events, err := w.Do(op)
		for _, e := range events {
			fmt.Println(e.Kind, e.From, "->", e.To)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("broken rows:", launchtest.CheckRows(w.Launches))
	fmt.Println("broken trace:", w.Trace.Check())
	// Output:
	// reserved none -> queued
	// claimed queued -> starting
	// started starting -> running
	// recovered running -> parked
	// stale (missingAuthority): run demo-00000000000000000000000001: nobody holds a claim any more; stop and write nothing more
	// broken rows: <nil>
	// broken trace: <nil>
}
