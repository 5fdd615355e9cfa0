package launch_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
	"github.com/google/go-cmp/cmp"
)

// start is a sound request that sets every field.
func start() launch.Request {
	return launch.Request{
		ID: runID, Workflow: "demo", Source: "src", Digest: pinned, Mode: launch.Interactive, Session: sessionID,
		Group: "team", Input: []byte(`{"a":1}`), Options: []byte(`{"o":1}`), Scope: string(sessionID), RequestKey: "key",
		InitiatingTurn: "turn-1", Parent: "demo-00000000000000000000000001", Chain: "demo-00000000000000000000000001", Actor: launch.Model,
	}
}

func TestReserve(t *testing.T) {
	r := start()
	l, events, err := launch.Reserve(r, launch.Now{Wall: wall})
	if err != nil {
		t.Fatal(err)
	}
	want := launch.Launch{
		ID: r.ID, Workflow: r.Workflow, Source: r.Source, Digest: r.Digest, Mode: r.Mode, Session: r.Session,
		Group: r.Group, Input: r.Input, Options: r.Options, Scope: r.Scope, RequestKey: r.RequestKey,
		Content: launch.DigestOf(r.Input), InitiatingTurn: r.InitiatingTurn, Parent: r.Parent, Chain: r.Chain,
		State: launch.Queued, Ready: wall, Created: wall, Updated: wall,
	}
	if d := cmp.Diff(want, l); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]launch.Event{{Kind: launch.EvReserved, To: launch.Queued, Actor: launch.Model}}, events); d != "" {
		t.Error(d)
	}
	if err := launchtest.CheckRows([]launch.Launch{l}); err != nil {
		t.Error(err)
	}
	r.Chain = ""
	if l, _, _ := launch.Reserve(r, launch.Now{Wall: wall}); l.Chain != r.ID {
		t.Errorf("a run without a chain begins one of its own, got %q", l.Chain)
	}
}

// TestReserveBounds tries every field at its limit and one beyond it.
func TestReserveBounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("k", n) }
	header := func(n int) launch.SessionKey {
		return launch.SessionKey(long(n-33) + "@0123456789abcdef0123456789abcdef")
	}
	for _, c := range []struct {
		field, why string
		set        func(*launch.Request, int)
		good, bad  []int
	}{
		{"workflow name", "1 to 64 of [a-z0-9-]", func(r *launch.Request, n int) {
			r.Workflow = long(n)
			r.ID = launch.NewRunID(r.Workflow, "01HZZZZZZZZZZZZZZZZZZZZZZZ")
		}, []int{1, 64}, []int{0, 65}},
		{"source identity", "1 to 512", func(r *launch.Request, n int) { r.Source = long(n) }, []int{1, 512}, []int{0, 513}},
		{"session key", "34 to 512", func(r *launch.Request, n int) { r.Session = header(n) }, []int{34, 512}, []int{33, 513}},
		{"group", "0 to 512", func(r *launch.Request, n int) { r.Group = long(n) }, []int{0, 512}, []int{513}},
		{"scope", "1 to 512", func(r *launch.Request, n int) { r.Scope = long(n) }, []int{1, 512}, []int{0, 513}},
		{"request key", "0 to 512", func(r *launch.Request, n int) { r.RequestKey = long(n) }, []int{0, 512}, []int{513}},
		{"initiating turn", "0 to 512", func(r *launch.Request, n int) { r.InitiatingTurn = long(n) }, []int{0, 512}, []int{513}},
		{"parent run", "0 to 512", func(r *launch.Request, n int) { r.Parent = launch.RunID(long(n)) }, []int{0, 512}, []int{513}},
		{"chain", "0 to 512", func(r *launch.Request, n int) { r.Chain = launch.RunID(long(n)) }, []int{0, 512}, []int{513}},
		{"input", "0 to 1 MiB", func(r *launch.Request, n int) { r.Input = make([]byte, n) }, []int{0, 1 << 20}, []int{1<<20 + 1}},
		{"launch options", "0 to 64 KiB", func(r *launch.Request, n int) { r.Options = make([]byte, n) }, []int{0, 64 << 10}, []int{64<<10 + 1}},
	} {
		for _, n := range c.good {
			r := start()
			c.set(&r, n)
			if _, _, err := launch.Reserve(r, launch.Now{Wall: wall}); err != nil {
				t.Errorf("%s has %s: %d is refused: %v", c.field, c.why, n, err)
			}
		}
		for _, n := range c.bad {
			r := start()
			c.set(&r, n)
			l, events, err := launch.Reserve(r, launch.Now{Wall: wall})
			if !errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%s has %s: %d must be refused as invalid and name the field: %v", c.field, c.why, n, err)
			}
			if len(events) != 0 || !cmp.Equal(l, launch.Launch{}) {
				t.Errorf("%s: refused and yet there is a launch", c.field)
			}
		}
	}
}

