//go:build unix

package engine

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the command lead a process group of its own.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup tells the command's process group to end, or ends it.
func signalGroup(c *exec.Cmd, kill bool) {
	s := syscall.SIGTERM
	if kill {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-c.Process.Pid, s) // nobody left is fine
}

func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
