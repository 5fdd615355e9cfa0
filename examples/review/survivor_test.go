package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/examples/review/flow"
	"example.com/piworkflows/launch"
)

// survivor is one process of a longer story, which knows what to do next from
// the file alone, so that another process can go on with it. The run of the
// example is paused, decided, resumed and restarted, the model cancels the
// restart in its own turn, and then a run of [trial] goes through what the
// example has not.
type survivor struct {
	story
	dir   string
	crash string
	met   map[string]*atomic.Int64 // commits by point
	spoke atomic.Bool              // the turn under way answers a request by its text
}

// survive tells the story to its end, from wherever the file says that it is. At
// the boundary crash, "before respond 2", the process ends by SIGKILL.
func survive(dir, crash string) error {
	s := &survivor{dir: dir, crash: crash, met: map[string]*atomic.Int64{}}
	for _, b := range boundaries() {
		s.met[b[:strings.LastIndexByte(b, ' ')]] = new(atomic.Int64)
	}
	more, err := trial(s.path("acted.txt"))
	if err != nil {
		return err
	}
	s.story = story{db: s.path("review.db"), out: s.path("published.txt"), say: func(line string) { fmt.Println(line) }, seen: make(chan struct{}, 1),
		host: piworkflows.Options{Workflows: []*engine.Workflow{more}, Probe: s.pass, Lease: 2 * time.Second, Renew: 500 * time.Millisecond}}
	if s.file, err = deliverytest.OpenFile("review", s.path("session.jsonl")); err != nil {
		return err
	}
	s.pi = s.file.Start(deliverytest.Options{Process: fmt.Sprintf("pi-%d", os.Getpid()), Model: s.model, Tools: map[string]deliverytest.Tool{"workflow": s.tool}})
	if err := s.open(); err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		s.pi.Wait()
		over, err := s.step(ctx)
		if over || err != nil {
			return err
		}
		select {
		case <-s.seen:
		case <-ctx.Done():
			v, _ := s.rt.Status(context.Background(), s.run)
			return fmt.Errorf("the story does not go on: the run is %s (%s)", state(v), v.Turn)
		}
	}
}

func (s *survivor) path(name string) string { return filepath.Join(s.dir, name) }

