//go:build !unix

package engine

import "os/exec"

func ownGroup(*exec.Cmd) {}

// endGroup ends the process; groups are not known here.
func endGroup(cmd *exec.Cmd, kill bool) {
	if kill {
		_ = cmd.Process.Kill()
	}
}
