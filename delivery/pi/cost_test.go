package pi

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"example.com/piworkflows/delivery"
)

// From the host's call to the frame in the extension's hand, and back, as a
// multiple of a bare echo of that frame, measured in the same run.
func BenchmarkSend(t *testing.B) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "echo"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
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
	echo, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
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
	r := bufio.NewReader(echo)
	var bare, ours []time.Duration
	s := h.conn(t, "s").s
	for t.Loop() {
		at := time.Now()
		if _, err := echo.Write(line); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			t.Fatal(err)
		}
		bare = append(bare, time.Since(at))
		at = time.Now()
		if _, err := s.Send(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		ours = append(ours, time.Since(at))
	}
	slices.Sort(bare)
	slices.Sort(ours)
	a, b := bare[len(bare)/2], ours[len(ours)/2]
	t.ReportMetric(float64(b)/float64(a), "echoes")
}

// What an idle session costs the endpoint.
func TestThousandSessions(t *testing.T) {
	h := &fakeHost{}
	e := open(t, Options{Host: h})
	var before, after runtime.MemStats
	goroutines := runtime.NumGoroutine()
	runtime.GC()
	runtime.ReadMemStats(&before)
	const sessions = 1000
	conns := make([]*client, sessions)
	for i := range conns {
		conns[i] = dial(t, e)
		conns[i].hello(e, fmt.Sprint("s", i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / sessions
	perSession := float64(runtime.NumGoroutine()-goroutines) / sessions
	t.Logf("%d bytes and %.1f goroutines each, the test's own end included", each, perSession)
	if each > 100_000 || perSession > 3 {
		t.Errorf("a session costs %d bytes and %.1f goroutines; the bounds are 100 KB and 3", each, perSession)
	}
}
