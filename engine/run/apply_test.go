package run

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/launch"
)

var boom = launch.NewSafeError(launch.CodeNodeFailed, "node a failed: no luck")

// loop is a -> b -> {again: a, done: c}, where b's failure is not routed.
var loop = Plan{MaxSteps: 5, Start: "a", Nodes: []Node{
	{Path: "a", Kind: Action, Policy: Repeatable}, choice("b", "again", "done"), compute("c")},
	Edges: []Edge{then("a", "b"), fork("b", OnOutput, "again", "a", "done", "c")}}

func begin(t *testing.T) Run {
	t.Helper()
	r, err := Begin("w-1", &loop, []byte(`{}`), 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func when(t launch.Time) launch.Now { return launch.Now{Wall: t} }

func visited(n uint32) func(string) (uint32, error) {
	return func(string) (uint32, error) { return n, nil }
}

func ok(r Run, output string) Settle {
	return Settle{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt, Outcome: OK, Output: []byte(output)}
}

func TestStory(t *testing.T) {
	r := begin(t)
	do := func(c Command, visits uint32, want ...Event) Result {
		t.Helper()
		before := r.Revision
		res, err := Apply(r, c, &loop, visited(visits), when(9))
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if diff := cmp.Diff(want, res.Events); diff != "" {
			t.Fatalf("%+v: events (-want +got):\n%s", c, diff)
		}
		if err := Check(res.Run); err != nil {
			t.Fatal(err)
		}
		if res.Run.Revision != before+1 {
			t.Fatalf("revision went from %d to %d", before, res.Run.Revision)
		}
		r = res.Run
		return res
	}
	do(Reattempt{}, 0, Event{Reattempted, "a", 1, 2, 0, Running})
	s := ok(r, `1`)
	s.Receipt = true
	res := do(s, 0, Event{Settled, "a", 1, 2, OK, Running}, Event{Entered, "b", 1, 1, 0, Running})
	if diff := cmp.Diff(&Step{Run: "w-1", Node: "a", Visit: 1, Attempt: 2, Outcome: OK, Output: []byte("1"), Began: 9, At: 9}, res.Step); diff != "" {
		t.Fatal(diff)
	}
	if r.Progress != 2 || r.Steps != 1 {
		t.Fatalf("progress %d, steps %d: want output and receipt, one step", r.Progress, r.Steps)
	}
	do(Park{Waiting}, 0, Event{Parked, "b", 1, 1, 0, Waiting})
	do(Park{Attention}, 0, Event{Parked, "b", 1, 1, 0, Attention})
	do(Unpark{}, 0, Event{Unparked, "b", 1, 1, 0, Running})
	do(ok(r, `"again"`), 1, Event{Settled, "b", 1, 1, OK, Running}, Event{Entered, "a", 2, 1, 0, Running})
	do(ok(r, `2`), 1, Event{Settled, "a", 2, 1, OK, Running}, Event{Entered, "b", 2, 1, 0, Running})
	do(ok(r, `"done"`), 0, Event{Settled, "b", 2, 1, OK, Running}, Event{Entered, "c", 1, 1, 0, Running})
	do(ok(r, `null`), 0, Event{Settled, "c", 1, 1, OK, Running}, Event{Ended, "c", 1, 1, 0, Completed})
	if r.Status != Completed || r.Ended != 9 || r.Steps != 5 {
		t.Fatalf("ended as %+v", r)
	}
}

func TestEnds(t *testing.T) {
	r := begin(t)
	at := func(o Outcome, f launch.SafeError) Settle {
		return Settle{Node: "a", Visit: 1, Attempt: 1, Outcome: o, Failure: f}
	}
	late := launch.NewSafeError(launch.CodeTimedOut, "")
	full := r
	full.Steps = 4
	for _, c := range []struct {
		why     string
		run     Run
		command Command
		status  Status
		code    launch.Code
	}{
		{"an unrouted failure fails the run", r, at(Failed, boom), RunFailed, launch.CodeNodeFailed},
		{"an unrouted timeout times it out", r, at(TimedOut, late), RunTimedOut, launch.CodeTimedOut},
		{"an unrouted cancel cancels it", r, at(Cancelled, launch.SafeError{}), RunCancelled, ""},
		{"going on beyond the limit fails", full, ok(r, `1`), RunFailed, launch.CodeStepLimit},
		{"cancel from outside", r, End{Status: RunCancelled}, RunCancelled, ""},
		{"unreadable", r, End{RunFailed, launch.NewSafeError(launch.CodeRecordUnreadable, "")}, RunFailed, launch.CodeRecordUnreadable},
	} {
		t.Run(c.why, func(t *testing.T) {
			res, err := Apply(c.run, c.command, &loop, visited(0), when(7))
			if err != nil {
				t.Fatal(err)
			}
			if res.Run.Status != c.status || res.Run.Failure.Code != c.code || res.Run.Ended != 7 {
				t.Fatalf("got %s with %q", res.Run.Status, res.Run.Failure.Code)
			}
			if last := res.Events[len(res.Events)-1]; last.Kind != Ended || last.Status != c.status {
				t.Fatalf("last event is %+v", last)
			}
			for _, again := range []Command{c.command, Reattempt{}, Park{Waiting}, Unpark{}, End{Status: RunCancelled}} {
				if res, err := Apply(res.Run, again, &loop, visited(0), when(8)); !errors.Is(err, launch.ErrEnded) || res.Run.Ended != 7 {
					t.Fatalf("%T after the end: %v", again, err)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	r := begin(t)
	b := r
	b.Node = "b"
	parked := r
	parked.Status = Attention
	gone := r
	gone.Node = "gone"
	down := errors.New("disk")
	with := func(f func(*Settle)) Settle {
		s := ok(r, `1`)
		f(&s)
		return s
	}
	for _, c := range []struct {
		why     string
		run     Run
		command Command
		want    error
	}{
		{"another node", r, with(func(s *Settle) { s.Node = "b" }), launch.ErrStale},
		{"another visit", r, with(func(s *Settle) { s.Visit = 2 }), launch.ErrStale},
		{"an old attempt", r, with(func(s *Settle) { s.Attempt = 0 }), launch.ErrStale},
		{"a parked run", parked, ok(r, `1`), launch.ErrStale},
		{"a new attempt of a parked run", parked, Reattempt{}, launch.ErrWrongKind},
		{"a node that the plan lost", gone, ok(gone, `1`), launch.ErrSourceChanged},
		{"no outcome", r, with(func(s *Settle) { s.Outcome = 0 }), launch.ErrInvalid},
		{"no output", r, with(func(s *Settle) { s.Output = nil }), launch.ErrInvalid},
		{"half an output", r, ok(r, `{"a":`), launch.ErrInvalid},
		{"two outputs", r, ok(r, `1 2`), launch.ErrInvalid},
		{"an output that is not UTF-8", r, ok(r, "\"\xff\""), launch.ErrInvalid},
		{"an output one byte too long", r, ok(r, `"`+strings.Repeat("a", launch.MaxOutput-1)+`"`), launch.ErrInvalid},
		{"an output outside the closed set", b, ok(b, `"maybe"`), launch.ErrInvalid},
		{"an output that is no string", b, ok(b, `["again"]`), launch.ErrInvalid},
		{"null is no choice", b, ok(b, `null`), launch.ErrInvalid},
		{"a receipt of a node without effect", b, Settle{Node: "b", Visit: 1, Attempt: 1, Outcome: OK, Output: []byte(`"done"`), Receipt: true}, launch.ErrInvalid},
		{"ok with a failure", r, with(func(s *Settle) { s.Failure = boom }), launch.ErrInvalid},
		{"failed with an output", r, with(func(s *Settle) { s.Outcome, s.Failure = Failed, boom }), launch.ErrInvalid},
		{"failed without a failure", r, with(func(s *Settle) { s.Outcome, s.Output = Failed, nil }), launch.ErrInvalid},
		{"cancelled with a failure", r, with(func(s *Settle) { s.Outcome, s.Output, s.Failure = Cancelled, nil, boom }), launch.ErrInvalid},
		{"a code of a launch that never ran", r, End{RunFailed, launch.NewSafeError(launch.CodeInputInvalid, "")}, launch.ErrInvalid},
		{"completed from outside", r, End{Status: Completed}, launch.ErrInvalid},
		{"an end that is none", r, End{Status: Running}, launch.ErrInvalid},
		{"parked as running", r, Park{Running}, launch.ErrInvalid},
		{"no command", r, nil, launch.ErrInternal},
		{"a row without status", Run{}, Unpark{}, launch.ErrInternal},
		{"the store fails", r, ok(r, `1`), down},
	} {
		t.Run(c.why, func(t *testing.T) {
			res, err := Apply(c.run, c.command, &loop, func(string) (uint32, error) { return 0, down }, when(7))
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if diff := cmp.Diff(Result{Run: c.run}, res); diff != "" {
				t.Fatalf("a refused command changed something:\n%s", diff)
			}
		})
	}
}

func TestNothingToDo(t *testing.T) {
	r := begin(t)
	waits := r
	waits.Status = Waiting
	for _, c := range []struct {
		run     Run
		command Command
	}{{r, Unpark{}}, {waits, Park{Waiting}}} {
		res, err := Apply(c.run, c.command, &loop, nil, when(7))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Result{Run: c.run}, res); diff != "" {
			t.Errorf("%T: an unchanged state must write nothing:\n%s", c.command, diff)
		}
	}
}

func TestEscapedChoice(t *testing.T) {
	r := begin(t)
	r.Node = "b"
	res, err := Apply(r, ok(r, `"\u0064one"`), &loop, visited(0), when(7))
	if err != nil || res.Run.Node != "c" {
		t.Fatalf("an escaped spelling of a choice is the choice: node %s, %v", res.Run.Node, err)
	}
}

func TestBegin(t *testing.T) {
	for _, c := range []struct {
		why, id, input string
		plan           Plan
	}{
		{"no run id", "", `{}`, loop},
		{"input is not JSON", "w-1", `{`, loop},
		{"input too long", "w-1", strings.Repeat(" ", launch.MaxInput) + `1`, loop},
		{"a plan without start", "w-1", `{}`, Plan{}},
	} {
		if _, err := Begin(launch.RunID(c.id), &c.plan, []byte(c.input), 1); !errors.Is(err, launch.ErrInvalid) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for why, spoil := range map[string]func(*Run){
		"no id": func(r *Run) { r.ID = "" }, "no revision": func(r *Run) { r.Revision = 0 },
		"status outside the set": func(r *Run) { r.Status = 99 }, "no node": func(r *Run) { r.Node = "" },
		"no attempt": func(r *Run) { r.Attempt = 0 }, "progress from nowhere": func(r *Run) { r.Progress = 1 },
		"steps without revisions":        func(r *Run) { r.Steps = 1 },
		"completed at once":              func(r *Run) { r.Status, r.Ended = Completed, 1 },
		"ended while running":            func(r *Run) { r.Ended = 1 },
		"failed without a reason":        func(r *Run) { r.Status, r.Ended = RunFailed, 1 },
		"a reason while running":         func(r *Run) { r.Failure = boom },
		"broken input":                   func(r *Run) { r.Input = nil },
		"as many retries as attempts":    func(r *Run) { r.Retry = 1 },
		"settings from nowhere":          func(r *Run) { r.Seen = 1 },
		"due while running":              func(r *Run) { r.Due = 1 },
		"due although it asks":           func(r *Run) { r.Due, r.Status, r.Asked = 1, Waiting, true },
		"active time without a budget":   func(r *Run) { r.Active = Active{Spent: 1, N: 1} },
		"a budget beyond its bound":      func(r *Run) { r.Budget = MaxBudget + 1 },
		"a negative budget":              func(r *Run) { r.Budget = -1 },
		"spent in no interval":           func(r *Run) { r.Budget, r.Active = 1, Active{Spent: 1} },
		"open without a number":          func(r *Run) { r.Budget, r.Active = 1, Active{Opened: 1} },
		"less spent than before":         func(r *Run) { r.Budget, r.Active = 1, Active{N: 1, Opened: 1, From: 2, Spent: 1} },
		"the clock of a closed interval": func(r *Run) { r.Budget, r.Active = 1, Active{N: 1, Spent: 1, Clock: "c"} },
		"an interval open after the end": func(r *Run) {
			r.Budget, r.Active = 1, Active{N: 1, Opened: 1}
			r.Status, r.Ended = RunCancelled, 1
		},
	} {
		r := begin(t)
		if err := Check(r); err != nil {
			t.Fatal(err)
		}
		if spoil(&r); Check(r) == nil {
			t.Errorf("%s passes", why)
		}
	}
}

func TestAllocations(t *testing.T) {
	r := begin(t)
	s := ok(r, `{"a":1}`)
	visits := visited(0)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Apply(r, s, &loop, visits, when(7)); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("settling and entering the next node takes %v allocations, want at most 2", n)
	}
}

func BenchmarkSettle(b *testing.B) {
	r, err := Begin("w-1", &loop, []byte(`{}`), 1)
	if err != nil {
		b.Fatal(err)
	}
	s, visits := ok(r, `{"a":1}`), visited(0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Apply(r, s, &loop, visits, when(7)); err != nil {
			b.Fatal(err)
		}
	}
}
