// Package pitest runs the real Pi for tests and demonstrations: it installs the
// pinned one ([Install]), gives it a fresh home ([NewHome]) and a scripted
// model on loopback ([Provider]), and drives it in RPC mode ([Start]) or in its
// terminal UI under tmux ([StartTerminal]). Nothing leaves the machine after
// the installation, and no credentials are used.
package pitest
