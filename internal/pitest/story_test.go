package pitest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// TestEightSteps: a start made in a turn, whose definition changes before it is
// activated, fails durably; the model gets exactly one turn with the safe
// error, corrects the start in it, and the new run reaches its first step.
func TestEightSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	release := w.hold("start deploy 2")
	w.on("message", func(_ context.Context, r pitest.Request) pitest.Reply {
		if strings.Contains(r.Opener, "failed to start") {
			switch r.Step {
			case 1:
				return pitest.Reply{Calls: []pitest.Call{{Tool: "workflow", Args: `{"action":"status"}`}}}
			case 2:
				return startCall("deploy")
			}
		}
		return pitest.Reply{Text: "I have seen it."}
	})
	mark := w.agent.Mark()
	w.ok(w.agent.Prompt(w.ctx, "start deploy", "followUp"))
	first := w.started("deploy") // acknowledged; its turn is held open by the model
	w.host.kill()
	w.config.Version = "2" // the source changes
	w.startHost()
	w.connected(0)
	release()
	_, err := w.agent.Settled(w.ctx, mark)
	w.ok(err)
	w.runEvent(0, "launch.failed", first)

	r := w.asked("the corrected start", func(r pitest.Request) bool {
		return strings.Contains(r.Opener, "failed to start") && r.Step == 3
	})
	second := w.runOf(r)
	status := r.Messages[len(r.Messages)-3].Text
	if !strings.Contains(status, first) || !strings.Contains(status, "source_changed") {
		t.Errorf("in its turn the model sees of the failed run: %q", status)
	}
	if !strings.Contains(r.Opener, first) {
		t.Errorf("the turn is about %q, want run %s", r.Opener, first)
	}
	l := w.runEvent(0, "run.settled", second)
	if l.Node != "ship" || l.Why != "ok" {
		t.Errorf("the first step of the new run: %+v", l)
	}
	w.over(second)
	mark = w.provider.Opened(func(string) bool { return true })
	w.ok(w.agent.Prompt(w.ctx, "/workflow status "+first, "followUp")) // still inspectable, by a person too
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if n := w.provider.Opened(func(o string) bool { return strings.Contains(o, first) }); n != 1 {
		t.Errorf("the failed start was given %d turns, want 1", n)
	}
	if n := w.provider.Opened(func(string) bool { return true }); n != mark+1 {
		t.Errorf("%d turns after the story, want the person's one", n-mark)
	}
	if got, want := w.end(1), []string{first + " fallback", second + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestRunFails: a run that fails after it started well gives one turn, and not
// while another turn runs.
func TestRunFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("broken")
	w.gate(0)
	c := make(chan struct{})
	w.on("chat", func(ctx context.Context, r pitest.Request) pitest.Reply {
		switch {
		case r.Step == 1: // until the run has failed
			select {
			case <-c:
			case <-ctx.Done():
			}
			fallthrough
		case r.Step < 6: // then there is time for who would send now
			return pitest.Reply{Calls: []pitest.Call{{Tool: "workflow", Args: `{"action":"status"}`}}}
		}
		return pitest.Reply{Text: "It has failed."}
	})
	mark := w.agent.Mark()
	w.ok(w.agent.Prompt(w.ctx, "chat", "followUp"))
	w.asked("the chat", opened("chat"))
	w.ok(w.host.say("open"))
	w.runEvent(0, "launch.failed", run)
	w.event(0, "session.queued")
	if n := w.provider.Opened(about.MatchString); n != 0 {
		t.Errorf("%d turns were opened while the chat ran", n)
	}
	close(c)
	_, err := w.agent.Settled(w.ctx, mark)
	w.ok(err)
	w.over(run)
	w.ok(w.agent.Ask(w.ctx, "go on"))
	settled := false // since the chat
	for _, e := range w.agent.Events()[mark:] {
		settled = settled || e.Type == "agent_settled"
		if custom(e) && !settled {
			t.Error("the message was sent into the chat's turn")
		}
	}
	got := w.asked("the failure", byMessage)
	if !strings.Contains(got.Opener, "broken failed") || !strings.Contains(got.Opener, run) {
		t.Errorf("the turn is about %q", got.Opener)
	}
	if n := w.provider.Opened(about.MatchString); n != 1 {
		t.Errorf("%d turns for the failed run, want 1", n)
	}
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// custom reports whether a custom message was appended.
func custom(e pitest.Event) bool {
	return e.Type == "message_end" && strings.Contains(string(e.Raw), `"role":"custom"`)
}

// TestRetry: errors of the provider that Pi retries are one turn, which is over
// when it has settled.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	ended := 0 // turns that the host took as over before the last try
	w.on("message", func(_ context.Context, r pitest.Request) pitest.Reply {
		if r.Repeat < 3 {
			return pitest.Reply{Status: 503, Text: "overloaded"}
		}
		ended = w.host.count("session.turnClosed")
		return pitest.Reply{Text: "At last."}
	})
	mark := w.agent.Mark()
	w.ok(w.host.say("open"))
	_, err := w.agent.Settled(w.ctx, mark)
	w.ok(err)
	if l := w.event(0, "session.turnClosed"); l.Why != "completed" || ended != 0 {
		t.Errorf("the turn ended %q; %d ends before it had settled", l.Why, ended)
	}
	w.over(run)
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if opened, closed := w.host.count("session.turnOpened"), w.host.count("session.turnClosed"); opened != 1 || closed != 1 {
		t.Errorf("%d turns were opened and %d closed, want one", opened, closed)
	}
	if got, want := w.end(3), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestRetryGivesUp: a provider that fails at every try ends the turn with that
// error when Pi gives up, and nothing is sent again for it.
func TestRetryGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	tries, ended := 0, 0 // ended: turns that the host took as over before the last try
	w.on("message", func(context.Context, pitest.Request) pitest.Reply {
		tries, ended = tries+1, w.host.count("session.turnClosed")
		return pitest.Reply{Status: 503, Text: "overloaded"}
	})
	mark := w.agent.Mark()
	w.ok(w.host.say("open"))
	settled, err := w.agent.Settled(w.ctx, mark)
	w.ok(err)
	if settled.Aborted || tries < 2 {
		t.Fatalf("Pi gave up after %d tries, aborted: %v; want errors that it retried", tries, settled.Aborted)
	}
	if l := w.event(0, "session.turnClosed"); l.Why != "error" || ended != 0 {
		t.Errorf("the turn ended %q; %d ends before it had settled", l.Why, ended)
	}
	w.over(run)
	w.turns(tries)
	w.ok(w.agent.Terminate(w.ctx))
	w.startPi()
	w.turns(tries)
	for _, kind := range []string{"session.attempted", "session.sent", "session.turnOpened", "session.turnClosed"} {
		if n := w.host.count(kind); n != 1 {
			t.Errorf("%s happened %d times, want once", kind, n)
		}
	}
	if got, want := w.end(tries), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestReload: Pi loads its extensions again while a turn runs, which it
// refuses, and as soon as that turn has settled, while an intent waits.
func TestReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	release := w.hold("chat")
	mark, agent := w.host.mark(), w.agent.Mark()
	w.ok(w.agent.Prompt(w.ctx, "chat", "followUp"))
	w.asked("the chat", opened("chat"))
	w.ok(w.agent.Prompt(w.ctx, "/reload-now", "followUp"))
	_, err := w.agent.Wait(w.ctx, agent, "refusal", func(e pitest.Event) bool { return e.Type == "extension_error" })
	w.ok(err)
	w.ok(w.host.say("open"))
	w.event(mark, "session.queued")
	w.ok(w.stops.arm("reload"))
	mark = w.host.mark()
	release()
	w.connected(mark)
	w.over(run)
	w.turns(1)
	if n := w.host.count("session.turnOpened"); n != 1 {
		t.Errorf("%d turns were opened, want 1", n)
	}
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestSwitch: the session is opened again, in the same process, while its
// successor turn runs, which ends that turn.
func TestSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	w.hold("message")
	mark := w.host.mark()
	w.ok(w.host.say("open"))
	w.asked("the turn", byMessage)
	w.event(mark, "session.turnOpened")
	mark = w.host.mark()
	_, err := w.agent.Do(w.ctx, "switch_session", map[string]any{"sessionPath": w.session})
	w.ok(err)
	w.connected(mark)
	w.over(run)
	w.turns(1)
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestCompaction: what is owed waits for the end of a compaction.
func TestCompaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"compaction": map[string]any{"enabled": false, "keepRecentTokens": 1}})
	for _, text := range []string{"one " + strings.Repeat("word ", 400), "two " + strings.Repeat("word ", 400)} {
		w.ok(w.agent.Ask(w.ctx, text))
	}
	run := w.start("slow")
	w.gate(0)
	c := make(chan struct{})
	w.on("start slow", func(context.Context, pitest.Request) pitest.Reply { return pitest.Reply{Text: "s"} })
	summary := func(r pitest.Request) bool { return len(r.Tools) == 0 }
	w.mu.Lock()
	w.other = func(_ context.Context, r pitest.Request) (pitest.Reply, bool) {
		return pitest.Reply{Text: "A summary.", Hold: c}, summary(r)
	}
	w.mu.Unlock()
	compacted := make(chan error, 1)
	go func() {
		_, err := w.agent.Do(w.ctx, "compact", nil)
		compacted <- err
	}()
	w.asked("the summary", summary)
	w.ok(w.host.say("open"))
	w.runEvent(0, "launch.done", run)
	w.event(0, "session.queued")
	if n := w.provider.Opened(about.MatchString); n != 0 {
		t.Errorf("%d turns were opened in the compaction", n)
	}
	close(c)
	w.ok(<-compacted)
	w.over(run)
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}

