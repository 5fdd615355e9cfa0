package enginetest

import (
	"fmt"
	"reflect"
	"slices"

	"example.com/piworkflows/engine/run"
)

// OneResult: an attempt has one result, and a visit one accepted output, which
// is its last result. steps are of any runs, in any order.
func OneResult(steps []run.Step) error {
	type attempt struct {
		visit
		attempt uint32
	}
	seen, accepted, last := map[attempt]bool{}, map[visit]uint32{}, map[visit]uint32{}
	for _, s := range steps {
		v := visit{string(s.Run), s.Node, s.Visit}
		a := attempt{v, s.Attempt}
		switch {
		case seen[a]:
			return fmt.Errorf("OneResult: attempt %d of %s has two results", s.Attempt, v)
		case s.Outcome == run.OK && accepted[v] != 0:
			return fmt.Errorf("OneResult: %s has two accepted outputs", v)
		case s.Outcome == run.OK:
			accepted[v] = s.Attempt
		}
		seen[a], last[v] = true, max(last[v], s.Attempt)
	}
	for v, n := range accepted {
		if n != last[v] {
			return fmt.Errorf("OneResult: attempt %d of %s was settled after its output was accepted", last[v], v)
		}
	}
	return nil
}

type visit struct {
	run, node string
	n         uint32
}

func (v visit) String() string {
	return fmt.Sprintf("visit %d of node %s of run %s", v.n, v.node, v.run)
}

// WalksPlan: the results of a run, in the order in which they were settled,
// follow the edges of the plan and lead to its row.
func WalksPlan(p *run.Plan, r run.Run, steps []run.Step) error {
	if err := run.CheckWalk(p, r, steps); err != nil {
		return fmt.Errorf("WalksPlan: %w", err)
	}
	return nil
}

// RetriesDeclared: a visit has no more results than its node declares retries
// and one, and each but the last has an outcome that is declared.
func RetriesDeclared(p *run.Plan, steps []run.Step) error {
	of := map[visit][]run.Step{}
	for _, s := range steps {
		v := visit{string(s.Run), s.Node, s.Visit}
		of[v] = append(of[v], s)
	}
	for v, all := range of {
		slices.SortFunc(all, func(a, b run.Step) int { return int(a.Attempt) - int(b.Attempt) })
		n := p.Node(v.node)
		if n == nil {
			return fmt.Errorf("RetriesDeclared: the plan has no node for %s", v)
		}
		for i, s := range all[:len(all)-1] {
			if n.Retry == nil || i >= int(n.Retry.Max) || !slices.Contains(n.Retry.On, s.Outcome) {
				return fmt.Errorf("RetriesDeclared: %s was tried again after %s, %d results so far", v, s.Outcome, i+1)
			}
		}
	}
	return nil
}

// RunFixed: from one commit to the next the input and start of a run are
// constant, its counts never fall, the start of an attempt is constant, and a
// run that has ended stays as it is.
func RunFixed(before, after run.Run) error {
	bad := func(what string) error { return fmt.Errorf("RunFixed: %s of run %s", what, before.ID) }
	same := before.Node == after.Node && before.Visit == after.Visit
	switch {
	case before.ID != after.ID || before.Started != after.Started || string(before.Input) != string(after.Input):
		return bad("the id, start or input changed")
	case before.Status.Terminal() && !reflect.DeepEqual(before, after):
		return bad("something changed after the end")
	case after.Revision < before.Revision || after.Steps < before.Steps || after.Progress < before.Progress || after.Settings < before.Settings:
		return bad("a count fell")
	case same && (after.Attempt < before.Attempt || after.Retry < before.Retry):
		return bad("an attempt or retry came back")
	case same && after.Attempt == before.Attempt && (after.Began != before.Began || after.Budget != before.Budget || after.Seen != before.Seen || before.Asked && !after.Asked):
		return bad("the start, budget, settings or request of an attempt changed")
	}
	return nil
}

// SpentRises: what an attempt has spent of its budget never falls, nor does the
// number of its intervals, and an attempt without a budget spends nothing.
func SpentRises(before, after run.Run) error {
	a, b := before.Active, after.Active
	switch {
	case after.Budget == 0 && b != (run.Active{}):
		return fmt.Errorf("SpentRises: run %s spends time without a budget", after.ID)
	case before.Node != after.Node || before.Visit != after.Visit || before.Attempt != after.Attempt:
		return nil
	case b.Spent < a.Spent || b.N < a.N:
		return fmt.Errorf("SpentRises: run %s had spent %v in %d intervals, now %v in %d", after.ID, a.Spent, a.N, b.Spent, b.N)
	case a.Opened != 0 && b.Opened != 0 && a.N == b.N && (a.Opened != b.Opened || a.From != b.From):
		return fmt.Errorf("SpentRises: the open interval of run %s began anew", after.ID)
	}
	return nil
}

// IntervalsDisjoint: the closed intervals of an attempt are numbered from 1
// without a gap, none spent less than nothing, and together they spent what the
// attempt's result or, while it goes on, its run says.
func IntervalsDisjoint(runs []run.Run, steps []run.Step, all []run.Interval) error {
	type attempt struct {
		visit
		attempt uint32
	}
	type sum struct {
		seen  map[uint32]bool
		top   uint32
		spent int64
	}
	of := map[attempt]*sum{}
	for _, i := range all {
		a := attempt{visit{string(i.Run), i.Node, i.Visit}, i.Attempt}
		s := of[a]
		if s == nil {
			s = &sum{seen: map[uint32]bool{}}
			of[a] = s
		}
		if i.N == 0 || s.seen[i.N] || i.Spent < 0 || i.Opened == 0 || i.Closed == 0 {
			return fmt.Errorf("IntervalsDisjoint: interval %d of attempt %d of %s is there twice, or is none", i.N, i.Attempt, a.visit)
		}
		s.seen[i.N], s.top, s.spent = true, max(s.top, i.N), s.spent+int64(i.Spent)
	}
	for a, s := range of {
		if int(s.top) != len(s.seen) {
			return fmt.Errorf("IntervalsDisjoint: attempt %d of %s has %d intervals up to number %d", a.attempt, a.visit, len(s.seen), s.top)
		}
	}
	spent := func(a attempt) int64 {
		if s := of[a]; s != nil {
			return s.spent
		}
		return 0
	}
	settled := map[attempt]bool{}
	for _, s := range steps {
		a := attempt{visit{string(s.Run), s.Node, s.Visit}, s.Attempt}
		settled[a] = true
		if got := spent(a); got != int64(s.Spent) {
			return fmt.Errorf("IntervalsDisjoint: the intervals of attempt %d of %s spent %d ns, its result says %d", s.Attempt, a.visit, got, s.Spent)
		}
	}
	for _, r := range runs {
		a := attempt{visit{string(r.ID), r.Node, r.Visit}, r.Attempt}
		want := r.Active.Spent
		if r.Active.Opened != 0 {
			want = r.Active.From
		}
		if got := spent(a); !settled[a] && got != int64(want) {
			return fmt.Errorf("IntervalsDisjoint: the intervals of attempt %d of %s spent %d ns, its run says %d", r.Attempt, a.visit, got, want)
		}
	}
	return nil
}
