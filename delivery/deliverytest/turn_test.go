package deliverytest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"github.com/google/go-cmp/cmp"
)

// script answers the requests one after another, then "done".
func script(replies ...deliverytest.Reply) func(context.Context, deliverytest.Turn) deliverytest.Reply {
	n := 0
	return func(context.Context, deliverytest.Turn) deliverytest.Reply {
		if n++; n <= len(replies) {
			return replies[n-1]
		}
		return deliverytest.Reply{Text: "done"}
	}
}

// roles prints what came onto the branch since the exchange before.
func roles(p *deliverytest.Process) (out []string) {
	for _, e := range p.Branch()[2:] {
		s := e.Role.String()
		if e.Stop != 0 {
			s += " " + e.Stop.String()
		}
		if e.Text != "" {
			s += ": " + e.Text
		}
		out = append(out, s)
	}
	return out
}

func TestTurns(t *testing.T) {
	call := deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "tool"}}}
	fail := deliverytest.Reply{Fail: true}
	for _, tt := range []struct {
		why    string
		model  []deliverytest.Reply
		tool   func(*deliverytest.Process, *conn)
		branch []string
		told   []string
	}{
		{
			why:    "a retry repeats the start and not the message",
			model:  []deliverytest.Reply{fail, fail},
			branch: []string{"custom: please", "assistant error", "assistant error", "assistant stop: done"},
			told:   []string{"start pi/turn-1 by m1", "start pi/turn-1 by m1", "start pi/turn-1 by m1", "completed pi/turn-1"},
		}, {
			why:    "exhausted retries end with an error and no abort",
			model:  []deliverytest.Reply{fail, fail, fail, fail},
			branch: []string{"custom: please", "assistant error", "assistant error", "assistant error", "assistant error"},
			told:   []string{"start pi/turn-1 by m1", "start pi/turn-1 by m1", "start pi/turn-1 by m1", "start pi/turn-1 by m1", "error pi/turn-1"},
		}, {
			why:    "Escape while it streams",
			model:  []deliverytest.Reply{{Escape: true, Text: "never seen"}},
			branch: []string{"custom: please", "assistant aborted"},
			told:   []string{"start pi/turn-1 by m1", "aborted pi/turn-1 by person"},
		}, {
			why:    "Escape in a tool call stores its result",
			model:  []deliverytest.Reply{call},
			tool:   func(p *deliverytest.Process, _ *conn) { p.Escape() },
			branch: []string{"custom: please", "assistant toolUse", "toolResult: result", "assistant aborted"},
			told:   []string{"start pi/turn-1 by m1", "aborted pi/turn-1 by person"},
		}, {
			why:    "the host's abort is not the person's",
			model:  []deliverytest.Reply{call},
			tool:   func(_ *deliverytest.Process, c *conn) { _ = c.session.Abort(context.Background(), "m1") },
			branch: []string{"custom: please", "assistant toolUse", "toolResult: result", "assistant aborted"},
			told:   []string{"start pi/turn-1 by m1", "aborted pi/turn-1"},
		}, {
			why:    "an abort of another message's turn does nothing",
			model:  []deliverytest.Reply{call},
			tool:   func(_ *deliverytest.Process, c *conn) { _ = c.session.Abort(context.Background(), "m0") },
			branch: []string{"custom: please", "assistant toolUse", "toolResult: result", "assistant stop: done"},
			told:   []string{"start pi/turn-1 by m1", "completed pi/turn-1"},
		}, {
			why:    "a terminating result ends the run",
			model:  []deliverytest.Reply{{Calls: []deliverytest.Call{{Tool: "tool", Terminate: true}}}},
			branch: []string{"custom: please", "assistant toolUse", "toolResult: result"},
			told:   []string{"start pi/turn-1 by m1", "completed pi/turn-1"},
		}, {
			why:    "text typed during the run steers it",
			model:  []deliverytest.Reply{call},
			tool:   func(p *deliverytest.Process, _ *conn) { _ = p.Type("also this") },
			branch: []string{"custom: please", "assistant toolUse", "toolResult: result", "user: also this", "assistant stop: done"},
			told:   []string{"start pi/turn-1 by m1", "input", "completed pi/turn-1"},
		}, {
			why:    "a tool that does not exist",
			model:  []deliverytest.Reply{{Calls: []deliverytest.Call{{Tool: "none"}}}},
			branch: []string{"custom: please", "assistant toolUse", "toolResult: Tool none not found", "assistant stop: done"},
			told:   []string{"start pi/turn-1 by m1", "completed pi/turn-1"},
		},
	} {
		t.Run(tt.why, func(t *testing.T) {
			var p *deliverytest.Process
			var c *conn
			f, p, h, c := open(t, false, deliverytest.Options{Model: script(tt.model...), Tools: map[string]deliverytest.Tool{
				"tool": func(_ context.Context, call deliverytest.Call) string {
					if call.ID != "call-1" || call.Turn != "pi/turn-1" {
						t.Errorf("called as %+v", call)
					}
					if tt.tool != nil {
						tt.tool(p, c)
					}
					return "result"
				},
			}})
			send(t, c, c.message("m1"), delivery.Taken)
			p.Wait()
			if d := cmp.Diff(tt.branch, roles(p)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.told, h.heard()); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(p.Branch(), f.Branch()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestRetry: Escape in the wait before a retry is no abort.
func TestRetry(t *testing.T) {
	_, p, h, _ := open(t, false, deliverytest.Options{Model: script(deliverytest.Reply{Fail: true})})
	hold := p.Hold(deliverytest.PointRetry)
	must(t, p.Type("x"))
	must(t, p.Submit())
	hold.Wait()
	if p.Idle() {
		t.Error("not idle in the wait")
	}
	p.Escape()
	hold.Release()
	p.Wait()
	if d := cmp.Diff([]string{"input", "start pi/turn-1", "error pi/turn-1"}, h.heard()); d != "" {
		t.Error(d)
	}
}

// TestAbortDropsInput: what was typed into an aborted run waits for nothing.
func TestAbortDropsInput(t *testing.T) {
	_, p, _, c := open(t, false, deliverytest.Options{})
	hold := p.Hold(deliverytest.PointVisible)
	send(t, c, c.message("m1"), delivery.Taken)
	hold.Wait()
	must(t, p.Type("x"))
	if !look(t, c).Pending {
		t.Error("queued text of the person is pending")
	}
	p.Escape()
	hold.Release()
	p.Wait()
	if look(t, c).Pending {
		t.Error("the text is dropped")
	}
}

// TestAbortAtStart: an abort before the first request makes none.
func TestAbortAtStart(t *testing.T) {
	f, p, _, c := open(t, false, deliverytest.Options{})
	before := len(f.ModelRequests())
	hold := p.Hold(deliverytest.PointStarted)
	send(t, c, c.message("m1"), delivery.Taken)
	hold.Wait()
	must(t, c.session.Abort(context.Background(), "m1"))
	hold.Release()
	p.Wait()
	if n := len(f.ModelRequests()) - before; n != 0 || f.Count("m1") != 1 {
		t.Errorf("%d requests, message %d times; want 0 and 1", n, f.Count("m1"))
	}
	if d := cmp.Diff([]string{"m1"}, f.Aborts()); d != "" {
		t.Error(d)
	}
}

// TestNoResult: the model is told of a tool call in which the process died.
func TestNoResult(t *testing.T) {
	f, p, _, _ := open(t, false, deliverytest.Options{
		Model: script(deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "tool"}, {Tool: "tool"}}}),
		Tools: map[string]deliverytest.Tool{"tool": func(context.Context, deliverytest.Call) string { return "one" }},
	})
	first, second := p.Hold(deliverytest.PointToolDone), p.Hold(deliverytest.PointToolDone)
	must(t, p.Type("x"))
	must(t, p.Submit())
	first.Wait()
	first.Release()
	second.Wait()
	p.Kill()
	p.Wait()
	var results []string
	q := f.Start(deliverytest.Options{Model: func(_ context.Context, turn deliverytest.Turn) deliverytest.Reply {
		for _, e := range turn.Context {
			if e.Role == deliverytest.ToolResult {
				results = append(results, e.CallID+" "+e.Text)
			}
		}
		return deliverytest.Reply{}
	}})
	defer q.Kill()
	must(t, q.Prompt("y"))
	if d := cmp.Diff([]string{"call-1 one", "call-2 " + deliverytest.NoResult}, results); d != "" {
		t.Error(d)
	}
}

// TestTypedTextIsLost: a successor between input and the run's start.
func TestTypedTextIsLost(t *testing.T) {
	_, p, _, c := open(t, false, deliverytest.Options{})
	must(t, p.Type("precious"))
	if r := look(t, c); !r.Idle || !r.Pending {
		t.Errorf("look: %+v", r)
	}
	hold := p.Hold(deliverytest.PointAccepted)
	p.SendMessage(c.message("m1")) // what no bridge may do
	hold.Wait()
	if err := p.Submit(); err != deliverytest.ErrProcessing {
		t.Errorf("submit: %v", err)
	}
	hold.Release()
	p.Wait()
	if d := cmp.Diff([]string{"custom: please", "assistant stop: ok"}, roles(p)); d != "" {
		t.Error(d)
	}
}

// TestSettledHandlers: another extension asks for a turn in one, and the
// session is idle until all have returned.
func TestSettledHandlers(t *testing.T) {
	_, p, _, c := open(t, false, deliverytest.Options{})
	hold := p.Hold(deliverytest.PointReported)
	must(t, p.Type("x"))
	must(t, p.Submit())
	hold.Wait()
	p.SendMessage(c.message("other"))
	if !p.Idle() || look(t, c).Idle {
		t.Error("Pi says idle, and the bridge knows better")
	}
	send(t, c, c.message("m1"), delivery.Occupied)
	next := p.Hold(deliverytest.PointAccepted)
	hold.Release()
	next.Wait()
	if p.Idle() {
		t.Error("the turn is about to start")
	}
	next.Release()
	p.Wait()
	want := []string{"user: x", "assistant stop: ok", "custom: please", "assistant stop: ok"}
	if d := cmp.Diff(want, roles(p)); d != "" {
		t.Error(d)
	}
}

// TestModelSeesAbort: a model that waits for its context, in a bubble.
func TestModelSeesAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, h, c := open(t, false, deliverytest.Options{Model: func(ctx context.Context, _ deliverytest.Turn) deliverytest.Reply {
			<-ctx.Done()
			return deliverytest.Reply{Text: "too late"}
		}})
		send(t, c, c.message("m1"), delivery.Taken)
		synctest.Wait()
		must(t, c.session.Abort(context.Background(), "m1"))
		synctest.Wait()
		if d := cmp.Diff([]string{"start pi/turn-1 by m1", "aborted pi/turn-1"}, h.heard()); d != "" {
			t.Error(d)
		}
		send(t, c, c.message("m2"), delivery.Taken)
		synctest.Wait()
		p.Kill()
		synctest.Wait() // nothing is left running
	})
}
