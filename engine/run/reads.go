package run

// reads checks rule run/reads: a must-analysis over the graph. What is surely
// available before a node is the intersection, over its incoming edges, of what
// is available before the edge's source, plus the source itself when only
// outcome ok leads along the edge. Nothing is available on entry to the start.
// Loops are handled by starting from "everything" and removing until nothing
// changes.
func (v *validator) reads() {
	nodes := v.p.Nodes
	before := make([]bitset, len(nodes))
	for i := range before {
		before[i] = newBitset(len(nodes), i != v.index[v.p.Start])
	}
	for changed := true; changed; {
		changed = false
		for i := range nodes {
			e := v.edge[nodes[i].Path]
			if e == nil {
				continue
			}
			e.targets(func(to string, onlyOK bool) {
				if before[v.index[to]].keep(before[i], i, onlyOK) {
					changed = true
				}
			})
		}
	}
	for i := range nodes {
		if d := nodes[i].Approval; d != "" && !before[i].has(v.index[d]) {
			v.fail(nodes[i].Path, "is approved by node %s, which has not decided on some path to it; reorder the graph", d)
		}
		for _, read := range nodes[i].Reads {
			j, ok := v.index[read]
			switch {
			case !ok:
				v.fail(nodes[i].Path, "reads %s, which is not a node of the plan", quoteUnknown(read))
			case !before[i].has(j):
				v.fail(nodes[i].Path, "reads node %s, which has no accepted output on some path to it; reorder the graph or read it as optional", read)
			}
		}
		for _, read := range nodes[i].Maybe {
			if _, ok := v.index[read]; !ok {
				v.fail(nodes[i].Path, "reads %s, which is not a node of the plan", quoteUnknown(read))
			}
		}
	}
}

type bitset []uint64

func newBitset(n int, full bool) bitset {
	b := make(bitset, (n+63)/64)
	if full {
		for i := range b {
			b[i] = ^uint64(0)
		}
	}
	return b
}

func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// keep intersects b with other, to which bit i is added when with is set, and
// reports whether b lost a bit.
func (b bitset) keep(other bitset, i int, with bool) (lost bool) {
	for w := range b {
		o := other[w]
		if with && w == i/64 {
			o |= 1 << (i % 64)
		}
		if b[w]&^o != 0 {
			b[w] &= o
			lost = true
		}
	}
	return lost
}
