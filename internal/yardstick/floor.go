package yardstick

import (
	"fmt"

	"zombiezen.com/go/sqlite"
)

// Floor is the cheapest durable command that SQLite can give: BEGIN IMMEDIATE, an update of one row,
// COMMIT, on one connection with prepared statements. One goroutine at a time may use it.
type Floor struct {
	conn                    *sqlite.Conn
	begin, update, complete *sqlite.Stmt
}

// OpenFloor creates a floor's file in dir. The directory must not hold one yet.
func OpenFloor(dir string) (*Floor, error) {
	conn, err := openFile(dir, "floor.db",
		"CREATE TABLE counter(id INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT",
		"INSERT INTO counter VALUES (1, 0)")
	if err != nil {
		return nil, err
	}
	f := &Floor{conn: conn}
	err = prepare(conn, map[**sqlite.Stmt]string{
		&f.begin:    "BEGIN IMMEDIATE",
		&f.update:   "UPDATE counter SET n = n + 1 WHERE id = 1",
		&f.complete: "COMMIT",
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return f, nil
}

// Commit changes the row and returns when that is durable.
func (f *Floor) Commit() error {
	for _, stmt := range [...]*sqlite.Stmt{f.begin, f.update, f.complete} {
		if err := run(stmt); err != nil {
			return fmt.Errorf("yardstick: floor commit: %w", err)
		}
	}
	return nil
}

// Close closes the file; nothing may be running.
func (f *Floor) Close() error { return f.conn.Close() }
