package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// Bounds of a [Command].
const (
	// MaxShellOutput is how many characters of each stream are kept at most, and
	// the default.
	MaxShellOutput = 1_000_000
	// ShellGrace is the default of [Command.Grace], which is at most MaxShellGrace.
	ShellGrace    = 5 * time.Second
	MaxShellGrace = time.Minute
)

// Command is one process to run, without a shell in between: for a shell's
// language use Path "sh" with Args "-c" and a script that has no outside text
// in it.
type Command struct {
	Path  string   // file, or a name that is looked up in PATH
	Args  []string // after the name
	Dir   string   // where it runs; empty means where the host does
	Env   []string // "name=value"; nil means that of the host
	Stdin string
	// MaxOutput is how many characters of each stream are kept, 1 to
	// MaxShellOutput; 0 means MaxShellOutput.
	MaxOutput int
	// Grace is how long the processes have to end after they were told to.
	// 0 means ShellGrace.
	Grace time.Duration
	// MustSucceed makes an exit code other than 0 an error of the node.
	MustSucceed bool
}

// ShellResult is what a command came to.
type ShellResult struct {
	// ExitCode is that of the process, or 128 and the number of the signal that
	// ended it.
	ExitCode int `json:"exitCode"`
	// The beginning of each stream as UTF-8, as much as the bound and the size of
	// a node's output permit.
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdoutTruncated,omitempty"`
	StderrTruncated bool   `json:"stderrTruncated,omitempty"`
}

// Shell defines an [Action] that runs one command in a process group of its own
// (rule engine/shell). command makes it from what the node reads.
func Shell[In, D any](w *Builder[In], name string, from Source[D], command func(ctx context.Context, a Attempt, in D) (Command, error), policy Policy, opts ...Option) Node[ShellResult] {
	f := func(ctx context.Context, a Attempt, in D) (ShellResult, error) {
		c, err := command(ctx, a, in)
		if err != nil {
			return ShellResult{}, err
		}
		return c.run(ctx)
	}
	if command == nil {
		f = nil
	}
	h := Action(w, name, from, f, policy, opts...)
	h.n.plan.Shell = true
	return h
}

