package effect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

var (
	key    = ActionKey("w-1", "m/post", 2, 0)
	ask    = launch.DigestOf([]byte("ask"))
	token  = launch.DigestOf([]byte("token"))
	token2 = launch.DigestOf([]byte("token 2"))
)

func want(p run.Policy) Reservation {
	return Reservation{Key: key, Fingerprint: ask, Policy: p, Token: token, Attempt: 2}
}

// command makes the command of a trigger and the policy that it needs.
func command(t Trigger) (Command, run.Policy) {
	switch t {
	case ReceiptApplied:
		return Settle{token, SaysApplied}, run.Unrepeatable
	case ReceiptRejected:
		return Settle{token, SaysRejected}, run.Unrepeatable
	case ReceiptUnknown:
		return Settle{token, SaysUnknown}, run.Unrepeatable
	case RecoverRepeatable:
		return Recover{}, run.Repeatable
	case RecoverObserved:
		return Recover{}, run.Observed
	case RecoverUnrepeatable:
		return Recover{}, run.Unrepeatable
	case ObservedFound:
		return Observation{Found: true}, run.Observed
	case ObservedMissing:
		return Observation{}, run.Observed
	case PersonApplied:
		return Resolve{SaysApplied, "seen"}, run.Unrepeatable
	}
	return Resolve{SaysRejected, "asked"}, run.Unrepeatable
}

func in(s State, p run.Policy) Effect {
	e := Effect{Key: key, Fingerprint: ask, State: s, Policy: p, Token: token, Attempt: 2, Reserved: 1}
	if s.Final() {
		e.Settled = 5
	}
	return e
}

