package deliverytest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"github.com/google/go-cmp/cmp"
)

// TestVisibility walks through the moments of a turn that a send started.
func TestVisibility(t *testing.T) {
	type shown struct{ Branch, Disk, Idle, Durable, Replied bool }
	steps := []struct {
		point      deliverytest.Point
		fresh, old shown
		look       bool // the bridge answers: nothing waits to be reported
		why        string
	}{
		{deliverytest.PointAccepted, shown{}, shown{}, true, "busy as soon as the send returns"},
		{deliverytest.PointStart, shown{}, shown{}, false, "the start waits to be reported"},
		{deliverytest.PointStarted, shown{}, shown{}, true, "message_end comes after the start"},
		{deliverytest.PointVisible, shown{Branch: true}, shown{Branch: true, Disk: true, Durable: true}, true, "a fresh session has no file yet"},
		{deliverytest.PointReply, shown{true, true, false, true, true}, shown{true, true, false, true, true}, true, "the first assistant message writes the file"},
		{deliverytest.PointEnd, shown{true, true, false, true, true}, shown{true, true, false, true, true}, true, "agent_end is not settled"},
		{deliverytest.PointSettled, shown{Branch: true, Disk: true, Idle: true}, shown{Branch: true, Disk: true, Idle: true}, false, "the end waits to be reported"},
		{deliverytest.PointReported, shown{true, true, true, true, true}, shown{true, true, true, true, true}, true, "settled handlers see an idle session"},
	}
	over, cancel := context.WithCancel(context.Background())
	cancel() // a look that would have to wait fails
	for _, fresh := range []bool{true, false} {
		f, p, _, c := open(t, fresh, deliverytest.Options{})
		var holds []*deliverytest.Hold
		for _, s := range steps {
			holds = append(holds, p.Hold(s.point))
		}
		send(t, c, c.message("m1"), delivery.Taken)
		for i, s := range steps {
			if !holds[i].Wait() {
				t.Fatalf("never came to %v", s.point)
			}
			want := s.old
			if fresh {
				want = s.fresh
			}
			got := shown{Disk: f.Count("m1") == 1, Idle: p.Idle()}
			for _, e := range p.Branch() {
				got.Branch = got.Branch || e.MessageID() == "m1"
			}
			r, err := c.session.Look(over, []string{"m1"})
			if (err == nil) != s.look {
				t.Errorf("%v (fresh %v): look error %v, want an answer %v: %s", s.point, fresh, err, s.look, s.why)
			}
			if err == nil {
				got.Durable, got.Replied = r.Evidence[0].Durable, r.Evidence[0].Replied
				if r.Idle || r.Evidence[0].Present != got.Branch {
					t.Errorf("%v: look answers %+v", s.point, r)
				}
			}
			if got != want {
				t.Errorf("%v (fresh %v): %+v, want %+v: %s", s.point, fresh, got, want, s.why)
			}
			if s.point < deliverytest.PointSettled { // asking again says that it is there, others wait
				send(t, c, c.message("m1"), delivery.Present)
				send(t, c, c.message("m2"), delivery.Occupied)
			}
			holds[i].Release()
		}
		p.Wait()
		if r := look(t, c, "m1"); !r.Idle || r.Pending {
			t.Errorf("at the end: %+v", r)
		}
		want := []deliverytest.ModelRequest{{Process: "pi", Turn: "pi/turn-1", Message: "m1", Try: 1}}
		if d := cmp.Diff(want, f.ModelRequests()[len(f.ModelRequests())-1:]); d != "" {
			t.Error(d)
		}
		if f.MaxCount("m1") != 1 {
			t.Error("the message is there more than once")
		}
	}
}

