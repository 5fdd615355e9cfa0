// Review tells the story of one run that asks the model, a question, and a
// person, acts with a program, and reports, on a scripted session. The host is
// closed and opened again in every state in which the run waits:
//
//	go run ./examples/review
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir, err := os.MkdirTemp("", "review-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = tell(context.Background(), dir, func(line string) { fmt.Println(line) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "review:", err)
		os.Exit(1)
	}
}

// tell runs the story in a directory of its own.
func tell(ctx context.Context, dir string, say func(string)) error {
	s := &story{db: filepath.Join(dir, "review.db"), out: filepath.Join(dir, "published.txt"), say: say, seen: make(chan struct{}, 1), thought: make(chan string)}
	if err := s.open(); err != nil {
		return err
	}
	defer s.close()
	for _, step := range []func(context.Context) error{s.begin, s.draft, s.proofread, s.question, s.sendBack, s.pauseAndResume, s.decide, s.restart, s.cancelItself} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
