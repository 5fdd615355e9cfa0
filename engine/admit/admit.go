// Package admit says in which order waiting work is admitted and how much of it
// there is room for, as pure functions over values.
//
// # Rules
//
//   - admit/order: the origins that have work waiting take turns, one piece each;
//     within an origin the oldest goes first, and of equally old ones the lowest
//     run id. So a piece waits for at most one piece of each other origin for
//     every older one of its own, however large another origin's backlog is.
//   - admit/capacity: what is counted is live claims, read where the claim is
//     made; no counter is kept that a crash could leave wrong. Code that goes on
//     although its claim is gone still fills a slot of its own host.
package admit

import (
	"cmp"
	"slices"

	"example.com/piworkflows/launch"
)

// Bounds of a host's capacity, in live claims.
const (
	DefaultCapacity = 4
	MaxCapacity     = 1000
)

// Kind is what an origin is.
type Kind uint8

// The kinds.
const (
	_       Kind = iota
	Session      // the runs of one session
	Group        // the headless runs of one group that the host names, or of none
)

// String returns the wire name.
func (k Kind) String() string {
	switch k {
	case Session:
		return "session"
	case Group:
		return "group"
	}
	return "none"
}

// Origin is where work comes from. Origins take turns. The zero value means
// that nothing was admitted yet.
type Origin struct {
	Kind Kind
	Name string // session key or group; a group may be empty
}

// OriginOf returns the origin of a launch.
func OriginOf(mode launch.Mode, session launch.SessionKey, group string) Origin {
	if mode == launch.Interactive {
		return Origin{Session, string(session)}
	}
	return Origin{Group, group}
}

// compare orders origins for their turns: by kind, then by name.
func (o Origin) compare(p Origin) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Name, p.Name))
}

// Candidate is a piece of work that waits.
type Candidate struct {
	Run    launch.RunID
	Origin Origin
	Since  launch.Time // since when it waits
}

// Order returns the candidates in the order in which they are admitted (rule
// admit/order). The turn goes to the origin that follows last, the one that was
// admitted last; without one, to the origin of the oldest candidate. The
// argument is not changed.
func Order(candidates []Candidate, last Origin) []Candidate {
	waiting := slices.Clone(candidates)
	slices.SortFunc(waiting, older)
	if len(waiting) == 0 {
		return nil
	}
	turn := make(map[Origin]int, len(waiting)) // pieces of an origin so far
	turns := make(map[launch.RunID]int, len(waiting))
	for _, c := range waiting {
		turns[c.Run] = turn[c.Origin]
		turn[c.Origin]++
	}
	first := waiting[0].Origin
	// after is 0 for origins from the turn on, 1 for those that come around.
	after := func(o Origin) int {
		at := o.compare(first) >= 0
		if last != (Origin{}) {
			at = o.compare(last) > 0
		}
		if at {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(waiting, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(turns[a.Run], turns[b.Run]),
			cmp.Compare(after(a.Origin), after(b.Origin)), a.Origin.compare(b.Origin))
	})
	return waiting
}

func older(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Run, b.Run))
}

// Free returns how many more pieces a host of that capacity may admit (rule
// admit/capacity): live claims count, and so does the host's own code that has
// not returned although its claim is gone. It is never negative.
func Free(capacity, live, lingering int) int { return max(0, capacity-live-lingering) }