// run runs the command to its end. When ctx ends first, its error is returned.
func (c *Command) run(ctx context.Context) (ShellResult, error) {
	most, grace, err := c.bounds()
	if err != nil {
		return ShellResult{}, err
	}
	if ctx.Err() != nil {
		return ShellResult{}, context.Cause(ctx)
	}
	p := process{cmd: exec.Command(c.Path, c.Args...), ended: make(chan struct{}), over: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = c.Dir, c.Env
	stdout, stderr := stream{max: most}, stream{max: most}
	if err := p.start(c.Stdin, &stdout, &stderr); err != nil {
		return ShellResult{}, Explain("its command could not be started: "+startError(err), err)
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		err = Explain("its command was stopped before it ended", context.Cause(ctx))
	}
	whole := p.stop(grace)
	if err != nil {
		return ShellResult{}, err
	}
	res := ShellResult{ExitCode: exitCode(p.cmd.ProcessState)}
	stdout.more, stderr.more = stdout.more || !whole, stderr.more || !whole
	res.Stdout, res.StdoutTruncated = stdout.text()
	res.Stderr, res.StderrTruncated = stderr.text()
	res.fit()
	if c.MustSucceed && res.ExitCode != 0 {
		return res, Explain("its command ended with exit code "+strconv.Itoa(res.ExitCode), nil)
	}
	return res, nil
}

func (c *Command) bounds() (most int, grace time.Duration, err error) {
	most, grace = c.MaxOutput, c.Grace
	if most == 0 {
		most = MaxShellOutput
	}
	if grace == 0 {
		grace = ShellGrace
	}
	switch {
	case most < 1 || most > MaxShellOutput:
		err = Explain("its command keeps no output of that size; MaxOutput is 1 to 1000000 characters", nil)
	case grace < 0 || grace > MaxShellGrace:
		err = Explain("its command has no grace of that length; Grace is at most "+MaxShellGrace.String(), nil)
	}
	return most, grace, err
}

// process is a command that was started, with the group of processes that it
// leads.
type process struct {
	cmd   *exec.Cmd
	pipes []*os.File    // our ends
	ended chan struct{} // closed when the command's own process has ended
	over  chan struct{} // closed when besides nothing holds its streams any more
}

func (p *process) start(stdin string, stdout, stderr io.Writer) (err error) {
	var theirs []*os.File
	pipe := func(write bool) (our, their *os.File) { // write says that we write to it
		if err != nil {
			return nil, nil
		}
		if our, their, err = os.Pipe(); err != nil {
			return nil, nil
		}
		if write {
			our, their = their, our
		}
		p.pipes, theirs = append(p.pipes, our), append(theirs, their)
		return our, their
	}
	out, outW := pipe(false)
	errs, errW := pipe(false)
	p.cmd.Stdout, p.cmd.Stderr = outW, errW
	var in *os.File
	if stdin != "" {
		var inR *os.File
		in, inR = pipe(true)
		p.cmd.Stdin = inR
	}
	ownGroup(p.cmd)
	if err == nil {
		err = p.cmd.Start()
	}
	closeAll(theirs)
	if err != nil {
		closeAll(p.pipes)
		return err
	}
	var streams sync.WaitGroup
	streams.Go(func() { _, _ = io.Copy(stdout, out) })
	streams.Go(func() { _, _ = io.Copy(stderr, errs) })
	if in != nil {
		streams.Go(func() {
			_, _ = io.WriteString(in, stdin) // a command need not read it all
			_ = in.Close()
		})
	}
	go func() {
		_ = p.cmd.Wait() // it has a state in any case
		close(p.ended)
		streams.Wait()
		close(p.over)
	}()
	return nil
}

// lastWait is how long a killed group's streams have to be read to their end.
const lastWait = time.Second

// stop ends what is left of the process group and returns when it is over. It
// reports whether that is the end of its streams too: what still holds one then
// has left the group, and is not waited for.
func (p *process) stop(grace time.Duration) (whole bool) {
	signalGroup(p.cmd, false)
	p.wait(grace)
	signalGroup(p.cmd, true)
	whole = p.wait(lastWait)
	closeAll(p.pipes)
	<-p.over
	return whole
}

func (p *process) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.over:
		return true
	case <-timer.C:
		return false
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func startError(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "its program or directory does not exist on this host"
	case errors.Is(err, fs.ErrPermission):
		return "its program may not be run"
	}
	return "the system refused it"
}

// stream keeps the beginning of what is written to it.
type stream struct {
	max  int // characters
	kept []byte
	more bool
}

func (s *stream) Write(b []byte) (int, error) {
	room := utf8.UTFMax*s.max - len(s.kept)
	if len(b) > room {
		s.more = true
	}
	s.kept = append(s.kept, b[:min(len(b), room)]...)
	return len(b), nil
}

func (s *stream) text() (text string, truncated bool) {
	text = strings.ToValidUTF8(string(s.kept), "\uFFFD")
	n := 0
	for i := range text {
		if n++; n > s.max {
			return text[:i], true
		}
	}
	return text, s.more
}

// fit shortens the streams until the result is no longer than an output may be.
func (r *ShellResult) fit() {
	const most = launch.MaxOutput - 256 // besides them there are names and numbers
	half := min(jsonSize(r.Stdout), most/2)
	var cut bool
	r.Stderr, cut = cutJSON(r.Stderr, most-half)
	r.StderrTruncated = r.StderrTruncated || cut
	r.Stdout, cut = cutJSON(r.Stdout, most-jsonSize(r.Stderr))
	r.StdoutTruncated = r.StdoutTruncated || cut
}

func jsonSize(s string) (n int) {
	for _, c := range s {
		n += runeSize(c)
	}
	return n
}

// cutJSON returns the beginning of s that has at most that many bytes in JSON.
func cutJSON(s string, most int) (string, bool) {
	n := 0
	for i, c := range s {
		if n += runeSize(c); n > most {
			return s[:i], true
		}
	}
	return s, false
}

// runeSize is how many bytes a character has at most in a JSON string.
func runeSize(c rune) int {
	switch {
	case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
		return 2
	case c < ' ' || c == '\u2028' || c == '\u2029':
		return len(`\u2028`)
	}
	return utf8.RuneLen(c)
}
