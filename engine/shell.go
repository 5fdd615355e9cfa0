package engine

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// Command is what a shell node runs: a program with its arguments, without a
// shell in between.
type Command struct {
	Path  string // looked up in PATH when it has no separator
	Args  []string
	Dir   string   // empty: the host's
	Env   []string // "key=value"; nil: the host's
	Stdin string
	// MaxOutput bounds each of stdout and stderr in characters; what comes after
	// is dropped. 0: DefaultMaxOutput.
	MaxOutput int
}

// Bounds of a shell command.
const (
	// DefaultMaxOutput is how many characters of each stream are kept.
	DefaultMaxOutput = 1_000_000
	// ShellGrace is how long a process group has between SIGTERM and SIGKILL.
	ShellGrace = 5 * time.Second
)

// ShellResult is the output of a shell node. Bytes that are no UTF-8 are
// replaced. As an output of a node it is bounded by [launch.MaxOutput]: the
// streams are cut to what fits.
type ShellResult struct {
	ExitCode int    `json:"exitCode"` // -1: ended by a signal
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// Truncated says that one of the streams was cut.
	Truncated bool `json:"truncated,omitempty"`
}

// shell is what is declared about a shell command.
type shell struct {
	grace        time.Duration
	mustExitZero bool
}

// Shell defines an action that runs a program in a process group of its own,
// which is ended with its context: SIGTERM, then SIGKILL. A program that exits
// with a code other than zero is a result, not a failure; see [MustExitZero]. One
// that was ended has an unknown effect.
func Shell[In, D any](w *Builder[In], name string, from Source[D], command func(ctx context.Context, a Attempt, in D) (Command, error), policy Policy, opts ...Option) Node[ShellResult] {
	s := &shell{grace: ShellGrace}
	h := Action(w, name, from, func(ctx context.Context, a Attempt, in D) (ShellResult, error) {
		c, err := command(ctx, a, in)
		if err != nil {
			return ShellResult{}, err
		}
		return s.run(ctx, c)
	}, policy)
	h.n.shell = s
	if command == nil {
		h.n.g.failNode(name, "needs a function")
	}
	h.n.options(opts)
	return h
}

func (s *shell) run(ctx context.Context, c Command) (ShellResult, error) {
	if c.MaxOutput <= 0 {
		c.MaxOutput = DefaultMaxOutput
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.Dir, c.Env, strings.NewReader(c.Stdin)
	stdout, stderr := &keeper{max: c.MaxOutput}, &keeper{max: c.MaxOutput}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = s.grace // for who holds the streams after the program has exited
	ownGroup(cmd)
	if ctx.Err() != nil {
		return ShellResult{}, context.Cause(ctx)
	}
	if err := cmd.Start(); err != nil {
		return ShellResult{}, Explain("its program could not be started; check that it is installed and may be run", err)
	}
	exited := make(chan struct{})
	ended := make(chan bool, 1)
	go func() { ended <- s.endWith(ctx, cmd, exited) }()
	err := cmd.Wait()
	close(exited)
	stopped := <-ended
	endGroup(cmd, true) // what the program left behind
	switch exit, isExit := errors.AsType[*exec.ExitError](err); {
	case stopped:
		return ShellResult{}, Unknown(Explain("its program was stopped", context.Cause(ctx)))
	case err != nil && !isExit && !errors.Is(err, exec.ErrWaitDelay):
		return ShellResult{}, Unknown(Explain("its program was started and its end was not seen", err))
	case isExit && s.mustExitZero:
		return ShellResult{}, Explain("its program exited with code "+strconv.Itoa(exit.ExitCode()), err)
	}
	r := ShellResult{ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.text(), Stderr: stderr.text(), Truncated: stdout.cut || stderr.cut}
	r.fit()
	return r, nil
}

// endWith ends the process group when ctx ends, and reports whether it did.
func (s *shell) endWith(ctx context.Context, cmd *exec.Cmd, exited <-chan struct{}) bool {
	select {
	case <-exited:
		return false
	case <-ctx.Done():
	}
	endGroup(cmd, false)
	grace := time.NewTimer(s.grace)
	defer grace.Stop()
	select {
	case <-exited:
	case <-grace.C:
		endGroup(cmd, true)
	}
	return true
}

// fit cuts the streams so that the encoded result can be stored.
func (r *ShellResult) fit() {
	for {
		raw, err := encode(*r)
		if err != nil || len(raw) <= launch.MaxOutput {
			return
		}
		long := &r.Stdout
		if len(r.Stderr) > len(r.Stdout) {
			long = &r.Stderr
		}
		*long = clip(*long, len(*long)*3/4)
		r.Truncated = true
	}
}

func clip(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// keeper keeps the first max characters of a stream.
type keeper struct {
	max int
	b   []byte
	cut bool
}

func (k *keeper) Write(p []byte) (int, error) {
	if room := k.max*utf8.UTFMax - len(k.b); len(p) > room {
		k.b = append(k.b, p[:max(room, 0)]...)
		k.cut = true
	} else {
		k.b = append(k.b, p...)
	}
	return len(p), nil
}

func (k *keeper) text() string {
	s := strings.ToValidUTF8(string(k.b), "\uFFFD")
	n := 0
	for i := range s {
		if n++; n > k.max {
			k.cut = true
			return s[:i]
		}
	}
	return s
}