// TestDeath kills the process at every point and opens the file again.
func TestDeath(t *testing.T) {
	for point := deliverytest.PointAccepted; point <= deliverytest.PointReported; point++ {
		for _, fresh := range []bool{true, false} {
			if point == deliverytest.PointRetry {
				continue // see TestRetry
			}
			replies := 0
			opt := deliverytest.Options{
				Model: func(context.Context, deliverytest.Turn) deliverytest.Reply {
					if replies++; replies == 1 {
						return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "tool"}}}
					}
					return deliverytest.Reply{Text: "done"}
				},
				Tools: map[string]deliverytest.Tool{"tool": func(context.Context, deliverytest.Call) string { return "result" }},
			}
			f, p, _, c := open(t, fresh, opt)
			h := p.Hold(point)
			send(t, c, c.message("m1"), delivery.Taken)
			h.Wait()
			p.Kill()
			p.Wait()
			if !c.over() {
				t.Errorf("%v: the connection is not dropped", point)
			}
			onDisk := point >= deliverytest.PointReply || point == deliverytest.PointVisible && !fresh
			if got := f.Count("m1") == 1; got != onDisk {
				t.Errorf("%v (fresh %v): on disk %v, want %v", point, fresh, got, onDisk)
			}
			q := f.Start(deliverytest.Options{})
			if !q.Idle() || len(q.Branch()) != len(f.Branch()) {
				t.Errorf("%v: after a restart something goes on", point)
			}
			q.Kill()
		}
	}
}

func TestPassive(t *testing.T) {
	f, p, h, c := open(t, false, deliverytest.Options{})
	h.heard()
	send(t, c, c.passive("n1"), delivery.Taken)
	if !p.Idle() || f.Count("n1") != 1 || len(h.heard()) != 0 {
		t.Error("a passive message is on branch and disk at once and starts nothing")
	}
	f, _, _, c = open(t, true, deliverytest.Options{})
	send(t, c, c.passive("n1"), delivery.Taken)
	if e := look(t, c, "n1").Evidence[0]; !e.Present || e.Durable || f.Count("n1") != 0 {
		t.Errorf("in a fresh session it is on the branch only: %+v", e)
	}
}

// TestChecks has one row for each thing that a bridge looks at.
func TestChecks(t *testing.T) {
	for _, tt := range []struct {
		why     string
		prepare func(*deliverytest.Process, *conn, *clock.Manual, *delivery.Message)
		want    delivery.Verdict
	}{
		{"nothing stands against it", func(*deliverytest.Process, *conn, *clock.Manual, *delivery.Message) {}, delivery.Taken},
		{"an older epoch", func(_ *deliverytest.Process, _ *conn, _ *clock.Manual, m *delivery.Message) { m.Epoch-- }, delivery.Refused},
		{"the deadline is now", func(_ *deliverytest.Process, _ *conn, c *clock.Manual, m *delivery.Message) {
			c.Advance(10 * time.Second)
		}, delivery.Refused},
		{"just before the deadline", func(_ *deliverytest.Process, _ *conn, c *clock.Manual, m *delivery.Message) {
			c.Advance(10*time.Second - 1)
		}, delivery.Taken},
		{"details of another message", func(_ *deliverytest.Process, _ *conn, _ *clock.Manual, m *delivery.Message) { m.ID = "m9" }, delivery.Refused},
		{"the person has typed", func(p *deliverytest.Process, _ *conn, _ *clock.Manual, _ *delivery.Message) { _ = p.Type("x") }, delivery.Occupied},
		{"the person typed long ago", func(p *deliverytest.Process, _ *conn, c *clock.Manual, m *delivery.Message) {
			_ = p.Type("x")
			c.Advance(30 * time.Second)
			m.Deadline = 0
		}, delivery.Taken},
		{"a compaction", func(p *deliverytest.Process, _ *conn, _ *clock.Manual, _ *delivery.Message) { _, _ = p.Compact() }, delivery.Occupied},
		{"another issue is there", func(p *deliverytest.Process, c *conn, _ *clock.Manual, m *delivery.Message) {
			p.SendMessage(c.passive("m0"))
			m.Others = []string{"m0"}
		}, delivery.Present},
		{"its intent is there", func(p *deliverytest.Process, c *conn, _ *clock.Manual, m *delivery.Message) {
			p.SendMessage(c.passive("m0"))
			m.Intent = "intent-m0"
		}, delivery.Present},
		{"another intent is there", func(p *deliverytest.Process, c *conn, _ *clock.Manual, m *delivery.Message) {
			p.SendMessage(c.passive("m0"))
		}, delivery.Taken},
		{"it was there on a branch that was left", func(p *deliverytest.Process, c *conn, _ *clock.Manual, m *delivery.Message) {
			leaf := p.Branch()[1].ID
			p.SendMessage(c.passive("m1"))
			_ = p.Rewind(leaf)
		}, delivery.Taken},
		{"asked to refuse", func(p *deliverytest.Process, _ *conn, _ *clock.Manual, _ *delivery.Message) {
			p.Refuse(1, delivery.Occupied, "test")
		}, delivery.Occupied},
	} {
		t.Run(tt.why, func(t *testing.T) {
			clk := clock.NewManual(1)
			f, p, _, c := open(t, false, deliverytest.Options{Clock: clk})
			m := c.message("m1")
			m.Deadline = 1 + 10_000_000_000
			tt.prepare(p, c, clk, &m)
			send(t, c, m, tt.want)
			p.Wait()
			if s := f.Sends(); len(s) != 1 || s[0].Executed != (tt.want == delivery.Taken) {
				t.Errorf("log: %+v", s)
			}
		})
	}
}

