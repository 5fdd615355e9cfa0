//go:build !unix

package engine

import (
	"os"
	"os/exec"
)

// There are no process groups here: only the command's own process is ended.
func ownGroup(*exec.Cmd) {}

func signalGroup(c *exec.Cmd, kill bool) {
	if kill {
		_ = c.Process.Kill()
	}
}

func exitCode(s *os.ProcessState) int { return s.ExitCode() }
