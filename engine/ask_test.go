package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// one is a workflow that add puts one node into.
func one(add func(w *engine.Builder[Task])) *engine.Workflow {
	w := engine.New[Task]("w", "1")
	add(w)
	return must(w.Build())
}

func title(_ context.Context, in Task) (string, error) { return in.Title, nil }

func TestAsks(t *testing.T) {
	failing := func(context.Context, Task) (string, error) { return "", engine.Explain("no words", nil) }
	wild := func(context.Context, Task) (string, error) { panic(secret) }
	for _, c := range []struct {
		why  string
		wf   *engine.Workflow
		want string
	}{
		{"an agent", one(func(w *engine.Builder[Task]) { engine.Agent[Draft](w, "a", w.Input(), title) }), "a 1.1 asks  write it"},
		{"a choice", one(func(w *engine.Builder[Task]) { engine.Choose[Verdict](w, "a", w.Input(), title) }), "a 1.1 asks  write it"},
		{"a visible text", one(func(w *engine.Builder[Task]) { engine.Respond(w, "a", w.Input(), title) }), "a 1.1 asks  write it"},
		{"a checkpoint", one(func(w *engine.Builder[Task]) { engine.Checkpoint[int](w, "a", w.Input(), title) }), "a 1.1 asks  write it"},
		{"a decision", one(func(w *engine.Builder[Task]) { engine.Decide[Verdict](w, "a", w.Input(), show[Task]) }), "a 1.1 asks Merge? All of it."},
		{"a prompt that fails", one(func(w *engine.Builder[Task]) { engine.Agent[Draft](w, "a", w.Input(), failing) }), "a 1.1 failed: node a failed: no words"},
		{"a prompt that panics", one(func(w *engine.Builder[Task]) { engine.Respond(w, "a", w.Input(), wild) }), "a 1.1 failed: node a panicked; see the host's log"},
		{"a presentation that fails", one(func(w *engine.Builder[Task]) {
			engine.Decide[Verdict](w, "a", w.Input(), func(context.Context, Task) (engine.Presentation, error) {
				return engine.Presentation{}, engine.Explain("nothing to show", nil)
			})
		}), "a 1.1 failed: node a failed: nothing to show"},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(c.wf)
			works(t, h, job(c.wf, `{"title":"write it"}`), c.want)
			if p := h.got[0]; p.Ask != nil && (p.Outcome != 0 || p.Output != nil) {
				t.Fatalf("a question has no outcome: %+v", p)
			}
		})
	}
}

func TestForms(t *testing.T) {
	wf := one(func(w *engine.Builder[Task]) {
		engine.Decide[Verdict](w, "a", w.Input(), show[Task], engine.Expires(time.Hour), engine.Default(Bad), engine.TextFor(Good, 5, true))
	})
	n := wf.Plan().Nodes[0]
	if n.Kind != run.Decision || strings.Join(n.Choices, " ") != "good bad" || string(n.Ask.Form) != `{"type":"string"}` || string(n.Ask.Default) != `"bad"` {
		t.Errorf("the plan of a decision: %+v %+v", n, n.Ask)
	}
	// The wire form of a decision's output, which others write.
	raw := must(json.Marshal(engine.Decided[Verdict]{Choice: Good, Text: "x", By: "person", Person: "ann"}))
	if string(raw) != `{"choice":"good","text":"x","by":"person","person":"ann"}` || n.CheckOutput(raw) != nil {
		t.Errorf("decided %s: %v", raw, n.CheckOutput(raw))
	}
}

// A decision routes the run by its choice, and later nodes read who decided.
func TestDecisionRoutes(t *testing.T) {
	w := engine.New[Task]("w", "1")
	d := engine.Decide[Verdict](w, "d", w.Input(), show[Task])
	good := engine.Compute(w, "good", d, func(_ context.Context, in engine.Decided[Verdict]) (string, error) { return in.Person, nil })
	bad := engine.Compute(w, "bad", engine.Maybe(d.Node), func(_ context.Context, in *engine.Decided[Verdict]) (string, error) { return in.Text, nil })
	engine.Switch(d, engine.Case(Good, good), engine.Case(Bad, bad))
	wf := must(w.Build())
	for output, want := range map[string]string{
		`{"choice":"good","by":"person","person":"ann"}`: `good 1.1 ok "ann"`,
		`{"choice":"bad","text":"no","by":"timeout"}`:    `bad 1.1 ok "no"`,
	} {
		plan := wf.Plan()
		h := newHost(wf)
		h.outputs["d"] = []byte(output)
		j := job(wf, `{"title":"x"}`)
		j.Current.Node = plan.Route("d", engine.OK, []byte(output))
		works(t, h, j, want)
	}
}

