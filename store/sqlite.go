package store

import (
	"context"
	"runtime"
	"sync"
	"time"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// sqliteEngine is one open file: a connection that writes, some that read, and
// one that only watches for commits.
type sqliteEngine struct {
	path string
	o    SQLiteOptions

	group  group
	writer *writer // used by the leader of the group only

	readers chan *reader // free ones; nil = not opened yet

	watchMu sync.Mutex
	watch   *sqlite.Conn
	version *sqlite.Stmt

	closing sync.Once

	commitFault func(error) error // for tests: replaces the answer of a COMMIT
}

// newEngine opens the connections and creates the schema in a new file.
func newEngine(path string, o SQLiteOptions, deadline time.Time) (_ *sqliteEngine, err error) {
	e := &sqliteEngine{path: path, o: o, readers: make(chan *reader, o.Readers)}
	e.group.lead = e.commit
	for range o.Readers {
		e.readers <- nil
	}
	defer func() {
		if err != nil {
			e.free()
		}
	}()
	err = retryLocked("open the store", deadline, func() error {
		w, err := openWriter(path, o)
		if err != nil {
			return err
		}
		if err := ensureSchema(w.rows.conn); err != nil {
			w.close()
			return err
		}
		e.writer = w
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = retryLocked("open the store", deadline, func() error {
		conn, err := connect(path, queryOnly)
		if err != nil {
			return err
		}
		stmt, err := conn.Prepare("PRAGMA data_version")
		if err != nil {
			conn.Close()
			return err
		}
		e.watch, e.version = conn, stmt
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Update implements [Engine].
func (e *sqliteEngine) Update(ctx context.Context, fn func(Rows) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.group.submit(ctx, fn)
}

var queryOnly = setting{"query_only", "1"}

// reader is a connection for views.
type reader struct {
	rows             *sqliteRows
	begin, pin, done *sqlite.Stmt
}

func openReader(path string) (*reader, error) {
	conn, err := connect(path, queryOnly)
	if err != nil {
		return nil, err
	}
	r := &reader{rows: newRows(conn, true)}
	err = prepareAll(conn, map[string]**sqlite.Stmt{
		"BEGIN": &r.begin, "SELECT 1 FROM sqlite_schema LIMIT 1": &r.pin, "ROLLBACK": &r.done,
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return r, nil
}

func prepareAll(conn *sqlite.Conn, stmts map[string]**sqlite.Stmt) error {
	for sql, to := range stmts {
		stmt, err := conn.Prepare(sql)
		if err != nil {
			return err
		}
		*to = stmt
	}
	return nil
}

// stepOnce executes a prepared statement whose results nobody reads.
func stepOnce(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	reset(stmt)
	return err
}

// snapshot begins a read transaction and fixes what it sees.
func (r *reader) snapshot() error {
	if r.rows.conn.AutocommitEnabled() {
		if err := stepOnce(r.begin); err != nil {
			return err
		}
	}
	return stepOnce(r.pin)
}

// View implements [Engine].
func (e *sqliteEngine) View(ctx context.Context, fn func(Rows) error) error {
	if err := e.group.enter(); err != nil {
		return err
	}
	defer e.group.leave()
	var r *reader
	select { // a cancelled ctx may lose against a free reader; see await
	case r = <-e.readers:
	case <-ctx.Done():
		return ctx.Err()
	}
	sound := false
	defer func() {
		if !sound && r != nil {
			r.rows.open = false
			_ = r.rows.conn.Close()
			r = nil
		}
		e.readers <- r
	}()
	err := e.await(ctx, "read the store", func() (err error) {
		if r == nil {
			if r, err = openReader(e.path); err != nil {
				return err
			}
		}
		return r.snapshot()
	})
	if err != nil {
		return err
	}
	r.rows.begin()
	err = call(fn, r.rows)
	r.rows.open = false
	if r.rows.failed != nil {
		return r.rows.failed // err is that, or hides it
	}
	sound = stepOnce(r.done) == nil
	return err
}

// Version implements [Engine].
func (e *sqliteEngine) Version(ctx context.Context) (version int64, err error) {
	if err := e.group.enter(); err != nil {
		return 0, err
	}
	defer e.group.leave()
	e.watchMu.Lock()
	defer e.watchMu.Unlock()
	err = e.await(ctx, "read the store's version", func() error {
		_, err := e.version.Step()
		if err == nil {
			version = e.version.ColumnInt64(0)
		}
		reset(e.version)
		return err
	})
	return version, err
}

// await retries f while another connection holds a lock, as long as ctx and the
// busy timeout allow.
func (e *sqliteEngine) await(ctx context.Context, doing string, f func() error) error {
	var began time.Time
	for wait := backoff(0); ; wait.sleep() {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f()
		if err == nil || !locked(err) {
			if r, ok := err.(*launch.Refusal); ok {
				return r
			}
			return refuseSQLite(doing, err)
		}
		if began.IsZero() {
			began = time.Now()
		}
		if waited := time.Since(began); waited >= e.o.BusyTimeout {
			return refuseBusy(doing, waited)
		}
	}
}

// Close implements [Engine].
func (e *sqliteEngine) Close() error {
	e.closing.Do(func() {
		e.group.close()
		e.free()
	})
	return nil
}

// free closes all connections. Nobody uses them any more. What a close of the
// last one could not do, the next open does.
func (e *sqliteEngine) free() {
	for range cap(e.readers) {
		if r := <-e.readers; r != nil {
			_ = r.rows.conn.Close()
		}
	}
	if e.watch != nil {
		_ = e.watch.Close()
	}
	if e.writer != nil {
		e.writer.close()
	}
}

// call runs fn and turns a panic into an error, so that a mistake in one
// command hurts nobody else's.
func call(fn func(Rows) error, rows Rows) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			err = launch.Refuse(launch.ErrInternal, "a function panicked in a transaction (%v) and changed nothing; report it", p)
		default:
			err = launch.Refuse(launch.ErrInternal, "a function panicked in a transaction (%T) and changed nothing; report it", p)
		}
	}()
	return fn(rows)
}
