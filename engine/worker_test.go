package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/launch"
)

const secret = "sk-live-secret-of-the-input"

// single is a workflow of one compute node.
func single[O any](f func(context.Context, Task) (O, error)) *engine.Workflow {
	w := engine.New[Task]("w", "1")
	engine.Compute(w, "a", w.Input(), f)
	return must(w.Build())
}

// action is a workflow of one action.
func action(policy engine.Policy, f func(context.Context, engine.Attempt, Task) (string, error)) *engine.Workflow {
	w := engine.New[Task]("w", "1")
	engine.Action(w, "a", w.Input(), f, policy)
	return must(w.Build())
}

func works(t *testing.T, h *host, j engine.Job, want ...string) {
	t.Helper()
	if err := engine.Work(t.Context(), h.wf, j, h); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(want, "\n")+"\n", h.story()); diff != "" {
		t.Fatal(diff)
	}
	for _, p := range h.got {
		if p.Failure.Code != "" && p.Failure.Check() != nil {
			t.Fatalf("failure cannot be stored: %+v", p.Failure)
		}
	}
}

func TestWorkLoop(t *testing.T) {
	w := engine.New[Task]("loop", "1")
	count := engine.Compute(w, "count", w.Input(), func(_ context.Context, in Task) (int8, error) { return in.Size, nil })
	type state = engine.Pair[int8, *int8]
	last := engine.Compute(w, "last", count, func(_ context.Context, n int8) (int8, error) { return n, nil })
	next := engine.Compute(w, "next", engine.Both(count, engine.Maybe(last)), func(_ context.Context, in state) (Verdict, error) {
		if in.B == nil || *in.B != in.A {
			return Bad, nil
		}
		return Good, nil
	})
	engine.Then(count, next)
	end := engine.Compute(w, "end", engine.Both(count, next), func(_ context.Context, in engine.Pair[int8, Verdict]) (string, error) {
		return string(in.B), nil
	})
	engine.Switch(next, engine.Case(Bad, last), engine.Case(Good, end))
	engine.Then(last, next)
	h := newHost(must(w.Build()))
	works(t, h, job(h.wf, `{"title":"x","size":3}`),
		`count 1.1 ok 3`, `next 1.1 ok "bad"`, `last 1.1 ok 3`, `next 2.1 ok "good"`, `end 1.1 ok "good"`)
}

