package request_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	ses "example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// life is one request with its receipts as a host keeps them.
type life struct {
	r        request.Request
	now      launch.Now
	receipts map[string]request.Receipt
	acts     map[string]request.Act // first use of each key
	resumed  int                    // prompts since the last explicit resume
	reminded int
}

func keyOf(a request.Act) string {
	if a.Actor != launch.Model {
		a.Session = ""
	}
	return string(a.Session) + " " + a.Request + " " + a.Key
}

// Whatever is done to a request in whatever order, the rules hold.
func TestLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(kinds).Draw(t, "kind")
		n := node(k)
		n.Ask.Validates = k != run.Decision && rapid.Bool().Draw(t, "validates")
		if !k.Prompts() && rapid.Bool().Draw(t, "default") {
			n.Ask.Default = []byte(map[run.Kind]string{run.Checkpoint: "3", run.Decision: `"ship"`}[k])
		}
		r, err := request.Open(opening(n), opened)
		if err != nil {
			t.Fatal(err)
		}
		l := &life{r: r, now: launch.Now{Wall: opened}, receipts: map[string]request.Receipt{}, acts: map[string]request.Act{}}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := request.Check(l.r); err != nil {
					t.Fatal(err)
				}
				for _, f := range []request.PromptForm{request.Initial, request.Resumed, request.Reminder} {
					if text, err := request.Text(l.r, f); err != nil || len(text) > launch.MaxOptions {
						t.Fatalf("%s: %d bytes, %v", f, len(text), err)
					}
				}
			},
			"respond": l.respond,
			"command": l.command,
			"follow":  l.follow,
			"wait": func(t *rapid.T) {
				l.now.Wall = l.now.Wall.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)
				l.now.Distrust = rapid.IntRange(0, 4).Draw(t, "distrust") == 0
			},
		})
	})
}

func (l *life) respond(t *rapid.T) {
	k := l.r.Kind
	right := answers[k]
	a := request.Act{
		Request:  rapid.SampledFrom([]string{l.r.ID, l.r.ID, l.r.ID, l.r.ID, "req-x"}).Draw(t, "id"),
		Action:   rapid.SampledFrom(append(request.Actions(), right.action, right.action, right.action, right.action, request.ActUpdate)).Draw(t, "action"),
		Actor:    rapid.SampledFrom([]launch.Actor{right.actor, right.actor, right.actor, launch.Model, launch.Person, launch.Host, launch.Timer, launch.Worker}).Draw(t, "actor"),
		Session:  rapid.SampledFrom([]launch.SessionKey{session, session, session, other}).Draw(t, "session"),
		Key:      rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(t, "key"),
		Revision: rapid.SampledFrom([]uint64{l.r.Revision, l.r.Revision, 0, 1}).Draw(t, "revision"),
		Payload: []byte(rapid.SampledFrom([]string{right.payload, right.payload, right.another, right.misfit, `{"status":"half","completed":1,"total":2}`,
			"{", `{"a":1,"a":2}`}).Draw(t, "payload")),
		Person: "ann", Channel: "pi", Event: rapid.SampledFrom([]string{"e1", "e2", ""}).Draw(t, "event"),
	}
	var had *request.Receipt
	if r, ok := l.receipts[keyOf(a)]; ok {
		had = &r
	}
	before := l.r
	p := request.Respond(&l.r, a, had, l.now)
	if d := cmp.Diff(before, l.r); d != "" {
		t.Fatalf("Respond changed what it was given:\n%s", d)
	}
	visible := a.Request == l.r.ID && (a.Actor != launch.Model || a.Session == session)
	switch {
	case !visible:
		if p.Outcome != request.NotFound || p.Changed || !cmp.Equal(p.Request, request.Request{}) {
			t.Fatalf("an invisible request: %+v", p)
		}
	case had != nil:
		l.repeat(t, a, had, p)
	default:
		l.first(t, before, a, p)
	}
	if (p.Receipt == nil) != (had != nil) {
		t.Fatalf("a key has one receipt: had %+v, got %+v", had, p.Receipt)
	}
	if p.Receipt != nil {
		l.receipts[keyOf(a)], l.acts[keyOf(a)] = *p.Receipt, a
	}
	if visible {
		l.r = p.Request
	}
}

