package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/piworkflows/delivery/deliverytest"
	"github.com/google/go-cmp/cmp"
)

// TestMain makes the test binary a process of the story when it is asked to.
func TestMain(m *testing.M) {
	dir := os.Getenv("REVIEW_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := survive(dir, os.Getenv("REVIEW_CRASH")); err != nil {
		fmt.Println("not ok:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
	os.Exit(0)
}

// spoken is the commit that takes a model's visible text as an answer.
const spoken = "observe spoken"

// boundaries are where the story can die: before and after each kind of commit,
// by command and occurrence.
func boundaries() (all []string) {
	for _, b := range []struct {
		command string
		times   []int
	}{
		{"connect", []int{1}},
		{"start", []int{1, 2, 3}},                                         // the review, its restart, the trial
		{"claim", []int{1, 3, 8, 10, 15}},                                 // a start, an answer, a resume, the last one
		{"respond", []int{1, 3, 4, 7, 8, 9}},                              // submit, a person's answer and decision, the model's answer, a decision under pause, a candidate
		{"propose", []int{1, 2, 3, 4, 5, 11, 12, 13, 15, 16, 17, 18, 19}}, // ask in each kind, compute, act, notify, the verdict, an unknown effect
		{spoken, []int{1}},
		{"lapse", []int{3}}, // the first is at the opening, the second when the deadline is stored
		{"sample", []int{1}},
		{"reserve", []int{1}}, // with the approval
		{"pause", []int{1}},
		{"resume", []int{1}},
		{"cancel", []int{1}},
		{"resolveeffect", []int{1}},
		{"try", []int{2}},
		{"answer", []int{2}},
		{"observe turnstarted", []int{2}},
		{"observe turnsettled", []int{2}},
	} {
		for _, n := range b.times {
			all = append(all, fmt.Sprintf("before %s %d", b.command, n), fmt.Sprintf("after %s %d", b.command, n))
		}
	}
	return all
}

// play runs one process of the story in dir and returns what it printed.
func play(t *testing.T, dir, crash string) (out string, end syscall.WaitStatus) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // which only a story that hangs takes
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "REVIEW_DIR="+dir, "REVIEW_CRASH="+crash)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
		return err.Error(), 0
	}
	return both.String(), cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func told(out string, end syscall.WaitStatus) bool {
	return end.Exited() && end.ExitStatus() == 0 && strings.HasSuffix("\n"+out, "\nok\n")
}

// At every boundary the process can be killed, and another one brings the story
// to the same end.
func TestKilledAtEveryBoundary(t *testing.T) {
	whole := t.TempDir()
	if out, end := play(t, whole, ""); !told(out, end) {
		t.Fatalf("the story ended with %d:\n%s", end, out)
	}
	want := ending(t, whole)
	type story struct {
		dir, first, second string
		died, ended        syscall.WaitStatus
	}
	stories := make([]story, len(boundaries()))
	slots := make(chan struct{}, 24) // a story mostly waits, for a lease or a deadline
	var wg sync.WaitGroup
	for i, b := range boundaries() {
		if testing.Short() && i%5 != 0 {
			continue
		}
		s := &stories[i]
		s.dir = t.TempDir()
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if s.first, s.died = play(t, s.dir, b); s.died.Signaled() {
				s.second, s.ended = play(t, s.dir, "")
			}
		})
	}
	wg.Wait()
	for i, b := range boundaries() {
		s := stories[i]
		if s.dir == "" {
			continue
		}
		t.Run(b, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the first process:\n%s\nthe second:\n%s", s.first, s.second)
				}
			}()
			if !s.died.Signaled() || s.died.Signal() != syscall.SIGKILL {
				t.Fatalf("it was to die by SIGKILL and ended with %d", s.died)
			}
			if !told(s.second, s.ended) {
				t.Fatalf("the second process ended with %d, not with ok and 0", s.ended)
			}
			if diff := cmp.Diff(want, ending(t, s.dir)); diff != "" {
				t.Errorf("the story has another end (-whole +killed):\n%s", diff)
			}
		})
	}
}

// run names a run by its place in the story.
const run = `q.workflow || CASE WHEN q.parent_run_id IS NULL THEN '' ELSE ' again' END`

