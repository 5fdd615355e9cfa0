package sessiontest_test

import (
	"fmt"
	"testing"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/session/sessiontest"
	"pgregory.net/rapid"
)

const steps = 120

// Whatever happens, every invariant holds, and when nothing goes wrong any more
// every message comes to an end.
func TestWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := sessiontest.NewWorld()
		for range steps {
			if err := w.Do(w.Draw(t)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Quiesce(); err != nil {
			t.Fatal(err)
		}
	})
}

// The steps that are drawn are worth their time: everything happens.
func TestEverythingHappens(t *testing.T) {
	happened := map[string]int{}
	world := rapid.Custom(func(t *rapid.T) *sessiontest.World {
		w := sessiontest.NewWorld()
		for range steps {
			w.Do(w.Draw(t)) // checked by TestWorld
		}
		return w
	})
	for seed := range 600 {
		for name, n := range world.Example(seed).Happened() {
			happened[name] += n
		}
	}
	t.Log(happened)
	names := []string{
		"answer taken", "answer present", "answer occupied", "answer refused", "late answer", "abort",
		"own none", "own active", "own settled", "queued issue 2", "queued issue 3", "blocked issue 1",
	}
	for k := session.EvConnected; k <= session.EvCancelled; k++ {
		names = append(names, k.String())
	}
	for _, c := range []session.Command{
		session.Connect{}, session.Disconnect{}, session.Input{}, session.TurnStarted{}, session.TurnSettled{}, session.Report{},
		session.Try{}, session.Answer{}, session.Queue{}, session.Cancel{}, session.EndRun{}, session.Abandon{}, session.Reopen{}, session.Free{}, session.CountStart{},
	} {
		names = append(names, fmt.Sprintf("%T", c))
	}
	for _, op := range sessiontest.Ops() {
		names = append(names, string(op))
	}
	for _, name := range names {
		if happened[name] == 0 {
			t.Errorf("it never happens: %s", name)
		}
	}
}