func TestReserveRefusesBadFields(t *testing.T) {
	for _, c := range []struct {
		why, names string
		spoil      func(*launch.Request)
	}{
		{"upper case in a workflow name", "workflow name", func(r *launch.Request) { r.Workflow = "Demo" }},
		{"an id of another workflow", "run id", func(r *launch.Request) { r.ID = "other-01HZZZZZZZZZZZZZZZZZZZZZZZ" }},
		{"an id without a ULID", "run id", func(r *launch.Request) { r.ID = "demo-1" }},
		{"an empty id", "run id", func(r *launch.Request) { r.ID = "" }},
		{"no definition digest", "definition digest", func(r *launch.Request) { r.Digest = launch.Digest{} }},
		{"no mode", "mode", func(r *launch.Request) { r.Mode = 0 }},
		{"a mode outside the set", "mode", func(r *launch.Request) { r.Mode = 3 }},
		{"interactive without a session", "session key", func(r *launch.Request) { r.Session = "" }},
		{"a session key without its digest", "session key", func(r *launch.Request) { r.Session = "header" }},
		{"headless with a session", "headless", func(r *launch.Request) { r.Mode = launch.Headless; r.InitiatingTurn = "" }},
		{"headless with a turn", "headless", func(r *launch.Request) { r.Mode = launch.Headless; r.Session = "" }},
		{"a newline in a key", "request key", func(r *launch.Request) { r.RequestKey = "a\nb" }},
		{"a key that is not UTF-8", "request key", func(r *launch.Request) { r.RequestKey = "a\xff" }},
		{"a control character in a group", "group", func(r *launch.Request) { r.Group = "\x00" }},
		{"a source identity with a bidi override", "source identity", func(r *launch.Request) { r.Source = "a\u202eb" }},
		{"a zero request", "workflow name", func(r *launch.Request) { *r = launch.Request{} }},
	} {
		r := start()
		c.spoil(&r)
		if _, _, err := launch.Reserve(r, launch.Now{Wall: wall}); !errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: must be refused as invalid and name %q: %v", c.why, c.names, err)
		}
	}
}

// TestAdopt: the same key and content is the same launch, also after it ended;
// every field that differs is named (rule launch/request-key).
func TestAdopt(t *testing.T) {
	reserved, _, err := launch.Reserve(start(), launch.Now{Wall: wall})
	if err != nil {
		t.Fatal(err)
	}
	ended, _, err := launch.Apply(reserved, launch.CancelCommand{Actor: launch.Person}, launch.Now{Wall: wall})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []launch.Launch{reserved, ended} {
		for _, c := range []struct {
			why, field string
			change     func(*launch.Request)
		}{
			{"the same start", "", func(*launch.Request) {}},
			{"a repeat has a run id of its own", "", func(r *launch.Request) { r.ID = "demo-00000000000000000000000009" }},
			{"a repeat from a later turn", "", func(r *launch.Request) { r.InitiatingTurn = "turn-2" }},
			{"equal bytes elsewhere", "", func(r *launch.Request) { r.Input = bytes.Clone(r.Input) }},
			{"another workflow", "workflow", func(r *launch.Request) { r.Workflow = "other" }},
			{"another input", "input", func(r *launch.Request) { r.Input = []byte(`{"a":2}`) }},
			{"no input", "input", func(r *launch.Request) { r.Input = nil }},
			{"another definition", "definition", func(r *launch.Request) { r.Digest = other }},
			{"another source", "definition", func(r *launch.Request) { r.Source = "src2" }},
			{"another mode", "session", func(r *launch.Request) { r.Mode = launch.Headless }},
			{"another session", "session", func(r *launch.Request) { r.Session = "x@0123456789abcdef0123456789abcdef" }},
			{"another parent", "parent run", func(r *launch.Request) { r.Parent = "" }},
			{"another group", "group", func(r *launch.Request) { r.Group = "" }},
			{"other options", "options", func(r *launch.Request) { r.Options = nil }},
		} {
			r := start()
			c.change(&r)
			kept := l
			err := launch.Adopt(&l, &r)
			if !cmp.Equal(kept, l) {
				t.Errorf("%s: adopting changed the launch", c.why)
			}
			if c.field == "" {
				if err != nil {
					t.Errorf("%s (%s): must adopt: %v", c.why, l.State, err)
				}
				continue
			}
			var refusal *launch.Refusal
			if !errors.As(err, &refusal) || refusal.Kind != launch.ErrConflict || refusal.Field != c.field || refusal.Run != runID || refusal.State != l.State {
				t.Errorf("%s (%s): must be a conflict that names %q: %#v", c.why, l.State, c.field, err)
				continue
			}
			if err := launchtest.SecretHidden(`"a"`, fmt.Sprint(err)); err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
		}
	}
}