// TestTable walks all state × trigger pairs: the table is whole, Apply does
// what it says and nothing else, and the rules that do not depend on the table
// hold in it.
func TestTable(t *testing.T) {
	cells := Table()
	if len(cells) != 4*10 {
		t.Fatalf("the table has %d cells", len(cells))
	}
	seen := map[[2]uint8]bool{}
	for _, c := range cells {
		name := c.From.String() + "/" + c.On.String()
		if strings.Contains(name, "unknown/") || c.On == 0 || seen[[2]uint8{uint8(c.From), uint8(c.On)}] {
			t.Fatalf("cell %s is missing or twice", name)
		}
		seen[[2]uint8{uint8(c.From), uint8(c.On)}] = true
		cmd, policy := command(c.On)
		before := in(c.From, policy)
		res, err := Apply(before, cmd, 9)
		if c.Refuse != 0 {
			if !errors.Is(err, c.Refuse) || res != (Result{Effect: before}) {
				t.Errorf("%s: got %+v, %v, want a refusal %v", name, res, err, c.Refuse)
			}
			continue
		}
		wanted := before
		if wanted.State = c.To; c.To != c.From && c.To.Final() {
			wanted.Settled = 9
		}
		if diff := cmp.Diff(Result{Effect: wanted, Changed: c.From != c.To, Evidence: c.Evidence, Next: c.Next}, res); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if err := Check(res.Effect); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		switch {
		case c.From.Final() && c.To != c.From:
			t.Errorf("%s: a final state changes", name)
		case c.From == Ambiguous && c.To != Ambiguous && c.On < ObservedFound:
			t.Errorf("%s: ambiguity ends without observation or person", name)
		case c.To == Ambiguous && c.Next != NextPerson && c.Next != NextObserve:
			t.Errorf("%s: nobody looks after an ambiguous effect", name)
		case c.Next == NextRun && (c.From != Pending || c.On != RecoverRepeatable && c.On != ObservedMissing):
			t.Errorf("%s: code runs again without permission", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		why     string
		effect  Effect
		command Command
		want    error
	}{
		{"a receipt of a superseded reservation", in(Pending, run.Repeatable), Settle{token2, SaysApplied}, launch.ErrStale},
		{"a foreign receipt of a settled effect", in(Applied, run.Repeatable), Settle{token2, SaysApplied}, launch.ErrStale},
		{"a receipt that says nothing", in(Pending, run.Repeatable), Settle{Token: token}, launch.ErrInvalid},
		{"nobody declared an observer", in(Ambiguous, run.Repeatable), Observation{Found: true}, launch.ErrNotAllowed},
		{"a person without evidence", in(Ambiguous, run.Observed), Resolve{Verdict: SaysApplied}, launch.ErrInvalid},
		{"evidence one byte too long", in(Ambiguous, run.Observed), Resolve{SaysApplied, strings.Repeat("x", MaxEvidence+1)}, launch.ErrInvalid},
		{"evidence that is not UTF-8", in(Ambiguous, run.Observed), Resolve{SaysApplied, "\xff"}, launch.ErrInvalid},
		{"a person who cannot tell", in(Ambiguous, run.Observed), Resolve{SaysUnknown, "x"}, launch.ErrInvalid},
		{"no command", in(Pending, run.Observed), nil, launch.ErrInternal},
		{"a row without state", Effect{}, Recover{}, launch.ErrInternal},
		{"a row without policy", in(Pending, 0), Recover{}, launch.ErrInternal},
	} {
		t.Run(c.why, func(t *testing.T) {
			res, err := Apply(c.effect, c.command, 9)
			if !errors.Is(err, c.want) || res != (Result{Effect: c.effect}) {
				t.Fatalf("got %+v, %v, want %v", res, err, c.want)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	fresh, adopted, err := Reserve(nil, want(run.Observed), 1)
	if err != nil || adopted || fresh != in(Pending, run.Observed) {
		t.Fatalf("new: %+v, %v, %v", fresh, adopted, err)
	}
	with := func(f func(*Reservation)) Reservation {
		w := want(run.Observed)
		f(&w)
		return w
	}
	later := with(func(w *Reservation) { w.Attempt, w.Token = 3, token2 })
	for _, c := range []struct {
		why   string
		state State
		want  Reservation
		err   error
	}{
		{"the same again", Pending, want(run.Observed), nil},
		{"a later attempt", Pending, later, nil},
		{"another request", Pending, with(func(w *Reservation) { w.Fingerprint = token }), launch.ErrConflict},
		{"another request, settled", Applied, with(func(w *Reservation) { w.Fingerprint = token }), launch.ErrConflict},
		{"another policy", Pending, want(run.Repeatable), launch.ErrConflict},
		{"the same attempt, another token", Pending, with(func(w *Reservation) { w.Token = token2 }), launch.ErrConflict},
		{"an earlier attempt", Pending, with(func(w *Reservation) { w.Attempt = 1 }), launch.ErrStale},
		{"applied", Applied, later, launch.ErrAlreadyDecided},
		{"rejected", Rejected, later, launch.ErrAlreadyDecided},
		{"ambiguous", Ambiguous, later, launch.ErrUnsettledEffect},
		{"another key's row", Pending, with(func(w *Reservation) { w.Key.Visit = 9 }), launch.ErrInternal},
		{"no attempt", Pending, with(func(w *Reservation) { w.Attempt = 0 }), launch.ErrInvalid},
		{"no policy", Pending, with(func(w *Reservation) { w.Policy = 0 }), launch.ErrInvalid},
		{"no visit", Pending, with(func(w *Reservation) { w.Key.Visit = 0 }), launch.ErrInvalid},
		{"a name too long", Pending, with(func(w *Reservation) { w.Key.Name = strings.Repeat("x", launch.MaxKey+1) }), launch.ErrInvalid},
	} {
		t.Run(c.why, func(t *testing.T) {
			row := in(c.state, run.Observed)
			got, adopted, err := Reserve(&row, c.want, 9)
			if row != in(c.state, run.Observed) {
				t.Fatal("the existing row was changed")
			}
			if c.err != nil {
				if !errors.Is(err, c.err) || adopted {
					t.Fatalf("got %v, want %v", err, c.err)
				}
				return
			}
			row.Token, row.Attempt = c.want.Token, c.want.Attempt
			if err != nil || !adopted || got != row {
				t.Fatalf("adopted %v: %+v, %v", adopted, got, err)
			}
		})
	}
}

// TestKeyID: the id is a fixed vector, and each part counts.
func TestKeyID(t *testing.T) {
	const vector = "d57ed2633cc86253"
	if got := key.ID().String()[:16]; got != vector {
		t.Fatalf("id of %+v starts with %s, want %s", key, got, vector)
	}
	text := rapid.StringMatching(`[a-c]{1,2}`)
	draw := rapid.Custom(func(t *rapid.T) Key {
		n := rapid.Uint32Range(1, 2)
		return Key{launch.RunID(text.Draw(t, "run")), text.Draw(t, "type"), text.Draw(t, "name"), text.Draw(t, "path"), n.Draw(t, "visit"), n.Draw(t, "retry")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if (a == b) != (a.ID() == b.ID()) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func TestCheckRow(t *testing.T) {
	for why, spoil := range map[string]func(*Effect){
		"no key": func(e *Effect) { e.Key.Path = "" }, "no state": func(e *Effect) { e.State = 0 },
		"no policy": func(e *Effect) { e.Policy = 0 }, "no attempt": func(e *Effect) { e.Attempt = 0 },
		"settled while pending": func(e *Effect) { e.Settled = 1 },
		"applied at no time":    func(e *Effect) { e.State = Applied },
	} {
		e := in(Pending, run.Observed)
		if spoil(&e); Check(e) == nil {
			t.Errorf("%s passes", why)
		}
	}
}
