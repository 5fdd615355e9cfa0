package pi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

func TestReports(t *testing.T) {
	h := &fakeHost{}
	var turns []Turn
	e := open(t, Options{Host: h, Settled: func(t Turn) { turns = append(turns, t) }})
	c := dial(t, e)
	if w := c.hello(e, "s"); w.Epoch != 1 || w.Tool.Name != "workflow" || w.Version != Version {
		t.Errorf("welcome is %+v", w)
	}
	started := &turnStartedBody{Turn: "t1", Message: "m1"}
	if ok, _ := c.ask(started).(*okBody); ok == nil || ok.Own != "active" {
		t.Errorf("the start of a turn was answered %+v", ok)
	}
	h.fail = launch.Refuse(launch.ErrConflict, "another")
	if r, _ := c.ask(started).(*refusedBody); r == nil || r.Error != "conflict" {
		t.Errorf("a conflict was answered %+v", r)
	}
	settled := &turnSettledBody{Turn: "t1", End: "aborted", ByPerson: true, Aborted: true, StopReason: "aborted",
		PromptEntry: "a", ReplyEntry: "b", Prompt: "p", Reply: "r"}
	for _, b := range []body{settled, &inputBody{Key: "k1"}, &inputBody{Key: "k1"}, &inputBody{Key: "k2"}} {
		if _, ok := c.ask(b).(*okBody); !ok {
			t.Errorf("%s was not confirmed", b.kind())
		}
	}
	c.say(0, &changedBody{Why: "tree"})
	if _, ok := c.ask(&shutdownBody{Reason: "quit"}).(*okBody); !ok {
		t.Error("the shutdown was not confirmed")
	}
	if _, b := c.hear(); b != nil {
		t.Errorf("got %#v after the shutdown", b)
	}
	want := "started t1 m1, settled t1 aborted, input, input, changed, shutdown"
	if got := h.heard(); got != want {
		t.Errorf("the host heard %q, want %q: a repeated input is one", got, want)
	}
	key, _ := launch.NewSessionKey("s", "/s.jsonl")
	wantTurns := []Turn{{Session: key, Turn: "t1", End: delivery.Aborted, ByPerson: true, Aborted: true, StopReason: "aborted",
		PromptEntry: "a", ReplyEntry: "b", Prompt: "p", Reply: "r"}}
	if d := cmp.Diff(wantTurns, turns); d != "" {
		t.Errorf("turns (-want +got):\n%s", d)
	}
}

func TestHostAsks(t *testing.T) {
	h := &fakeHost{}
	e := open(t, Options{Host: h})
	c := dial(t, e)
	c.hello(e, "s")
	s := h.conn(t, "s").s
	answer := func(want body, b body) {
		t.Helper()
		id, asked := c.hear()
		if d := cmp.Diff(want, asked); d != "" {
			t.Errorf("asked (-want +got):\n%s", d)
		}
		c.say(id, b)
	}
	ctx := context.Background()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := s.Look(ctx, []string{"m"})
		if d := cmp.Diff(delivery.Report{Idle: true, Evidence: []delivery.Evidence{{Message: "m", Present: true}}}, r); d != "" || err != nil {
			t.Errorf("the report is another, or failed with %v:\n%s", err, d)
		}
		m := delivery.Message{ID: "m", Intent: "i", Epoch: 1, Deadline: 2_000_000, TriggerTurn: true, CustomType: "c", Content: "x", Details: []byte(`{"messageId":"m"}`)}
		if a, err := s.Send(ctx, m); err != nil || a.Verdict != delivery.Occupied || a.Reason != "busy" {
			t.Errorf("the send was answered %+v, %v", a, err)
		}
		if err := s.Abort(ctx, "m"); err != nil {
			t.Error(err)
		}
		s.(delivery.Viewer).Show("deploy-1", view.Running)
		if _, err := s.Look(ctx, nil); !errors.Is(err, launch.ErrBusy) {
			t.Errorf("a look that cannot be answered: %v", err)
		}
		if _, err := s.Look(ctx, nil); err == nil {
			t.Error("a look was answered by a send's verdict")
		}
		if _, err := s.Look(ctx, nil); err == nil {
			t.Error("a look was answered on a dead connection")
		}
	}()
	answer(&lookBody{Names: []string{"m"}}, &reportBody{Idle: true, Evidence: []evidenceBody{{Message: "m", Present: true}}})
	answer(&sendBody{Message: "m", Others: []string{}, Intent: "i", Epoch: 1, Deadline: 2, TriggerTurn: true, CustomType: "c", Content: "x",
		Details: []byte(`{"messageId":"m"}`)}, &sentBody{Verdict: "occupied", Reason: "busy"})
	answer(&abortBody{Message: "m"}, &abortedBody{})
	if _, b := c.hear(); cmp.Diff(body(&statusBody{Run: "deploy-1", Status: "running"}), b) != "" {
		t.Errorf("the status came as %#v", b)
	}
	answer(&lookBody{Names: []string{}}, &unableBody{Reason: "later"})
	answer(&lookBody{Names: []string{}}, &sentBody{Verdict: "taken"})
	if why := c.bye(); !strings.Contains(why, "another question") {
		t.Errorf("the connection ended with %q", why)
	}
	<-done
}

