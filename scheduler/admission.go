package scheduler

import (
	"example.com/piworkflows/engine/admit"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// admit claims what waits, in its order, while there is room.
func (s *Scheduler) admit() {
	l := &s.loop
	if s.room() == 0 {
		return // whoever leaves wakes the loop
	}
	if l.stale || l.more && len(l.headless) == 0 {
		l.stale = true
		if err := s.readHeadless(); err != nil {
			s.unread("the runs that wait", err)
			return
		}
	}
	waiting := make([]admit.Candidate, 0, len(l.headless)+len(l.sessions))
	works := make(map[launch.RunID]store.Work, cap(waiting))
	add := func(w store.Work) {
		works[w.Run] = w
		waiting = append(waiting, admit.Candidate{Run: w.Run, Origin: admit.OriginOf(w.Mode, w.Session, w.Group), Since: w.Due})
	}
	for _, w := range l.headless {
		add(w)
	}
	for k := range l.sessions {
		w, ok, waits, err := s.store.Reserved(s.ctx, k)
		if err != nil {
			s.unread("the run of a session", err)
			return
		}
		if _, owned := s.owned(&w); !ok || !owned || waits != "" || w.State.Claimed() || w.Due == 0 {
			delete(l.sessions, k) // something will nudge
			continue
		}
		add(w)
	}
	for _, c := range admit.Order(waiting, l.last) {
		if s.room() == 0 {
			return
		}
		w := works[c.Run]
		wf, _ := s.owned(&w)
		err := s.claim(w, wf, false)
		switch {
		case err == nil:
			l.last = c.Origin
		case isKind(err, launch.ErrFull):
			return // whoever leaves wakes the loop
		case s.refused(w.Run, err) || s.ctx.Err() != nil:
			return
		}
		delete(l.headless, w.Run)
		delete(l.sessions, w.Session)
	}
	if l.more && len(l.headless) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wakeLocked()
	}
}

// readHeadless reads the headless runs of this host that wait. Runs of others
// are passed over, however many there are.
func (s *Scheduler) readHeadless() error {
	l := &s.loop
	for limit := launch.MaxList; ; limit *= 4 {
		all, _, err := s.store.Ready(s.ctx, limit)
		if err != nil {
			return err
		}
		clear(l.headless)
		for _, w := range all {
			if _, ok := s.owned(&w); ok {
				l.headless[w.Run] = w
			}
		}
		if len(l.headless) > 0 || len(all) < limit {
			l.stale, l.more = false, len(all) >= limit
			return nil
		}
	}
}
