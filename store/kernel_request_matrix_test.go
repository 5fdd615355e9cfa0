package store_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// rule says that somebody may do something to an open request of a kind.
type rule struct {
	action request.Action
	kind   run.Kind
	by     []launch.Actor
	why    string
}

// permitted is everything that a caller may do.
var permitted = []rule{
	{request.ActSubmit, run.Agent, []launch.Actor{launch.Model}, "the model does the task"},
	{request.ActUpdate, run.Agent, []launch.Actor{launch.Model}, "and tells how far it is, where the contract takes that"},
	{request.ActRespond, run.Assistant, []launch.Actor{launch.Model}, "the model's visible text"},
	{request.ActAnswer, run.Checkpoint, []launch.Actor{launch.Model, launch.Person}, "a question to whoever knows"},
	{request.ActDecide, run.Decision, []launch.Actor{launch.Person}, "model output never satisfies a decision"},
}

// standings say what an action that the matrix permits comes to where the
// request stands; refused 0 is an action that changes something.
var standings = []struct {
	name    string
	refused launch.Kind
	why     string
}{
	{"pending", 0, "it is open"},
	{"paused", 0, "a pause keeps the request, and answers are taken meanwhile"},
	{"validating", launch.ErrValidating, "a candidate is being checked, and no other is taken"},
	{"accepted", launch.ErrAlreadyDecided, "it was answered, and the run has not taken it over"},
	{"ended", launch.ErrAlreadyDecided, "it was answered, and its run is over since"},
	{"expired", launch.ErrExpired, "its time is over"},
	{"cancelled", launch.ErrEnded, "it ended with its run"},
}

// targets are the ids that an action may name, and where those requests stand;
// an empty standing is that of the run in question.
var targets = []struct {
	name, standing string
	why            string
}{
	{"right", "", "the exact request"},
	{"other run", "cancelled", "of an earlier run in the same session"},
	{"other session", "pending", "which a model must not even know of"},
	{"old attempt", "expired", "of the same visit, whose attempt was replaced"},
	{"invented", "none", "an id is not guessed and nothing is retargeted"},
}

// matrixScene is one situation of one kind, with the ids that [targets] names.
type matrixScene struct {
	*ride
	ids map[string]string
}

func newScene(t *testing.T, k run.Kind, standing string) matrixScene {
	b := aloneBed(t)
	for _, s := range kernelSessions {
		b.connect(s)
	}
	updates := func(n *run.Node) { n.Ask.Updates = k == run.Agent }
	plan := planOf(k, timed, updates)
	earlier := b.start(kernelSessions[0], plan)
	earlier.claim()
	earlier.ask()
	carry(b, store.Cancel{Run: earlier.run, Actor: launch.Person})

	apart := b.start(kernelSessions[1], planOf(k, updates))
	apart.claim()
	apart.ask()

	if standing == "validating" {
		plan = planOf(k, timed, validates, updates)
	}
	r := b.start(kernelSessions[0], plan)
	r.claim()
	r.ask()
	r.expire()
	r.claim()
	r.ask()
	switch standing {
	case "paused":
		carry(b, store.Pause{Run: r.run})
	case "validating", "accepted":
		r.answer()
	case "ended":
		r.answer()
		r.claim()
	case "expired":
		r.expire()
	case "cancelled":
		carry(b, store.Cancel{Run: r.run, Actor: launch.Person})
	}
	return matrixScene{r, map[string]string{
		"right": r.ids[1], "old attempt": r.ids[0], "other run": earlier.id(), "other session": apart.id(), "invented": "req-00000000000000000000000000000000",
	}}
}

// cell is one action of somebody on one id in one situation.
type cell struct {
	standing, target string
	kind             run.Kind
	action           request.Action
	by               launch.Actor
	equal            bool // the payload is that of the accepted answer
}

func (c cell) String() string {
	return fmt.Sprintf("%s: %s %ss, %s id, equal payload %v", c.standing, c.by, c.action, c.target, c.equal)
}

// want is what the tables above say: the kind of the refusal, or 0 when the
// action stands, and whether it then changes something. Who sees the request and
// may do such a thing at all comes first, then what its kind takes, then where
// it stands.
func (c cell) want() (refused launch.Kind, outcome request.Outcome, changes bool) {
	at := c.standing
	for _, target := range targets {
		if target.name == c.target && target.standing != "" {
			at = target.standing
		}
	}
	if at == "none" || c.target == "other session" && c.by == launch.Model {
		return launch.ErrNotFound, request.NotFound, false
	}
	does := slices.ContainsFunc(permitted, func(p rule) bool { return p.action == c.action && slices.Contains(p.by, c.by) })
	if !does {
		return launch.ErrNotAllowed, request.Conflict, false
	}
	for _, p := range permitted {
		if p.action != c.action || p.kind != c.kind {
			continue
		}
		for _, s := range standings {
			switch {
			case s.name != at:
			case s.refused == launch.ErrAlreadyDecided && c.equal && c.action == fits[c.kind].action:
				return 0, request.Adopted, false
			case s.refused != 0:
				return s.refused, request.Conflict, false
			default:
				return 0, request.Taken, true
			}
		}
	}
	return launch.ErrWrongKind, request.Conflict, false
}

// payload fits the kind of the request, so that nothing but the rule in question
// refuses it.
func (c cell) payload() string {
	switch {
	case c.action == request.ActUpdate:
		return `{"completed":1,"total":2}`
	case c.equal:
		return fits[c.kind].payload
	}
	return fits[c.kind].other
}

