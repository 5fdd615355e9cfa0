package store_test

import (
	"fmt"
	"testing"
	"time"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// told is what a channel has to do, as "open <n>" and "over <n>" of each run.
func (b *bed) told(channel string, rides []*ride) (all []string) {
	for _, p := range must(b.store.Presentations(bg, channel, 100)) {
		for n, r := range rides {
			if r.run == p.Run {
				all = append(all, fmt.Sprint(map[bool]string{false: "open ", true: "over "}[p.Over], n, p.Choice))
			}
		}
	}
	return all
}

// A channel shows each decision, and is told of its end also when nobody knows
// whether the call that was to show it came through.
func TestChannelIsToldOfTheEnd(t *testing.T) {
	b := newBed(t)
	var rides []*ride
	for range 3 {
		r := b.start("", planOf(run.Decision))
		r.claim()
		r.ask()
		rides = append(rides, r)
		b.clock.Advance(time.Second)
	}
	is := func(when string, want ...string) {
		t.Helper()
		if got := b.told("chat", rides); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	shown := func(r *ride, c store.Shown) {
		c.Channel, c.Request = "chat", r.id()
		carry(b, c)
	}
	is("asked", "open 0", "open 1", "open 2")
	shown(rides[0], store.Shown{Begins: true})
	shown(rides[0], store.Shown{})
	shown(rides[1], store.Shown{Begins: true})
	is("the call for 1 was not answered", "open 1", "open 2")
	for _, r := range rides {
		r.answer()
	}
	is("all are decided", "over 0approve", "over 1approve")
	rides[0].claim()
	is("the run has taken the answer over", "over 0approve", "over 1approve")
	shown(rides[0], store.Shown{Over: true})
	shown(rides[1], store.Shown{Over: true})
	is("told")
}

// However many decisions a channel shows, the next one is shown, and the end of
// any is told.
func TestChannelOfManyDecisions(t *testing.T) {
	b := aloneBed(t)
	var rides []*ride
	for range launch.MaxList + 2 {
		r := &ride{bed: b, plan: planOf(run.Decision)}
		c := headless(t, b.store)
		must(store.Do(bg, b.store, store.Start{Request: c}))
		r.run = c.ID
		d := claimOf(r.run, r.next("token"), "one")
		d.Plan = r.plan
		a := must(store.Do(bg, b.store, d))
		r.auth, r.at = launch.Authority{Runner: d.Runner, Token: d.Token, Generation: a.Generation}, a.Next
		p := r.proposal()
		p.Ask = &store.Ask{Title: "May it?", Task: "Look.", Subject: launch.DigestOf([]byte("it"))}
		must(store.Do(bg, b.store, p))
		r.ids = append(r.ids, request.ID(r.run, r.at.Node, r.at.Visit, r.at.Attempt))
		rides = append(rides, r)
	}
	n := 0
	for all := must(b.store.Presentations(bg, "chat", 100)); len(all) > 0; all = must(b.store.Presentations(bg, "chat", 100)) {
		for _, p := range all {
			must(store.Do(bg, b.store, store.Shown{Channel: "chat", Request: p.Request}))
			n++
		}
	}
	if n != len(rides) {
		t.Errorf("%d of %d decisions are shown", n, len(rides))
	}
	for _, r := range rides {
		must(store.Do(bg, b.store, store.Cancel{Run: r.run, Actor: launch.Person}))
	}
	n = 0
	for all := must(b.store.Presentations(bg, "chat", 100)); len(all) > 0 && n <= len(rides); all = must(b.store.Presentations(bg, "chat", 100)) {
		for _, p := range all {
			must(store.Do(bg, b.store, store.Shown{Channel: "chat", Request: p.Request, Over: true}))
			n++
		}
	}
	if n != len(rides) {
		t.Errorf("the end of %d of %d decisions is told", n, len(rides))
	}
}
