package run

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/piworkflows/launch"
)

// drawPlan draws a graph without reads in which every node is reachable.
func drawPlan(t *rapid.T) Plan {
	n := rapid.IntRange(1, 6).Draw(t, "nodes")
	p := Plan{MaxSteps: uint32(rapid.IntRange(1, 12).Draw(t, "maxSteps")), Start: "n0"}
	if rapid.Bool().Draw(t, "settings") {
		p.Settings = &Settings{Defaults: []byte(`{}`), Form: []byte(`{}`)}
	}
	target := rapid.Map(rapid.IntRange(0, n-1), func(i int) string { return fmt.Sprintf("n%d", i) })
	for i := range n {
		node := Node{Path: fmt.Sprintf("n%d", i), Kind: Compute}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0, 1:
			node.Kind, node.Policy = Action, Repeatable
		case 2:
			node.Kind, node.Ask = Checkpoint, &Ask{Form: []byte(`{}`)}
		}
		if rapid.Bool().Draw(t, "retries") {
			node.Retry = &Retry{Max: uint32(rapid.IntRange(1, 3).Draw(t, "max")), Backoff: time.Duration(rapid.IntRange(0, 1).Draw(t, "backoff")),
				On: rapid.SliceOfNDistinct(rapid.SampledFrom([]Outcome{Failed, TimedOut}), 1, 2, rapid.ID).Draw(t, "on")}
		}
		if rapid.Bool().Draw(t, "limited") {
			node.Budget = 100
		}
		switch On(rapid.IntRange(0, 3).Draw(t, "on")) {
		case Plain:
			p.Edges = append(p.Edges, then(node.Path, target.Draw(t, "to")))
		case OnOutput:
			node.Choices = []string{"x", "y"}
			p.Edges = append(p.Edges, fork(node.Path, OnOutput, "x", target.Draw(t, "x"), "y", target.Draw(t, "y")))
		case OnOutcome:
			e := Edge{From: node.Path, On: OnOutcome}
			for _, o := range rapid.SliceOfNDistinct(rapid.SampledFrom(Outcomes()), 1, 3, rapid.ID).Draw(t, "outcomes") {
				e.Cases = append(e.Cases, Case{o.String(), target.Draw(t, "to")})
			}
			p.Edges = append(p.Edges, e)
		}
		p.Nodes = append(p.Nodes, node)
	}
	return prune(p)
}

func prune(p Plan) Plan {
	keep := map[string]bool{}
	for _, s := range explore(p) {
		keep[s.node] = true
	}
	q := Plan{MaxSteps: p.MaxSteps, Start: p.Start, Settings: p.Settings}
	for _, n := range p.Nodes {
		if keep[n.Path] {
			q.Nodes = append(q.Nodes, n)
		}
	}
	for _, e := range p.Edges {
		if keep[e.From] {
			q.Edges = append(q.Edges, e)
		}
	}
	return q
}

// situation is a node about to run and the set of nodes with an output.
type situation struct {
	node string
	have [6]bool
}

// explore walks every situation that any outcomes can lead to: the dumb twin
// of the read analysis.
func explore(p Plan) []situation {
	index := map[string]int{}
	for i := range 6 {
		index[fmt.Sprintf("n%d", i)] = i
	}
	todo := []situation{{node: p.Start}}
	seen := map[situation]bool{todo[0]: true}
	var all []situation
	for len(todo) > 0 {
		s := todo[0]
		todo, all = todo[1:], append(all, s)
		for _, o := range Outcomes() {
			outputs := []string{"1"}
			if o == OK && p.Node(s.node).Choices != nil {
				outputs = []string{`"x"`, `"y"`}
			}
			for _, out := range outputs {
				next := situation{p.Route(s.node, o, []byte(out)), s.have}
				if o == OK {
					next.have[index[s.node]] = true
				}
				if next.node != "" && !seen[next] {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		}
	}
	return all
}

// TestReadsMatchExploration: Validate accepts exactly the reads that have an
// output in every situation.
func TestReadsMatchExploration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		if err := p.Validate(); err != nil {
			t.Fatalf("drawn plan: %v", err)
		}
		reader := rapid.IntRange(0, len(p.Nodes)-1).Draw(t, "reader")
		read := rapid.SampledFrom(p.Nodes).Draw(t, "read").Path
		always := true
		for _, s := range explore(p) {
			if s.node == p.Nodes[reader].Path && !s.have[read[1]-'0'] {
				always = false
			}
		}
		p.Nodes[reader].Reads = []string{read}
		if err := p.Validate(); (err == nil) != always {
			t.Fatalf("%s reads %s: always there is %v, Validate says %v", p.Nodes[reader].Path, read, always, err)
		}
	})
}

