package piworkflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/launch"
)

const decideRuns = 60

// side is what is decided: each of the competitors decides otherwise.
type side string

func (side) Choices() []side { return []side{"first", "second", "timer"} }

// asksAPerson is a workflow of one decision, which expires.
func asksAPerson(name string, expires time.Duration, opts ...engine.Option) *engine.Workflow {
	w := engine.New[number](name, "1")
	engine.Decide[side](w, "ask", w.Input(), func(context.Context, number) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish?", Text: "It is ready."}, nil
	}, append(opts, engine.Expires(expires))...)
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// deciding are the workflows of the race: their deadlines pass one after the
// other, half of them with a default.
func deciding() (all []*engine.Workflow) {
	for i := range decideRuns {
		opts := []engine.Option(nil)
		if i%4 < 2 {
			opts = append(opts, engine.Default(side("timer")))
		}
		all = append(all, asksAPerson(fmt.Sprint("ask-", i), time.Duration(i+2)*4*time.Millisecond, opts...))
	}
	return all
}

// decideChild starts a run of each workflow when it is named "first". Then it
// does what it is told, all at once, and says what each call was answered.
func decideChild(c *child) {
	ctx := context.Background()
	rt, err := piworkflows.Open(piworkflows.Options{Path: c.args[0], Workflows: deciding(), Capacity: 16})
	c.must(err)
	var calls sync.WaitGroup
	told := func(what string, run launch.RunID, won bool, err error) {
		if r, ok := errors.AsType[*launch.Refusal](err); ok {
			c.say("told %s %s %s", what, run, strings.ReplaceAll(r.Kind.String(), " ", "-"))
			return
		}
		c.must(err)
		c.say("told %s %s %s", what, run, map[bool]string{true: "won", false: "late"}[won])
	}
	if c.args[1] == "first" {
		for i := range decideRuns {
			s, err := rt.Start(ctx, piworkflows.StartOptions{Workflow: fmt.Sprint("ask-", i), Input: json.RawMessage(`{"n":1}`)})
			c.must(err)
			c.say("run %s", s.Run)
		}
	}
	c.say("open")
	for line := c.hear(); line != "close"; line = c.hear() {
		var what, id string
		var revision uint64
		_, err := fmt.Sscan(line, &what, &id, &revision)
		c.must(err)
		run := launch.RunID(id)
		calls.Go(func() {
			if what == "cancel" {
				end, err := rt.Cancel(ctx, run, launch.Person)
				told(what, run, end.Won, err)
				return
			}
			done, err := rt.Decide(ctx, piworkflows.PersonAnswer{Request: request.ID(run, "ask", 1, 1), Revision: revision,
				Person: c.args[1], Channel: "test", Event: c.args[1] + id}, c.args[1], "")
			told(what, run, done.Outcome == "accepted", err)
		})
	}
	calls.Wait()
	c.must(rt.Close(ctx))
}

// Two processes decide, a third party cancels and the deadline passes, all at
// about the same time: one of them wins, and everybody is told so.
func TestDecideTimeoutAndCancel(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "flows.db")
	all := []*process{spawn(t, "decide", path, "first")}
	var runs []launch.RunID
	for range decideRuns {
		runs = append(runs, launch.RunID(all[0].await("run")))
	}
	all = append(all, spawn(t, "decide", path, "second"))
	all[0].await("open")
	all[1].await("open")
	s := openStore(t, path)
	ctx := context.Background()
	for i, run := range runs {
		var q request.Request
		until(t, "the run asks", func() bool {
			var err error
			q, err = s.Request(ctx, request.ID(run, "ask", 1, 1))
			return err == nil
		})
		for n := range 3 { // in every order
			switch n = (n + i) % 3; {
			case n < 2:
				all[(n+i/3)%2].tell(fmt.Sprint("decide ", run, " ", q.Revision))
			case i%2 == 0:
				all[i/2%2].tell(fmt.Sprint("cancel ", run, " 0"))
			}
		}
	}
	until(t, "every run has ended", func() bool {
		return len(query(t, path, `SELECT 1 FROM workflow_run_queue WHERE state NOT IN (5, 6, 7)`)) == 0
	})
	told := map[launch.RunID]map[string][]string{} // run, who -> what it was told
	for i, p := range all {
		p.tell("close")
		p.wait()
		for _, line := range p.seen {
			f := strings.Fields(line)
			if f[0] != "told" {
				continue
			}
			run := launch.RunID(f[2])
			if told[run] == nil {
				told[run] = map[string][]string{}
			}
			who := f[1]
			if who == "decide" {
				who = []string{"first", "second"}[i]
			}
			told[run][who] = append(told[run][who], f[3])
		}
	}
	ends := map[string]int{}
	for i, run := range runs {
		q, err := s.Request(ctx, request.ID(run, "ask", 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		events, err := s.RunEvents(ctx, run, 0)
		if err != nil {
			t.Fatal(err)
		}
		settled := 0
		for _, e := range events {
			if e.Kind == "request.accepted" || e.Kind == "request.expired" || e.Kind == "request.cancelled" {
				settled++
			}
		}
		if settled != 1 {
			t.Errorf("the request of run %s was settled %d times", run, settled)
		}
		winner := q.State.String()
		if q.State == request.Accepted {
			if winner = q.By.Person; q.By.Actor == launch.Timer {
				winner = "timer"
			}
		}
		ends[winner]++
		lost := map[string]string{"expired": "expired", "cancelled": "ended"}[winner]
		if lost == "" {
			lost = "already-decided"
		}
		for _, who := range []string{"first", "second"} {
			want := lost
			if who == winner {
				want = "won"
			}
			got := told[run][who]
			if len(got) == 1 && got[0] == "expired" && q.Settled >= q.Deadline {
				continue // it came after the deadline, before anybody had settled the request
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("run %s was won by %s; %s was told %q, want %s", run, winner, who, got, want)
			}
		}
		state := launchOf(t, s, run).State
		want := map[string]launch.State{"expired": launch.Failed}[winner]
		if want == 0 {
			want = launch.Done
		}
		if i%2 == 0 {
			got := told[run]["cancel"]
			if len(got) != 1 || (got[0] == "won") != (state == launch.Cancelled) {
				t.Errorf("run %s is %s; its cancel was told %q", run, state, got)
			}
			if got[0] == "won" { // a cancel may end a run after its request, too
				want = launch.Cancelled
			}
		}
		if state != want || winner == "timer" && i%4 >= 2 || winner == "expired" && i%4 < 2 {
			t.Errorf("run %s is %s, want %s after %s won", run, state, want, winner)
		}
	}
	checkFile(t, path)
	t.Logf("won by %v", ends)
}