// pass is told of every commit. The end of a turn that answers by its text is a
// point of its own.
func (s *survivor) pass(point string) {
	if when, ends := strings.CutSuffix(point, "observe turnsettled"); ends && s.spoke.Load() {
		point = when + spoken
	}
	if n := s.met[point]; n != nil && fmt.Sprintf("%s %d", point, n.Add(1)) == s.crash {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

// step does what a person does in the state that the file shows.
func (s *survivor) step(ctx context.Context) (over bool, err error) {
	id, err := s.rt.SessionRun(ctx, s.file.Key())
	if err != nil {
		return false, err
	}
	if id == "" {
		return false, s.pi.Prompt("review rafts")
	}
	v, err := s.rt.Status(ctx, id)
	if err != nil {
		return false, err
	}
	s.run = id
	asks := func(node string) bool { return v.Node == node && v.Request != nil && v.Request.State == "pending" }
	switch {
	case v.Turn != "":
		return false, nil
	case v.Workflow == "trial":
		if v.Effect != "" {
			return false, s.person(ctx, s.finding(v.Effect))
		}
		if v.Finished != "" && v.Status != view.Completed {
			return false, fmt.Errorf("the trial ended as %s: %s", v.Status, v.ErrorText)
		}
		return v.Status == view.Completed, nil
	case s.restarted():
		if v.Finished != "" {
			return false, s.pi.Prompt("try something")
		}
	case v.Status == view.Completed:
		return false, s.person(ctx, "restart")
	case v.Finished != "":
		return false, fmt.Errorf("the review ended as %s: %s", v.Status, v.ErrorText)
	case v.Status == view.Paused && asks("decide"):
		return false, s.person(ctx, "decide "+v.Request.ID+" approve")
	case v.Status == view.Paused:
		return false, s.person(ctx, "resume")
	case asks("ask") && !s.sentBack():
		return false, s.person(ctx, `answer `+v.Request.ID+` {"add":"So do boats."}`)
	case asks("ask") && s.shows(v.Request.ID): // the turn in which the model was asked died with its process
		return false, s.pi.Prompt("answer " + v.Request.ID)
	case asks("decide") && !s.sentBack():
		return false, s.person(ctx, "decide "+v.Request.ID+" again say what a raft is")
	case asks("decide"):
		return false, s.person(ctx, "pause")
	}
	return false, nil
}

// has reports whether the file has a row.
func (s *survivor) has(sql string) bool {
	all, err := query(s.db, sql)
	if err != nil {
		panic(err)
	}
	return len(all) > 0
}

func (s *survivor) restarted() bool {
	return s.has(`SELECT 1 FROM workflow_run_queue WHERE workflow = 'review' AND parent_run_id IS NOT NULL`)
}

func (s *survivor) sentBack() bool {
	return s.has(`SELECT 1 FROM workflow_steps WHERE node = 'decide'`)
}

// shows reports whether the request was put to the model.
func (s *survivor) shows(request string) bool {
	return slices.ContainsFunc(s.pi.Branch(), func(e deliverytest.Entry) bool {
		return e.CustomType == "pi-workflows-checkpoint" && strings.Contains(string(e.Details), request)
	})
}

// finding is what the person finds out about the effect of the trial.
func (s *survivor) finding(effect string) string {
	if raw, err := os.ReadFile(s.path("acted.txt")); err != nil || len(raw) == 0 {
		return "resolve " + effect + " rejected the file is empty"
	}
	return `resolve output="acted" ` + effect + " applied the file has the line"
}

// model is the scripted model. What it does depends on the message and on the
// file alone.
func (s *survivor) model(ctx context.Context, t deliverytest.Turn) deliverytest.Reply {
	var asked struct {
		Request string       `json:"requestId"`
		Run     launch.RunID `json:"runId"`
		Node    string       `json:"node"`
	}
	_ = json.Unmarshal(t.Opener.Details, &asked) // a person's prompt has none
	workflow, _, _ := asked.Run.Split()
	args := ""
	submit := func(text string) {
		args = fmt.Sprintf(`{"action":"submit","requestId":%q,"output":{"text":%q}}`, asked.Request, text)
	}
	answer := func(request string) {
		args = fmt.Sprintf(`{"action":"answer","requestId":%q,"output":{"add":"They float."}}`, request)
	}
	switch {
	case t.Request > 1:
	case t.Opener.Text == "review rafts":
		args = fmt.Sprintf(`{"action":"start","workflow":"review","input":{"title":"rafts","file":%q}}`, s.out)
	case t.Opener.Text == "try something":
		args = `{"action":"start","workflow":"trial","input":{"title":"rafts","file":""}}`
	case workflow == "trial" && asked.Node == "draft":
		if strings.Contains(s.crash, " sample ") {
			<-ctx.Done() // the turn lasts until the process dies
		}
		submit("Rafts float.")
	case workflow == "trial" && asked.Node == "say":
		s.spoke.Store(true)
		return deliverytest.Reply{Text: "They do."}
	case asked.Node == "draft" && s.restarted():
		args = fmt.Sprintf(`{"action":"cancel","runId":%q}`, asked.Run)
	case asked.Node == "draft", asked.Node == "proof/read":
		submit("Rafts are flat boats.")
	case asked.Node == "ask" && s.sentBack():
		answer(asked.Request)
	case strings.HasPrefix(t.Opener.Text, "answer req-"):
		answer(strings.TrimPrefix(t.Opener.Text, "answer "))
	}
	if args == "" {
		return deliverytest.Reply{Text: "I have seen it."}
	}
	return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "workflow", Args: json.RawMessage(args)}}}
}

// trial has what the example has not: an answer that is checked by code, one that
// is the model's visible text, a decision that nobody makes, and an action of
// which nobody knows whether it happened.
func trial(side string) (*engine.Workflow, error) {
	w := engine.New[flow.Job]("trial", "1")
	draft := engine.Agent[flow.Draft](w, "draft", w.Input(), func(_ context.Context, j flow.Job) (string, error) {
		return "Write about " + j.Title, nil
	}, engine.Validate(func(context.Context, flow.Draft) error { return nil }), engine.Budget(time.Hour)) // so that its turns are sampled
	say := engine.Respond(w, "say", draft, func(context.Context, flow.Draft) (string, error) { return "Do they?", nil })
	decide := engine.Decide[flow.Verdict](w, "decide", say, func(_ context.Context, text string) (engine.Presentation, error) {
		return engine.Presentation{Title: "Act?", Text: text}, nil
	}, engine.Expires(300*time.Millisecond), engine.Default(flow.Approve))
	act := engine.Action(w, "act", w.Input(), func(context.Context, engine.Attempt, flow.Job) (string, error) {
		f, err := os.OpenFile(side, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString("acted\n")
		return "", engine.Unknown(errors.Join(err, f.Close(), errors.New("the answer got lost")))
	}, engine.Unrepeatable(), engine.Retry(1, 100*time.Millisecond, engine.Failed))
	report := engine.Notify(w, "report", act, func(_ context.Context, text string) (string, error) { return text, nil }, engine.Final())
	engine.Then(draft, say)
	engine.Then(say, decide)
	engine.Switch(decide, engine.Case(flow.Approve, act), engine.Case(flow.Again, draft))
	engine.Then(act, report)
	return w.Build()
}
