package launch_test

import (
	"testing"

	"example.com/piworkflows/launch"
)

// cheap lists one legal command of each kind with the launch that it is for.
func cheap() map[string]struct {
	l launch.Launch
	c launch.Command
} {
	all := map[string]struct {
		l launch.Launch
		c launch.Command
	}{}
	add := func(s situation, c launch.Command) {
		l, _ := s.build()
		all[c.Kind().String()] = struct {
			l launch.Launch
			c launch.Command
		}{l, c}
	}
	running := situation{State: "running", Record: true, Expiry: lease}
	add(situation{State: "queued"}, launch.ClaimCommand{Authority: launch.Authority{Runner: "r", Token: tokenA}, Lease: lease, Digest: pinned})
	add(situation{State: "starting", Expiry: lease}, launch.StartCommand{Authority: own()})
	add(running, launch.RenewCommand{Authority: own(), Lease: lease})
	add(running, launch.ReleaseCommand{Authority: own(), Record: launch.Record{Status: launch.RecordRunning}})
	add(running, launch.ParkCommand{Authority: own(), Why: launch.ParkWaiting})
	add(situation{State: "parked", Record: true, Park: "waiting"}, launch.WakeCommand{})
	add(situation{State: "parked", Record: true, Park: "waiting"}, launch.AttendCommand{Attention: launch.PromptsLost})
	add(running, launch.PauseCommand{Actor: launch.Person})
	add(situation{State: "parked", Record: true, Park: "paused"}, launch.ResumeCommand{Actor: launch.Person})
	add(running, launch.FinishCommand{Authority: own()})
	add(running, launch.FailCommand{Authority: own(), Error: nodeFailed})
	add(situation{State: "parked", Record: true, Park: "due"}, launch.SettleCommand{})
	add(running, launch.CancelCommand{Actor: launch.Person})
	add(situation{State: "running", Record: true}, launch.RecoverCommand{Generation: 7, Record: launch.Record{Status: launch.RecordRunning}})
	return all
}

// A legal command costs at most two allocations: its working copy and its
// events.
func TestApplyAllocations(t *testing.T) {
	now := launch.Now{Wall: wall}
	all := cheap()
	for k := launch.CmdClaim; k.String() != "unknown"; k++ {
		x, ok := all[k.String()]
		if !ok {
			t.Errorf("no case for %s", k)
			continue
		}
		var err error
		n := testing.AllocsPerRun(100, func() { _, _, err = launch.Apply(x.l, x.c, now) })
		if err != nil || n > 2 {
			t.Errorf("%s: %v allocations, want at most 2; %v", k, n, err)
		}
	}
	r := start()
	if n := testing.AllocsPerRun(100, func() { _, _, _ = launch.Reserve(r, now) }); n > 2 {
		t.Errorf("reserve: %v allocations, want at most 2", n)
	}
}

// BenchmarkApply is the cost of the rules alone; it should vanish beside a
// commit.
func BenchmarkApply(b *testing.B) {
	now := launch.Now{Wall: wall}
	for name, x := range cheap() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := launch.Apply(x.l, x.c, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
