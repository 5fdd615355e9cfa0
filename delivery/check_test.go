package delivery_test

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"example.com/piworkflows/delivery/deliverytest"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// calm is longer than everything that anyone waits for: five lost sends with
// their deadlines, pauses, and forgotten input.
const calm = 5 * time.Minute

// state says how an intent stands: pending, blocked, fallback or withdrawn.
func (b *bench) state(id string) string {
	b.Helper()
	synctest.Wait()
	i, err := b.watch.Intent(bg, id)
	if err != nil {
		b.Fatalf("intent: %v", err)
	}
	switch {
	case i.WithdrawnAt != 0:
		return "withdrawn"
	case i.ResolvedAt != 0:
		return i.Resolution.String()
	}
	for n := uint8(1); n <= session.MaxIssues; n++ {
		if m, err := b.watch.Message(bg, issue(id, n)); err == nil && m.State == session.Blocked {
			return "blocked"
		}
	}
	return "pending"
}

func (b *bench) want(id, state, why string) {
	b.Helper()
	if got := b.state(id); got != state {
		b.Errorf("%s: the intent is %s, want %s", why, got, state)
	}
}

// once wants an intent served by one entry of one message with one model
// request.
func (b *bench) once(f *deliverytest.File, id, why string) {
	b.Helper()
	b.served(f, id, 1, 1, why)
}

// served wants an intent resolved by a fallback after so many issues, with so
// many model requests in all.
func (b *bench) served(f *deliverytest.File, id string, issues uint8, requests int, why string) {
	b.Helper()
	b.want(id, intents.ByFallback.String(), why)
	entries := 0
	for n := uint8(1); n <= session.MaxIssues; n++ {
		entries += f.MaxCount(issue(id, n))
	}
	if entries != int(issues) {
		b.Errorf("%s: %d entries in the file, want %d", why, entries, issues)
	}
	if got := requestsFor(f, id); got != requests {
		b.Errorf("%s: %d model requests, want %d", why, got, requests)
	}
}

func requestsFor(f *deliverytest.File, intent string) (n int) {
	for _, r := range f.ModelRequests() {
		for i := uint8(1); i <= session.MaxIssues; i++ {
			if r.Message == issue(intent, i) {
				n++
			}
		}
	}
	return n
}

// message returns a message as it is stored.
func (b *bench) message(id string) session.Message {
	b.Helper()
	synctest.Wait()
	m, err := b.watch.Message(bg, id)
	if err != nil {
		b.Fatalf("message: %v", err)
	}
	return m
}

// sound checks what holds at any time: no id twice on a path, one message of an
// intent on a path, one turn for a message, no violation, and attempts in order.
func (b *bench) sound() {
	b.Helper()
	known := map[string]bool{}
	for _, e := range b.trace() {
		known[e.Message] = true
		if strings.Contains(e.Kind, "violation") {
			b.Errorf("a follow-on was refused: %s", e.Why)
		}
	}
	for _, f := range b.files {
		for _, path := range f.Paths() {
			on := map[string]int{}
			for _, e := range path {
				if id := e.MessageID(); id != "" {
					on[id]++
				}
				if id := e.IntentID(); id != "" {
					on[id]++
				}
			}
			for id, n := range on {
				if n > 1 {
					b.Errorf("%s is %d times on one path", id, n)
				}
			}
		}
		// A message opens a second turn only where it is on a second path.
		type place struct{ process, message string }
		turns := map[place][]string{}
		for _, r := range f.ModelRequests() {
			at := place{r.Process, r.Message}
			if r.Message != "" && !slices.Contains(turns[at], r.Turn) {
				turns[at] = append(turns[at], r.Turn)
			}
		}
		for at, all := range turns {
			entries := 0
			for _, e := range f.Entries() {
				if e.MessageID() == at.message && strings.HasPrefix(e.ID, at.process+"/") {
					entries++
				}
			}
			if len(all) > max(1, entries) {
				b.Errorf("%s opened the turns %v of %s with %d entries", at.message, all, at.process, entries)
			}
			if !known[at.message] {
				b.Errorf("a turn for an unknown message %s", at.message)
			}
		}
	}
}

// quiet checks, after a calm, that nothing is left to do: nothing pending but
// what is blocked, no turn open, and nothing watched or armed for ever.
func (b *bench) quiet() {
	b.Helper()
	after(calm)
	b.sound()
	for _, f := range b.files {
		b.quietSession(f.Key())
		for _, err := range f.Faults() {
			b.Logf("report: %v", err)
		}
	}
}

func (b *bench) quietSession(k launch.SessionKey) {
	b.Helper()
	a, err := b.watch.Asked(bg, k)
	if err != nil {
		b.Fatalf("asked: %v", err)
	}
	blocked := 0
	for _, name := range a.Names {
		if m := b.message(name); m.State == session.Blocked {
			blocked++
		} else if !b.subjectBlocked(m.Subject) {
			b.Errorf("%s is %s and still watched: %+v", name, m.State, m)
		}
	}
	if s := a.Session; s.Open != "" || s.Active.Turn != "" || s.Pending || a.Unsent != 0 || a.Next != 0 {
		b.Errorf("the session is not quiet: open %q, active %+v, pending %v, unsent %d, next %v", s.Open, s.Active, s.Pending, a.Unsent, a.Next)
	}
	owed, err := b.watch.Intents(bg, k)
	if err != nil {
		b.Fatalf("intents: %v", err)
	}
	for _, i := range owed {
		if b.state(i.ID) != "blocked" {
			b.Errorf("intent %s is left pending", i.ID)
		}
	}
}

func (b *bench) subjectBlocked(subject string) bool {
	for n := uint8(1); n <= session.MaxIssues; n++ {
		if m, err := b.watch.Message(bg, session.MessageID(subject, n)); err == nil && m.State == session.Blocked {
			return true
		}
	}
	return false
}
