//go:build unix

package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

// sh is a command that runs a script.
func sh(script string) engine.Command {
	return engine.Command{Path: "sh", Args: []string{"-c", script}, Grace: time.Minute}
}

func shell(c engine.Command, policy engine.Policy, opts ...engine.Option) *engine.Workflow {
	return one(func(w *engine.Builder[Task]) {
		engine.Shell(w, "a", w.Input(), func(context.Context, engine.Attempt, Task) (engine.Command, error) { return c, nil }, policy, opts...)
	})
}

// runs is what one command came to.
func runs(t *testing.T, c engine.Command) (engine.ShellResult, string) {
	t.Helper()
	h := newHost(shell(c, engine.Unrepeatable()))
	if err := engine.Work(t.Context(), h.wf, job(h.wf, `{}`), h); err != nil {
		t.Fatal(err)
	}
	var res engine.ShellResult
	if h.got[0].Outcome == engine.OK {
		if err := json.Unmarshal(h.got[0].Output, &res); err != nil {
			t.Fatal(err)
		}
	}
	return res, h.story()
}

func TestShell(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	with := func(c engine.Command, f func(*engine.Command)) engine.Command {
		f(&c)
		return c
	}
	at := func(max int, script string) engine.Command {
		return with(sh(script), func(c *engine.Command) { c.MaxOutput = max })
	}
	for _, c := range []struct {
		why  string
		cmd  engine.Command
		want engine.ShellResult
	}{
		{"both streams", sh(`echo out; echo err >&2`), engine.ShellResult{Stdout: "out\n", Stderr: "err\n"}},
		{"an exit code is a result", sh(`echo no; exit 3`), engine.ShellResult{ExitCode: 3, Stdout: "no\n"}},
		{"so is a signal", sh(`kill -9 $$`), engine.ShellResult{ExitCode: 137}},
		{"success that is demanded", with(sh(`echo yes`), func(c *engine.Command) { c.MustSucceed = true }), engine.ShellResult{Stdout: "yes\n"}},
		{"arguments are not read by a shell", engine.Command{Path: "echo", Args: []string{"$HOME", ";", "a  b"}}, engine.ShellResult{Stdout: "$HOME ; a  b\n"}},
		{"input", with(sh(`cat`), func(c *engine.Command) { c.Stdin = "in" }), engine.ShellResult{Stdout: "in"}},
		{"no input", sh(`cat`), engine.ShellResult{}},
		{"input that nobody reads", with(sh(`exit 0`), func(c *engine.Command) { c.Stdin = strings.Repeat("x", 1<<20) }), engine.ShellResult{}},
		{"a directory", with(sh(`pwd -P`), func(c *engine.Command) { c.Dir = dir }), engine.ShellResult{Stdout: dir + "\n"}},
		{"an environment", with(engine.Command{Path: "/usr/bin/env"}, func(c *engine.Command) { c.Env = []string{"A=b"} }), engine.ShellResult{Stdout: "A=b\n"}},
		{"exactly the bound", at(3, `printf abc`), engine.ShellResult{Stdout: "abc"}},
		{"one character more", at(3, `printf abcd`), engine.ShellResult{Stdout: "abc", StdoutTruncated: true}},
		{"characters, not bytes", at(3, `printf äöü; printf äöüß >&2`), engine.ShellResult{Stdout: "äöü", Stderr: "äöü", StderrTruncated: true}},
		{"far more than the bound", at(2, `yes | head -c 300000`), engine.ShellResult{Stdout: "y\n", StdoutTruncated: true}},
		{"bytes that are no text", sh(`printf 'a\377b'`), engine.ShellResult{Stdout: "a\uFFFDb"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, story := runs(t, c.cmd)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatalf("%s%s", diff, story)
			}
		})
	}
}

func TestShellFailures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must := sh(`echo no; exit 4`)
	must.MustSucceed = true
	nowhere := sh(`:`)
	nowhere.Dir = file + "/none"
	for _, c := range []struct {
		why  string
		cmd  engine.Command
		want string
	}{
		{"a code that is not to be", must, "its command ended with exit code 4"},
		{"no such program", engine.Command{Path: secret}, "its command could not be started: its program or directory does not exist on this host"},
		{"no such file", engine.Command{Path: file + ".none"}, "its command could not be started: its program or directory does not exist on this host"},
		{"no program", engine.Command{Path: file}, "its command could not be started: its program may not be run"},
		{"nothing", engine.Command{}, "its command could not be started: the system refused it"},
		{"an argument that no system takes", engine.Command{Path: "sh", Args: []string{"\x00"}}, "its command could not be started: the system refused it"},
		{"no such directory", nowhere, "its command could not be started: "},
		{"less than no output", engine.Command{Path: "sh", MaxOutput: -1}, "its command keeps no output of that size; MaxOutput is 1 to 1000000 characters"},
		{"too much output", engine.Command{Path: "sh", MaxOutput: engine.MaxShellOutput + 1}, "its command keeps no output of that size"},
		{"a grace without end", engine.Command{Path: "sh", Grace: time.Hour}, "its command has no grace of that length; Grace is at most 1m0s"},
		{"a grace in the past", engine.Command{Path: "sh", Grace: -1}, "its command has no grace of that length"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if _, story := runs(t, c.cmd); !strings.HasPrefix(story, "a 1.1 failed: node a failed: "+c.want) || strings.Contains(story, secret) {
				t.Fatalf("got %q, want %q", story, c.want)
			}
		})
	}
	t.Run("a command that cannot be made", func(t *testing.T) {
		wf := one(func(w *engine.Builder[Task]) {
			engine.Shell(w, "a", w.Input(), func(_ context.Context, a engine.Attempt, _ Task) (engine.Command, error) {
				return engine.Command{}, engine.Explain("no command for "+a.Node, nil)
			}, engine.Repeatable())
		})
		works(t, newHost(wf), job(wf, `{}`), "a 1.1 failed: node a failed: no command for a")
	})
}

