package piworkflows_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// TestMain makes the test binary a process of its own when it is asked to:
// "PIWORKFLOWS_CHILD" names one of the roles, the arguments follow "--".
func TestMain(m *testing.M) {
	role := os.Getenv("PIWORKFLOWS_CHILD")
	if role == "" {
		os.Exit(m.Run())
	}
	c := &child{args: strings.Split(os.Getenv("PIWORKFLOWS_ARGS"), "\x1f"), in: bufio.NewScanner(os.Stdin)}
	roles := map[string]func(*child){"race": raceChild, "session": sessionChild, "lock": lockChild, "freeze": freezeChild, "decide": decideChild}
	roles[role](c)
	c.say("end")
	os.Exit(0)
}

// child is the inside of a child process. What it says are lines for its parent,
// and what it hears are lines from it.
type child struct {
	args []string
	in   *bufio.Scanner
	mu   sync.Mutex
}

func (c *child) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

// hear waits for the next line and returns it; it ends the process when the
// parent is gone.
func (c *child) hear() string {
	if !c.in.Scan() {
		os.Exit(1)
	}
	return c.in.Text()
}

// must ends the process, and so the test, when something fails that has to work.
func (c *child) must(err error) {
	if err != nil {
		c.say("error: %v", err)
		os.Exit(1)
	}
}

// process is a child process as its parent sees it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed when the process has ended
	seen  []string    // what was heard so far
}

// spawn starts a child. It is killed with the test at the latest.
func spawn(t *testing.T, role string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0]), lines: make(chan string, 4096)}
	p.cmd.Env = append(os.Environ(), "PIWORKFLOWS_CHILD="+role, "PIWORKFLOWS_ARGS="+strings.Join(args, "\x1f"))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	return p
}

func (p *process) tell(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("the child cannot be told %q: %v", line, err)
	}
}

// next returns the next line; ok is false when the process has ended.
func (p *process) next() (line string, ok bool) {
	line, ok = <-p.lines
	if ok {
		p.seen = append(p.seen, line)
	}
	if strings.HasPrefix(line, "error") {
		p.t.Errorf("a child says %q", line)
	}
	return line, ok
}

// await hears the child out until a line that begins so, and returns the rest of
// that line.
func (p *process) await(prefix string) string {
	p.t.Helper()
	for {
		line, ok := p.next()
		if !ok {
			p.t.Fatalf("the child ended without %q; it said %q", prefix, p.seen)
		}
		if rest, found := strings.CutPrefix(line, prefix); found {
			return strings.TrimSpace(rest)
		}
	}
}

// wait hears the child out to its end.
func (p *process) wait() {
	p.t.Helper()
	for ok := true; ok; {
		_, ok = p.next()
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("a child ended with %v; it said %q", err, p.seen)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for ok := true; ok; { // what it said before it died counts
		_, ok = p.next()
	}
	_ = p.cmd.Wait()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// until waits for something that no event of this process tells of.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	again, late := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s never came true", what)
		}
	}
}

// openStore opens the file without a host, to look at it.
func openStore(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func launchOf(t *testing.T, s *store.Store, id launch.RunID) launch.Launch {
	t.Helper()
	l, err := s.Launch(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
