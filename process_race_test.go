package piworkflows_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

const (
	raceKeys     = 120 // starts that all processes race for
	raceCapacity = 6
	raceLease    = 3 * time.Second
)

// way is which of three actions a run takes.
type way string

func (way) Choices() []way { return []way{"once", "again", "seen"} }

type number struct {
	N int `json:"n"`
}

// mix decides, acts in one of three ways, and sums up. Each action appends a
// line to the side file.
func mix(side string) *engine.Workflow {
	act := func(ctx context.Context, a engine.Attempt, in number) (string, error) {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		f, err := os.OpenFile(side, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = fmt.Fprintf(f, "%s %s\n", a.Node, a.Key) // one write, which is appended whole
		return a.Key, errors.Join(err, f.Close())
	}
	look := func(_ context.Context, a engine.Attempt, _ number) (string, bool, error) {
		raw, err := os.ReadFile(side)
		if err != nil {
			return "", false, err
		}
		return a.Key, bytes.Contains(raw, []byte(a.Key)), nil
	}
	w := engine.New[number]("mix", "1")
	decide := engine.Compute(w, "decide", w.Input(), func(_ context.Context, in number) (way, error) {
		return way("").Choices()[in.N%3], nil
	})
	once := engine.Action(w, "once", w.Input(), act, engine.Unrepeatable())
	again := engine.Action(w, "again", w.Input(), act, engine.Repeatable())
	seen := engine.Action(w, "seen", w.Input(), act, engine.Observed(look))
	sum := engine.Compute(w, "sum", w.Input(), func(_ context.Context, in number) (int, error) { return in.N, nil })
	engine.Switch(decide, engine.Case(way("once"), once), engine.Case(way("again"), again), engine.Case(way("seen"), seen))
	engine.Then(once, sum)
	engine.Then(again, sum)
	engine.Then(seen, sum)
	wf, err := w.Build()
	if err != nil {
		panic(err)
	}
	return wf
}

// raceChild starts every key and cancels some of the runs, while it runs what it
// can get hold of. It says what it was answered. With "drain" it starts nothing
// and ends once everything has.
func raceChild(c *child) {
	path, side, task := c.args[0], c.args[1], c.args[2]
	ctx := context.Background()
	moved := make(chan struct{}, 1)
	rt, err := piworkflows.Open(piworkflows.Options{
		Path: path, Workflows: []*engine.Workflow{mix(side)}, Capacity: raceCapacity, Lease: raceLease,
		Observe: func(e store.Event) {
			if e.Launch != 0 {
				select {
				case moved <- struct{}{}:
				default:
				}
			}
		},
	})
	c.must(err)
	if task == "drain" {
		drain(c, rt, moved)
		c.must(rt.Close(ctx))
		return
	}
	c.say("open")
	c.hear() // until all are there
	var wg sync.WaitGroup
	keys := make(chan int)
	for range 8 {
		wg.Go(func() {
			for n := range keys {
				s, err := rt.Start(ctx, piworkflows.StartOptions{Workflow: "mix", Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Scope: "race", RequestKey: strconv.Itoa(n)})
				c.must(err)
				c.say("ack %d %s %t", n, s.Run, s.Created)
				if n%7 != 0 {
					continue
				}
				end, err := rt.Cancel(ctx, s.Run, launch.Host)
				c.must(err)
				c.say("cancel %d %s %t %s", n, s.Run, end.Won, end.State)
			}
		})
	}
	shift, _ := strconv.Atoi(task) // the processes meet at every key, but not in one order
	for i := range raceKeys {
		keys <- (i + shift) % raceKeys
	}
	close(keys)
	wg.Wait()
	c.say("started")
	c.hear()
	c.must(rt.Close(ctx))
}

// drain runs what is left until every run has ended. What waits for a person is
// cancelled by one.
func drain(c *child, rt *piworkflows.Runtime, moved <-chan struct{}) {
	ctx := context.Background()
	var ids []launch.RunID
	for id := c.hear(); id != ""; id = c.hear() {
		ids = append(ids, launch.RunID(id))
	}
	for {
		ids = slices.DeleteFunc(ids, func(id launch.RunID) bool {
			v, err := rt.Status(ctx, id)
			c.must(err)
			if v.Status == view.Ambiguous {
				c.say("ambiguous %s", id)
				_, err := rt.Cancel(ctx, id, launch.Person)
				c.must(err)
			}
			return v.Finished != "" || v.Status == view.Ambiguous
		})
		if len(ids) == 0 {
			return
		}
		<-moved // nobody else has the file open
	}
}

func TestProcessesRace(t *testing.T) {
	for _, processes := range []int{2, 4} {
		t.Run(strconv.Itoa(processes), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, side := filepath.Join(dir, "flows.db"), filepath.Join(dir, "side")
			all := make([]*process, processes)
			for i := range all {
				all[i] = spawn(t, "race", path, side, strconv.Itoa(i*raceKeys/processes))
			}
			for _, p := range all {
				p.await("open")
			}
			for _, p := range all {
				p.tell("go")
			}
			// One dies with starts, claims and actions under way.
			victim := all[0]
			for range raceKeys / 3 {
				victim.await("ack")
			}
			victim.kill()
			for _, p := range all[1:] {
				p.await("started")
			}
			for _, p := range all[1:] {
				p.tell("close")
			}
			for _, p := range all[1:] {
				p.wait()
			}
			last := spawn(t, "race", path, side, "drain")
			ids := runsOf(t, path)
			for _, id := range ids {
				last.tell(string(id))
			}
			last.tell("")
			last.wait()
			checkRace(t, path, side, ids, all, last)
		})
	}
}