func TestApplyRefusesWhatIsNoLaunch(t *testing.T) {
	for _, s := range []launch.State{0, launch.Cancelled + 1, 255} {
		for _, c := range everyCommand() {
			after, events, err := launch.Apply(launch.Launch{State: s}, c.c, launch.Now{Wall: wall})
			if !errors.Is(err, launch.ErrNotFound) || len(events) != 0 || after.State != s {
				t.Errorf("state %d, %s: %v", s, c.name, err)
			}
		}
	}
}

// TestCommandBounds tries the bounded fields of commands at limit and beyond.
func TestCommandBounds(t *testing.T) {
	queued, now := situation{State: "queued"}.build()
	running, _ := situation{State: "running", Record: true, Expiry: lease}.build()
	parked, _ := situation{State: "parked", Record: true, Park: "waiting"}.build()
	claim := launch.ClaimCommand{Authority: launch.Authority{Runner: "r", Token: tokenA}, Lease: lease, Digest: pinned}
	claimWith := func(change func(*launch.ClaimCommand)) launch.Command { c := claim; change(&c); return c }
	fail := func(n int) launch.Command {
		return launch.FailCommand{Authority: own(), Error: launch.SafeError{Code: "node_failed", Message: strings.Repeat("m", n)}}
	}
	for _, c := range []struct {
		why  string
		l    launch.Launch
		c    launch.Command
		good bool
	}{
		{"shortest lease", queued, claimWith(func(c *launch.ClaimCommand) { c.Lease = launch.MinLease }), true},
		{"1 ns too short", queued, claimWith(func(c *launch.ClaimCommand) { c.Lease = launch.MinLease - 1 }), false},
		{"longest lease", queued, claimWith(func(c *launch.ClaimCommand) { c.Lease = launch.MaxLease }), true},
		{"1 ns too long", queued, claimWith(func(c *launch.ClaimCommand) { c.Lease = launch.MaxLease + 1 }), false},
		{"negative lease", queued, claimWith(func(c *launch.ClaimCommand) { c.Lease = -1 }), false},
		{"longest runner id", queued, claimWith(func(c *launch.ClaimCommand) { c.Runner = strings.Repeat("r", launch.MaxKey) }), true},
		{"runner id 1 byte too long", queued, claimWith(func(c *launch.ClaimCommand) { c.Runner = strings.Repeat("r", launch.MaxKey+1) }), false},
		{"runner id not printable", queued, claimWith(func(c *launch.ClaimCommand) { c.Runner = "r\n" }), false},
		{"renewal with the shortest lease", running, launch.RenewCommand{Authority: own(), Lease: launch.MinLease}, true},
		{"renewal 1 ns too short", running, launch.RenewCommand{Authority: own(), Lease: launch.MinLease - 1}, false},
		{"renewal with the longest lease", running, launch.RenewCommand{Authority: own(), Lease: launch.MaxLease}, true},
		{"renewal 1 ns too long", running, launch.RenewCommand{Authority: own(), Lease: launch.MaxLease + 1}, false},
		{"longest message", running, fail(launch.MaxErrorMessage), true},
		{"message 1 byte too long", running, fail(launch.MaxErrorMessage + 1), false},
		{"shortest message", running, fail(1), true},
		{"no message", running, fail(0), false},
		{"a park reason outside the set", running, launch.ParkCommand{Authority: own(), Why: launch.ParkAttention + 1}, false},
		{"an attention reason outside the set", running, launch.ParkCommand{Authority: own(), Why: launch.ParkAttention, Attention: launch.PromptsLost + 1}, false},
		{"attention asked for with a reason outside the set", parked, launch.AttendCommand{Attention: launch.PromptsLost + 1}, false},
		{"an attention reason without attention", running, launch.ParkCommand{Authority: own(), Why: launch.ParkDue, Attention: launch.NoProgress}, false},
	} {
		e := apply(c.l, c.c, now)
		if c.good && e.Err != nil || !c.good && !errors.Is(e.Err, launch.ErrInvalid) {
			t.Errorf("%s: %v", c.why, e.Err)
		}
	}
}