// What the host asks while a report is being committed is answered; a look is
// answered after the report, as they were said.
func TestAnswersBesideReports(t *testing.T) {
	h := &fakeHost{hold: make(chan struct{})}
	e := open(t, Options{Host: h})
	c := dial(t, e)
	c.hello(e, "s")
	s := h.conn(t, "s").s
	c.say(1, &turnSettledBody{Turn: "t1", End: "completed"})
	looked := make(chan error, 1)
	go func() {
		_, err := s.Look(t.Context(), nil)
		looked <- errors.Join(err, h.tell("looked"))
	}()
	id, _ := c.hear()
	c.say(id, &reportBody{Idle: true, Evidence: []evidenceBody{}})
	sent := make(chan error, 1)
	go func() {
		a, err := s.Send(t.Context(), delivery.Message{ID: "m", Epoch: 1, CustomType: "c", Details: []byte("{}")})
		if a.Verdict != delivery.Taken {
			t.Errorf("the send was answered %+v", a)
		}
		sent <- err
	}()
	id, _ = c.hear()
	c.say(id, &sentBody{Verdict: "taken"})
	if err := <-sent; err != nil { // and the report still waits
		t.Error(err)
	}
	close(h.hold)
	if _, b := c.hear(); b == nil || b.kind() != "ok" {
		t.Errorf("the report was answered %#v", b)
	}
	if err := <-looked; err != nil || h.heard() != "settled t1 completed, looked" {
		t.Errorf("the host heard %q, %v", h.heard(), err)
	}
}

// A peer that says more than a few frames beyond a report that is not answered
// waits itself; nothing grows, and nothing is lost.
func TestReportsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{hold: make(chan struct{})}
		e := &Endpoint{o: Options{Host: h, Log: slog.New(slog.DiscardHandler), Settled: func(Turn) {}}, token: "x", tokenID: sha256.Sum256([]byte("x"))}
		e.ctx = t.Context()
		mine, theirs := net.Pipe()
		p := newPeer(e, theirs)
		var wg sync.WaitGroup
		wg.Go(p.serve)
		wg.Go(func() { _, _ = io.Copy(io.Discard, mine) })
		const flood = 100
		var wrote atomic.Int32
		wg.Go(func() {
			defer mine.Close()
			for i, b := range append([]body{hello(e, "s"), &turnSettledBody{Turn: "t", End: "completed"}}, slices.Repeat([]body{&changedBody{}}, flood)...) {
				line, err := encode(uint64(i), b)
				if err != nil {
					t.Error(err)
				}
				if _, err := mine.Write(line); err != nil {
					t.Error(err)
				}
				wrote.Add(1)
			}
		})
		synctest.Wait()
		if n := int(wrote.Load()) - 2; n != maxBehind+1 { // and the one that the reader has
			t.Errorf("%d frames were taken beyond the report", n)
		}
		close(h.hold)
		wg.Wait()
		if got := strings.Count(h.heard(), "changed"); got != flood || !strings.HasPrefix(h.heard(), "settled t completed, changed") {
			t.Errorf("the host heard %d of %d: %.60s", got, flood, h.heard())
		}
	})
}

