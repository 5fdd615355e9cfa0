package deliverytest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

// TestReportsAreRepeated: the order stays, on the next connection too.
func TestReportsAreRepeated(t *testing.T) {
	all := []string{"start pi/turn-1 by m1", "completed pi/turn-1", "input", "start pi/turn-2", "completed pi/turn-2"}
	for _, tt := range []struct {
		why  string
		lose func(*deliverytest.Process, *host)
		told []string
	}{
		{"nothing goes wrong", func(*deliverytest.Process, *host) {}, all},
		{"the connection drops", func(p *deliverytest.Process, _ *host) { p.DropConnection() }, all},
		{"the host closes the connection", func(_ *deliverytest.Process, h *host) { h.conn.Close() }, all},
		{"the start fails", func(_ *deliverytest.Process, h *host) { h.fail[all[0]] = launch.ErrBusy }, all},
		{"the end fails", func(_ *deliverytest.Process, h *host) { h.fail[all[1]] = errors.New("broken pipe") }, all},
		{"the answer to the start is lost", func(p *deliverytest.Process, h *host) { h.after = p.DropConnection },
			append([]string{all[0]}, all...)},
		{"the end is refused", func(_ *deliverytest.Process, h *host) { h.fail[all[1]] = launch.ErrConflict },
			[]string{all[0], all[2], all[3], all[4]}},
		{"reports arrive twice", func(p *deliverytest.Process, _ *host) { p.DuplicateReports(2) },
			[]string{all[0], all[0], all[1], all[1], all[2], all[3], all[4]}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			_, p, h, c := open(t, false, deliverytest.Options{})
			hold := p.Hold(deliverytest.PointAccepted)
			send(t, c, c.message("m1"), delivery.Taken)
			hold.Wait()
			tt.lose(p, h)
			hold.Release()
			p.Wait()
			h.after = nil
			must(t, p.Prompt("x"))
			must(t, p.Connect(deliverytest.Via(h.connect)))
			if d := cmp.Diff(tt.told, h.heard()); d != "" {
				t.Error(d)
			}
			look(t, h.conn)
		})
	}
}

func TestDelay(t *testing.T) {
	_, p, h, c := open(t, false, deliverytest.Options{})
	release := p.DelayReports()
	must(t, p.Prompt("x"))
	if told := h.heard(); len(told) != 0 {
		t.Errorf("told %v", told)
	}
	looked := make(chan error)
	go func() {
		_, err := c.session.Look(context.Background(), nil)
		if len(h.heard()) != 3 {
			err = errors.New("the look overtook the reports")
		}
		looked <- err
	}()
	release()
	must(t, <-looked)
	p.FailLook(1)
	if _, err := c.session.Look(context.Background(), nil); err == nil {
		t.Error("a look was to fail")
	}
	look(t, c)
}

