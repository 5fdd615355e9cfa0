package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Rule store/layout: a file is opened only if its application id, user version,
// schema id and complete schema are those that this version creates. There is
// no migration. The check reads only, on a connection that cannot write, so
// that a refused file and its write-ahead log keep every byte. A file without
// any content is new.

const howToReset = "back up the file together with those named like it plus -wal and -shm, move all of them away, and open again to start empty"

// layout is what the check compares.
type layout struct {
	application, version int64
	schema               []string // type, name, table and text of every object
	id                   string   // empty if there is no schema to hold one
}

func (l *layout) empty() bool { return l.application == 0 && l.version == 0 && len(l.schema) == 0 }

// ours is the layout that this version creates, as SQLite itself reports it.
var ours = sync.OnceValues(func() (*layout, error) {
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return nil, refuseSQLite("lay out the schema", err)
	}
	defer conn.Close()
	if err := createSchema(conn); err != nil {
		return nil, refuseSQLite("lay out the schema", err)
	}
	l, err := readLayout(conn)
	return l, refuseSQLite("lay out the schema", err)
})

// createSchema fills an empty database. The caller holds a transaction.
func createSchema(conn *sqlite.Conn) error {
	for _, s := range DDL() {
		if err := execSQL(conn, s); err != nil {
			return err
		}
	}
	if err := execSQL(conn, fmt.Sprintf("INSERT INTO workflow_store VALUES (1, '%s')", SchemaID)); err != nil {
		return err
	}
	if err := execSQL(conn, fmt.Sprintf("PRAGMA application_id = %d", ApplicationID)); err != nil {
		return err
	}
	return execSQL(conn, fmt.Sprintf("PRAGMA user_version = %d", UserVersion))
}

// readLayout reads the layout in one snapshot. Its errors are SQLite's own.
func readLayout(conn *sqlite.Conn) (l *layout, err error) {
	l = &layout{}
	if conn.AutocommitEnabled() {
		if err := execSQL(conn, "BEGIN"); err != nil {
			return nil, err
		}
		defer func() {
			if end := execSQL(conn, "ROLLBACK"); err == nil {
				err = end
			}
		}()
	}
	err = query(conn, "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY 1, 2", func(s *sqlite.Stmt) {
		l.schema = append(l.schema, strings.Join([]string{s.ColumnText(0), s.ColumnText(1), s.ColumnText(2), s.ColumnText(3)}, "\x00"))
	})
	if err != nil {
		return nil, err
	}
	if err := query(conn, "PRAGMA application_id", func(s *sqlite.Stmt) { l.application = s.ColumnInt64(0) }); err != nil {
		return nil, err
	}
	if err := query(conn, "PRAGMA user_version", func(s *sqlite.Stmt) { l.version = s.ColumnInt64(0) }); err != nil {
		return nil, err
	}
	if l.application != ApplicationID || l.version != UserVersion || !slices.ContainsFunc(l.schema, isStoreTable) {
		return l, nil
	}
	n := 0
	err = query(conn, "SELECT schema_id FROM workflow_store", func(s *sqlite.Stmt) { l.id = s.ColumnText(0); n++ })
	if n != 1 {
		l.id = ""
	}
	return l, err
}

func isStoreTable(object string) bool {
	return strings.HasPrefix(object, "table\x00workflow_store\x00") && strings.HasSuffix(object, "\x00"+storeTable)
}

// checkLayout refuses every layout but ours.
func checkLayout(l *layout) error {
	want, err := ours()
	if err != nil {
		return err
	}
	found := ""
	switch {
	case l.application != ApplicationID:
		found = fmt.Sprintf("it belongs to another program (application id %#x, not %#x)", uint32(l.application), ApplicationID)
	case l.version != UserVersion:
		found = fmt.Sprintf("it has user version %d, not %d", l.version, UserVersion)
	default:
		if object, how := difference(want.schema, l.schema); object != "" {
			found = fmt.Sprintf("%s %s", object, how)
		} else if l.id != SchemaID {
			found = "its schema id is not " + SchemaID
		}
	}
	if found == "" {
		return nil
	}
	return launch.Refuse(launch.ErrIncompatible, "the file has another layout: %s; nothing was changed: %s", found, howToReset)
}

// difference names one object that the two schemas do not share.
func difference(want, have []string) (object, how string) {
	for _, o := range want {
		if !slices.Contains(have, o) {
			return objectName(o), "is missing or different"
		}
	}
	for _, o := range have {
		if !slices.Contains(want, o) {
			return objectName(o), "does not belong there"
		}
	}
	return "", ""
}

func objectName(object string) string {
	parts := strings.SplitN(object, "\x00", 3)
	return fmt.Sprintf("%s %.64q", parts[0], parts[1])
}

// execSQL runs one statement and drops what it returns.
func execSQL(conn *sqlite.Conn, sql string) error { return query(conn, sql, nil) }

func query(conn *sqlite.Conn, sql string, each func(*sqlite.Stmt)) error {
	return sqlitex.ExecuteTransient(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		if each != nil {
			each(s)
		}
		return nil
	}})
}
