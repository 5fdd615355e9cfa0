package store_test

import (
	"context"
	"path/filepath"
	"testing"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

var plan = &run.Plan{MaxSteps: 100, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}}}

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	s, err := store.Open(filepath.Join(t.TempDir(), "x.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Subscribe(func(es []store.Event) {
		for _, e := range es {
			t.Logf("%+v", e)
		}
	})
	id, _ := s.NewID()
	d := launch.DigestOf([]byte("d"))
	st, err := store.Do(ctx, s, store.Start{Request: launch.Request{ID: launch.NewRunID("w", id), Workflow: "w", Source: "src", Digest: d, Mode: launch.Headless, Input: []byte("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	tok, _ := s.NewToken()
	cl, err := store.Do(ctx, s, store.Claim{Run: st.Run, Runner: "r", Token: tok.Hash(), Lease: launch.DefaultLease, Digest: d, Source: "src", Plan: plan, Capacity: 4, Begin: true})
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.Do(ctx, s, store.Propose{Run: st.Run, Authority: launch.Authority{Runner: "r", Token: tok.Hash(), Generation: cl.Generation}, Plan: plan, Node: cl.Next.Node, Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte(`1`)})
	if err != nil || !n.Ended {
		t.Fatal(n, err)
	}
	// interactive
	key, _ := launch.NewSessionKey("s1", "/tmp/s1")
	ep, err := store.Do(ctx, s, store.Connect{Session: key, Connect: session.Connect{Host: "r", Process: "p", Durable: true}})
	if err != nil {
		t.Fatal(err)
	}
	obs := func(c session.Command) store.Seen {
		t.Helper()
		seen, err := store.Do(ctx, s, store.Observe{Session: key, Saw: c})
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	obs(session.TurnStarted{Epoch: ep, Turn: "t1"})
	id, _ = s.NewID()
	st, err = store.Do(ctx, s, store.Start{Request: launch.Request{ID: launch.NewRunID("w", id), Workflow: "w", Source: "src", Digest: d, Mode: launch.Interactive, Session: key, Actor: launch.Model, Input: []byte("{}")}, Epoch: ep})
	if err != nil {
		t.Fatal(err)
	}
	claim := store.Claim{Run: st.Run, Runner: "r", Token: tok.Hash(), Lease: launch.DefaultLease, Digest: launch.DigestOf([]byte("other")), Source: "src", Plan: plan, Capacity: 4, Begin: true}
	if _, err := store.Do(ctx, s, claim); err == nil {
		t.Fatal("claimed inside the turn")
	} else {
		t.Log(err)
	}
	obs(session.TurnSettled{Epoch: ep, Turn: "t1", End: session.Completed})
	obs(session.Report{Epoch: ep, Idle: true})
	cl, err = store.Do(ctx, s, claim)
	if err != nil || cl.State != launch.Failed {
		t.Fatal(cl, err)
	}
	send, err := store.Do(ctx, s, store.Try{Session: key, Epoch: ep, Token: tok.Hash()})
	if err != nil || send.Message == nil {
		t.Fatal(send, err)
	}
	t.Logf("%s", send.Message.Body)
	if _, err := store.Do(ctx, s, store.Answer{Session: key, Answer: session.Answer{Message: send.Message.ID, Token: tok.Hash(), Verdict: session.Taken}}); err != nil {
		t.Fatal(err)
	}
	if seen := obs(session.TurnStarted{Epoch: ep, Turn: "t2", Message: send.Message.ID}); seen.Own != session.Owned {
		t.Fatal(seen)
	}
	obs(session.Report{Epoch: ep, Evidence: []session.Evidence{{Message: send.Message.ID, Present: true, Durable: true}}})
	obs(session.TurnSettled{Epoch: ep, Turn: "t2", End: session.Completed})
	a, _ := s.Asked(ctx, key)
	t.Logf("%+v", a)
	is, _ := s.Intents(ctx, key)
	if len(is) != 0 {
		t.Fatal(is)
	}
}