// The streams share the room that a node's output has, whatever is in them.
func TestShellOutputFits(t *testing.T) {
	for _, c := range []struct {
		why, script string
		out, err    bool // truncated
	}{
		{"one full stream fits", `yes | tr -d '\n' | head -c 1000000`, false, false},
		{"two do not", `yes | tr -d '\n' | head -c 1000000; yes | tr -d '\n' | head -c 1000000 >&2`, true, true},
		{"a short one keeps its place", `yes | tr -d '\n' | head -c 1000000; printf err >&2`, false, false},
		{"nor what JSON makes longer", `yes '"' | head -c 900000 >&2`, false, true},
		{"nor control characters", `head -c 900000 /dev/zero`, true, false},
		{"nor wide ones", `yes 世 | tr -d '\n' | head -c 2999997`, true, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, story := runs(t, sh(c.script))
			if got.ExitCode != 0 || got.StdoutTruncated != c.out || got.StderrTruncated != c.err || got.Stdout+got.Stderr == "" {
				t.Fatalf("%d and %d bytes, truncated %v and %v: %.200s", len(got.Stdout), len(got.Stderr), got.StdoutTruncated, got.StderrTruncated, story)
			}
			if c.out || c.err { // nor is room wasted
				if raw, _ := json.Marshal(got); len(raw) < launch.MaxOutput/2 {
					t.Fatalf("only %d bytes are kept", len(raw))
				}
			}
		})
	}
}