func TestInputsAreFrozen(t *testing.T) {
	w := engine.New[Task]("w", "1")
	spoil := func(_ context.Context, in engine.Pair[Task, Task]) (Task, error) {
		in.A.Tags[0], in.B.Tags[0] = "spoilt", "spoilt"
		return Task{Tags: []string{"out"}}, nil
	}
	a := engine.Compute(w, "a", engine.Both(w.Input(), w.Input()), spoil)
	b := engine.Compute(w, "b", engine.Both(w.Input(), a), spoil)
	c := engine.Compute(w, "c", engine.Both(w.Input(), a), func(_ context.Context, in engine.Pair[Task, Task]) (string, error) {
		return in.A.Tags[0] + in.B.Tags[0], nil
	})
	engine.Then(a, b)
	engine.Then(b, c)
	h := newHost(must(w.Build()))
	if err := engine.Work(t.Context(), h.wf, job(h.wf, `{"title":"","tags":["in"]}`), h); err != nil {
		t.Fatal(err)
	}
	if got := string(h.outputs["c"]); got != `"inout"` {
		t.Errorf("a later node sees %s: an earlier one changed what it was given", got)
	}
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		why  string
		wf   *engine.Workflow
		want string
	}{
		{"an explained error", single(func(context.Context, Task) (int, error) {
			return 0, engine.Explain("no disk space; free some", errors.New(secret))
		}), "a 1.1 failed: node a failed: no disk space; free some"},
		{"an explanation with a secret in it", single(func(context.Context, Task) (int, error) {
			return 0, engine.Explain("password=hunter2hunter2\nsecond line", nil)
		}), "a 1.1 failed: node a failed: password=[redacted] second line"},
		{"an error without explanation", single(func(_ context.Context, in Task) (int, error) { return 0, errors.New(in.Title) }),
			"a 1.1 failed: node a failed: it returned an error without an explanation; let its code use engine.Explain"},
		{"a panic", single(func(_ context.Context, in Task) (int, error) { panic(in.Title) }), "a 1.1 failed: node a panicked; see the host's log"},
		{"a panic with an error", single(func(_ context.Context, in Task) (int, error) { panic(errors.New(in.Title)) }), "a 1.1 failed: node a panicked; see the host's log"},
		{"a deadline of its own", single(func(context.Context, Task) (int, error) { return 0, context.DeadlineExceeded }),
			"a 1.1 failed: node a failed: it returned an error without an explanation; let its code use engine.Explain"},
		{"NaN", single(func(context.Context, Task) (float64, error) { return math.NaN(), nil }),
			"a 1.1 failed: node a output has a number that is NaN or infinite, or a cycle; JSON has neither"},
		{"broken raw JSON", single(func(context.Context, Task) (json.RawMessage, error) { return json.RawMessage(secret), nil }),
			"a 1.1 failed: node a output has a part without a JSON form, such as a json.RawMessage that is not valid JSON"},
		{"one byte too long", single(func(context.Context, Task) (string, error) { return strings.Repeat("<", launch.MaxOutput-1), nil }),
			"a 1.1 failed: node a: output has 1048577 bytes; the bound is 1048576"},
		{"outside the closed set", single(func(context.Context, Task) (Verdict, error) { return secret, nil }),
			`a 1.1 failed: node a: output must be one of ["good" "bad"]`},
		{"Unknown means nothing without an effect", single(func(context.Context, Task) (int, error) {
			return 0, engine.Unknown(engine.Explain("sent, no answer", nil))
		}), "a 1.1 failed: node a failed: sent, no answer"},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(c.wf)
			var log bytes.Buffer
			j := job(h.wf, `{"title":"`+secret+`"}`)
			j.Log = slog.New(slog.NewTextHandler(&log, nil))
			works(t, h, j, c.want)
			if strings.Contains(h.story()+log.String(), secret) {
				t.Fatal("private input in a failure or the log")
			}
			if strings.Contains(c.why, "panic") != strings.Contains(log.String(), "worker_test.go") {
				t.Fatalf("the log tells where code panicked, and nothing else has a stack: %s", log.String())
			}
		})
	}
}

func TestFullOutputIsAccepted(t *testing.T) {
	h := newHost(single(func(context.Context, Task) (string, error) { return strings.Repeat("<", launch.MaxOutput-2), nil }))
	if err := engine.Work(t.Context(), h.wf, job(h.wf, `{}`), h); err != nil || h.got[0].Outcome != engine.OK {
		t.Fatalf("an output of exactly the bound: %v, %v", h.got[0].Failure, err)
	}
}

func TestActionOutcomes(t *testing.T) {
	returns := func(out string, err error) func(context.Context, engine.Attempt, Task) (string, error) {
		return func(context.Context, engine.Attempt, Task) (string, error) { return out, err }
	}
	panics := func(context.Context, engine.Attempt, Task) (string, error) { panic(secret) }
	for _, c := range []struct {
		why  string
		wf   *engine.Workflow
		want string
	}{
		{"done", action(engine.Unrepeatable(), returns("x", nil)), `a 1.1 ok "x"`},
		{"an error says that it did not happen", action(engine.Unrepeatable(), returns("", engine.Explain("refused", nil))), "a 1.1 failed: node a failed: refused"},
		{"unless the code cannot tell", action(engine.Repeatable(), returns("", engine.Unknown(engine.Explain("sent, no answer", nil)))),
			"a 1.1 unknown: node a may or may not have taken effect: sent, no answer"},
		{"Unknown of nil is no error", action(engine.Repeatable(), returns("x", engine.Unknown(nil))), `a 1.1 ok "x"`},
		{"a panic of what can be repeated", action(engine.Repeatable(), panics), "a 1.1 failed: node a panicked; see the host's log"},
		{"a panic of what cannot", action(engine.Unrepeatable(), panics), "a 1.1 unknown: node a may or may not have taken effect: it panicked; see the host's log"},
		{"it happened, but its output is too long", action(engine.Repeatable(), returns(strings.Repeat("x", launch.MaxOutput), nil)),
			"a 1.1 failed: node a: output has 1048578 bytes; the bound is 1048576 (applied)"},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(c.wf)
			works(t, h, job(h.wf, `{}`), c.want)
		})
	}
}

