package launchtest_test

import (
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
	"pgregory.net/rapid"
)

// TestSequencesAreHalfLegal counts over 10^4 drawn operations: 35 to 65 % are
// accepted, and every edge is taken by every command that the table names.
func TestSequencesAreHalfLegal(t *testing.T) {
	const worlds, ops = 100, 100
	sequence := rapid.Custom(func(t *rapid.T) launchtest.Trace {
		w := launchtest.NewWorld()
		for range ops {
			w.Do(launchtest.Draw(t, w))
		}
		return w.Trace
	})
	accepted := 0
	type edge struct {
		from, to launch.State
		by       launch.CommandKind
	}
	taken := map[edge]int{}
	refused := map[launch.Kind]int{}
	rare := map[string]int{"no_progress": 0, "source_changed": 0, "effect_ambiguous": 0, "prompts_lost": 0, "third expiry": 0, "clock distrusted": 0, "renewed after expiry": 0, "adopted": 0,
		"host's pause lifted": 0, "host's pause lifted, attention stays": 0, "person's pause on top of the host's": 0, "attention answered": 0, "attention answered under a pause": 0, "attended while due": 0}
	for seed := range worlds {
		for _, e := range sequence.Example(seed) {
			if e.Err == nil {
				accepted++
			} else {
				refused[kindOf(e.Err)]++
			}
			if e.Now.Distrust {
				rare["clock distrusted"]++
			}
			if e.Err == nil && e.Kind() == launch.CmdRenew && e.Before.Claim.Expired(e.Now) {
				rare["renewed after expiry"]++
			}
			if e.Err == nil && e.Kind() == launch.CmdReserve && len(e.Events) == 0 {
				rare["adopted"]++
			}
			if e.Err == nil && len(e.Events) > 0 {
				after := e.After.Park
				switch c := e.Command.(type) {
				case launch.ResumeCommand:
					if c.Actor == launch.Host && after == launch.ParkAttention {
						rare["host's pause lifted, attention stays"]++
					} else if c.Actor == launch.Host {
						rare["host's pause lifted"]++
					}
				case launch.PauseCommand:
					if e.Before.HostPause {
						rare["person's pause on top of the host's"]++
					}
				case launch.WakeCommand:
					if after == launch.ParkPaused {
						rare["attention answered under a pause"]++
					} else if e.Before.Park == launch.ParkAttention {
						rare["attention answered"]++
					}
				case launch.AttendCommand:
					if e.Before.Park == launch.ParkDue {
						rare["attended while due"]++
					}
				}
			}
			for _, ev := range e.Events {
				if _, ok := rare[ev.Attention.String()]; ok {
					rare[ev.Attention.String()]++
				}
				if ev.Code == launch.CodeActivationFailed && e.Kind() == launch.CmdRecover {
					rare["third expiry"]++
				}
				taken[edge{ev.From, ev.To, e.Kind()}]++
			}
		}
	}
	t.Logf("%d of %d accepted, refused by kind: %v", accepted, worlds*ops, refused)
	if percent := accepted * 100 / (worlds * ops); percent < 35 || percent > 65 {
		t.Errorf("%d %% of the operations are legal; it must be 35 to 65", percent)
	}
	for _, e := range launch.Table() {
		for _, c := range e.By {
			if n := taken[edge{e.From, e.To, c}]; n == 0 {
				t.Errorf("%s -> %s by %s is never taken", e.From, e.To, c)
			} else {
				t.Logf("%s -> %s by %s: %d", e.From, e.To, c, n)
			}
		}
	}
	for what, n := range rare {
		if n == 0 {
			t.Errorf("it never happens: %s", what)
		}
	}
	t.Log(rare)
	for _, k := range []launch.Kind{launch.ErrInvalid, launch.ErrNotAllowed, launch.ErrNotFound, launch.ErrConflict, launch.ErrStale, launch.ErrEnded, launch.ErrExpired, launch.ErrPaused, launch.ErrSessionBusy} {
		if refused[k] == 0 {
			t.Errorf("nothing is ever refused as %s", k)
		}
	}
}

// TestInvariants runs generated sequences and checks every invariant.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := launchtest.NewWorld()
		t.Repeat(map[string]func(*rapid.T){
			"op": func(t *rapid.T) {
				op := launchtest.Draw(t, w)
				t.Log(op)
				if _, err := w.Do(op); err != nil {
					if err := launchtest.SecretHidden(launchtest.Secret, err); err != nil {
						t.Fatal(err)
					}
				}
			},
			"": func(t *rapid.T) {
				if err := launchtest.CheckRows(w.Launches); err != nil {
					t.Fatal(err)
				}
				for i := range w.Launches {
					if err := launchtest.RecordAgrees(&w.Launches[i], w.Records[i].Status); err != nil {
						t.Fatal(err)
					}
				}
			},
		})
		if err := w.Trace.Check(); err != nil {
			t.Fatal(err)
		}
		for _, e := range w.Trace {
			for _, secret := range []string{launchtest.Secret, "token-"} {
				if err := launchtest.SecretHidden(secret, e.After, e.Events, e.Err); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestAnyCommandOnAnyLaunch: whatever a confused caller sends, nothing panics,
// a refusal changes nothing, and what is accepted keeps the invariants.
func TestAnyCommandOnAnyLaunch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := launchtest.NewWorld()
		for range rapid.IntRange(1, 20).Draw(t, "history") {
			w.Do(launchtest.Draw(t, w))
		}
		if len(w.Launches) == 0 {
			t.Skip("no launch")
		}
		l := w.Launches[rapid.IntRange(0, len(w.Launches)-1).Draw(t, "launch")]
		w.Do(launchtest.Op{Run: l.ID, Command: launchtest.Commands().Draw(t, "command")})
		if err := w.Trace.Check(); err != nil {
			t.Fatal(err)
		}
		if err := launchtest.CheckRows(w.Launches); err != nil {
			t.Fatal(err)
		}
	})
}