func TestNotify(t *testing.T) {
	say := func(text string) *engine.Workflow {
		return one(func(w *engine.Builder[Task]) {
			engine.Notify(w, "a", w.Input(), func(context.Context, Task) (string, error) { return text, nil }, engine.Final())
		})
	}
	full := strings.Repeat("x", launch.MaxOptions)
	for _, c := range []struct{ why, text, want string }{
		{"a message", "done\nall", `a 1.1 ok "done\nall"`},
		{"a message of exactly the bound", full, `a 1.1 ok "` + full + `"`},
		{"nothing", "", "a 1.1 failed: node a says 0 bytes; it must be 1 to 65536 of valid UTF-8"},
		{"too much", full + "x", "a 1.1 failed: node a says 65537 bytes; it must be 1 to 65536 of valid UTF-8"},
		{"no text", "\xff", "a 1.1 failed: node a says 1 bytes; it must be 1 to 65536 of valid UTF-8"},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(say(c.text))
			works(t, h, job(h.wf, `{}`), c.want)
			if p := h.got[0]; (p.Notice != "") != (p.Outcome == engine.OK) || p.Outcome == engine.OK && p.Notice != c.text {
				t.Fatalf("notice %.80q with outcome %s", p.Notice, p.Outcome)
			}
		})
	}
}

func TestSettingsAreRead(t *testing.T) {
	w := engine.New[Task]("w", "1")
	s := engine.Settings(w, Draft{Text: "default"}, "text")
	engine.Compute(w, "a", engine.Both(w.Input(), s), func(_ context.Context, in engine.Pair[Task, Draft]) (string, error) { return in.B.Text, nil })
	wf := must(w.Build())
	if p := wf.Plan().Settings; string(p.Defaults) != `{"text":"default"}` || strings.Join(p.Model, " ") != "text" {
		t.Fatalf("planned %+v", p)
	}
	h := newHost(wf)
	h.settings = map[uint32]string{1: `{"text":"default"}`, 2: `{"text":"new"}`, 3: `[]`}
	j := job(wf, `{}`)
	j.Current.Seen = 2
	works(t, h, j, `a 1.1 ok "new"`)
	for _, revision := range []uint32{3, 4} { // of another form; missing
		j.Current.Seen = revision
		h := newHost(wf)
		h.settings = map[uint32]string{3: `[]`}
		if err := engine.Work(t.Context(), wf, j, h); err == nil || len(h.got) != 0 {
			t.Errorf("revision %d: %v, proposed %s", revision, err, h.story())
		}
	}
}