// TestTakeover: two processes on one file.
func TestTakeover(t *testing.T) {
	f, p, h, c := open(t, false, deliverytest.Options{})
	q := f.Start(deliverytest.Options{})
	defer q.Kill()
	must(t, q.Connect(deliverytest.Via(h.connect)))
	if p.Connected() || !q.Connected() || h.conn.hello.Process == c.hello.Process {
		t.Error("the second process has the session")
	}
	if err := p.Connect(deliverytest.Via(h.connect)); err != deliverytest.ErrAway {
		t.Errorf("a fenced bridge stays away: %v", err)
	}
	if _, err := c.session.Send(context.Background(), c.message("m1")); err != nil {
		t.Fatal(err)
	}
	if s := f.Sends(); s[0].Executed {
		t.Error("a fenced bridge sends nothing")
	}
	// Both append, each sees its own, and the last line wins.
	must(t, q.Prompt("from q"))
	must(t, p.Prompt("from p"))
	if d := cmp.Diff([]string{"user: from p", "assistant stop: ok"}, roles(p)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(p.Branch(), f.Branch()); d != "" || len(f.Paths()) != 2 || len(f.Entries()) != 6 {
		t.Errorf("%d paths, %d lines: %s", len(f.Paths()), len(f.Entries()), d)
	}
	// A person has acted in p, so its bridge may come back.
	must(t, p.Connect(deliverytest.Via(h.connect)))
	if q.Connected() || !p.Connected() {
		t.Error("the first process has the session again")
	}
	p.DropConnection()
	must(t, p.Connect(deliverytest.Via(h.connect))) // a reconnect fences nobody else
	must(t, p.Connect(deliverytest.Via(h.connect))) // and connecting is idempotent
	c.session.Fenced()                              // late, and not about the current connection
	if h.epoch != 4 || !p.Connected() {
		t.Errorf("epoch %d", h.epoch)
	}
}

// TestLeafIsNotOnDisk: a rewind holds for the process only.
func TestLeafIsNotOnDisk(t *testing.T) {
	f, p, _, c := open(t, false, deliverytest.Options{})
	leaf := p.Branch()[1].ID
	send(t, c, c.message("m1"), delivery.Taken)
	p.Wait()
	must(t, p.Rewind(leaf))
	if look(t, c, "m1").Evidence[0].Present || f.Count("m1") != 1 {
		t.Error("gone from the branch in memory only")
	}
	q := f.Start(deliverytest.Options{})
	if len(q.Branch()) != 4 {
		t.Error("a restart finds the last line")
	}
	q.Kill()
	send(t, c, c.message("m1"), delivery.Taken) // once on each path
	p.Wait()
	if f.MaxCount("m1") != 1 || len(f.Paths()) != 2 {
		t.Errorf("%d on one path, %d paths", f.MaxCount("m1"), len(f.Paths()))
	}
	if err := p.Rewind("nowhere"); err != deliverytest.ErrNoEntry {
		t.Error(err)
	}
	f.Tear()
	if b := f.Branch(); b[len(b)-1].MessageID() != "m1" {
		t.Error("a torn last line is dropped")
	}
}

func TestClone(t *testing.T) {
	f, p, h, c := open(t, false, deliverytest.Options{})
	send(t, c, c.message("m1"), delivery.Taken)
	p.Wait()
	h.heard()
	g := p.Clone("s2", "/s2.jsonl")
	if d := cmp.Diff([]string{"shutdown"}, h.heard()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(f.Entries(), g.Entries()); d != "" {
		t.Error(d)
	}
	must(t, p.Connect(deliverytest.Via(h.connect)))
	if h.conn.hello.Session != g.Key() || g.Key() == f.Key() || h.conn.hello.Process != c.hello.Process {
		t.Errorf("another session in the same process: %+v", h.conn.hello)
	}
	send(t, h.conn, h.conn.message("m1"), delivery.Present)
	must(t, p.Prompt("x"))
	if len(g.Entries()) != 6 || len(f.Entries()) != 4 {
		t.Error("only the clone goes on")
	}
	fork := p.Fork(p.Branch()[0].ID, "s3", "/s3.jsonl")
	if len(fork.Entries()) != 0 || len(p.Branch()) != 1 {
		t.Error("a fork without an assistant message is not on disk")
	}
	must(t, p.Prompt("y"))
	if len(fork.Entries()) != 3 {
		t.Error("the first answer writes what was there before")
	}
}

// TestShutdown: an abort by a shutdown looks like the person's, and the
// shutdown follows it.
func TestShutdown(t *testing.T) {
	for _, reload := range []bool{false, true} {
		_, p, h, c := open(t, false, deliverytest.Options{Model: func(ctx context.Context, _ deliverytest.Turn) deliverytest.Reply {
			<-ctx.Done()
			return deliverytest.Reply{}
		}})
		send(t, c, c.message("m1"), delivery.Taken)
		if reload {
			p.Reload()
			must(t, p.Connect(deliverytest.Via(h.connect)))
		} else {
			p.Shutdown()
			if err := p.Prompt("x"); err != deliverytest.ErrDead {
				t.Error(err)
			}
		}
		if d := cmp.Diff([]string{"start pi/turn-1 by m1", "aborted pi/turn-1 by person", "shutdown"}, h.heard()); d != "" {
			t.Error(d)
		}
	}
}

func TestCompaction(t *testing.T) {
	f, p, _, c := open(t, false, deliverytest.Options{})
	send(t, c, c.passive("n1"), delivery.Taken)
	finish, err := p.Compact()
	must(t, err)
	if p.Idle() || look(t, c).Idle {
		t.Error("not idle in a compaction")
	}
	finish()
	if !look(t, c, "n1").Evidence[0].Present || f.Count("n1") != 1 {
		t.Error("the branch keeps what was compacted")
	}
}

// TestReplied: a later turn's answer is no answer to the message.
func TestReplied(t *testing.T) {
	_, p, _, c := open(t, false, deliverytest.Options{Model: script(deliverytest.Reply{Escape: true})})
	send(t, c, c.message("m1"), delivery.Taken)
	p.Wait()
	must(t, p.Prompt("x"))
	look(t, c)
	send(t, c, c.message("m2"), delivery.Taken)
	p.Wait()
	r := look(t, c, "m1", "m2", "m3")
	want := []delivery.Evidence{{Message: "m1", Present: true, Durable: true}, {Message: "m2", Present: true, Durable: true, Replied: true}, {Message: "m3"}}
	if d := cmp.Diff(want, r.Evidence); d != "" {
		t.Error(d)
	}
}

// TestOpenFile keeps a file over the death of its operating-system process.
func TestOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s1.jsonl")
	f, err := deliverytest.OpenFile("s1", path)
	must(t, err)
	must(t, f.Start(deliverytest.Options{}).Prompt("x"))
	whole, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(whole, `{"ID":"torn`...), 0o600))
	g, err := deliverytest.OpenFile("s1", path)
	must(t, err)
	must(t, g.Start(deliverytest.Options{Process: "second"}).Prompt("y"))
	again, err := deliverytest.OpenFile("s1", path)
	must(t, err)
	for what, f := range map[string]*deliverytest.File{"in the second process": g, "on disk": again} {
		if len(f.Entries()) != 4 || len(f.Branch()) != 4 {
			t.Errorf("%s: %d lines, %d of them on the branch, want 4", what, len(f.Entries()), len(f.Branch()))
		}
	}
	must(t, os.WriteFile(path, []byte("no session\n"), 0o600))
	if _, err := deliverytest.OpenFile("s1", path); err == nil {
		t.Error("another kind of file was taken for a session")
	}
}
