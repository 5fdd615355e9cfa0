package admit

import (
	"fmt"
	"slices"
	"testing"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func group(name string) Origin { return Origin{Group, name} }

func runs(order []Candidate) (ids []string) {
	for _, c := range order {
		ids = append(ids, string(c.Run))
	}
	return ids
}

func TestOrder(t *testing.T) {
	a, b, c := group("a"), group("b"), Origin{Session, "c"} // sessions come before groups
	for _, tc := range []struct {
		why  string
		in   []Candidate
		last Origin
		want []string
	}{
		{"nothing waits", nil, a, nil},
		{"one origin: the oldest first", []Candidate{{"r2", a, 2}, {"r1", a, 1}}, Origin{}, []string{"r1", "r2"}},
		{"ties go by run id, so that a restart keeps the order", []Candidate{{"r2", a, 1}, {"r1", a, 1}}, Origin{}, []string{"r1", "r2"}},
		{"origins take turns", []Candidate{{"r1", a, 1}, {"r2", a, 2}, {"r3", b, 9}, {"r4", a, 3}}, Origin{}, []string{"r1", "r3", "r2", "r4"}},
		{"without a last one the oldest begins", []Candidate{{"r1", a, 5}, {"r2", b, 4}}, Origin{}, []string{"r2", "r1"}},
		{"the one after the last one begins", []Candidate{{"r1", a, 1}, {"r2", b, 9}}, a, []string{"r2", "r1"}},
		{"and the turn comes around", []Candidate{{"r1", a, 9}, {"r2", b, 1}}, b, []string{"r1", "r2"}},
		{"a last one that has nothing left is still a place in the circle", []Candidate{{"r1", a, 9}, {"r2", c, 1}}, Origin{Group, "0"}, []string{"r1", "r2"}},
		{"the last one may go on when it is alone", []Candidate{{"r2", a, 2}, {"r1", a, 1}}, a, []string{"r1", "r2"}},
	} {
		if diff := cmp.Diff(tc.want, runs(Order(tc.in, tc.last))); diff != "" {
			t.Errorf("%s:\n%s", tc.why, diff)
		}
	}
}

// drain admits one after the other, as a host with one slot does.
func drain(waiting []Candidate, last Origin) (order []Candidate) {
	for len(waiting) > 0 {
		next := Order(waiting, last)[0]
		order, last = append(order, next), next.Origin
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(c Candidate) bool { return c.Run == next.Run })
	}
	return order
}

func TestBacklogDelaysNobody(t *testing.T) {
	var waiting []Candidate
	for i := range 100 {
		waiting = append(waiting, Candidate{launch.RunID(fmt.Sprintf("r%03d", i)), group("backlog"), 1})
	}
	waiting = append(waiting, Candidate{"late", group("other"), 2})
	if order := runs(drain(waiting, Origin{})); order[1] != "late" {
		t.Errorf("the other origin is not served second: %v", order[:5])
	}
	if order := runs(Order(waiting, Origin{})); order[1] != "late" {
		t.Errorf("nor when many slots are free: %v", order[:5])
	}
}

func TestOrderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "n")
		var in []Candidate
		for i := range n {
			in = append(in, Candidate{
				Run:    launch.RunID(fmt.Sprintf("r%02d", i)),
				Origin: Origin{Kind(rapid.IntRange(1, 2).Draw(t, "kind")), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name")},
				Since:  launch.Time(rapid.IntRange(1, 4).Draw(t, "since")),
			})
		}
		last := Origin{Kind(rapid.IntRange(0, 2).Draw(t, "last kind")), ""}
		before := slices.Clone(in)
		order := Order(in, last)
		if !slices.Equal(in, before) {
			t.Fatal("the argument was changed")
		}
		if shuffled := Order(rapid.Permutation(in).Draw(t, "shuffled"), last); !slices.Equal(order, shuffled) {
			t.Fatalf("the order depends on the order of the argument:\n%v\n%v", order, shuffled)
		}
		// One slot after another comes to the same as many slots at once.
		if one := drain(in, last); !slices.Equal(one, order) {
			t.Fatalf("one by one %v, at once %v", runs(one), runs(order))
		}
		left := map[Origin]int{}
		for _, c := range in {
			left[c.Origin]++
		}
		seen := map[Origin][]Candidate{}
		for _, c := range order {
			for o := range left { // nobody is served twice more than another who waits
				if left[o] > 0 && len(seen[c.Origin]) > len(seen[o]) {
					t.Fatalf("%v is served again before %v: %v", c.Origin, o, order)
				}
			}
			if s := seen[c.Origin]; len(s) > 0 && older(s[len(s)-1], c) > 0 {
				t.Fatalf("%s is older than %s and of the same origin: %v", c.Run, s[len(s)-1].Run, order)
			}
			seen[c.Origin] = append(seen[c.Origin], c)
			left[c.Origin]--
		}
		for o, n := range left {
			if n != 0 {
				t.Fatalf("%d of %v are missing or too many", n, o)
			}
		}
	})
}

func TestFree(t *testing.T) {
	for _, c := range []struct {
		why                             string
		capacity, live, lingering, want int
	}{
		{"nothing runs", 4, 0, 0, 4},
		{"claims count, whoever holds them", 4, 3, 0, 1},
		{"code without a claim counts", 4, 3, 1, 0},
		{"another host may allow more", 4, 9, 0, 0},
	} {
		if got := Free(c.capacity, c.live, c.lingering); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	if OriginOf(launch.Interactive, "s@1", "g") != (Origin{Session, "s@1"}) || OriginOf(launch.Headless, "", "g") != (Origin{Group, "g"}) {
		t.Error("a session's runs are one origin, a group's headless runs another")
	}
	if Session.String() != "session" || Group.String() != "group" || Kind(0).String() != "none" {
		t.Error("wire names of kinds are fixed")
	}
}