// TestStopped: the bridge knows of an Escape before the host does.
func TestStopped(t *testing.T) {
	_, p, h, c := open(t, false, deliverytest.Options{Model: func(context.Context, deliverytest.Turn) deliverytest.Reply {
		return deliverytest.Reply{Escape: true}
	}})
	must(t, p.Prompt("x"))
	send(t, c, c.message("m1"), delivery.Occupied)
	if d := cmp.Diff([]string{"input", "start pi/turn-1", "aborted pi/turn-1 by person"}, h.heard()); d != "" {
		t.Error(d)
	}
	look(t, c)
	send(t, c, c.message("m1"), delivery.Taken) // the host was told, and decides
}

func TestLost(t *testing.T) {
	f, p, _, c := open(t, false, deliverytest.Options{})
	p.LoseAnswer(1)
	if _, err := c.session.Send(context.Background(), c.message("m1")); err == nil {
		t.Fatal("the answer is lost")
	}
	p.Wait()
	send(t, c, c.message("m1"), delivery.Present)
	p.LoseSend(1)
	send(t, c, c.message("m2"), delivery.Taken)
	p.Wait()
	if r := look(t, c, "m1", "m2"); !r.Idle || !r.Evidence[0].Present || r.Evidence[1].Present {
		t.Errorf("look: %+v", r)
	}
	send(t, c, c.message("m2"), delivery.Taken)
	p.Wait()
	if f.MaxCount("m1") != 1 || f.MaxCount("m2") != 1 {
		t.Error("each message is there once")
	}
}

// TestLateSend: a send that the caller gave up is still executed, unless the
// connection is another one by then.
func TestLateSend(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, p, h, c := open(t, false, deliverytest.Options{})
			hold := p.Hold(deliverytest.PointSend)
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				hold.Wait()
				cancel()
			}()
			if _, err := c.session.Send(ctx, c.message("m1")); err == nil {
				t.Fatal("the caller gave up")
			}
			if dropped {
				p.DropConnection()
				must(t, p.Connect(deliverytest.Via(h.connect)))
			}
			hold.Release()
			synctest.Wait()
			if got := f.Count("m1") == 1; got == dropped {
				t.Errorf("executed %v, dropped %v", got, dropped)
			}
			p.Kill()
		})
	}
}

// TestHiddenQueue: what a careless bridge does to a busy session.
func TestHiddenQueue(t *testing.T) {
	for _, tt := range []struct {
		rpc, escape bool
		now, later  int
		why         string
	}{
		{false, false, 1, 1, "it joins the end of the run"},
		{false, true, 0, 0, "an abort drops it"},
		{true, true, 0, 1, "without a terminal the next run takes it"},
	} {
		f, p, _, c := open(t, false, deliverytest.Options{Careless: true, RPC: tt.rpc})
		h := p.Hold(deliverytest.PointVisible)
		must(t, p.Type("x"))
		must(t, p.Submit())
		h.Wait()
		send(t, c, c.message("m1"), delivery.Taken)
		if r := look(t, c, "m1"); r.Pending || r.Evidence[0].Present {
			t.Errorf("%s: nothing shows it: %+v", tt.why, r)
		}
		if tt.escape {
			p.Escape()
		}
		h.Release()
		p.Wait()
		if f.Count("m1") != tt.now {
			t.Errorf("%s: %d after the run", tt.why, f.Count("m1"))
		}
		must(t, p.Prompt("y"))
		if f.Count("m1") != tt.later {
			t.Errorf("%s: %d after the next run", tt.why, f.Count("m1"))
		}
	}
}