func TestValidation(t *testing.T) {
	type answer struct {
		Count int8     `json:"count"`
		Names []string `json:"names,omitempty"`
	}
	check := func(ctx context.Context, in answer) error {
		switch in.Count {
		case 1:
			return nil
		case 2:
			return engine.Explain("count is odd here; take 1", errors.New(secret))
		case 3:
			return errors.New(secret)
		case 4:
			return launch.Refuse(launch.ErrInvalid, secret)
		case 5:
			<-ctx.Done()
			return ctx.Err()
		}
		panic(secret)
	}
	wf := one(func(w *engine.Builder[Task]) { engine.Agent[answer](w, "a", w.Input(), title, engine.Validate(check)) })
	for _, c := range []struct{ why, candidate, want string }{
		{"stands", `{"count":1}`, "a 1.1 verdict accepted "},
		{"is explained", `{"count":2}`, "a 1.1 verdict rejected count is odd here; take 1"},
		{"is not explained", `{"count":3}`, "a 1.1 verdict rejected the workflow's own check refuses it and does not explain why"},
		{"a refusal of something else may hold anything", `{"count":4}`, "a 1.1 verdict rejected the workflow's own check refuses it and does not explain why"},
		{"panics", `{"count":6}`, "a 1.1 verdict none "},
		{"does not decode", `{"count":300}`, "a 1.1 verdict rejected output has a value of the wrong type or size in count"},
		{"a key in other case", `{"Count":1}`, "a 1.1 verdict rejected output has an unknown field; known are: count, names"},
		{"a key twice", `{"count":1,"count":1}`, "a 1.1 verdict rejected output"},
		{"too long", `"` + strings.Repeat("x", launch.MaxOutput) + `"`, "a 1.1 verdict rejected output has 1048578 bytes; the bound is 1048576"},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(wf)
			var log bytes.Buffer
			j := job(wf, `{}`)
			j.Log = slog.New(slog.NewTextHandler(&log, nil))
			j.Current.Candidate = []byte(c.candidate)
			if err := engine.Work(t.Context(), wf, j, h); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(h.story(), c.want) || len(h.got) != 1 {
				t.Fatalf("got %q, want %q", h.story(), c.want)
			}
			if strings.Contains(h.story()+log.String(), secret) {
				t.Fatal("private text in a verdict or the log")
			}
			if p := h.got[0]; p.Outcome != 0 || p.Output != nil || p.Verdict == engine.Rejected && p.Failure.Check() != nil {
				t.Fatalf("proposed %+v", p)
			}
		})
	}
	for _, c := range []struct {
		why    string
		budget time.Duration
		limit  time.Duration
	}{
		{"half a minute is enough", 0, 30 * time.Second},
		{"half a minute at most", time.Hour, 30 * time.Second},
		{"and no more than is left", time.Second, time.Second},
	} {
		t.Run(c.why, func(t *testing.T) {
			h := newHost(wf)
			h.limited = func() { h.end(engine.ErrBudget) }
			j := job(wf, `{}`)
			j.Current.Candidate, j.Current.Budget = []byte(`{"count":5}`), c.budget
			if err := engine.Work(t.Context(), wf, j, h); err != nil {
				t.Fatal(err)
			}
			if h.story() != "a 1.1 verdict none \n" || len(h.limits) != 1 || h.limits[0] != c.limit {
				t.Fatalf("%s with limits %v", h.story(), h.limits)
			}
		})
	}
	t.Run("our own stop is no verdict", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stale := launch.Refuse(launch.ErrStale, "replaced")
		h := newHost(wf)
		h.limited = func() { cancel(stale) }
		j := job(wf, `{}`)
		j.Current.Candidate = []byte(`{"count":5}`)
		if err := engine.Work(ctx, wf, j, h); err != stale || len(h.got) != 0 {
			t.Fatalf("got %v and %s", err, h.story())
		}
	})
	t.Run("a node without a check", func(t *testing.T) {
		plain := one(func(w *engine.Builder[Task]) { engine.Agent[Draft](w, "a", w.Input(), title) })
		h := newHost(plain)
		j := job(plain, `{}`)
		j.Current.Candidate = []byte(`{}`)
		works(t, h, j, "a 1.1 verdict none ")
	})
	t.Run("goes on under the same claim", func(t *testing.T) {
		w := engine.New[Task]("w", "1")
		a := engine.Agent[answer](w, "a", w.Input(), title, engine.Validate(check))
		b := engine.Compute(w, "b", a, func(_ context.Context, in answer) (int8, error) { return in.Count, nil })
		engine.Then(a, b)
		wf := must(w.Build())
		h := newHost(wf)
		h.answer = func(p engine.Proposal) (engine.Next, bool, error) {
			h.outputs["a"] = []byte(`{"count":1}`)
			return engine.Next{Node: "b", Visit: 1, Attempt: 1}, p.Verdict != 0, nil
		}
		j := job(wf, `{}`)
		j.Current.Candidate = []byte(`{"count":1}`)
		works(t, h, j, "a 1.1 verdict accepted ", "b 1.1 ok 1")
	})
}

