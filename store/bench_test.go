package store_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/yardstick"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

var benchPlan = &run.Plan{MaxSteps: 100, Start: "only", Nodes: []run.Node{{Path: "only", Kind: run.Compute}}}

// lifecycle takes one headless run from nothing to done: reserve, claim and
// start in one transaction, one step settled with the end. Four transitions, as
// the yardstick makes, in three commits, with the run record and the step on top.
func lifecycle(ctx context.Context, s *store.Store, token launch.Digest) error {
	id, err := s.NewID()
	if err != nil {
		return err
	}
	started, generation, err := begun(ctx, s, id, token)
	if err != nil {
		return err
	}
	next, err := store.Do(ctx, s, store.Propose{
		Run: started, Authority: launch.Authority{Runner: "bench", Token: token, Generation: generation},
		Plan: benchPlan, Node: "only", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte(`1`),
	})
	if err == nil && !next.Ended {
		err = fmt.Errorf("the run did not end: %+v", next)
	}
	return err
}

// begun takes a headless run from nothing to running.
func begun(ctx context.Context, s *store.Store, id string, token launch.Digest) (launch.RunID, uint64, error) {
	digest := launch.Digest{1}
	started, err := store.Do(ctx, s, store.Start{Request: launch.Request{
		ID: launch.NewRunID("bench", id), Workflow: "bench", Source: "bench", Digest: digest, Mode: launch.Headless,
		Input: []byte(`{"n":1}`), Actor: launch.Host,
	}})
	if err != nil {
		return "", 0, err
	}
	claimed, err := store.Do(ctx, s, store.Claim{Run: started.Run, Runner: "bench", Token: token, Lease: launch.DefaultLease,
		Digest: digest, Source: "bench", Plan: benchPlan, Capacity: 2000, Begin: true})
	return started.Run, claimed.Generation, err
}

func storeArm(callers int) yardstick.Arm {
	return yardstick.Arm{Name: fmt.Sprintf("store-%d", callers), Callers: callers, Commands: yardstick.CommandsPerLifecycle,
		Setup: func(dir string) (func(int) error, func() error, error) {
			s, err := store.Open(filepath.Join(dir, "store.db"), store.Options{})
			if err != nil {
				return nil, nil, err
			}
			var n atomic.Uint64
			return func(int) error {
				var token launch.Digest
				binary.BigEndian.PutUint64(token[:], n.Add(1))
				return lifecycle(context.Background(), s, token)
			}, s.Close, nil
		}}
}

// BenchmarkLifecycle compares the store with the floor and the hand-written
// yardstick in one run.
func BenchmarkLifecycle(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			yardstick.Compare(b, yardstick.FloorArm(), yardstick.YardstickArm(callers), storeArm(callers))
		})
		b.Run(fmt.Sprint(callers, "-random-ids"), func(b *testing.B) {
			yardstick.Compare(b, yardstick.RandomIDsArm(callers), storeArm(callers))
		})
	}
}