// repeat checks the answer to a key that was used before.
func (l *life) repeat(t *rapid.T, a request.Act, had *request.Receipt, p request.Reply) {
	first := l.acts[keyOf(a)]
	if p.Changed || len(p.Events) > 0 || !cmp.Equal(p.Request, l.r) {
		t.Fatalf("a repeat changes the request: %+v", p)
	}
	equal := string(first.Payload) == string(a.Payload) && first.Action == a.Action && first.Actor == a.Actor
	switch {
	case !equal:
		if p.Outcome != request.Conflict || p.Err == nil {
			t.Fatalf("a key for two payloads: %s, %v", p.Outcome, p.Err)
		}
	case had.Outcome == request.Taken || had.Outcome == request.Adopted:
		if p.Outcome != request.Adopted || p.Err != nil {
			t.Fatalf("a repeat of what was accepted: %s, %v", p.Outcome, p.Err)
		}
	case p.Outcome != had.Outcome || (p.Err == nil) != (had.Kind == 0):
		t.Fatalf("a repeat of %s is %s, %v", had.Outcome, p.Outcome, p.Err)
	}
}

// first checks the answer to a new key.
func (l *life) first(t *rapid.T, before request.Request, a request.Act, p request.Reply) {
	got := p.Request
	if p.Changed == cmp.Equal(before, got) {
		t.Fatalf("changed is %v:\n%s", p.Changed, cmp.Diff(before, got))
	}
	revision(t, before, got)
	if p.Err != nil {
		want := before
		if p.Outcome == request.Rejected && a.Actor == launch.Model {
			want.Rejection = got.Rejection
		}
		if d := cmp.Diff(want, got); d != "" || len(p.Events) > 0 != p.Changed {
			t.Fatalf("a refused action changes the request:\n%s", d)
		}
	}
	if p.Err == nil && !request.Allows(a.Action, before.Kind, a.Actor) {
		t.Fatalf("%s by the %s stands: %s", a.Action, a.Actor, p.Outcome)
	}
	if p.Outcome == request.Taken && a.Action != request.ActUpdate && l.now.Passed(before.Deadline) {
		t.Fatal("answered after the deadline")
	}
	immutable(t, before, got)
}

func (l *life) command(t *rapid.T) {
	effects := []launch.Digest{launch.DigestOf([]byte("1")), launch.DigestOf([]byte("2"))}
	c := rapid.SampledFrom([]request.Command{
		request.Try{}, request.NoVerdict{}, request.Verdict{Accepted: true}, request.Verdict{Accepted: true, Output: []byte(`"x"`)},
		request.Verdict{Reason: "no"}, request.Expire{Why: launch.CodeRequestExpired}, request.Expire{Why: launch.CodeTimedOut},
		request.Expire{Why: launch.CodeSubmissionMissing}, request.End{}, request.Take{}, request.Use{Effect: effects[0]}, request.Use{Effect: effects[1]},
		request.Resume{}, request.TurnOpened{}, request.TurnClosed{End: ses.Completed, PromptEntry: "p"}, request.TurnClosed{End: ses.Lost},
		request.TurnClosed{End: ses.Error}, request.TurnClosed{End: ses.Aborted},
		request.Prompted{Form: request.Initial}, request.Prompted{Form: request.Resumed}, request.Prompted{Form: request.Reminder},
	}).Draw(t, "command")
	if rapid.IntRange(0, 3).Draw(t, "spare") > 0 { // let most live on
		switch c.(type) {
		case request.End, request.Expire:
			t.Skip("spared")
		}
	}
	l.apply(t, c)
}