// Content beyond a frame goes by reference, both ways.
func TestLargeContent(t *testing.T) {
	big := strings.Repeat("ä\"", 400_000)
	h := &fakeHost{tool: func(c piworkflows.ToolCall) piworkflows.ToolResult {
		return piworkflows.ToolResult{Text: string(c.Args) + c.RequestKey}
	}}
	e := open(t, Options{Host: h})
	c := dial(t, e)
	c.hello(e, "s")
	line, err := encode(7, &toolBody{Key: "k", Args: big})
	if err != nil {
		t.Fatal(err)
	}
	var out outgoing
	l, err := out.hold(line)
	if err != nil {
		t.Fatal(err)
	}
	c.say(0, l)
	var in incoming
	for {
		_, b := c.hear()
		switch b := b.(type) {
		case *fetchBody:
			chunk, err := out.chunk(b)
			if err != nil {
				t.Fatal(err)
			}
			c.say(0, chunk)
		case *largeBody:
			f, err := in.begin(b)
			if err != nil {
				t.Fatal(err)
			}
			c.say(0, f)
		case *chunkBody:
			f, whole, err := in.add(b)
			if err != nil {
				t.Fatal(err)
			}
			if whole == nil {
				c.say(0, f)
				continue
			}
			id, r, err := decode(fromHost, whole, MaxContent)
			if result, ok := r.(*toolResultBody); err != nil || id != 7 || !ok || result.Text != big+"k" {
				t.Errorf("the answer came back as another: %d %T %v", id, r, err)
			}
			return
		default:
			t.Fatalf("got %#v", b)
		}
	}
}

