// Package enginetest is a kit for property tests of anything that keeps runs,
// requests and effects: generators, a small model of one run with everything
// that belongs to it, and the invariants as functions that name what is broken.
//
// Typical use drives the model with steps of which about half are legal, and
// whatever is under test with the same ones:
//
//	rapid.Check(t, func(t *rapid.T) {
//		w := enginetest.NewWorld(enginetest.Plans().Draw(t, "plan"))
//		for range 100 {
//			step := w.Draw(t)
//			err, broken := w.Apply(step)
//			...
//		}
//	})
//
// An invariant of rows looks at what is stored after a commit; one of changes
// compares a row as it was and as it is after one. Each returns nil or an error
// that begins with its name.
package enginetest
