package store

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// SQLiteOptions are the options of [OpenSQLite]. The zero value is ready.
type SQLiteOptions struct {
	// BusyTimeout is how long opening or an update waits for a lock that
	// another connection holds when its context ends no sooner; 0 = 10 s.
	BusyTimeout time.Duration
	// Readers is how many views run at the same time; 0 = 4, at most 64.
	Readers int
	// MaxPages bounds the database to so many pages of 4 KiB; an update past
	// the bound fails with launch.ErrFull. 0 = no bound.
	MaxPages int64
	// Hook is for tests that end the process or stop it at a point: it is
	// called with "begin" when the write lock is held, then with
	// "before-commit", and with "after-commit" before anyone has the answer.
	// nil = none.
	Hook func(point string)
}

const (
	defaultBusyTimeout = 10 * time.Second
	defaultReaders     = 4
	maxReaders         = 64
)

// engineVersion is the version of SQLite in use, as X*1000000 + Y*1000 + Z; a
// variable so that a test can be older.
var engineVersion = sqlite.VersionNumber

// minEngineVersion is the first version whose write-ahead log survives being
// reset by several connections at once.
const minEngineVersion = 3051003

// OpenSQLite opens the store in the SQLite file at path, or creates it there
// (rules store/private and store/layout). The file, its -wal and its -shm are
// for their owner alone (0600) from the first byte, whatever the umask; a
// missing directory is created as 0700. An existing directory is left as it is
// and refused if everyone may write to it and it has no sticky bit; an existing
// file is refused if anyone else has access to it. The path names a regular
// file on a local disk, never a symbolic link.
//
// Any number of processes may open the same file, also for the first time at
// the same moment. Errors: launch.ErrInvalid for a path that cannot be used,
// launch.ErrIncompatible for a file with another layout, which stays as it is,
// launch.ErrBusy and launch.ErrFull.
func OpenSQLite(path string, o SQLiteOptions) (Engine, error) {
	if engineVersion < minEngineVersion {
		return nil, launch.Refuse(launch.ErrIncompatible, "SQLite %s is too old: versions before 3.51.3 can corrupt a write-ahead log; build with a newer modernc.org/sqlite", sqlite.Version)
	}
	if o.BusyTimeout < 0 || o.Readers < 0 || o.Readers > maxReaders || o.MaxPages < 0 {
		return nil, launch.Refuse(launch.ErrInvalid, "store options: BusyTimeout and MaxPages are not negative, Readers is 0 to %d", maxReaders)
	}
	if o.BusyTimeout == 0 {
		o.BusyTimeout = defaultBusyTimeout
	}
	if o.Readers == 0 {
		o.Readers = defaultReaders
	}
	path, err := preparePath(path)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(o.BusyTimeout)
	if err := inspect(path, deadline); err != nil {
		return nil, err
	}
	return newEngine(path, o, deadline)
}

// creating is held while a database file is made: closing any descriptor of a
// file drops every lock that this process has on it, so no connection of ours
// may exist before ours is closed.
var creating sync.Mutex

// preparePath makes path absolute and sees to it that a private regular file is
// there.
func preparePath(path string) (string, error) {
	invalid := func(format string, args ...any) (string, error) {
		return "", launch.Refuse(launch.ErrInvalid, "store path: "+format, args...)
	}
	if path == "" || strings.ContainsRune(path, 0) || os.IsPathSeparator(path[len(path)-1]) {
		return invalid("must name a file")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return invalid("cannot be made absolute; give an absolute path")
	}
	creating.Lock()
	defer creating.Unlock()
	dir := filepath.Dir(path)
	if err := prepareDir(dir); err != nil {
		return "", err
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		info, err := os.Lstat(path + suffix)
		switch {
		case os.IsNotExist(err):
			continue
		case err != nil:
			return invalid("cannot be looked at (%s); check the permissions of its directory", reason(err))
		case info.Mode()&fs.ModeSymlink != 0:
			return invalid("%q is a symbolic link; name the file itself", path+suffix)
		case !info.Mode().IsRegular():
			return invalid("%q is a %s; name a regular file", path+suffix, fileKind(info))
		case private && info.Mode().Perm()&0o677 != 0o600:
			return invalid("%q is open to others or not to its owner (mode %#o); run chmod 600 on it", path+suffix, info.Mode().Perm())
		case suffix == "-wal" && info.Size() > 0 && sizeOf(path) <= 0:
			// SQLite would take the log for stale and delete it.
			return "", launch.Refuse(launch.ErrIncompatible, "the file is empty or missing and has a write-ahead log; nothing was changed: %s", howToReset)
		}
	}
	if sizeOf(path) >= 0 {
		return path, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return path, nil // another process was faster
	}
	if err != nil {
		return invalid("cannot be created (%s); the directory must be writable and on a disk with space", reason(err))
	}
	err = file.Chmod(0o600) // whatever the umask took away
	if e := file.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return invalid("cannot be created (%s)", reason(err))
	}
	return path, nil
}