func TestAttemptKey(t *testing.T) {
	var seen []engine.Attempt
	wf := action(engine.Repeatable(), func(_ context.Context, a engine.Attempt, _ Task) (string, error) {
		seen = append(seen, a)
		return "", nil
	})
	for _, at := range [][3]uint32{{1, 1, 0}, {1, 2, 0}, {2, 1, 0}, {1, 3, 1}} {
		j := job(wf, `{}`)
		j.Current.Visit, j.Current.Attempt, j.Current.Retry = at[0], at[1], at[2]
		if err := engine.Work(t.Context(), wf, j, newHost(wf)); err != nil {
			t.Fatal(err)
		}
	}
	if seen[0].Key != effect.ActionKey("w-1", "a", 1, 0).ID().String() || len(seen[0].Key) != 64 {
		t.Errorf("key is %q, want the id of the effect's key", seen[0].Key)
	}
	if seen[0].Key != seen[1].Key || seen[0].Key == seen[2].Key || seen[0].Key == seen[3].Key || seen[3].Retry != 1 {
		t.Error("the key must be the same for each attempt of a visit and another for the next visit and for a retry")
	}
}

func TestRecovery(t *testing.T) {
	const asksPerson = "a 1.2 unknown: node a was interrupted and nobody knows whether it took effect; find out and resolve it"
	observer := func(out string, found bool, err error) engine.Policy {
		return engine.Observed(func(context.Context, engine.Attempt, Task) (string, bool, error) { return out, found, err })
	}
	wild := engine.Observed(func(context.Context, engine.Attempt, Task) (string, bool, error) { panic(secret) })
	for _, c := range []struct {
		why       string
		policy    engine.Policy
		ambiguous bool
		want      string
		ran       bool
	}{
		{"repeatable runs again", engine.Repeatable(), false, `a 1.2 ok "ran"`, true},
		{"unrepeatable asks a person", engine.Unrepeatable(), false, asksPerson, false},
		{"found by its observer", observer("seen", true, nil), false, `a 1.2 ok "seen" (observed)`, false},
		{"surely missing, so it runs", observer("", false, nil), false, `a 1.2 ok "ran"`, true},
		{"the observer cannot tell", observer("", false, errors.New(secret)), false,
			"a 1.2 unknown: node a was interrupted and its observer cannot tell whether it took effect: it returned an error without an explanation; let its code use engine.Explain", false},
		{"the observer panics", wild, false,
			"a 1.2 unknown: node a was interrupted and its observer cannot tell whether it took effect: it panicked; see the host's log", false},
		{"ambiguous and repeatable asks a person", engine.Repeatable(), true, asksPerson, false},
		{"ambiguous and found", observer("seen", true, nil), true, `a 1.2 ok "seen" (observed)`, false},
		{"ambiguous and missing did not happen", observer("", false, nil), true,
			"a 1.2 failed: node a did not take effect, as its observer found out (observed)", false},
	} {
		t.Run(c.why, func(t *testing.T) {
			ran := false
			h := newHost(action(c.policy, func(context.Context, engine.Attempt, Task) (string, error) { ran = true; return "ran", nil }))
			j := job(h.wf, `{}`)
			j.Current.Attempt, j.Current.Recovering, j.Current.Ambiguous = 2, true, c.ambiguous
			works(t, h, j, c.want)
			if ran != c.ran {
				t.Fatalf("the code ran: %v", ran)
			}
		})
	}
}

