package yardstick

import (
	"fmt"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// settings are those of a durable store that several processes may share. Exclusive locking and
// memory-mapped reads would be faster and are not allowed to the references either.
var settings = []string{
	"PRAGMA page_size = 4096",
	"PRAGMA journal_mode = WAL",
	"PRAGMA synchronous = FULL",
	"PRAGMA wal_autocheckpoint = 1000",
	"PRAGMA temp_store = MEMORY",
}

// lockWait bounds how long a reference waits for a lock that somebody else holds on its file.
// Nobody should; the driver's default is to wait for ever.
const lockWait = 5 * time.Second

// openFile creates dir/name with the settings and the schema, and fails if the file has them already:
// a reference that starts on leftovers measures them too.
func openFile(dir, name string, schema ...string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(filepath.Join(dir, name), sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return nil, fmt.Errorf("yardstick: open %s: %w", name, err)
	}
	conn.SetBusyTimeout(lockWait)
	for _, statements := range [][]string{settings, schema} {
		for _, s := range statements {
			if err := sqlitex.ExecuteTransient(conn, s, nil); err != nil {
				conn.Close()
				return nil, fmt.Errorf("yardstick: set up %s: %w", name, err)
			}
		}
	}
	return conn, nil
}

// prepare prepares one statement per destination and stops at the first error.
func prepare(conn *sqlite.Conn, into map[**sqlite.Stmt]string) error {
	for stmt, query := range into {
		s, err := conn.Prepare(query)
		if err != nil {
			return fmt.Errorf("yardstick: %w", err)
		}
		*stmt = s
	}
	return nil
}

// run executes a statement that returns no row and makes it ready for its next use.
func run(stmt *sqlite.Stmt) error {
	if _, err := stmt.Step(); err != nil {
		return err
	}
	return stmt.Reset()
}