// TestRandomRuns: whatever happens, a run of a valid plan reads nothing that is
// missing, its row and walk keep the invariants, and a refusal changes nothing.
func TestRandomRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		for i := range p.Nodes { // as many reads as are accepted
			for _, other := range p.Nodes {
				q := p.Nodes[i].Reads
				p.Nodes[i].Reads = append(q[:len(q):len(q)], other.Path)
				if p.Validate() != nil {
					p.Nodes[i].Reads = q
				}
			}
		}
		r, err := Begin("w-1", &p, []byte(`1`), 1)
		if err != nil {
			t.Fatal(err)
		}
		var steps []Step
		var spent time.Duration // of the attempt, as its intervals tell
		now := launch.Now{Wall: 5, Clock: "c"}
		visits := map[string]uint32{r.Node: 1}
		outputs := map[string]bool{}
		for range rapid.IntRange(0, 40).Draw(t, "commands") {
			for _, read := range p.Node(r.Node).Reads {
				if !outputs[read] {
					t.Fatalf("node %s reads %s, which has no output", r.Node, read)
				}
			}
			c := drawCommand(t, r, &p)
			now.Mono += launch.Mono(rapid.IntRange(0, 9).Draw(t, "time"))
			now.Clock = rapid.SampledFrom([]string{"c", "c", "c", "other"}).Draw(t, "clock")
			res, err := Apply(r, c, &p, func(n string) (uint32, error) { return visits[n], nil }, now)
			if (err != nil || len(res.Events) == 0) != (res.Run.Revision == r.Revision) {
				t.Fatalf("%+v: the revision does not tell a change: %v", c, err)
			}
			if r.Status.Terminal() != errors.Is(err, launch.ErrEnded) {
				t.Fatalf("%+v on a run that is %s: %v", c, r.Status, err)
			}
			if err != nil {
				continue
			}
			checkTime(t, r, res, &spent)
			r = res.Run
			if res.Step != nil {
				steps = append(steps, *res.Step)
				outputs[res.Step.Node] = outputs[res.Step.Node] || res.Step.Outcome == OK
			}
			for _, e := range res.Events {
				if e.Kind == Entered {
					visits[e.Node]++
					if e.Visit != visits[e.Node] {
						t.Fatalf("visit %d of %s is called %d", visits[e.Node], e.Node, e.Visit)
					}
				}
			}
			if err := errors.Join(Check(r), CheckWalk(&p, r, steps)); err != nil {
				t.Fatal(err)
			}
			if len(steps) > 0 { // and the invariant can fail
				bad := append([]Step(nil), steps...)
				bad[len(bad)-1].Visit++
				if CheckWalk(&p, r, bad) == nil {
					t.Fatal("a walk with a wrong visit passes")
				}
				if CheckWalk(&p, r, steps[1:]) == nil {
					t.Fatal("a walk without its first step passes")
				}
			}
		}
	})
}

// checkTime: spent time is what the intervals of the attempt add up to, never
// falls, and nothing rewrites when an attempt began.
func checkTime(t *rapid.T, before Run, res Result, spent *time.Duration) {
	r := res.Run
	if i := res.Interval; i != nil {
		if i.Spent < 0 || i.Attempt != before.Attempt || i.Visit != before.Visit || i.Node != before.Node {
			t.Fatalf("interval %+v of %+v", i, before)
		}
		*spent += i.Spent
	}
	if res.Step != nil && res.Step.Spent != *spent {
		t.Fatalf("the step spent %s, its intervals %s", res.Step.Spent, *spent)
	}
	if r.Node != before.Node || r.Visit != before.Visit || r.Attempt != before.Attempt {
		*spent = 0
		return
	}
	if r.Began != before.Began || r.Budget != before.Budget || r.Active.Spent < before.Active.Spent {
		t.Fatalf("start, budget or spent time of an attempt changed: %+v", r)
	}
	if r.Active.Opened == 0 && r.Active.Spent != *spent {
		t.Fatalf("the attempt spent %s, its intervals %s", r.Active.Spent, *spent)
	}
}

func drawCommand(t *rapid.T, r Run, p *Plan) Command {
	switch rapid.IntRange(0, 15).Draw(t, "command") {
	case 10:
		return Wait{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt}
	case 11:
		return Configure{Revision: uint32(rapid.IntRange(0, 3).Draw(t, "revision"))}
	case 12:
		return rapid.SampledFrom([]Command{Elapse{}, StopClock{}, StopClock{Lost: true}}).Draw(t, "stop")
	case 13, 14:
		return rapid.SampledFrom([]Command{StartClock{}, SampleClock{}}).Draw(t, "clock")
	case 0:
		return Reattempt{}
	case 1:
		return Park{rapid.SampledFrom([]Status{Waiting, Attention, Running}).Draw(t, "park")}
	case 2, 3:
		return Unpark{}
	case 4:
		if rapid.IntRange(0, 3).Draw(t, "end") == 0 {
			return End{Status: rapid.SampledFrom([]Status{RunCancelled, Completed}).Draw(t, "status")}
		}
	}
	s := Settle{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt, Outcome: rapid.SampledFrom(Outcomes()).Draw(t, "outcome")}
	s.Receipt = rapid.Bool().Draw(t, "receipt") && p.Node(r.Node).Kind == Action
	switch s.Outcome {
	case OK:
		s.Output = []byte(rapid.SampledFrom([]string{`"x"`, `"y"`}).Draw(t, "output"))
	case Failed, TimedOut:
		s.Failure = boom
	}
	if rapid.IntRange(0, 5).Draw(t, "stale") == 0 {
		s.Attempt++
	}
	return s
}