func TestStops(t *testing.T) {
	never := func(context.Context, Task) (int, error) { panic("must not run") }
	down := errors.New("disk")
	stale := launch.Refuse(launch.ErrStale, "replaced")
	ended := job(single(never), `{}`)

	t.Run("an ended or parked run runs nothing", func(t *testing.T) {
		for _, at := range []engine.Next{{Ended: true}, {Parked: true}} {
			h := newHost(single(never))
			j := ended
			if j.Current = at; engine.Work(t.Context(), h.wf, j, h) != nil || len(h.got) != 0 {
				t.Fatalf("%+v: proposed %s", at, h.story())
			}
		}
	})
	t.Run("a stopped context runs nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stale)
		h := newHost(single(never))
		if err := engine.Work(ctx, h.wf, ended, h); err != stale || len(h.got) != 0 {
			t.Fatalf("got %v and %s", err, h.story())
		}
	})
	for _, ignores := range []bool{true, false} {
		t.Run("our own stop is no outcome", func(t *testing.T) {
			var log bytes.Buffer
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := ended
			ended.Log = slog.New(slog.NewTextHandler(&log, nil))
			h := newHost(single(func(ctx context.Context, _ Task) (int, error) {
				cancel(stale)
				if ignores {
					return 1, nil
				}
				return 0, ctx.Err()
			}))
			if err := engine.Work(ctx, h.wf, ended, h); err != stale || len(h.got) != 0 {
				t.Fatalf("got %v and proposed %s", err, h.story())
			}
			if log.Len() > 0 {
				t.Fatalf("nor an error to log: %s", log.String())
			}
		})
	}
	for _, c := range []struct {
		why  string
		err  error
		want string
	}{
		{"an effect that took place is told all the same", nil, "a 1.1 ok \"done\"\n"},
		{"an error after our own stop is no outcome", context.Canceled, ""},
		{"nor is not knowing", engine.Unknown(context.Canceled), ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			h := newHost(action(engine.Repeatable(), func(context.Context, engine.Attempt, Task) (string, error) {
				cancel(stale)
				return "done", c.err
			}))
			h.answer = func(engine.Proposal) (engine.Next, bool, error) {
				return engine.Next{Node: "a", Visit: 2, Attempt: 1}, true, nil
			}
			if err := engine.Work(ctx, h.wf, ended, h); err != stale || h.story() != c.want {
				t.Fatalf("got %v and proposed %q, want the stop's cause and %q", err, h.story(), c.want)
			}
		})
	}
	t.Run("a refused proposal stops", func(t *testing.T) {
		h := newHost(must(review("1", nil)))
		h.answer = func(engine.Proposal) (engine.Next, bool, error) { return engine.Next{}, true, stale }
		if err := engine.Work(t.Context(), h.wf, job(h.wf, `{"title":"x"}`), h); err != stale || len(h.got) != 1 {
			t.Fatalf("got %v after %s", err, h.story())
		}
	})
	t.Run("a store that cannot read stops without an outcome", func(t *testing.T) {
		h := newHost(must(review("1", nil)))
		h.onOutput = func() error { return down }
		if err := engine.Work(t.Context(), h.wf, job(h.wf, `{"title":"x"}`), h); err != down || len(h.got) != 1 {
			t.Fatalf("got %v after %s", err, h.story())
		}
	})
	for why, spoil := range map[string]func(*host, *engine.Job){
		"a missing output":      func(_ *host, j *engine.Job) { j.Current.Node = "judge" },
		"an output that decays": func(h *host, j *engine.Job) { j.Current.Node = "judge"; h.outputs["draft"] = []byte(`7`) },
		"an input that decays":  func(_ *host, j *engine.Job) { j.Input = []byte(`[`) },
		"an unknown node":       func(_ *host, j *engine.Job) { j.Current.Node = "gone" },
		"no node":               func(_ *host, j *engine.Job) { j.Current = engine.Next{} },
	} {
		t.Run(why, func(t *testing.T) {
			h := newHost(must(review("1", nil)))
			j := job(h.wf, `{"title":"x"}`)
			spoil(h, &j)
			err := engine.Work(t.Context(), h.wf, j, h)
			if !errors.Is(err, launch.ErrInternal) && !errors.Is(err, launch.ErrSourceChanged) || len(h.got) != 0 {
				t.Fatalf("got %v and proposed %s", err, h.story())
			}
		})
	}
}

func TestExplainKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	for _, err := range []error{engine.Explain("why", cause), engine.Unknown(engine.Explain("why", cause))} {
		if !errors.Is(err, cause) {
			t.Errorf("%v lost its cause", err)
		}
	}
}
