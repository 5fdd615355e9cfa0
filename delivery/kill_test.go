package delivery_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/store"
)

// busy is a model that fails once, calls a tool and answers, in a turn that a
// message opened.
func busy(_ context.Context, t deliverytest.Turn) deliverytest.Reply {
	switch {
	case t.Message == "":
	case t.Request == 1 && t.Try == 1:
		return deliverytest.Reply{Fail: true}
	case t.Request <= 2:
		return deliverytest.Reply{Calls: []deliverytest.Call{{Tool: "look"}}}
	}
	return deliverytest.Reply{Text: "ok"}
}

func points() (all []deliverytest.Point) {
	for p := deliverytest.PointSend; p <= deliverytest.PointReported; p++ {
		all = append(all, p)
	}
	return all
}

// Pi is killed at each point and starts again on its file. Only a death between
// the message's way to the disk and the first reply costs the model request: in
// a session with a conversation the entry is there and nobody answers it.
func TestPiKilled(t *testing.T) {
	for _, point := range points() {
		for _, fresh := range []bool{true, false} {
			for _, down := range []time.Duration{0, time.Minute} {
				t.Run(fmt.Sprintf("%s fresh %v down %v", point, fresh, down), func(t *testing.T) {
					bubble(t, func(b *bench) { piKilled(b, point, fresh, down) })
				})
			}
		}
	}
}

func piKilled(b *bench, point deliverytest.Point, fresh bool, down time.Duration) {
	opt := deliverytest.Options{}
	special := point == deliverytest.PointRetry || point == deliverytest.PointTool || point == deliverytest.PointToolDone
	if special {
		opt.Model = busy
	}
	pi := b.pi(opt)
	h := b.host()
	h.connect(pi)
	if !fresh {
		prompt(b, pi)
	}
	j := h.start(pi, true)
	hold := pi.Hold(point)
	tried := time.Now()
	id := j.end(h, run.Failed)
	synctest.Wait()
	if !hold.Wait() {
		b.Fatalf("%s was not reached", point)
	}
	pi.Kill()
	after(down)
	again := b.open(pi.File(), opt)
	h.connect(again)
	after(0)
	if point == deliverytest.PointSend && len(pi.File().Sends()) > 0 && time.Since(tried) < session.SendDeadline {
		b.Errorf("sent before the killed process's deadline")
	}
	b.quiet()
	requests := 1
	switch {
	case special:
		requests = requestsFor(pi.File(), id)
	case point == deliverytest.PointVisible && !fresh:
		requests = 0
	}
	b.served(pi.File(), id, 1, requests, point.String())
}

// The host is killed at each moment of its work and another one takes over,
// with the same Pi or with one that starts anew.
func TestHostKilled(t *testing.T) {
	for _, moment := range []string{
		"before propose", "after propose", "before try", "after try", "send", "sent", "before answer", "after answer", "look", "looked",
		"before observe report", "after observe report", "before observe turnstarted", "after observe turnstarted",
		"before observe turnsettled", "after observe turnsettled",
	} {
		for _, fresh := range []bool{true, false} {
			for _, same := range []bool{true, false} {
				for _, elsewhere := range []bool{true, false} {
					if elsewhere && strings.HasSuffix(moment, " propose") {
						continue
					}
					t.Run(fmt.Sprintf("%s fresh %v same %v elsewhere %v", moment, fresh, same, elsewhere), func(t *testing.T) {
						bubble(t, func(b *bench) { hostKilled(b, moment, fresh, same, elsewhere) })
					})
				}
			}
		}
	}
}

// hostKilled has the run's end committed by the host, which records the attempt
// with it, or elsewhere, so that the host tries in a commit of its own.
func hostKilled(b *bench, moment string, fresh, same, elsewhere bool) {
	pi := b.pi(deliverytest.Options{})
	h := b.host()
	h.connect(pi)
	if !fresh {
		prompt(b, pi)
	}
	j := h.start(pi, true)
	h.dieAt(moment)
	c := store.Propose{Run: j.id, Authority: j.auth, Plan: plan, Node: "a", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte("1")}
	by := h.store
	if elsewhere {
		by = b.watch
		defer by.Subscribe(b.committed(nil))()
	}
	_, err := store.Do(bg, by, c)
	after(time.Minute)
	h.kill()
	pi.Wait() // the agent goes on without its host
	next := b.host()
	if !same {
		pi.Kill()
		pi = b.open(pi.File(), deliverytest.Options{})
	}
	next.connect(pi)
	if err != nil { // nothing was committed: the worker goes on in another process
		if elsewhere || moment != "before propose" && moment != "before try" {
			b.Fatalf("propose: %v", err)
		}
		j.end(next, run.OK)
	}
	b.quiet()
	b.once(pi.File(), j.intent(), moment)
}

// The host is killed while the agent stands at each point; the agent goes on,
// and the same process connects to another host, at once or when the turn is
// over.
func TestHostKilledAtPoint(t *testing.T) {
	for _, point := range points() {
		for _, when := range []string{"at once", "when over"} {
			t.Run(point.String()+" "+when, func(t *testing.T) {
				bubble(t, func(b *bench) {
					pi := b.pi(deliverytest.Options{Model: busy})
					h := b.host()
					h.connect(pi)
					hold := pi.Hold(point)
					j := h.start(pi, true)
					id := j.end(h, run.OK)
					synctest.Wait()
					h.kill()
					next := b.host()
					if when == "at once" {
						next.connect(pi)
					}
					hold.Release()
					after(time.Minute)
					pi.Wait()
					next.connect(pi)
					b.quiet()
					b.served(pi.File(), id, 1, 3, point.String())
				})
			})
		}
	}
}

// The same on a file that is opened anew, with a real commit at each moment.
func TestHostKilledOnFile(t *testing.T) {
	for _, moment := range []string{"after propose", "after try", "send", "sent", "after answer", "before observe report"} {
		t.Run(moment, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "flows", "flows.db")
			synctest.Test(t, func(t *testing.T) {
				open := func() store.Engine {
					e, err := store.OpenSQLite(path, store.SQLiteOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return e
				}
				first := open()
				b := newBench(t, first)
				pi := b.pi(deliverytest.Options{})
				h := b.host()
				h.connect(pi)
				prompt(b, pi)
				j := h.start(pi, true)
				h.dieAt(moment)
				id := j.end(h, run.OK)
				after(time.Second)
				h.kill()
				b.engine = open() // while the dead one's connection is still there
				b.watch = store.New(b.engine, store.Options{})
				b.host().connect(pi)
				b.quiet()
				b.once(pi.File(), id, moment)
				b.end()
				if err := first.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
