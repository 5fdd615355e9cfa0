package pi

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/internal/yardstick"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// echo is a bare Unix socket whose other end says what it hears.
type echo struct {
	c net.Conn
	r *bufio.Reader
}

func newEcho(t testing.TB) *echo {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "echo"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if _, err := c.Write(line); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &echo{c, bufio.NewReader(c)}
}

// round says a line, and returns how long it took to hear it.
func (e *echo) round(t testing.TB, line []byte) time.Duration {
	t.Helper()
	at := time.Now()
	if _, err := e.c.Write(line); err != nil {
		t.Fatal(err)
	}
	if _, err := e.r.ReadSlice('\n'); err != nil {
		t.Fatal(err)
	}
	return time.Since(at)
}

// From the host's call to the frame in the extension's hand, and back, as a
// multiple of a bare echo of that frame, measured in the same run.
func BenchmarkSend(t *testing.B) {
	echo := newEcho(t)
	h := &fakeHost{}
	e := open(t, Options{Host: h})
	c := dial(t, e)
	c.hello(e, "s")
	go func() {
		for {
			line, err := c.frames.next(MaxFrame)
			if err != nil {
				return
			}
			id, _, err := decode(fromHost, line, MaxFrame)
			if err != nil {
				return
			}
			answer, err := encode(id, &sentBody{Verdict: "taken"})
			if err != nil {
				return
			}
			if _, err := c.c.Write(answer); err != nil {
				return
			}
		}
	}()
	m := delivery.Message{ID: "m", Epoch: 1, CustomType: "c", Content: "Workflow deploy failed to start.", Details: []byte(`{"messageId":"m"}`)}
	line, err := encode(1, &sendBody{Message: "m", Others: []string{}, Epoch: 1, CustomType: "c", Content: m.Content, Details: m.Details})
	if err != nil {
		t.Fatal(err)
	}
	var bare, ours []time.Duration
	s := h.conn(t, "s").s
	for t.Loop() {
		bare = append(bare, echo.round(t, line))
		at := time.Now()
		if _, err := s.Send(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		ours = append(ours, time.Since(at))
	}
	t.ReportMetric(float64(middle(ours))/float64(middle(bare)), "echoes")
}

// decided notes when the commit of a run's end returned.
type decided struct {
	mu sync.Mutex
	at time.Time
}

func (d *decided) probe(point string) {
	if point == "after propose" {
		d.mu.Lock()
		d.at = time.Now()
		d.mu.Unlock()
	}
}

// From the return of the commit that ends a run, and with it owes the session a
// turn, to the send in the extension's hand: all of runtime, coordinator and
// endpoint, on a file. As a multiple of a bare echo of that frame, there and
// back, measured in turns in the same run, each after a moment of rest.
//
//   - echoes: until the extension has the whole frame, as the echo has it then.
//   - parsed: until this test's extension, which is strict, has understood it.
//   - sync: what one durable commit of one row costs here. The attempt needs
//     none of its own, because the commit of the end records it too (rule
//     delivery/offer). Where it does, as for what another process decides, one
//     sync is added.
func BenchmarkDecision(b *testing.B) {
	var d decided
	gate := make(chan struct{})
	resolved := make(chan struct{}, 1)
	rt := openWith(b, piworkflows.Options{Probe: d.probe, Observe: func(e store.Event) {
		if e.Turn == intents.EvResolved {
			resolved <- struct{}{}
		}
	}}, func(context.Context, topic) (string, error) {
		gate <- struct{}{}
		<-gate
		return "", nil
	})
	bot := newBot(b, open(b, Options{Host: ForRuntime(rt)}), "s")
	bot.set(true)
	key, err := launch.NewSessionKey("s", "/s.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	floor, err := yardstick.OpenFloor(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer floor.Close()
	echo := newEcho(b)
	var bare, heard, parsed, syncs []time.Duration
	rest := func() { time.Sleep(2 * time.Millisecond) }
	for n := 0; b.Loop(); n++ {
		if _, err := rt.Start(b.Context(), piworkflows.StartOptions{Workflow: "greet", Session: key}); err != nil {
			b.Fatal(err)
		}
		<-gate // the node runs, and the session is idle
		rest()
		gate <- struct{}{}
		message := <-bot.taken
		d.mu.Lock()
		bot.mu.Lock()
		heard, parsed = append(heard, bot.heard.Sub(d.at)), append(parsed, bot.parsed.Sub(d.at))
		line, err := encode(1, &bot.sends[n])
		bot.mu.Unlock()
		d.mu.Unlock()
		if err != nil {
			b.Fatal(err)
		}
		turn := fmt.Sprint("t", n)
		bot.tell(&turnStartedBody{Turn: turn, Message: message})
		bot.tell(&turnSettledBody{Turn: turn, End: "completed", StopReason: "stop"})
		bot.set(true)
		<-resolved
		rest()
		bare = append(bare, echo.round(b, line))
		at := time.Now()
		if err := floor.Commit(); err != nil {
			b.Fatal(err)
		}
		syncs = append(syncs, time.Since(at))
	}
	one := float64(middle(bare))
	b.ReportMetric(0, "ns/op") // of the whole turn
	b.ReportMetric(float64(middle(heard))/one, "echoes")
	b.ReportMetric(float64(middle(parsed))/one, "parsed-echoes")
	b.ReportMetric(float64(middle(syncs))/one, "sync-echoes")
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
