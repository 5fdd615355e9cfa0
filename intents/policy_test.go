package intents

import (
	"slices"
	"testing"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

// The policy as data, and a reader of it that shares nothing with the Go table.
type policyData struct {
	About    string    `json:"about"`
	Kinds    []string  `json:"kinds"`
	Actors   []string  `json:"actors"`
	Outcomes []string  `json:"outcomes"`
	Rows     []rowData `json:"rows"`
}

type rowData struct {
	When struct {
		Kinds      []string `json:"kinds"`
		Actors     []string `json:"actors"`
		Headless   *bool    `json:"headless"`
		ActiveTurn *bool    `json:"activeTurn"`
		Outcome    string   `json:"outcome"`
	} `json:"when"`
	Then decisionData `json:"then"`
	Why  string       `json:"why"`
}

type decisionData struct {
	Owe           bool   `json:"owe"`
	Cause         string `json:"cause"`
	Eligible      bool   `json:"eligible"`
	Handoff       bool   `json:"handoff"`
	NoticeIfNone  bool   `json:"noticeIfNone"`
	WithdrawChain bool   `json:"withdrawChain"`
}

func (p policyData) decide(kind, actor string, headless, active bool, outcome string) (int, decisionData) {
	for n, r := range p.Rows {
		w := r.When
		if (w.Kinds == nil || slices.Contains(w.Kinds, kind)) && (w.Actors == nil || slices.Contains(w.Actors, actor)) &&
			(w.Headless == nil || *w.Headless == headless) && (w.ActiveTurn == nil || *w.ActiveTurn == active) &&
			(w.Outcome == "" || w.Outcome == outcome) {
			return n, r.Then
		}
	}
	return -1, decisionData{}
}

func asData(d Decision) decisionData {
	out := decisionData{Owe: d.Owe, Eligible: d.Eligible, Handoff: d.Handoff, NoticeIfNone: d.NoticeIfNone, WithdrawChain: d.WithdrawChain}
	if d.Cause != 0 {
		out.Cause = d.Cause.String()
	}
	return out
}

func TestPolicyTableIsTheData(t *testing.T) {
	var data policyData
	readJSON(t, "../testdata/contract/intents-policy.json", &data)
	var got []rowData
	for _, r := range PolicyRows() {
		var d rowData
		for _, k := range r.Kinds {
			d.When.Kinds = append(d.When.Kinds, k.String())
		}
		for _, a := range r.Actors {
			d.When.Actors = append(d.When.Actors, a.String())
		}
		d.When.Headless, d.When.ActiveTurn = condition(r.Headless), condition(r.ActiveTurn)
		if r.Outcome != 0 {
			d.When.Outcome = r.Outcome.String()
		}
		d.Then, d.Why = asData(r.Then), r.Why
		got = append(got, d)
	}
	if d := cmp.Diff(data.Rows, got); d != "" {
		t.Errorf("the table differs from its data (-data +go):\n%s", d)
	}
	var kinds []string
	for _, k := range SourceKinds() {
		kinds = append(kinds, k.String())
	}
	if d := cmp.Diff(data.Kinds, kinds); d != "" {
		t.Errorf("kinds (-data +go):\n%s", d)
	}
}

func condition(m Match) *bool {
	yes, no := true, false
	return map[Match]*bool{Any: nil, Yes: &yes, No: &no}[m]
}

// Every combination of a source is decided by the row that the data says, every
// row decides at least one, and what must hold for all of them does.
func TestPolicyOnEverySource(t *testing.T) {
	var data policyData
	readJSON(t, "../testdata/contract/intents-policy.json", &data)
	actors := []launch.Actor{0, launch.Model, launch.Person, launch.Host, launch.Worker, launch.Timer}
	used := make(map[int]bool)
	for _, kind := range append(SourceKinds(), 0, 99) {
		for _, actor := range actors {
			for _, headless := range []bool{false, true} {
				for _, active := range []bool{false, true} {
					for _, outcome := range append(Causes(), 0) {
						s := Source{kind, actor, headless, active, outcome}
						got := Policy(s)
						row, want := data.decide(kind.String(), actor.String(), headless, active, outcome.String())
						if d := cmp.Diff(want, asData(got)); d != "" {
							t.Errorf("%+v, row %d (-data +go):\n%s", s, row, d)
						}
						used[row] = true
						person := actor == launch.Person && (kind == OnCancel || kind == OnPause)
						switch {
						case got.Owe && (headless || person || kind == OnEscape || kind == OnShutdown):
							t.Errorf("%+v owes a turn", s)
						case got.Owe != (got.Cause != 0):
							t.Errorf("%+v: a cause without a turn or the reverse", s)
						case got.WithdrawChain && (got.Owe || got.Eligible || !person):
							t.Errorf("%+v withdraws the chain", s)
						case got.Handoff && (got.Owe || !got.Eligible):
							t.Errorf("%+v hands over what is not eligible", s)
						case !headless && !person && kind == OnCancel && !got.Eligible:
							t.Errorf("%+v ends a run and leaves its intent ineligible", s)
						}
					}
				}
			}
		}
	}
	for n, r := range data.Rows {
		if !used[n] {
			t.Errorf("row %d (%s) decides nothing", n, r.Why)
		}
	}
}