// endings are what has to be the same in every story.
var endings = map[string]string{
	"runs":     `SELECT ` + run + `, state FROM workflow_run_queue q ORDER BY run_id`,
	"outputs":  `SELECT ` + run + `, node, visit, output FROM workflow_steps JOIN workflow_run_queue q USING (run_id) WHERE outcome = 1 ORDER BY run_id, node, visit`,
	"failures": `SELECT ` + run + `, node, outcome FROM workflow_steps JOIN workflow_run_queue q USING (run_id) WHERE outcome <> 1 AND node <> 'act'`,
	"requests": `SELECT node, visit, kind, state, answered_with FROM workflow_requests ORDER BY opened_at, request_id`,
	"answers":  `SELECT q.node, q.visit, r.action, r.actor FROM workflow_receipts r JOIN workflow_requests q USING (request_id) WHERE r.outcome = 1 ORDER BY q.opened_at, q.request_id`,
	// of the trial's action a person may have found that it did not happen, which is tried again
	"effects": `SELECT ` + run + `, node, visit, e.state FROM workflow_effects e JOIN workflow_run_queue q USING (run_id) WHERE NOT (node = 'act' AND e.state = 3) ORDER BY run_id, node, visit`,
	"ends":    `SELECT count(DISTINCT run_id) FROM workflow_turn_intents WHERE resolved_at IS NOT NULL`,
}

// troubles are answered with no row; each names what its rows would be.
var troubles = map[string]string{
	"the file is damaged":              `SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
	"a claim is left":                  `SELECT hex(run_id) FROM workflow_run_queue WHERE claimed <> 0 OR runner IS NOT NULL OR token_hash IS NOT NULL`,
	"private input is left":            `SELECT hex(run_id) FROM workflow_run_queue WHERE input IS NOT NULL`,
	"a visit was settled ok twice":     `SELECT hex(run_id), node, visit FROM workflow_steps WHERE outcome = 1 GROUP BY 1, 2, 3 HAVING count(*) > 1`,
	"a request took two answers":       `SELECT request_id FROM workflow_receipts WHERE outcome = 1 AND action <> 2 GROUP BY 1 HAVING count(*) > 1`,
	"an approval was used twice":       `SELECT hex(used_by) FROM workflow_requests WHERE used_by IS NOT NULL GROUP BY 1 HAVING count(*) > 1`,
	"an intent is pending":             `SELECT intent_id FROM workflow_turn_intents WHERE resolved_at IS NULL AND withdrawn_at IS NULL`,
	"an end was told twice":            `SELECT run_id FROM workflow_turn_intents WHERE resolved_at IS NOT NULL GROUP BY run_id HAVING count(*) > 1`,
	"an end was not told":              `SELECT run_id FROM workflow_turn_intents GROUP BY run_id HAVING count(resolved_at) <> 1`,
	"a resolution names no message":    `SELECT intent_id FROM workflow_turn_intents WHERE resolution_message_id NOT IN (SELECT message_id FROM workflow_messages WHERE state = 2)`,
	"a message is unsent":              `SELECT message_id, kind FROM workflow_messages WHERE state IN (1, 4)`,
	"a turn is open":                   `SELECT session_id FROM workflow_sessions WHERE open_message IS NOT NULL OR held <> 0`,
	"time runs for a run that is over": `SELECT hex(run_id) FROM workflow_runs WHERE interval_at IS NOT NULL`,
}

// ending is what a story that is told left behind. It fails the test for what no
// story may leave.
func ending(t *testing.T, dir string) map[string][]string {
	t.Helper()
	db := filepath.Join(dir, "review.db")
	end := map[string][]string{}
	for what, query := range endings {
		end[what] = rows(t, db, query)
	}
	for what, query := range troubles {
		if got := rows(t, db, query); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	for _, name := range []string{"published.txt", "acted.txt"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		end[name] = []string{string(raw)}
	}
	file, err := deliverytest.OpenFile("review", filepath.Join(dir, "session.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range file.Entries() {
		id := e.MessageID()
		if id != "" && file.MaxCount(id) != 1 {
			t.Errorf("a message is on the branch %d times: %s", file.MaxCount(id), e.Text)
		}
		if e.CustomType == "pi-workflows-notification" {
			_, text, _ := strings.Cut(e.Text, "): ") // the run has an id of its own
			end["told"] = append(end["told"], text)
		}
	}
	return end
}