func TestBudget(t *testing.T) {
	var h *host // of the case
	late := func(out string, err error) func(context.Context, engine.Attempt, Task) (string, error) {
		return func(ctx context.Context, _ engine.Attempt, _ Task) (string, error) {
			h.end(engine.ErrBudget)
			<-ctx.Done()
			return out, err
		}
	}
	pure := func(f func(context.Context, engine.Attempt, Task) (string, error)) func(context.Context, Task) (string, error) {
		return func(ctx context.Context, in Task) (string, error) { return f(ctx, engine.Attempt{}, in) }
	}
	wild := func(ctx context.Context, a engine.Attempt, in Task) (string, error) {
		_, _ = late("", nil)(ctx, a, in)
		panic(secret)
	}
	observer := engine.Observed(func(ctx context.Context, a engine.Attempt, in Task) (string, bool, error) {
		_, err := late("", context.Canceled)(ctx, a, in)
		return "", false, err
	})
	const out = "a 1.2 timed_out: node a used up its active time; restart the run, or declare a larger budget"
	const noWords = "it returned an error without an explanation; let its code use engine.Explain"
	for _, c := range []struct {
		why        string
		wf         *engine.Workflow
		recovering bool
		want       string
	}{
		{"an error", single(pure(late("", context.DeadlineExceeded))), false, out},
		{"an output that comes too late", single(pure(late("x", nil))), false, out},
		{"a panic stays one", single(pure(wild)), false, "a 1.2 failed: node a panicked; see the host's log"},
		{"a prompt that comes too late", one(func(w *engine.Builder[Task]) { engine.Agent[Draft](w, "a", w.Input(), pure(late("x", nil))) }), false, out},
		{"a message that comes too late", one(func(w *engine.Builder[Task]) { engine.Notify(w, "a", w.Input(), pure(late("x", nil))) }), false, out},
		{"an action that took effect all the same", action(engine.Unrepeatable(), late("x", nil)), false, `a 1.2 ok "x"`},
		{"an action that can be repeated", action(engine.Repeatable(), late("", context.Canceled)), false, out},
		{"unless it cannot tell", action(engine.Repeatable(), late("", engine.Unknown(engine.Explain("sent", nil)))), false,
			"a 1.2 unknown: node a used up its active time and may or may not have taken effect: sent"},
		{"an action that cannot be repeated", action(engine.Unrepeatable(), late("", context.Canceled)), false,
			"a 1.2 unknown: node a used up its active time and may or may not have taken effect: " + noWords},
		{"an action that can be observed", action(engine.Observed(look[Task, string]), late("", context.Canceled)), false,
			"a 1.2 unknown: node a used up its active time and may or may not have taken effect: " + noWords},
		{"an observer", action(observer, late("x", nil)), true,
			"a 1.2 unknown: node a was interrupted and its observer cannot tell whether it took effect: " + noWords},
	} {
		t.Run(c.why, func(t *testing.T) {
			h = newHost(c.wf)
			j := job(c.wf, `{}`)
			j.Current.Budget, j.Current.Attempt, j.Current.Recovering = 7, 2, c.recovering
			works(t, h, j, c.want)
			if len(h.limits) != 1 || h.limits[0] != 7 {
				t.Fatalf("limits %v, want one of what is left", h.limits)
			}
			if p := h.got[0]; p.Outcome == engine.TimedOut && p.Failure.Code != launch.CodeTimedOut {
				t.Fatalf("failure %+v", p.Failure)
			}
		})
	}
	t.Run("another end of the limit is no timeout", func(t *testing.T) {
		var h *host
		h = newHost(single(func(context.Context, Task) (int, error) { h.end(errors.New("else")); return 1, nil }))
		j := job(h.wf, `{}`)
		j.Current.Budget = 7
		works(t, h, j, "a 1.1 ok 1")
	})
	t.Run("our own stop is no timeout", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stale := launch.Refuse(launch.ErrStale, "replaced")
		h := newHost(single(func(ctx context.Context, _ Task) (int, error) { cancel(stale); return 0, ctx.Err() }))
		j := job(h.wf, `{}`)
		j.Current.Budget = 7
		if err := engine.Work(ctx, h.wf, j, h); err != stale || len(h.got) != 0 {
			t.Fatalf("got %v and %s", err, h.story())
		}
	})
	t.Run("without a budget there is no limit", func(t *testing.T) {
		h := newHost(single(func(context.Context, Task) (int, error) { return 1, nil }))
		if works(t, h, job(h.wf, `{}`), "a 1.1 ok 1"); h.limits != nil {
			t.Fatal("a limit was asked for")
		}
	})
}