// fifo makes a named pipe.
func fifo(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// waiting is a script that does before, says that it is ready, and then waits for
// ever in a child process. alive is open for writing as long as one of them is.
func waiting(t *testing.T, before string) (c engine.Command, ready, alive string) {
	ready, alive = fifo(t, "ready"), fifo(t, "alive")
	return engine.Command{Path: "sh", Args: []string{"-c", `exec 3>"$ALIVE"; ` + before + `; echo >"$READY"; cat <>"$BLOCK"`},
		Grace: time.Minute, Env: append(os.Environ(), "READY="+ready, "ALIVE="+alive, "BLOCK="+fifo(t, "block"))}, ready, alive
}

// TestMain is also a program that cleans up when it is told to end. Shells lose a
// signal that comes while they start a child.
func TestMain(m *testing.M) {
	if os.Getenv("CLEANS_UP") == "" {
		os.Exit(m.Run())
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	alive := must(os.OpenFile(os.Getenv("ALIVE"), os.O_WRONLY, 0))
	if err := os.WriteFile(os.Getenv("READY"), []byte("\n"), 0); err != nil {
		panic(err)
	}
	<-told
	if _, err := alive.WriteString("bye\n"); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// ended returns a channel that is closed when nothing holds a named pipe any
// more. A process that is about to open it waits for this.
func ended(path string) <-chan []byte {
	done := make(chan []byte, 1)
	go func() {
		b, _ := os.ReadFile(path)
		done <- b
	}()
	return done
}

func TestShellStops(t *testing.T) {
	stale := launch.Refuse(launch.ErrStale, "replaced")
	for _, c := range []struct {
		why    string
		before string
		grace  time.Duration
		said   string // into alive
	}{
		{"a process that ends when it is told to", ":", time.Minute, ""},
		{"one that cleans up first", "", time.Minute, "bye\n"},
		{"one that does not listen is killed, with its children", `trap '' TERM`, time.Nanosecond, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			cmd, ready, alive := waiting(t, c.before)
			if cmd.Grace = c.grace; c.said != "" {
				cmd.Path, cmd.Args, cmd.Env = os.Args[0], nil, append(cmd.Env, "CLEANS_UP=yes")
			}
			over := ended(alive)
			ctx, cancel := context.WithCancelCause(t.Context())
			h := newHost(shell(cmd, engine.Unrepeatable()))
			go func() {
				<-ended(ready)
				cancel(stale)
			}()
			if err := engine.Work(ctx, h.wf, job(h.wf, `{}`), h); err != stale || len(h.got) != 0 {
				t.Fatalf("got %v and %s", err, h.story())
			}
			if said := <-over; string(said) != c.said {
				t.Fatalf("it said %q", said)
			}
		})
	}
	t.Run("a context that has ended starts nothing", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ran")
		ctx, cancel := context.WithCancelCause(t.Context())
		wf := one(func(w *engine.Builder[Task]) {
			engine.Shell(w, "a", w.Input(), func(context.Context, engine.Attempt, Task) (engine.Command, error) {
				cancel(stale)
				return engine.Command{Path: "touch", Args: []string{file}}, nil
			}, engine.Repeatable())
		})
		h := newHost(wf)
		if err := engine.Work(ctx, wf, job(wf, `{}`), h); err != stale {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatal("it ran")
		}
	})
}

func TestShellBudget(t *testing.T) {
	for _, c := range []struct {
		policy engine.Policy
		want   string
	}{
		{engine.Unrepeatable(), "a 1.1 unknown: node a used up its active time and may or may not have taken effect: its command was stopped before it ended"},
		{engine.Repeatable(), "a 1.1 timed_out: node a used up its active time; restart the run, or declare a larger budget"},
	} {
		cmd, ready, alive := waiting(t, ":")
		over := ended(alive)
		h := newHost(shell(cmd, c.policy, engine.Budget(time.Second)))
		h.limited = func() {
			end := h.end
			go func() {
				<-ended(ready)
				end(engine.ErrBudget)
			}()
		}
		j := job(h.wf, `{}`)
		j.Current.Budget = time.Second
		works(t, h, j, c.want)
		<-over
	}
}

// What a command leaves behind ends with it.
func TestShellLeavesNothing(t *testing.T) {
	t.Run("in its group", func(t *testing.T) {
		for _, c := range []struct {
			why, script string
			grace       time.Duration
		}{
			{"that holds a stream", `cat <>"$BLOCK" & echo done`, time.Minute},
			{"that holds none", `cat <>"$BLOCK" >/dev/null 2>&1 & echo done`, time.Minute},
			{"that does not listen", `trap '' TERM; cat <>"$BLOCK" & echo done`, time.Nanosecond},
		} {
			t.Run(c.why, func(t *testing.T) {
				alive := fifo(t, "alive")
				over := ended(alive)
				cmd := sh(`exec 3>"$ALIVE"; ` + c.script)
				cmd.Env, cmd.Grace = append(os.Environ(), "ALIVE="+alive, "BLOCK="+fifo(t, "block")), c.grace
				if got, story := runs(t, cmd); got.Stdout != "done\n" {
					t.Fatal(story)
				}
				<-over
			})
		}
	})
	t.Run("what left its group is not waited for", func(t *testing.T) {
		if _, err := exec.LookPath("setsid"); err != nil {
			t.Skip("this system has no setsid")
		}
		alive, block := fifo(t, "alive"), fifo(t, "block")
		over := ended(alive)
		cmd := sh(`exec 3>"$ALIVE"; setsid sh -c 'echo >"$READY"; read line <>"$BLOCK"' & cat "$READY"; echo done`)
		cmd.Env, cmd.Grace = append(os.Environ(), "ALIVE="+alive, "BLOCK="+block, "READY="+fifo(t, "ready")), time.Nanosecond
		if got, story := runs(t, cmd); got.Stdout != "\ndone\n" || !got.StdoutTruncated {
			t.Fatal(story)
		}
		f, err := os.OpenFile(block, os.O_RDWR, 0) // let it go
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, "\n"); err != nil {
			t.Fatal(err)
		}
		<-over
	})
	t.Run("in this process", func(t *testing.T) {
		files := func() int {
			names, err := os.ReadDir("/dev/fd")
			if err != nil {
				t.Skip("this system does not list open files")
			}
			return len(names)
		}
		runs(t, sh(`:`))
		open, routines := files(), runtime.NumGoroutine()
		cmd := sh(`cat >/dev/null; exit 1`)
		cmd.Stdin = "x"
		for range 10 {
			runs(t, cmd)
			runs(t, engine.Command{Path: "/none", Stdin: "x"})
		}
		for range 1_000_000 { // the last ones are ending
			if runtime.NumGoroutine() <= routines {
				break
			}
			runtime.Gosched()
		}
		if f, r := files(), runtime.NumGoroutine(); f > open || r > routines {
			t.Fatalf("%d files and %d goroutines more than before", f-open, r-routines)
		}
	})
}

func TestShellGetsItsKey(t *testing.T) {
	wf := one(func(w *engine.Builder[Task]) {
		engine.Shell(w, "a", w.Input(), func(_ context.Context, a engine.Attempt, in Task) (engine.Command, error) {
			return engine.Command{Path: "echo", Args: []string{a.Key, in.Title}}, nil
		}, engine.Observed(func(context.Context, engine.Attempt, Task) (engine.ShellResult, bool, error) {
			return engine.ShellResult{Stdout: "seen"}, true, nil
		}))
	})
	h := newHost(wf)
	if err := engine.Work(t.Context(), wf, job(wf, `{"title":"x"}`), h); err != nil || !bytes.Contains(h.got[0].Output, []byte(` x\n"`)) {
		t.Fatalf("%v: %s", err, h.story())
	}
	j := job(wf, `{}`)
	j.Current.Recovering = true
	works(t, newHost(wf), j, `a 1.1 ok {"exitCode":0,"stdout":"seen","stderr":""} (observed)`)
}
