package pitest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Terminal is a Pi in its terminal UI, in a tmux server of its own.
type Terminal struct {
	socket string
}

// StartTerminal starts Pi in its terminal UI in a home. It fails with
// [ErrMissing] when there is no tmux.
func StartTerminal(pi Pi, h *Home, env []string, args ...string) (*Terminal, error) {
	if _, err := exec.LookPath("tmux"); err != nil {
		return nil, fmt.Errorf("%w: tmux is missing; install it", ErrMissing)
	}
	t := &Terminal{socket: filepath.Join(h.Dir, "tmux")}
	command := []string{"-f", "/dev/null", "new-session", "-d", "-s", "pi", "-x", "120", "-y", "50", "-c", h.Work, "env", "-i", "TERM=xterm-256color", "LANG=C.UTF-8"}
	command = append(command, h.Env()...)
	command = append(command, env...)
	command = append(command, pi.Node, pi.CLI)
	command = append(command, h.Args()...)
	_, err := t.tmux(append(command, args...)...)
	return t, err
}

func (t *Terminal) tmux(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-S", t.socket}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// Type types text into the editor, without sending it.
func (t *Terminal) Type(text string) error {
	_, err := t.tmux("send-keys", "-t", "pi", "-l", text)
	return err
}

// Press presses a key, as "Enter" or "Escape".
func (t *Terminal) Press(key string) error {
	_, err := t.tmux("send-keys", "-t", "pi", key)
	return err
}

// Screen returns what is to be seen.
func (t *Terminal) Screen() (string, error) { return t.tmux("capture-pane", "-p", "-t", "pi") }

// look is how often a screen is looked at that is waited for: tmux tells nobody
// what changes.
const look = 30 * time.Millisecond

// See waits until the screen shows that text.
func (t *Terminal) See(ctx context.Context, want string) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		screen, err := t.Screen()
		if err == nil && strings.Contains(screen, want) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the screen does not show %q: %w:\n%s", want, ctx.Err(), screen), err)
		}
	}
}

// PID returns the process id of Pi.
func (t *Terminal) PID() (int, error) {
	out, err := t.tmux("list-panes", "-t", "pi", "-F", "#{pane_pid}")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(out))
}

// Close ends the terminal and what runs in it.
func (t *Terminal) Close() { _, _ = t.tmux("kill-server") } // it may have ended by itself