func TestApproval(t *testing.T) {
	settled := func(title string, size int8) launch.Digest {
		return launch.DigestOf([]byte(must(json.Marshal(engine.Pair[Task, Draft]{A: Task{Title: title, Size: size}, B: Draft{"all"}}))))
	}
	w := engine.New[Task]("w", "1")
	subject := engine.Both(w.Input(), engine.Settings(w, Draft{"all"}))
	type thing = engine.Pair[Task, Draft]
	ran := false
	d := engine.Decide[Verdict](w, "d", subject, show[thing])
	a := engine.Action(w, "a", subject, func(context.Context, engine.Attempt, thing) (string, error) { ran = true; return "ran", nil },
		engine.Repeatable(), engine.Approved(d, Good))
	engine.Switch(d, engine.Case(Good, a), engine.Case(Bad, d))
	wf := must(w.Build())
	settings := map[uint32]string{1: `{"text":"all"}`}

	h := newHost(wf)
	h.settings = settings
	j := job(wf, `{"title":"x","size":3}`)
	j.Current.Seen = 1
	works(t, h, j, "d 1.1 asks Merge? All of it.")
	if h.got[0].Ask.Subject != settled("x", 3) {
		t.Fatal("the subject is not the digest of what was read")
	}

	for _, c := range []struct {
		why        string
		reserve    bool
		recovering bool
		err        error
		want       string // proposed
		stops      bool
		asked      bool
	}{
		{"approved", true, false, nil, `a 1.1 ok "ran"`, false, true},
		{"not approved", true, false, launch.Refuse(launch.ErrNotAllowed, "the decision of node d does not approve it"),
			"a 1.1 failed: node a did not start: the decision of node d does not approve it", false, true},
		{"something else", true, false, launch.Refuse(launch.ErrConflict, "ask again"), "a 1.1 failed: node a did not start: ask again", false, true},
		{"the claim is gone", true, false, launch.Refuse(launch.ErrStale, "replaced"), "", true, true},
		{"the store is closed", true, false, launch.Refuse(launch.ErrClosed, "closed"), "", true, true},
		{"the disk", true, false, errors.New("disk"), "", true, true},
		{"reserved before", false, false, nil, `a 1.1 ok "ran"`, false, false},
		{"interrupted and unchanged", false, true, nil, `a 1.1 ok "ran"`, false, true},
		{"interrupted, and its settings changed since", false, true, launch.Refuse(launch.ErrConflict, "ask again"),
			"a 1.1 unknown: node a was interrupted and cannot run again: ask again", false, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			ran = false
			h := newHost(wf)
			h.settings = settings
			asked := false
			h.reserve = func(fingerprint launch.Digest) error {
				if asked = true; ran || fingerprint != settled("x", 3) {
					t.Error("reserved after the code ran, or for another thing than was decided about")
				}
				return c.err
			}
			j := job(wf, `{"title":"x","size":3}`)
			j.Current = engine.Next{Node: "a", Visit: 1, Attempt: 1, Seen: 1, Reserve: c.reserve, Recovering: c.recovering}
			if c.stops {
				if err := engine.Work(t.Context(), wf, j, h); err != c.err || len(h.got) != 0 {
					t.Fatalf("got %v and %s", err, h.story())
				}
			} else {
				works(t, h, j, c.want)
			}
			if asked != c.asked || ran != (c.err == nil) {
				t.Fatalf("reserved %v, ran %v", asked, ran)
			}
		})
	}
}

// Integers that a double merges are different subjects.
func TestSubjectsDiffer(t *testing.T) {
	w := engine.New[int64]("w", "1")
	engine.Decide[Verdict](w, "d", w.Input(), show[int64])
	wf := must(w.Build())
	seen := map[launch.Digest]bool{}
	for _, in := range []string{"9007199254740992", "9007199254740993"} {
		h := newHost(wf)
		if err := engine.Work(t.Context(), wf, job(wf, in), h); err != nil {
			t.Fatal(err)
		}
		seen[h.got[0].Ask.Subject] = true
	}
	if len(seen) != 2 {
		t.Error("a decision about one amount approves another")
	}
}
