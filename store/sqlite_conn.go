package store

import (
	"fmt"
	"time"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// retryLocked runs f until it no longer fails for a lock of another connection,
// and maps its error.
func retryLocked(doing string, deadline time.Time, f func() error) error {
	began, wait := time.Now(), backoff(0)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if r, ok := err.(*launch.Refusal); ok {
			return r
		}
		if !locked(err) {
			return refuseSQLite(doing, err)
		}
		if time.Now().After(deadline) {
			return refuseBusy(doing, time.Since(began))
		}
		wait.sleep()
	}
}

// A setting is made on every connection and read back.
type setting struct{ name, value string }

var settings = []setting{
	{"busy_timeout", "0"}, // waiting is ours: see backoff
	{"foreign_keys", "1"},
	{"temp_store", "2"},
	{"trusted_schema", "0"},
	{"mmap_size", "0"},
	{"synchronous", "2"},
	{"wal_autocheckpoint", "1000"},
	{"journal_size_limit", "67108864"},
}

// connect opens a connection with all settings, or fails with SQLite's error or
// a refusal. The file exists.
func connect(path string, extra ...setting) (_ *sqlite.Conn, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	conn.SetBusyTimeout(0)
	for _, s := range append(settings[:len(settings):len(settings)], extra...) {
		if err := execSQL(conn, fmt.Sprintf("PRAGMA %s = %s", s.name, s.value)); err != nil {
			return nil, err
		}
		if err := readBack(conn, s); err != nil {
			return nil, err
		}
	}
	if err := useWAL(conn); err != nil {
		return nil, err
	}
	for _, s := range []setting{{"journal_mode", "wal"}, {"page_size", "4096"}, {"encoding", "UTF-8"}, {"locking_mode", "normal"}} {
		if err := readBack(conn, s); err != nil {
			return nil, err
		}
	}
	return conn, nil
}

func readBack(conn *sqlite.Conn, s setting) error {
	got := ""
	if err := query(conn, "PRAGMA "+s.name, func(r *sqlite.Stmt) { got = r.ColumnText(0) }); err != nil {
		return err
	}
	if got != s.value {
		return launch.Refuse(launch.ErrIncompatible, "SQLite setting %s is %.32q and not %q; use the local file system and the driver that this package names", s.name, got, s.value)
	}
	return nil
}

// useWAL turns the log on in a file that has none. A new file changes with a
// journal in memory, so that a process killed here leaves it empty or with an
// empty first page, both of which are new, and never a hot journal.
func useWAL(conn *sqlite.Conn) error {
	mode, pages := "", int64(0)
	if err := query(conn, "PRAGMA journal_mode", func(r *sqlite.Stmt) { mode = r.ColumnText(0) }); err != nil || mode == "wal" {
		return err
	}
	if err := query(conn, "PRAGMA page_count", func(r *sqlite.Stmt) { pages = r.ColumnInt64(0) }); err != nil {
		return err
	}
	if pages == 0 {
		for _, s := range []string{"PRAGMA page_size = 4096", "PRAGMA journal_mode = MEMORY"} {
			if err := execSQL(conn, s); err != nil {
				return err
			}
		}
	}
	return execSQL(conn, "PRAGMA journal_mode = WAL")
}

// ensureSchema creates the schema if the file is still empty under the write
// lock. Whoever comes second finds it made.
func ensureSchema(conn *sqlite.Conn) (err error) {
	l, err := readLayout(conn)
	if err != nil {
		return err
	}
	if !l.empty() {
		return checkLayout(l)
	}
	if err := execSQL(conn, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if !conn.AutocommitEnabled() {
			_ = execSQL(conn, "ROLLBACK") // err says why
		}
	}()
	if l, err = readLayout(conn); err != nil {
		return err
	}
	if !l.empty() {
		return checkLayout(l)
	}
	if err := createSchema(conn); err != nil {
		return err
	}
	return execSQL(conn, "COMMIT")
}
