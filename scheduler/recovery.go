package scheduler

import (
	"maps"
	"time"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// scan looks at every claim of the file: it recovers the lost ones, notices when
// the next lease ends, and which claims of this host are gone.
func (s *Scheduler) scan() {
	s.mu.Lock()
	mine := maps.Clone(s.live) // only the loop adds claims, so all are complete
	s.mu.Unlock()
	all, err := s.store.Claims(s.ctx, launch.MaxList)
	if err != nil {
		s.unread("the claims", err)
		return
	}
	l := &s.loop
	l.expiry, l.full = 0, false
	wall, now := s.clock.Now()
	kept := 0 // claims that are not lost
	for i := range all {
		if h := mine[all[i].Run]; h != nil || !all[i].Claim.Expired(launch.Now{Wall: wall}) {
			kept++
		}
	}
	for i := range all {
		w := &all[i]
		if h := mine[w.Run]; h != nil && h.auth.Generation == w.Generation {
			delete(mine, w.Run)
			continue
		}
		if w.Claim.Expired(launch.Now{Wall: wall}) {
			s.recover(w, kept < s.o.Capacity)
			continue
		}
		if ends := now.Add(max(w.Due.Sub(wall), time.Millisecond)); l.expiry == 0 || ends < l.expiry {
			l.expiry = ends
		}
	}
	if len(all) >= launch.MaxList {
		return // some may be missing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range mine {
		h.overLocked(errGone)
	}
}

// maxLapse is how long after a jump of the wall clock a deadline that it passed
// is noticed at the latest.
const maxLapse = time.Minute

// lapse handles the stored deadlines that have passed, and notices when the next
// one does (rule scheduler/deadlines). A lapse needs no slot; what it makes due
// does.
func (s *Scheduler) lapse() {
	l := &s.loop
	var next launch.Time
	var err error
	for n := store.MaxLapse; err == nil && n >= store.MaxLapse; {
		n, err = do(s.ctx, s, store.Lapse{})
	}
	if err == nil {
		next, err = s.store.Deadline(s.ctx)
	}
	if l.deadline = 0; err != nil {
		s.unread("the deadlines", err)
		l.deadline = l.retry // else nobody would look at them again
		return
	}
	if next != 0 {
		wall, now := s.clock.Now()
		left := min(next.Sub(wall), maxLapse)
		if left <= 0 { // the clock is not trusted now
			left = retryEvery
		}
		l.deadline = now.Add(left)
	}
}

// recover takes a lost claim over, or gives the run back to its owner. Both look
// at the claim again in their write. When the slots of the file are taken by
// lost claims alone, as after a host that respected more of them, the run is
// given back too, which frees its slot.
func (s *Scheduler) recover(w *store.Work, lostAlone bool) {
	l := &s.loop
	wf, ok := s.owned(w)
	if _, connected := s.connected()[w.Session]; ok && (w.Mode == launch.Headless || connected) {
		if s.room() == 0 {
			l.full = true
			return
		}
		switch err := s.claim(*w, wf, true); {
		case err == nil:
			return
		case isKind(err, launch.ErrFull) && !lostAlone:
			l.full = true
			return
		case !isKind(err, launch.ErrNotAllowed) && !isKind(err, launch.ErrFull):
			s.refused(w.Run, err)
			return
		}
	}
	_, err := do(s.ctx, s, store.Recover{Run: w.Run, Generation: w.Generation})
	if isKind(err, launch.ErrNotAllowed) { // the store does not trust its clock now
		s.again()
	} else if err != nil {
		s.refused(w.Run, err)
	}
}
