// Package sessiontest helps to test whatever delivers to sessions: the
// invariants as functions with names, and a [World] that plays one session, the
// store that keeps it, and a bridge to an agent with a branch and a disk, which
// may be killed, lose sends and answers, be taken over, or move in its tree.
//
// Typical use draws steps and checks what they lead to:
//
//	rapid.Check(t, func(t *rapid.T) {
//		w := sessiontest.NewWorld()
//		for range 100 {
//			if err := w.Do(w.Draw(t)); err != nil {
//				t.Fatal(err)
//			}
//		}
//		if err := w.Quiesce(); err != nil {
//			t.Fatal(err)
//		}
//	})
//
// An invariant of rows looks at a session and all its messages, one of entries
// at a command and what it led to, one of files at a session file. Each returns
// nil or an error that begins with its name.
package sessiontest