// prepareDir creates dir and what is missing above it, or checks it.
func prepareDir(dir string) error {
	info, err := os.Stat(dir)
	if os.IsNotExist(err) {
		if up := filepath.Dir(dir); up != dir {
			if _, e := os.Stat(up); os.IsNotExist(e) {
				if err := prepareDir(up); err != nil {
					return err
				}
			}
		}
		switch err = os.Mkdir(dir, 0o700); {
		case err == nil:
			if err = os.Chmod(dir, 0o700); err == nil {
				err = syncDir(filepath.Dir(dir))
			}
			if err == nil {
				return nil
			}
		case os.IsExist(err):
			info, err = os.Stat(dir)
		}
	}
	if err != nil {
		return launch.Refuse(launch.ErrInvalid, "store directory %q cannot be used (%s); create it, or give this user access to it", dir, reason(err))
	}
	if !info.IsDir() {
		return launch.Refuse(launch.ErrInvalid, "store directory %q is not a directory", dir)
	}
	if private && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return launch.Refuse(launch.ErrInvalid, "store directory %q is writable for everyone (mode %#o); run chmod o-w on it or choose another", dir, info.Mode().Perm())
	}
	return nil
}

// sizeOf returns the size of the file, or -1 if there is none.
func sizeOf(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

func fileKind(info fs.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "device, pipe or socket"
}

// reason returns the operating system's reason without the path.
func reason(err error) string {
	if e, ok := err.(*fs.PathError); ok {
		err = e.Err
	}
	return err.Error()
}

// syncDir makes a new entry of dir durable.
func syncDir(dir string) error {
	if !private {
		return nil // not a notion of that system
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// inspect refuses a file with another layout, reading only.
func inspect(path string, deadline time.Time) error {
	if sizeOf(path) == 0 {
		return nil // nothing to read; created under the write lock
	}
	if settled, err := inspectAtRest(path); settled {
		return err
	}
	return retryLocked("open the store", deadline, func() error {
		return inspectWith(path, sqlite.OpenReadOnly)
	})
}

// inspectAtRest looks at a file that nobody uses, without so much as a lock or
// an empty log beside it. It has a verdict only if nobody wrote meanwhile.
func inspectAtRest(path string) (settled bool, err error) {
	before, err := os.Lstat(path)
	if err != nil || sizeOf(path+"-wal") > 0 || sizeOf(path+"-journal") >= 0 {
		return false, nil
	}
	name := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: "immutable=1"}
	err = inspectWith(name.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
	if err != nil {
		if _, ok := err.(*launch.Refusal); !ok {
			err = refuseSQLite("open the store", err)
		}
	}
	after, e := os.Lstat(path)
	settled = e == nil && sizeOf(path+"-wal") <= 0 && sizeOf(path+"-journal") < 0 &&
		os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime())
	return settled, err
}

// inspectWith fails with SQLite's error or a refusal.
func inspectWith(name string, flags sqlite.OpenFlags) error {
	conn, err := sqlite.OpenConn(name, flags)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetBusyTimeout(0)
	l, err := readLayout(conn)
	if err != nil || l.empty() {
		return err
	}
	return checkLayout(l)
}