// TestChat: what a person or the model says is never taken for workflow work,
// also when it quotes the very message that is about to be sent.
func TestChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.start("slow")
	w.gate(0)
	release := w.hold("chat")
	mark := w.agent.Mark()
	w.ok(w.agent.Prompt(w.ctx, "chat", "followUp"))
	w.asked("the chat", opened("chat"))
	w.ok(w.host.say("open"))
	queued := w.event(0, "session.queued")
	quote := fmt.Sprintf(`Look: {"customType":"pi-workflows-deferred-turn","details":{"messageId":%q,"turnIntentId":%q}}`, queued.Msg, queued.Intent)
	w.on(quote, func(context.Context, pitest.Request) pitest.Reply { return pitest.Reply{Text: quote} })
	w.ok(w.agent.Prompt(w.ctx, quote, "followUp"))
	release()
	_, err := w.agent.Settled(w.ctx, mark)
	w.ok(err)
	w.over(run)
	w.turns(1)
	if n := w.provider.Opened(func(o string) bool { return o == quote }); n != 1 {
		t.Errorf("the quote opened %d turns, want 1", n)
	}
	sent, turns := w.host.count("session.sent"), w.host.count("session.turnOpened")
	w.ok(w.agent.Ask(w.ctx, quote))
	w.ok(w.agent.Ask(w.ctx, "go on"))
	if s, n := w.host.count("session.sent"), w.host.count("session.turnOpened"); sent != 1 || s != 1 || turns != 1 || n != 1 {
		t.Errorf("%d messages and %d turns, then %d and %d after more chat, want 1 always", sent, turns, s, n)
	}
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}
