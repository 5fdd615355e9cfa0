package store_test

import (
	"testing"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
)

// An action that took effect is not tried again because its output is lost: what
// it did would be done twice.
func TestHappenedIsNotRetried(t *testing.T) {
	for _, c := range []struct {
		why     string
		applied bool
		want    run.Status
	}{
		{"it failed and nothing happened: tried again", false, run.Running},
		{"it happened and its output cannot be stored: not again", true, run.RunFailed},
	} {
		s := store.New(storetest.Memory(), store.Options{})
		plan := &run.Plan{MaxSteps: 9, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: run.Unrepeatable,
			Retry: &run.Retry{Max: 3, On: []run.Outcome{run.Failed}}}}}
		r := headless(t, s)
		started, err := store.Do(bg, s, store.Start{Request: r})
		if err != nil {
			t.Fatal(err)
		}
		token := launch.Digest{1}
		claimed, err := store.Do(bg, s, store.Claim{Run: started.Run, Runner: "A", Token: token, Lease: launch.DefaultLease, Digest: r.Digest, Source: r.Source,
			Plan: plan, Capacity: 1, Begin: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Do(bg, s, store.Propose{Run: started.Run, Authority: launch.Authority{Runner: "A", Token: token, Generation: claimed.Generation}, Plan: plan,
			Node: "pay", Visit: 1, Attempt: 1, Outcome: run.Failed, Applied: c.applied,
			Failure: launch.NewSafeError(launch.CodeNodeFailed, "its output cannot be stored")}); err != nil {
			t.Fatal(err)
		}
		f, err := s.Facts(bg, started.Run)
		if err != nil || f.Run.Status != c.want {
			t.Errorf("%s: the run is %v, %v; want %v", c.why, f.Run.Status, err, c.want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
