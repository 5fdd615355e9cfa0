package delivery_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/store"
	"github.com/google/go-cmp/cmp"
)

// What a decision costs until the bridge is asked: in an idle session nothing
// but its own commit. Where that cannot record the attempt, one more.
func TestDecisionToSend(t *testing.T) {
	for _, c := range []struct {
		why  string
		by   func(b *bench, h *host) *store.Store
		want map[string]int
	}{
		{"the host decides", func(_ *bench, h *host) *store.Store { return h.store },
			map[string]int{"before propose": 1, "after propose": 1, "before try": 1, "after try": 1, "send": 1}},
		{"another process decides", func(b *bench, _ *host) *store.Store { return b.watch },
			map[string]int{"view": 1, "before try": 1, "after try": 1, "send": 1}},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble(t, func(b *bench) {
				h := b.host()
				s := &script{}
				_, pi := scripted(b, h, watched{s, h})
				j := h.start(pi, true)
				synctest.Wait()
				b.watch.Subscribe(b.committed(nil))
				h.mu.Lock()
				before := maps.Clone(h.calls)
				h.mu.Unlock()
				var got map[string]int
				s.send = func(context.Context, delivery.Message) (delivery.Answer, error) {
					h.mu.Lock()
					defer h.mu.Unlock()
					got = maps.Clone(h.calls)
					return delivery.Answer{Verdict: delivery.Taken}, nil
				}
				_, err := store.Do(bg, c.by(b, h), store.Propose{Run: j.id, Authority: j.auth, Plan: plan, Node: "a", Visit: 1, Attempt: 1, Outcome: run.OK, Output: []byte("1")})
				if err != nil {
					b.Fatalf("propose: %v", err)
				}
				after(time.Second)
				for what, n := range before {
					if got[what] -= n; got[what] == 0 {
						delete(got, what)
					}
				}
				if d := cmp.Diff(c.want, got); d != "" {
					b.Errorf("until the bridge was asked (-want +got):\n%s", d)
				}
			})
		})
	}
}
