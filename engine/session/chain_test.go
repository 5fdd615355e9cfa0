package session_test

import (
	"errors"
	"testing"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

func TestChainStart(t *testing.T) {
	for _, c := range []struct {
		why        string
		chain      session.Chain
		turn       session.Turn
		correction bool
		recoveries uint8 // after it, when it is allowed
		ok         bool
	}{
		{"the first recovery", session.Chain{}, session.Turn{}, false, 1, true},
		{"the second", session.Chain{Recoveries: 1}, session.Turn{}, false, 2, true},
		{"no third in a chain", session.Chain{Recoveries: session.MaxRecoveries}, session.Turn{}, false, 0, false},
		{"one in a turn", session.Chain{}, session.Turn{Starts: session.MaxStartsPerTurn}, false, 0, false},
		{"a correction of a failed launch spends nothing", session.Chain{Recoveries: session.MaxRecoveries}, session.Turn{}, true, 2, true},
		{"but one in a turn holds for it, too", session.Chain{}, session.Turn{Starts: 1}, true, 0, false},
		{"a stopped chain gains nothing", session.Chain{Stopped: true}, session.Turn{}, true, 0, false},
	} {
		next, err := c.chain.Start(c.turn, c.correction)
		want := c.chain
		if c.ok {
			want.Recoveries = c.recoveries
		}
		if !c.ok != errors.Is(err, launch.ErrOverBudget) || c.ok != (err == nil) {
			t.Errorf("%s: %v", c.why, err)
		}
		if diff := cmp.Diff(want, next); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

// Ten failed launches in a row are told, then no more, however many follow,
// until a run of the chain has run.
func TestChainLaunchFailed(t *testing.T) {
	var c session.Chain
	for n := 1; n <= 300; n++ {
		var within bool
		if c, within = c.LaunchFailed(); within != (n <= session.MaxCorrections) {
			t.Fatalf("failure %d in a row is within the budget: %v", n, within)
		}
	}
	if _, within := c.Ran().LaunchFailed(); !within {
		t.Error("a run that ran does not begin the count anew")
	}
}