// Every action, on every kind, with every id, in every situation, by everybody:
// only the cells of the matrix change anything, and what is refused leaves every
// table but the receipts as it was, byte for byte, and says why.
func TestRequestMatrix(t *testing.T) {
	actions := []request.Action{request.ActSubmit, request.ActUpdate, request.ActRespond, request.ActAnswer, request.ActDecide}
	actors := []launch.Actor{launch.Model, launch.Person, launch.Worker, launch.Timer}
	for kind := range fits {
		for _, standing := range standings {
			if kind == run.Decision && standing.name == "validating" {
				continue // its choices are its check
			}
			t.Run(kind.String()+"/"+standing.name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, kind, standing.name)
				before := must(s.dump())
				for _, target := range targets {
					for _, action := range actions {
						for _, by := range actors {
							for _, equal := range []bool{true, false} {
								if equal && standing.refused != launch.ErrAlreadyDecided {
									continue
								}
								c := cell{standing.name, target.name, kind, action, by, equal}
								after := s.play(t, c, before)
								if before = after; after == nil {
									s = newScene(t, kind, standing.name)
									before = must(s.dump())
								}
							}
						}
					}
				}
			})
		}
	}
}

// play does one cell and returns what the tables hold, or nil when they changed.
// Before it the same comes through a connection that was replaced, and after it
// comes again; neither may leave anything.
func (s matrixScene) play(t *testing.T, c cell, before dump) dump {
	act := s.act(c.action, c.by, c.payload())
	act.Request = s.ids[c.target]
	s.as(&act)
	s.take()
	if c.by == launch.Model {
		stale := act
		stale.Epoch++
		_, err := store.Do(bg, s.store, stale)
		var r *launch.Refusal
		if !errors.As(err, &r) || r.Kind != launch.ErrStale || r.Fence != launch.EpochChanged {
			t.Errorf("%s, through a connection that was replaced: %v", c, err)
		}
	}
	got, err := store.Do(bg, s.store, act)
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	refused, outcome, changes := c.want()
	if got.Outcome != outcome || (got.Refused != nil) != (refused != 0) || refused != 0 && !errors.Is(got.Refused, refused) {
		t.Errorf("%s: %s, %v; want %s, %v", c, got.Outcome, got.Refused, outcome, refused)
	}
	if changes {
		s.onlyThat(t, c, before, must(s.dump()))
		return nil
	}
	again, err := store.Do(bg, s.store, act)
	if err != nil || again.Outcome != got.Outcome || fmt.Sprint(again.Refused) != fmt.Sprint(got.Refused) {
		t.Errorf("%s: its repeat is %s, %v, %v", c, again.Outcome, again.Refused, err)
	}
	if events := s.take(); len(events) > 0 {
		t.Errorf("%s: refused, and told %+v", c, events)
	}
	after := must(s.dump())
	if changed := unlikeDumps(before, after); !slices.Equal(changed, []string{"workflow_receipts"}) {
		t.Errorf("%s: changed %v, want the receipts alone", c, changed)
	}
	if n := len(after["workflow_receipts"]) - len(before["workflow_receipts"]); n != 1 {
		t.Errorf("%s: left %d receipts, want 1", c, n)
	}
	return after
}

// onlyThat checks that an accepted action concerned no request, run or launch
// but the one that it names, and made no new ones.
func (s matrixScene) onlyThat(t *testing.T, c cell, before, after dump) {
	id := s.ids[c.target]
	for _, table := range []string{"workflow_requests", "workflow_run_queue", "workflow_runs", "workflow_steps", "workflow_effects", "workflow_turn_intents"} {
		if len(before[table]) != len(after[table]) {
			t.Errorf("%s: %s has another number of rows", c, table)
		}
	}
	for _, table := range []string{"workflow_runs", "workflow_steps", "workflow_effects", "workflow_turn_intents", "workflow_settings"} {
		if !reflect.DeepEqual(before[table], after[table]) {
			t.Errorf("%s: %s changed; its run goes on at the next claim", c, table)
		}
	}
	for key, row := range before["workflow_requests"] {
		if now := after["workflow_requests"][key]; reflect.DeepEqual(row, now) == (row[0].Text == id) {
			t.Errorf("%s: request %s changed: %v, and %s was named", c, row[0].Text, !reflect.DeepEqual(row, now), id)
		}
	}
	changed := 0
	for key, row := range before["workflow_run_queue"] {
		if !reflect.DeepEqual(row, after["workflow_run_queue"][key]) {
			changed++
		}
	}
	if changed > 1 {
		t.Errorf("%s: %d launches changed", c, changed)
	}
}

// unlikeDumps names the tables in which two dumps differ.
func unlikeDumps(a, b dump) (tables []string) {
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if !reflect.DeepEqual(a[name], b[name]) {
			tables = append(tables, name)
		}
	}
	for name := range a {
		if b[name] == nil {
			tables = append(tables, name)
		}
	}
	return tables
}

// The tables of this test are those of the package, so that neither changes
// alone.
func TestRequestMatrixIsThePackages(t *testing.T) {
	for _, c := range request.Matrix() {
		if !c.Action.Called() && c.Action != request.ActRespond {
			continue
		}
		if !slices.ContainsFunc(permitted, func(p rule) bool {
			return p.action == c.Action && p.kind == c.Kind && slices.Equal(p.by, c.Actors)
		}) {
			t.Errorf("%s of %s by %v is permitted and not tested", c.Action, c.Kind, c.Actors)
		}
	}
}
