package yardstick

import "sync"

// group is where commands wait while another group commits. At any time at most one caller leads:
// it alone uses the connection. A caller that finds nobody leading runs its command at once on its
// own goroutine, so a lone caller pays nothing for the machinery.
type group struct {
	mu      sync.Mutex
	leading bool
	waiting []*command
}

// submit runs c in some transaction and returns its answer after that has ended.
func (y *Yardstick) submit(c *command) error {
	g := &y.group
	g.mu.Lock()
	if !g.leading {
		g.leading = true
		g.mu.Unlock()
		alone := [1]*command{c}
		y.lead(c, alone[:])
		return c.err
	}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()

	if leads := <-c.wake; leads {
		// Whoever came since the hand-over joins. The next waiters need another slice: this one is
		// read until everyone in it has its answer.
		g.mu.Lock()
		members := g.waiting
		g.waiting = make([]*command, 0, cap(members))
		g.mu.Unlock()
		y.lead(c, members)
	}
	return c.err
}

// lead commits members, gives everyone the answer and hands the leadership to the first who waits.
// Answers go first, so that callers with more to do are back before the next group is taken.
func (y *Yardstick) lead(leader *command, members []*command) {
	y.commit(members)
	for _, m := range members {
		if m != leader {
			m.wake <- false
		}
	}
	g := &y.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.leading = false
		return
	}
	g.waiting[0].wake <- true
}
