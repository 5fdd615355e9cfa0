package pitest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// newReview is a world whose model can start the example's review and does what
// the messages of its run ask for. It returns the file that is published to.
func newReview(t *testing.T) (w *world, out string) {
	t.Helper()
	w = newWorld(t, nil)
	out = filepath.Join(t.TempDir(), "published.txt")
	w.on("start review 1", does(call("start", `"workflow":"review","input":{"title":"rafts","file":%q}`, out)))
	w.on("asked draft 1", gives("submit", `{"text":"Rafts flaot."}`))
	w.on("asked proof/read 1", gives("submit", `{"text":"Rafts float."}`))
	w.on("asked ask 1", gives("answer", `{"add":"So do boats."}`))
	return w, out
}

// call is one call of the tool.
func call(action, format string, a ...any) pitest.Reply {
	return pitest.Reply{Calls: []pitest.Call{{Tool: "workflow", Args: fmt.Sprintf(`{"action":%q,`+format+`}`, append([]any{action}, a...)...)}}}
}

func does(r pitest.Reply) pitest.Model {
	return func(context.Context, pitest.Request) pitest.Reply { return r }
}

// gives answers the request that the turn is about.
func gives(action, output string) pitest.Model {
	return func(_ context.Context, r pitest.Request) pitest.Reply {
		return call(action, `"requestId":%q,"output":%s`, asked(r), output)
	}
}

// asked is the request that a turn is about.
func asked(r pitest.Request) string {
	if m := asks.FindStringSubmatch(r.Opener); m != nil {
		return m[2]
	}
	return ""
}

// open waits until a node asks and returns the request.
func (w *world) open(mark int, node string) string {
	w.t.Helper()
	l, err := w.host.wait(w.ctx, mark, "a request of "+node, func(l line) bool { return l.Kind == "request.opened" && l.Node == node })
	w.ok(err)
	return l.Ask
}

// shown waits until the first message of a request that was opened since the mark
// is on the branch.
func (w *world) shown(mark int, request string) {
	w.t.Helper()
	opened, message := false, ""
	_, err := w.host.wait(w.ctx, mark, "the message of "+request, func(l line) bool {
		opened = opened || l.Kind == "request.opened" && l.Ask == request
		if opened && message == "" && l.Kind == "session.queued" {
			message = l.Msg
		}
		return message != "" && l.Kind == "session.sent" && l.Msg == message
	})
	w.ok(err)
}

// delivered waits until what was queued since the mark, one message at least,
// waits no more.
func (w *world) delivered(mark int) {
	w.t.Helper()
	unsent, some := map[string]bool{}, false
	_, err := w.host.wait(w.ctx, mark, "the messages", func(l line) bool {
		switch l.Kind {
		case "session.queued":
			unsent[l.Msg], some = true, true
		case "session.sent", "session.cancelled":
			delete(unsent, l.Msg)
		}
		return some && len(unsent) == 0
	})
	w.ok(err)
}

// person writes a command.
func (w *world) person(format string, a ...any) {
	w.t.Helper()
	w.ok(w.agent.Prompt(w.ctx, "/workflow "+fmt.Sprintf(format, a...), "followUp"))
}

// messages returns the texts of our messages in the file that are of a custom
// type, or contain it.
func (w *world) messages(what string) (all []string) {
	w.t.Helper()
	entries, err := pitest.File(w.session)
	w.ok(err)
	for _, e := range entries {
		if e.MessageID() != "" && (e.CustomType == what || strings.Contains(e.Text(), what)) {
			all = append(all, e.Text())
		}
	}
	return all
}

// result returns what the model's call in a step of a turn came to.
func (w *world) result(opener string, step int) string {
	w.t.Helper()
	r := w.asked("the answer to a call", func(r pitest.Request) bool { return r.Opener == opener && r.Step == step+1 })
	return r.Messages[len(r.Messages)-1].Text
}

// passive checks that decisions and notifications are in the file and opened no
// turn.
func (w *world) passive(decisions, notifications int) {
	w.t.Helper()
	for what, want := range map[string]int{"pi-workflows-decision": decisions, "pi-workflows-notification": notifications} {
		texts := w.messages(what)
		if len(texts) != want {
			w.t.Errorf("%d messages %s, want %d: %q", len(texts), what, want, texts)
		}
		if n := w.provider.Opened(func(o string) bool { return slices.Contains(texts, o) }); n != 0 {
			w.t.Errorf("messages %s opened %d turns", what, n)
		}
	}
}

// published checks that the shell ran once for all, with that text.
func (w *world) published(out, want string) {
	w.t.Helper()
	raw, err := os.ReadFile(out)
	if err != nil || string(raw) != want {
		w.t.Errorf("published: %q, want %q; %v", raw, want, err)
	}
	if n := w.rows(`SELECT count(*) FROM workflow_effects`); n[0] != "1" {
		w.t.Errorf("%s effects, want 1", n[0])
	}
}

