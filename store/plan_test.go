package store

import (
	"context"
	"testing"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// narrow refuses what reads a whole index, which is the only plan that
// TestPlans allows to be a scan.
type narrow struct {
	Engine
	t *testing.T
}

type narrowRows struct {
	Rows
	t *testing.T
}

func (n narrow) Update(ctx context.Context, fn func(Rows) error) error {
	return n.Engine.Update(ctx, func(rows Rows) error { return fn(narrowRows{rows, n.t}) })
}

func (n narrow) View(ctx context.Context, fn func(Rows) error) error {
	return n.Engine.View(ctx, func(rows Rows) error { return fn(narrowRows{rows, n.t}) })
}

func (r narrowRows) Scan(ix *Index, prefix []Value, limit int, row Row, each func() bool) error {
	if len(prefix) == 0 {
		r.t.Errorf("a command or a read visits all of %s", ix.Name)
	}
	return r.Rows.Scan(ix, prefix, limit, row, each)
}

func (r narrowRows) Count(ix *Index, prefix []Value) (int, error) {
	if len(prefix) == 0 {
		r.t.Errorf("a command or a read counts all of %s", ix.Name)
	}
	return r.Rows.Count(ix, prefix)
}

// No command and no read has a scan in its plan.
func TestNobodyReadsAnIndexWhole(t *testing.T) {
	ctx, c := context.Background(), clock.NewManual(launch.TimeOf(time.Unix(1_800_000_000, 0)))
	s := New(narrow{openTemp(t, SQLiteOptions{}), t}, Options{Clock: c})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const key = launch.SessionKey("s@0123456789abcdef0123456789abcdef")
	plan := &run.Plan{MaxSteps: 9, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Action, Policy: 1}}}
	pinned, token := launch.Digest{1}, launch.Digest{2}
	start := func(r launch.Request, epoch uint64) launch.RunID {
		id, err := s.NewID()
		must(err)
		r.ID, r.Workflow, r.Source, r.Digest, r.Input, r.Actor = launch.NewRunID("w", id), "w", "src", pinned, []byte("{}"), launch.Model
		started, err := Do(ctx, s, Start{Request: r, Epoch: epoch})
		must(err)
		return started.Run
	}
	claim := func(id launch.RunID, digest launch.Digest, lost uint64) Claimed {
		claimed, err := Do(ctx, s, Claim{Run: id, Runner: "r", Token: token, Lease: launch.DefaultLease, Digest: digest, Source: "src",
			Plan: plan, Capacity: 9, Begin: true, Lost: lost > 0, Generation: lost})
		must(err)
		return claimed
	}
	look := func(id launch.RunID) {
		_, err := s.Claims(ctx, 9)
		must(err)
		_, _, err = s.Ready(ctx, 9)
		must(err)
		_, _, _, err = s.Reserved(ctx, key)
		must(err)
		_, err = s.Facts(ctx, id)
		must(err)
		_, err = s.Asked(ctx, key)
		must(err)
		_, _, err = s.Output(ctx, id, "a")
		must(err)
	}

	id := start(launch.Request{Mode: launch.Headless, Scope: "host", RequestKey: "k"}, 0)
	claim(id, pinned, 0)
	look(id)
	_, err := Do(ctx, s, Renew{Run: id, Authority: launch.Authority{Runner: "r", Token: token, Generation: 1}, Lease: launch.DefaultLease})
	must(err)
	c.Advance(time.Hour)
	next := claim(id, pinned, 1)
	_, err = Do(ctx, s, Propose{Run: id, Authority: launch.Authority{Runner: "r", Token: token, Generation: next.Generation}, Plan: plan,
		Node: "a", Visit: 1, Attempt: next.Next.Attempt, Outcome: run.OK, Output: []byte(`1`)})
	must(err)
	look(id)

	epoch, err := Do(ctx, s, Connect{Session: key, Connect: session.Connect{Host: "r", Process: "p", Durable: true}})
	must(err)
	observe := func(saw session.Command) {
		_, err := Do(ctx, s, Observe{Session: key, Saw: saw})
		must(err)
	}
	id = start(launch.Request{Mode: launch.Interactive, Session: key}, epoch)
	observe(session.Report{Epoch: epoch, Idle: true})
	if claimed := claim(id, launch.Digest{3}, 0); claimed.State != launch.Failed {
		t.Fatalf("a changed definition leaves the launch %s", claimed.State)
	}
	look(id)
	send, err := Do(ctx, s, Try{Session: key, Epoch: epoch, Token: token})
	must(err)
	if send.Message == nil {
		t.Fatalf("nothing is sent: %s", send.Why)
	}
	_, err = Do(ctx, s, Answer{Session: key, Answer: session.Answer{Message: send.Message.ID, Token: token, Verdict: session.Taken}})
	must(err)
	observe(session.TurnStarted{Epoch: epoch, Turn: "t", Message: send.Message.ID})
	observe(session.TurnSettled{Epoch: epoch, Turn: "t", End: session.Completed})
	observe(session.Report{Epoch: epoch, Idle: true, Evidence: []session.Evidence{{Message: send.Message.ID, Present: true, Durable: true}}})
	_, err = Do(ctx, s, Cancel{Run: id, Actor: launch.Person})
	must(err)
	look(id)
}