// Each of these ends its own connection, with a reason, and no other.
func TestHostile(t *testing.T) {
	h := &fakeHost{}
	e := open(t, Options{Host: h})
	good := dial(t, e)
	good.hello(e, "good")
	wrong := hello(e, "s")
	wrong.Token = strings.Repeat("0", 64)
	old := hello(e, "s")
	old.Version = 2
	relative := hello(e, "s")
	relative.Session.File = "s.jsonl"
	frame := func(b body) string {
		line, err := encode(1, b)
		if err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	first := frame(hello(e, "s"))
	final := map[bool]string{true: "of no use", false: "of use"}
	for _, c := range []struct {
		why, says, reason string
		final             bool
	}{
		{"garbage instead of a hello", "GET / HTTP/1.1\r\n\r\n", "token", true},
		{"another frame instead of a hello", frame(&changedBody{}), "token", true},
		{"a wrong token", frame(wrong), "token", true},
		{"a hello that is too long", `{"kind":"` + strings.Repeat("x", 2*maxHello), "65536", true},
		{"another version", frame(old), "version", true},
		{"a relative session file", frame(relative), "absolute", true},
		{"garbage after the hello", first + "\x00\x01\n", "not valid JSON", false},
		{"bad UTF-8", first + "{\"kind\":\"changed\",\"id\":0,\"body\":{\"why\":\"\xff\"}}\n", "UTF-8", false},
		{"an unknown envelope field", first + `{"kind":"changed","id":0,"body":{},"x":1}` + "\n", "unknown field", false},
		{"a frame that is too long", first + strings.Repeat("x", 2*MaxFrame), "1048576", false},
		{"a second hello", first + first, "hello", false},
		{"a fetch of nothing", first + frame(&fetchBody{Digest: strings.Repeat("0", 64)}), "fetch", false},
		{"a chunk of nothing", first + frame(&chunkBody{Digest: strings.Repeat("0", 64), Data: []byte("x")}), "chunk", false},
	} {
		p := dial(t, e)
		go func() { _, _ = p.c.Write([]byte(c.says)) }() // it may be cut off
		got, last := p.end()
		if last != c.final {
			t.Errorf("%s: connecting again is said to be %s", c.why, final[last])
		}
		if !strings.Contains(got, c.reason) || len(got) > maxReason || strings.Contains(got, wrong.Token) {
			t.Errorf("%s: the connection ended with %q, want %q in it", c.why, got, c.reason)
		}
	}
	if _, ok := good.ask(&turnStartedBody{Turn: "t"}).(*okBody); !ok {
		t.Error("another connection was not served any more")
	}
}

// A failure of the store ends the connection, so that the report is repeated.
func TestReportFails(t *testing.T) {
	h := &fakeHost{fail: launch.Refuse(launch.ErrBusy, "locked")}
	e := open(t, Options{Host: h})
	c := dial(t, e)
	c.hello(e, "s")
	c.say(1, &inputBody{Key: "k"})
	if why := c.bye(); !strings.Contains(why, "locked") {
		t.Errorf("ended with %q", why)
	}
	c = dial(t, e)
	c.hello(e, "s")
	if _, ok := c.ask(&inputBody{Key: "k"}).(*okBody); !ok || h.heard() != "input" {
		t.Errorf("the repetition was not taken: %s", h.heard())
	}
}

func TestFencedIsToldFirst(t *testing.T) {
	e := open(t, Options{Host: &fakeHost{}})
	a, b := dial(t, e), dial(t, e)
	a.hello(e, "s")
	b.hello(e, "s")
	if _, got := a.hear(); got == nil || got.kind() != "fenced" {
		t.Errorf("the older connection heard %#v, want fenced", got)
	}
	if _, got := a.hear(); got != nil {
		t.Errorf("then it heard %#v", got)
	}
	late := dial(t, e) // it had no chance to hear it and connects again
	again := hello(e, "s")
	again.After = 1
	late.say(1, again)
	if _, got := late.hear(); got == nil || got.kind() != "fenced" {
		t.Errorf("who connects again heard %#v, want fenced", got)
	}
	if _, got := late.hear(); got != nil {
		t.Errorf("then it heard %#v", got)
	}
}

// A peer that does not read loses its connection, and nobody waits for it.
func TestSlowReader(t *testing.T) {
	h := &fakeHost{tool: func(piworkflows.ToolCall) piworkflows.ToolResult {
		return piworkflows.ToolResult{Text: strings.Repeat("x", 900_000)}
	}}
	e := open(t, Options{Host: h})
	slow, good := dial(t, e), dial(t, e)
	slow.hello(e, "slow")
	good.hello(e, "good")
	conn := h.conn(t, "slow")
	for i := range 100 {
		line, err := encode(uint64(i), &toolBody{Key: fmt.Sprint("k", i), Args: "{}"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slow.c.Write(line); err != nil {
			break // it was closed
		}
	}
	if _, ok := good.ask(&turnStartedBody{Turn: "t"}).(*okBody); !ok {
		t.Error("another connection was not served")
	}
	<-conn.Done()
}

func TestPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bridge")
	o := Options{Host: &fakeHost{}, Dir: dir}
	e := open(t, o)
	for name, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, e.socket(): 0o600 | os.ModeSocket,
		e.ExtensionPath(): 0o600, filepath.Join(dir, "tool.json"): 0o600, filepath.Join(dir, "token"): 0o600} {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v, want mode %v", name, info.Mode(), err, want)
		}
	}
	if got, err := os.ReadFile(e.ExtensionPath()); err != nil || !bytes.Equal(got, Extension()) {
		t.Errorf("the extension is another: %v", err)
	}
	if _, err := Listen(o); !errors.Is(err, launch.ErrBusy) {
		t.Errorf("a second endpoint in the directory: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, o)
	if again.token != e.token {
		t.Error("the next launch in the directory has another token: a Pi that outlived its host cannot come back")
	}
	other := open(t, Options{Host: &fakeHost{}})
	if other.token == e.token || len(other.token) != 64 {
		t.Error("tokens are not random")
	}
	loose := t.TempDir()
	if err := os.Chmod(loose, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why string
		o   Options
	}{
		{"no host", Options{}},
		{"a directory that others may enter", Options{Host: o.Host, Dir: loose}},
		{"a path too long for a socket", Options{Host: o.Host, Dir: "/tmp/" + strings.Repeat("x", 100)}},
	} {
		if _, err := Listen(c.o); !errors.Is(err, launch.ErrInvalid) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

// A socket that a killed host left behind does not stand in the way.
func TestSocketOfTheDead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "pi.sock")})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e := open(t, Options{Host: &fakeHost{}, Dir: dir})
	dial(t, e).hello(e, "s")
}
