package pitest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// TestReviewInTerminal: Escape in a step's turn holds the run until the person
// resumes it, and the person decides, in the terminal.
func TestReviewInTerminal(t *testing.T) {
	t.Parallel()
	w, out := newReview(t)
	w.ok(w.agent.Ask(w.ctx, "hello")) // so that the session is on disk
	w.ok(w.agent.Terminate(w.ctx))
	mark := w.host.mark()
	term, err := pitest.StartTerminal(w.pi, w.home, append(w.stops.env(), w.host.env...), "-e", w.host.ext, "-e", w.stops.ext, "--session", w.session)
	w.missing(err)
	t.Cleanup(term.Close)
	w.connected(mark)
	w.ok(term.See(w.ctx, "mock-1"))
	write := func(text string) {
		t.Helper()
		w.ok(term.Type(text))
		w.ok(term.See(w.ctx, text[max(0, len(text)-20):]))
		w.ok(term.Press("Enter"))
	}
	hold := make(chan struct{})
	w.on("asked draft 1", func(ctx context.Context, r pitest.Request) pitest.Reply {
		reply := gives("submit", `{"text":"Rafts flaot."}`)(ctx, r)
		if !strings.Contains(r.Opener, "came to no end") {
			reply.Hold = hold
		}
		return reply
	})
	write("start review")
	run := w.started("review")
	w.asked("the draft", func(r pitest.Request) bool { return asked(r) != "" })
	w.ok(term.See(w.ctx, "…"))
	mark = w.host.mark()
	w.ok(term.Press("Escape"))
	w.runEvent(mark, "session.held", run)
	w.runEvent(mark, "launch.paused", run)
	write("go on")
	w.asked("the chat", opened("go on"))
	w.event(mark, "session.freed")
	if n := w.provider.Opened(asks.MatchString); n != 1 {
		t.Errorf("%d turns were opened by questions while the run was held, want the stopped one", n)
	}
	write("/workflow resume")
	w.runEvent(mark, "launch.resumed", run)
	decide := w.open(mark, "decide")
	w.shown(mark, decide)
	w.ok(term.See(w.ctx, "asks a person to decide"))
	write("/workflow decide " + decide + " approve")
	w.runEvent(mark, "launch.done", run)
	w.over(run)
	mark = w.host.mark()
	write("/quit")
	w.event(mark, "session.disconnected")
	w.startPi()
	w.turns(5) // four questions, one of them stopped, and the successor
	w.published(out, "Rafts float. So do boats.\n")
	w.passive(1, 1)
	if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
		t.Errorf("the intents are %q, want %q", got, want)
	}
}
