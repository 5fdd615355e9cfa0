package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// child starts this test binary again to do something in a process of its own;
// see TestChild.
func child(t *testing.T, do, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v=false")
	cmd.Env = append(os.Environ(), "STORE_CHILD="+do, "STORE_PATH="+path, "STORE_ARGS="+strings.Join(args, "\x1f"))
	cmd.Stderr = os.Stderr
	return cmd
}

// TestChild is what a child process does. It ends without the usual report.
func TestChild(t *testing.T) {
	do, path, args := os.Getenv("STORE_CHILD"), os.Getenv("STORE_PATH"), strings.Split(os.Getenv("STORE_ARGS"), "\x1f")
	if do == "" {
		t.Skip("not a child")
	}
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	open := func(o SQLiteOptions) Engine {
		e, err := OpenSQLite(path, o)
		fail(err)
		return e
	}
	switch do {
	case "sql": // leaves all of it in the write-ahead log and dies
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		fail(err)
		for _, s := range append([]string{"PRAGMA journal_mode = WAL", "PRAGMA wal_autocheckpoint = 0"}, args...) {
			if s == "ours" {
				fail(createSchema(conn))
				continue
			}
			fail(query(conn, s, nil))
		}
		die()
	case "open": // writes one row under its own number
		n, _ := strconv.Atoi(args[0])
		e := open(SQLiteOptions{})
		fail(putEvent(e, ctx, n))
		fail(e.Close())
	case "write": // until it is killed, naming each row that was acknowledged
		e := open(SQLiteOptions{})
		for n := 0; ; n++ {
			fail(putEvent(e, ctx, n))
			fmt.Println(n)
		}
	case "die": // at a point of its first update, or while it creates the schema
		e := open(SQLiteOptions{Hook: func(point string) {
			if point == args[0] {
				die()
			}
		}})
		fail(putEvent(e, ctx, 1))
	case "lock": // until it is told to stop
		e := open(SQLiteOptions{})
		fail(e.Update(ctx, func(Rows) error {
			fmt.Println("locked")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		}))
		fail(e.Close())
	case "umask":
		mask, _ := strconv.ParseInt(args[0], 8, 32)
		syscall.Umask(int(mask))
		e := open(SQLiteOptions{})
		fail(putEvent(e, ctx, 1))
		for _, p := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path), path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(p)
			fail(err)
			fmt.Printf("%o ", info.Mode().Perm())
		}
		fail(e.Close())
	}
	os.Exit(0)
}

// runChild runs a child to its end and returns what it printed.
func runChild(t *testing.T, cmd *exec.Cmd, killed bool) string {
	t.Helper()
	out, err := cmd.Output()
	if (err != nil) != killed {
		t.Fatalf("the child ended with %v: %s", err, out)
	}
	return string(out)
}

// Any number of processes and goroutines may open a new file at once.
func TestConcurrentFirstOpen(t *testing.T) {
	for round := range 4 {
		path := filepath.Join(t.TempDir(), "new", "store.db")
		var wg sync.WaitGroup
		for n := range 6 {
			wg.Go(func() {
				if out, err := child(t, "open", path, fmt.Sprint(n)).Output(); err != nil {
					t.Errorf("round %d, process %d: %v %s", round, n, err, out)
				}
			})
		}
		for n := 6; n < 10; n++ {
			wg.Go(func() {
				e, err := OpenSQLite(path, SQLiteOptions{})
				if err != nil {
					t.Errorf("round %d, goroutine %d: %v", round, n, err)
					return
				}
				if err := putEvent(e, context.Background(), n); err != nil {
					t.Errorf("round %d, goroutine %d: %v", round, n, err)
				}
				e.Close()
			})
		}
		wg.Wait()
		e := openAt(t, path, SQLiteOptions{})
		for n := range 10 {
			if !hasEvent(t, e, n) {
				t.Errorf("round %d: the row of %d is lost", round, n)
			}
		}
	}
}

func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	last := -1
	cmd := child(t, "write", path)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(lines.Text())
		}
		if last == 500 {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	e := openAt(t, path, SQLiteOptions{})
	for n := range last + 1 {
		if !hasEvent(t, e, n) {
			t.Fatalf("row %d of %d was acknowledged and is lost", n, last)
		}
	}
	if hasEvent(t, e, last+2) {
		t.Error("a row is there that was never put")
	}
}

func TestKilledAtPoints(t *testing.T) {
	for point, there := range map[string]bool{"begin": false, "before-commit": false, "after-commit": true} {
		path := filepath.Join(t.TempDir(), "store.db")
		runChild(t, child(t, "die", path, point), true)
		e := openAt(t, path, SQLiteOptions{})
		if hasEvent(t, e, 1) != there {
			t.Errorf("killed at %s: the row is there: %v", point, !there)
		}
	}
}

func TestSecondProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	e := openAt(t, path, SQLiteOptions{BusyTimeout: 20 * time.Millisecond})
	cmd := child(t, "lock", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatal(line, err)
	}
	if err := putEvent(e, context.Background(), 1); !errors.Is(err, launch.ErrBusy) {
		t.Errorf("while another process holds the lock: %v", err)
	}
	if hasEvent(t, e, 1) { // views go on meanwhile
		t.Error("a refused row is there")
	}
	fmt.Fprintln(in)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := putEvent(e, context.Background(), 1); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