func (l *life) apply(t *rapid.T, c request.Command) {
	before := l.r
	got, events, err := request.Apply(before, c, l.now)
	if err != nil {
		if d := cmp.Diff(before, got); d != "" || events != nil {
			t.Fatalf("%T is refused and changes the request:\n%s", c, d)
		}
		return
	}
	revision(t, before, got)
	if (before.State != got.State) && len(events) != 1 {
		t.Fatalf("%T: %s after %s with events %v", c, got.State, before.State, events)
	}
	for _, e := range events {
		if (e.Verdict != 0) != (before.State == request.Validating && got.State != request.Validating) {
			t.Fatalf("%T: event %+v of a request that was %s", c, e, before.State)
		}
		if e.Verdict != 0 { // as a host does
			a := request.Act{Request: l.r.ID, Actor: e.Key.Actor, Session: l.r.Session, Key: e.Key.Key}
			had := l.receipts[keyOf(a)]
			if had.Outcome != request.Started {
				t.Fatalf("%T settles %+v", c, had)
			}
			had.Outcome = e.Verdict
			if e.Verdict != request.Taken {
				had.Kind, had.Reason = launch.ErrInvalid, "settled"
			}
			l.receipts[keyOf(a)] = had
		}
	}
	switch c := c.(type) {
	case request.Resume:
		l.resumed = 0
	case request.Prompted:
		if c.Form == request.Resumed {
			l.resumed++
		} else if c.Form == request.Reminder {
			l.reminded++
		}
	}
	if l.resumed > request.MaxResumed || l.reminded > request.MaxReminders || (l.resumed+l.reminded > 0 && !l.r.Kind.Prompts()) {
		t.Fatalf("put again %d times, reminded of %d times", l.resumed, l.reminded)
	}
	immutable(t, before, got)
	l.r = got
}

// follow does what is due, as a host does. What [request.Request.Next] asks for
// is never refused.
func (l *life) follow(t *rapid.T) {
	if l.r.Prompts == 0 {
		t.Skip("not put yet")
	}
	s := request.Situation{Held: rapid.IntRange(0, 4).Draw(t, "held") == 0, Resuming: rapid.Bool().Draw(t, "resuming")}
	due := l.r.Next(s)
	if due != request.Nothing && (s.Held || l.r.State != request.Pending || !l.r.Kind.Prompts()) {
		t.Fatalf("%d is due of a %s that is %s", due, l.r.Kind, l.r.State)
	}
	prompts := l.r.Prompts
	switch due {
	case request.Remind:
		l.apply(t, request.Prompted{Form: request.Reminder})
	case request.Prompt:
		l.apply(t, request.Prompted{Form: request.Resumed})
	case request.GiveUp:
		if l.reminded < request.MaxReminders {
			t.Fatalf("given up after %d reminders", l.reminded)
		}
		if l.apply(t, request.Expire{Why: launch.CodeSubmissionMissing}); l.r.State != request.Expired {
			t.Fatalf("given up and still %s", l.r.State)
		}
		return
	default:
		return
	}
	if l.r.Prompts != prompts+1 || l.r.Next(request.Situation{}) != request.Nothing {
		t.Fatalf("%d leads to nothing, or to more: %d prompts", due, l.r.Prompts)
	}
}

// revision checks that the revision rises exactly when the request is over.
func revision(t *rapid.T, before, got request.Request) {
	want := before.Revision
	if !before.State.Over() && got.State.Over() {
		want++
	}
	if got.Revision != want {
		t.Fatalf("revision %d after %d, %s after %s", got.Revision, before.Revision, got.State, before.State)
	}
}

// immutable checks that a state that is final stays as it is.
func immutable(t *rapid.T, before, got request.Request) {
	if !before.State.Over() {
		return
	}
	if before.State != got.State || before.By != got.By || before.ByAction != got.ByAction || before.Print != got.Print || before.Why != got.Why ||
		before.Settled != got.Settled || before.Revision != got.Revision || got.Answer != nil && string(got.Answer) != string(before.Answer) ||
		before.UsedBy != (launch.Digest{}) && before.UsedBy != got.UsedBy || got.Prompts != before.Prompts {
		t.Fatalf("what is over changes:\n%s", cmp.Diff(before, got))
	}
}

// Two attempts never share an id, whatever their parts are made of.
func TestIDs(t *testing.T) {
	seen := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("ab/-\x00")), 0, 4, -1)
		r, n := name.Draw(t, "run"), name.Draw(t, "node")
		visit, attempt := rapid.Uint32Range(0, 300).Draw(t, "visit"), rapid.Uint32Range(0, 300).Draw(t, "attempt")
		parts := fmt.Sprintf("%q %q %d %d", r, n, visit, attempt)
		id := request.ID(launch.RunID(r), n, visit, attempt)
		if was, ok := seen[id]; ok && was != parts || launch.CheckKey("id", id) != nil || len(id) != len("req-")+32 {
			t.Fatalf("%s has id %s of %s", parts, id, was)
		}
		seen[id] = parts
	})
}
