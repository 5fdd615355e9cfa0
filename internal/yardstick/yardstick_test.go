package yardstick

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"zombiezen.com/go/sqlite/sqlitex"
)

func openTest(t *testing.T) *Yardstick {
	t.Helper()
	y, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return y
}

// count returns the one integer that query selects.
func count(t *testing.T, y *Yardstick, query string) int {
	t.Helper()
	stmt, err := y.conn.Prepare(query)
	if err != nil {
		t.Fatal(err)
	}
	n, err := sqlitex.ResultInt(stmt)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A reference that loses or repeats a command under load measures nothing.
func TestLifecyclesAreWhole(t *testing.T) {
	for _, tc := range []struct {
		reason        string
		callers, each int
		randomIDs     bool
	}{
		{reason: "the direct path", callers: 1, each: 20},
		{reason: "the leadership goes back and forth", callers: 2, each: 50},
		{reason: "large groups", callers: 64, each: 10},
		{reason: "random ids", callers: 8, each: 10, randomIDs: true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			y := openTest(t)
			y.RandomIDs = tc.randomIDs
			var all sync.WaitGroup
			for range tc.callers {
				all.Go(func() {
					for range tc.each {
						if err := y.Lifecycle(t.Context()); err != nil {
							t.Errorf("lifecycle: %v", err)
							return
						}
					}
				})
			}
			all.Wait()
			n := tc.callers * tc.each
			for query, want := range map[string]int{
				`SELECT count(*) FROM launch WHERE state = 4 AND events = 4 AND generation = 1
					AND input IS NULL AND token_hash IS NULL`: n,
				"SELECT count(*) FROM launch":               n,
				"SELECT count(*) FROM event":                4 * n,
				"SELECT count(*) FROM event WHERE n = kind": 4 * n,
			} {
				if got := count(t, y, query); got != want {
					t.Errorf("%s: got %d, want %d", query, got, want)
				}
			}
			if y.group.leading || len(y.group.waiting) != 0 {
				t.Errorf("left behind: leading %v, %d waiting", y.group.leading, len(y.group.waiting))
			}
		})
	}
}

func TestRefusalLeavesTheGroupAlone(t *testing.T) {
	y := openTest(t)
	at := func(k kind, from *command) *command {
		c := *from
		c.kind = k
		return &c
	}
	fresh, done, claimed := newCommand(), newCommand(), newCommand()
	for k := reserve; k <= finish; k++ {
		y.commit([]*command{at(k, done)})
	}
	y.commit([]*command{at(reserve, claimed)})
	y.commit([]*command{at(claim, claimed)})
	stranger := at(start, claimed)
	stranger.tokenHash[0]++
	inBusySession := newCommand()
	inBusySession.session = claimed.session
	again := newCommand()
	again.session, again.requestKey = done.session, done.requestKey

	cases := []struct {
		reason string
		c      *command
		want   error
	}{
		{"a launch that ended", at(finish, done), errStale},
		{"new", at(reserve, fresh), nil},
		{"never reserved", at(claim, newCommand()), errStale},
		{"another's claim", stranger, errStale},
		{"the session has a live launch", at(reserve, inBusySession), errTaken},
		{"the request key was used", at(reserve, again), errTaken},
		{"reserved earlier in the same group", at(claim, fresh), nil},
		{"the owner", at(start, claimed), nil},
	}
	var group []*command
	for _, tc := range cases {
		group = append(group, tc.c)
	}
	y.commit(group)
	for _, tc := range cases {
		if !errors.Is(tc.c.err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.reason, tc.c.err, tc.want)
		}
	}
	if got := count(t, y, "SELECT count(*) FROM event"); got != 4+2+3 {
		t.Errorf("got %d events, want 9: a refused command wrote one, or a good one did not", got)
	}
}

func TestSQLiteErrorFailsTheGroupWhole(t *testing.T) {
	y := openTest(t)
	if err := sqlitex.ExecuteTransient(y.conn, `CREATE TRIGGER full BEFORE INSERT ON event WHEN NEW.kind = 2
		BEGIN SELECT RAISE(ROLLBACK, 'as a full disk would'); END`, nil); err != nil {
		t.Fatal(err)
	}
	a, b := newCommand(), newCommand()
	a.kind, b.kind = reserve, reserve
	y.commit([]*command{a})
	a.kind = claim
	y.commit([]*command{b, a})
	if a.err == nil || b.err == nil {
		t.Errorf("acknowledged without a commit: %v, %v", a.err, b.err)
	}
	if got := count(t, y, "SELECT count(*) FROM launch"); got != 1 {
		t.Errorf("got %d launches, want the one from before", got)
	}
	if err := y.Lifecycle(t.Context()); err == nil || !strings.Contains(err.Error(), "command 2") {
		t.Errorf("got %v, want the error of command 2", err)
	}
}

func TestLifecycleStopsWithItsContext(t *testing.T) {
	y := openTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := y.Lifecycle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if got := count(t, y, "SELECT count(*) FROM launch"); got != 0 {
		t.Errorf("got %d launches, want none", got)
	}
}

// The references must have what they are said to have, or their ratios mean something else.
func TestSettings(t *testing.T) {
	y := openTest(t)
	for pragma, want := range map[string]int{
		"page_size": 4096, "synchronous": 2, "wal_autocheckpoint": 1000, "temp_store": 2,
	} {
		if got := count(t, y, "PRAGMA "+pragma); got != want {
			t.Errorf("%s: got %d, want %d", pragma, got, want)
		}
	}
	for column, want := range map[string]string{"journal_mode": "wal", "locking_mode": "normal"} {
		stmt, err := y.conn.Prepare("PRAGMA " + column)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sqlitex.ResultText(stmt); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", column, got, err, want)
		}
	}
}

func TestFloorCommits(t *testing.T) {
	f, err := OpenFloor(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	stmt, err := f.conn.Prepare("SELECT n FROM counter")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sqlitex.ResultInt(stmt); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3", got, err)
	}
}