// checkRace compares what the processes were answered with what is in the file
// and beside it.
func checkRace(t *testing.T, path, side string, ids []launch.RunID, all []*process, last *process) {
	t.Helper()
	if len(ids) != raceKeys {
		t.Errorf("%d runs are in the file, want one for each of %d keys", len(ids), raceKeys)
	}
	byKey := map[string]string{}
	for _, row := range query(t, path, `SELECT request_key, hex(run_id) FROM workflow_run_queue WHERE scope = 'race'`) {
		key, run, _ := strings.Cut(row, " ")
		byKey[key] = run
	}
	s := openStore(t, path)
	runOf, created, cancelled := map[string]string{}, map[string]int{}, map[string]int{}
	for _, p := range all {
		for _, line := range p.seen {
			f := strings.Fields(line)
			switch f[0] {
			case "ack":
				if was := runOf[f[1]]; was != "" && was != f[2] {
					t.Errorf("key %s was acknowledged as %s and as %s", f[1], was, f[2])
				}
				if runOf[f[1]] = f[2]; f[3] == "true" {
					created[f[1]]++
				}
				l := launchOf(t, s, launch.RunID(f[2]))
				if l.RequestKey != f[1] {
					t.Errorf("run %s was acknowledged for key %s and has %q", f[2], f[1], l.RequestKey)
				}
			case "cancel":
				if f[3] == "true" {
					cancelled[f[2]]++
				}
				if l := launchOf(t, s, launch.RunID(f[2])); l.State.String() != f[4] {
					t.Errorf("the cancel of run %s was answered %s, and it is %s", f[2], f[4], l.State)
				}
			}
		}
	}
	for key, n := range created {
		if n > 1 {
			t.Errorf("key %s was created by %d processes", key, n)
		}
	}
	for run, n := range cancelled {
		if n > 1 {
			t.Errorf("%d cancels of run %s won", n, run)
		}
	}
	if len(runOf) != raceKeys || len(byKey) != raceKeys {
		t.Errorf("%d keys were acknowledged and %d are stored, want %d", len(runOf), len(byKey), raceKeys)
	}
	acted := map[string]int{} // by node and key of the effect
	raw, err := os.ReadFile(side)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		acted[strings.TrimSpace(line)]++
	}
	for what, n := range acted {
		if n > 1 && !strings.HasPrefix(what, "again ") {
			t.Errorf("%s was executed %d times", what, n)
		}
	}
	states := map[launch.State]int{}
	for _, id := range ids {
		l := launchOf(t, s, id)
		if states[l.State]++; !l.State.Terminal() {
			t.Errorf("run %s is left %s", id, l.State)
		}
		if l.State == launch.Failed {
			t.Errorf("run %s failed: %v", id, l.Error)
		}
		if l.State != launch.Done {
			continue
		}
		n, _ := strconv.Atoi(l.RequestKey)
		node := string(way("").Choices()[n%3])
		raw, ok, err := s.Output(context.Background(), id, node)
		var key string
		if err == nil && ok {
			err = json.Unmarshal(raw, &key)
		}
		if err != nil || acted[node+" "+key] == 0 {
			t.Errorf("run %s is done, and its action %s was not executed (%v)", id, node, err)
		}
	}
	if states[launch.Done] < raceKeys/2 {
		t.Errorf("the runs ended %v; most were to be done", states)
	}
	claims := checkFile(t, path)
	if most := mostAtOnce(claims); most > raceCapacity {
		t.Errorf("%d claims were live at one time; each process respects %d", most, raceCapacity)
	}
	ambiguous := 0
	for _, line := range last.seen {
		if strings.HasPrefix(line, "ambiguous") {
			ambiguous++
		}
	}
	t.Logf("%d claims, ends %v, %d waited for a person", len(claims), states, ambiguous)
}
