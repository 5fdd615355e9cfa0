// Command quickstart shows the main job without an agent: a scripted session
// starts workflows, the program is killed in the middle, and another process
// goes on from the same file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

func main() {
	db := flag.String("db", "", "keep the file at `PATH`, and go on with it when it exists")
	crash := flag.String("crash", "", "end with SIGKILL at `BOUNDARY`; \"list\" prints the boundaries")
	flag.Parse()
	if err := run(*db, *crash); err != nil {
		fmt.Println("not ok:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(db, crash string) error {
	switch {
	case crash == "list":
		fmt.Println(strings.Join(boundaries(), "\n"))
		os.Exit(0)
	case crash != "" && !slices.Contains(boundaries(), crash):
		return errors.New("no such boundary; -crash list prints them")
	case db != "" || crash != "":
		return play(db, crash)
	}
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db = filepath.Join(dir, "flows.db")
	fmt.Println("# the first process, which will be killed")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "-db", db, "-crash", afterEdit)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	err = child.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("the first process was to die by SIGKILL and ended so: %v", err)
	}
	fmt.Println("# killed; the second process goes on from the same file")
	return play(db, "")
}

// afterEdit is the boundary of the whole story: the second start is
// acknowledged, its turn still runs, and its definition has changed.
const afterEdit = "after tool result 2"

// boundaries are where the main job can die: before and after each commit, by
// command and occurrence, and in the session.
func boundaries() (all []string) {
	for _, b := range []struct {
		command string
		times   int
	}{
		{"connect", 1}, {"start", 3}, {"claim", 3}, {"propose", 3}, {"try", 3}, {"answer", 3},
		{"observe input", 2}, {"observe turnstarted", 5}, {"observe turnsettled", 4}, {"observe report", 5},
	} {
		for n := 1; n <= b.times; n++ {
			all = append(all, fmt.Sprintf("before %s %d", b.command, n), fmt.Sprintf("after %s %d", b.command, n))
		}
	}
	for n := 1; n <= 3; n++ {
		all = append(all, fmt.Sprintf("after tool result %d", n), fmt.Sprintf("after sent %d", n))
	}
	return all
}

// crasher ends the process at one boundary.
type crasher struct {
	at   string
	seen map[string]*atomic.Int64
}

func newCrasher(at string) *crasher {
	c := &crasher{at: at, seen: map[string]*atomic.Int64{}}
	for _, b := range boundaries() {
		c.seen[b[:strings.LastIndexByte(b, ' ')]] = new(atomic.Int64)
	}
	return c
}

func (c *crasher) pass(point string) {
	if n := c.seen[point]; n != nil && fmt.Sprintf("%s %d", point, n.Add(1)) == c.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

func play(db, crash string) error {
	if db == "" {
		dir, err := os.MkdirTemp("", "quickstart-")
		if err != nil {
			return err
		}
		db = filepath.Join(dir, "flows.db")
		fmt.Println("# the file is", db)
	}
	db, err := filepath.Abs(db)
	if err != nil {
		return err
	}
	s, err := openStory(db, newCrasher(crash))
	if err != nil {
		return err
	}
	defer s.close()
	return s.tell(context.Background())
}