// TestReview: the model starts the review, drafts, corrects the id that it got
// wrong, proofreads and answers; the person sends the draft back, then approves.
// The one run acts once and reports.
func TestReview(t *testing.T) {
	t.Parallel()
	w, out := newReview(t)
	w.on("asked draft 1", func(_ context.Context, r pitest.Request) pitest.Reply {
		id := asked(r)
		return call("submit", `"requestId":%q,"output":{"text":"Rafts flaot."}`, id[:len(id)-1]+map[bool]string{true: "b", false: "a"}[strings.HasSuffix(id, "a")])
	})
	w.on("asked draft 2", func(ctx context.Context, r pitest.Request) pitest.Reply {
		if last := r.Messages[len(r.Messages)-1].Text; !strings.Contains(last, asked(r)) || !strings.Contains(last, "agent") {
			t.Errorf("a wrong id was answered with %q, want the right one and its kind", last)
		}
		return gives("submit", `{"text":"Rafts flaot."}`)(ctx, r)
	})
	run := w.start("review")
	first := w.open(0, "decide")
	w.shown(0, first)

	w.on("decide it 1", does(call("decide", `"requestId":%q,"choice":"approve"`, first)))
	w.on("decide it 2", does(call("answer", `"requestId":%q,"output":"approve"`, first)))
	w.on("decide it 3", does(call("submit", `"requestId":%q,"output":{"choice":"approve"}`, first)))
	w.ok(w.agent.Ask(w.ctx, "decide it"))
	for step, want := range map[int]string{1: "action: expected one of", 2: "/workflow decide", 3: "/workflow decide"} { // Pi knows the schema
		if said := w.result("decide it", step); !strings.Contains(said, want) {
			t.Errorf("the model's try %d to decide was answered with %q, want %q", step, said, want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("published before anybody decided")
	}
	mark := w.host.mark()
	w.person("decide %s again say what a raft is", first)
	second := w.open(mark, "decide")
	w.shown(mark, second)
	r := w.asked("the second draft", func(r pitest.Request) bool { return strings.Contains(r.Opener, "say what a raft is") })
	if asked(r) == "" || !strings.Contains(r.Opener, run) || second == first {
		t.Errorf("the second round asks %q, with decision %s after %s; want new requests of run %s", r.Opener, second, first, run)
	}
	w.person("decide %s approve", second)
	w.runEvent(mark, "launch.done", run)
	w.over(run)
	w.ok(w.agent.Ask(w.ctx, "go on"))
	w.published(out, "Rafts float. So do boats.\n")
	w.passive(2, 1)
	if n := w.provider.Opened(asks.MatchString); n != 6 {
		t.Errorf("%d turns were opened by questions, want 3 a round", n)
	}
	if n := w.rows(`SELECT count(*) FROM workflow_runs`); n[0] != "1" {
		t.Errorf("%s runs, want 1", n[0])
	}
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestReviewByPerson: the person answers the checkpoint, pauses, decides
// meanwhile, resumes, and restarts the run when it has ended: a second run with
// nothing of the first one but its input.
func TestReviewByPerson(t *testing.T) {
	t.Parallel()
	w, out := newReview(t)
	w.on("asked ask 1", does(pitest.Reply{Text: "That is for you to say."}))
	run := w.start("review")
	ask := w.open(0, "ask")
	w.asked("the question", func(r pitest.Request) bool { return asked(r) == ask })
	w.person(`answer %s {"add":"Ask the ferryman."}`, ask)
	decide := w.open(0, "decide")
	w.shown(0, decide)
	w.ok(w.agent.Ask(w.ctx, "go on")) // everything before has settled
	turns, mark := w.provider.Opened(about.MatchString), w.host.mark()
	w.person("pause")
	w.runEvent(mark, "launch.paused", run)
	w.person("decide %s approve", decide)
	w.runEvent(mark, "request.accepted", run)
	w.turns(turns)
	if _, err := os.Stat(out); err == nil {
		t.Error("published while the run was paused")
	}
	if n := w.rows(`SELECT count(*) FROM workflow_runs`); n[0] != "1" {
		t.Errorf("%s runs, want 1", n[0])
	}
	w.person(`configure {"tone":"warm"}`)
	w.runEvent(mark, "run.configured", run)
	w.person("resume")
	w.runEvent(mark, "launch.done", run)
	w.over(run)
	w.published(out, "Rafts float. Ask the ferryman.\n")
	w.ok(w.agent.Ask(w.ctx, "go on"))

	release := w.hold("asked draft 1")
	mark = w.host.mark()
	w.person("restart")
	l, err := w.host.wait(w.ctx, mark, "the draft of the second run", func(l line) bool { return l.Kind == "request.opened" })
	w.ok(err)
	if l.Node != "draft" || l.Run == run {
		t.Errorf("the restart asks at %s in %s", l.Node, l.Run)
	}
	for query, want := range map[string]string{
		`SELECT count(*) FROM workflow_runs`:                     "2",
		`SELECT count(DISTINCT run_id) FROM workflow_steps`:      "1",
		`SELECT count(*) FROM workflow_effects`:                  "1",
		`SELECT count(*) FROM workflow_requests WHERE kind = 6`:  "1", // no old approval
		`SELECT count(*) FROM workflow_requests WHERE state = 1`: "1",
	} {
		if got := w.rows(query); got[0] != want {
			t.Errorf("%s: %s, want %s", query, got[0], want)
		}
	}
	r := w.asked("the second draft", func(r pitest.Request) bool { return asked(r) == l.Ask })
	if !strings.Contains(r.Opener, "plain tone") {
		t.Errorf("the second draft is asked with %q, want the settings as they are declared", r.Opener)
	}
	mark = w.host.mark()
	w.person("cancel")
	w.runEvent(mark, "launch.cancelled", l.Run)
	release()
	w.over(l.Run)
	w.delivered(mark) // the notice
	w.passive(1, 1)
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}
