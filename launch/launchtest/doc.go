// Package launchtest is a kit for property tests of anything that keeps
// launches: generators of commands that are legal about half of the time, a
// small model of a host that answers them, and the invariants of launches as
// functions that name what is broken.
//
// Typical use drives the model and the thing under test with the same
// operations and compares; the answers and the rows must be equal:
//
//	rapid.Check(t, func(t *rapid.T) {
//		w, mine := launchtest.NewWorld(), newStore(t)
//		for range 100 {
//			op := launchtest.Draw(t, w)
//			compare(t, mine.do(op), w.Do(op))
//		}
//		check(t, launchtest.CheckRows(mine.launches()), w.Trace.Check())
//	})
//
// An invariant of rows looks at launches as they stand; one of traces is a
// method of [Trace] and looks at what happened in order. Each returns nil or
// an error that begins with its name.
package launchtest
