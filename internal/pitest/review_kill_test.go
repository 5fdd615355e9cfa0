package pitest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"example.com/piworkflows/internal/pitest"
)

// TestReviewKilled kills the host, Pi, or both in every state in which the
// review waits: in the turns of a step, of an included step and of a question,
// and before the decision. Each prompt stays on the branch once and each request
// open, and the run goes on.
func TestReviewKilled(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"host", "pi", "both"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			w, out := newReview(t)
			run := ""
			for _, at := range []struct{ node, action, output string }{
				{"draft", "submit", `{"text":"Rafts flaot."}`},
				{"proof/read", "submit", `{"text":"Rafts float."}`},
				{"ask", "answer", `{"add":"So do boats."}`},
			} {
				hold := make(chan struct{})
				w.on("asked "+at.node+" 1", func(ctx context.Context, r pitest.Request) pitest.Reply {
					reply := gives(at.action, at.output)(ctx, r)
					if !strings.Contains(r.Opener, "came to no end") {
						reply.Hold = hold
					}
					return reply
				})
				if run == "" {
					run = w.start("review")
				}
				r := w.asked("the turn of "+at.node, func(r pitest.Request) bool { return asked(r) != "" && strings.Contains(r.Opener, "step "+at.node+".") })
				w.killed(victim)
				if state := w.rows(`SELECT state FROM workflow_requests WHERE request_id = '` + asked(r) + `'`); !slices.Equal(state, []string{"1"}) {
					t.Errorf("after the kill the request of %s is in state %s, want pending", at.node, state)
				}
				switch {
				case victim == "host": // its turn runs still
				case at.node == "ask": // is not asked again
					w.person("answer %s %s", asked(r), at.output)
				}
				close(hold)
			}
			decide := w.open(0, "decide")
			w.shown(0, decide)
			w.ok(w.agent.Ask(w.ctx, "go on"))
			w.killed(victim)
			w.ok(w.agent.Ask(w.ctx, "go on"))
			w.person("decide %s approve", decide)
			w.over(run)
			w.ok(w.agent.Ask(w.ctx, "go on"))
			w.published(out, "Rafts float. So do boats.\n")
			w.passive(1, 1)
			want := 3
			if victim != "host" {
				want += 2 // the steps were asked for again
			}
			if n := w.provider.Opened(asks.MatchString); n != want {
				t.Errorf("%d turns were opened by questions, want %d", n, want)
			}
			if n := w.rows(`SELECT count(*) FROM workflow_requests WHERE attempt > 1`); n[0] != "0" {
				t.Errorf("%s requests of later attempts", n[0])
			}
			if got, want := w.end(1), []string{run + " fallback"}; !slices.Equal(got, want) {
				t.Errorf("the intents are %q, want %q\n%s", got, want, w.host.story())
			}
		})
	}
}

// killed kills the victim, "pi", "host" or "both", and starts it again.
func (w *world) killed(victim string) {
	w.t.Helper()
	if victim != "host" {
		w.agent.Kill()
	}
	if victim != "pi" {
		w.host.kill()
		w.startHost()
	}
	if victim == "host" {
		w.connected(0)
		return
	}
	w.startPi()
}
