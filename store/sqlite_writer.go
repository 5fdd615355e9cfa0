package store

import (
	"fmt"
	"slices"
	"time"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// writer is the connection that writes. Nothing ever interrupts it.
type writer struct {
	rows                    *sqliteRows
	begin, commit, rollback *sqlite.Stmt
	version                 *sqlite.Stmt
}

func openWriter(path string, o SQLiteOptions) (*writer, error) {
	var extra []setting
	if o.MaxPages != 0 {
		extra = append(extra, setting{"max_page_count", fmt.Sprint(o.MaxPages)})
	}
	conn, err := connect(path, extra...)
	if err != nil {
		return nil, err
	}
	w := &writer{rows: newRows(conn, false)}
	err = prepareAll(conn, map[string]**sqlite.Stmt{
		"BEGIN IMMEDIATE": &w.begin, "COMMIT": &w.commit, "ROLLBACK": &w.rollback,
		"PRAGMA data_version": &w.version,
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return w, nil
}

func (w *writer) close() { _ = w.rows.conn.Close() }

func (w *writer) inTransaction() bool { return !w.rows.conn.AutocommitEnabled() }

// end rolls back what is still open and reports whether the connection can be
// used again.
func (w *writer) end() bool {
	w.rows.open = false
	w.rows.cache.clear()
	return !w.inTransaction() || stepOnce(w.rollback) == nil && !w.inTransaction()
}

// commit runs ops in one transaction or, if that comes to nothing, each in its
// own. It settles all but those that it returns: ops whose leader gave up before
// the lock was taken.
func (e *sqliteEngine) commit(ops []*op) (rest []*op) {
	returned := false
	defer func() {
		if !returned { // a function ended the goroutine, as t.FailNow does
			_, err := e.undo(launch.Refuse(launch.ErrInternal, "a function ended its goroutine in a transaction, and nothing was changed; repeat"))
			settle(ops, err)
		}
	}()
	ops, rest = e.lock(ops)
	if len(ops) > 0 {
		v, err := e.attempt(ops)
		if v == retry && len(ops) > 1 {
			for i := range ops {
				e.alone(ops[i : i+1])
			}
		} else {
			e.answer(ops, v, err)
		}
	}
	returned = true
	return rest
}

// alone runs one op of a group that came to nothing.
func (e *sqliteEngine) alone(ops []*op) {
	if ops, _ = e.lock(ops); len(ops) > 0 {
		v, err := e.attempt(ops)
		e.answer(ops, v, err)
	}
}

// answer settles ops after their last attempt.
func (e *sqliteEngine) answer(ops []*op, v verdict, err error) {
	for _, o := range ops {
		if v == done {
			o.settle(o.refused)
		} else {
			o.settle(err)
		}
	}
}

func settle(ops []*op, err error) {
	for _, o := range ops {
		o.settle(err)
	}
}

// verdict is what an attempt came to.
type verdict uint8

const (
	done  verdict = iota // committed; each op was refused, or not
	retry                // nothing happened; the error is the answer to an op alone
	fatal                // the error is the answer to all
)

// attempt runs ops in the transaction that has begun, and ends it.
func (e *sqliteEngine) attempt(ops []*op) (verdict, error) {
	w := e.writer
	w.rows.begin()
	e.hook("begin")
	wrote := false
	for _, o := range ops {
		w.rows.puts = 0
		o.refused = call(o.fn, w.rows)
		switch {
		case w.rows.failed != nil:
			return e.undo(w.rows.failed)
		case o.refused != nil && w.rows.puts > 0:
			return e.undo(o.refused)
		case !w.inTransaction():
			return e.undo(launch.Refuse(launch.ErrInternal, "SQLite ended the transaction by itself and nothing was changed; repeat"))
		}
		wrote = wrote || w.rows.puts > 0
	}
	e.hook("before-commit")
	err := stepOnce(w.commit)
	if wrote && e.commitFault != nil {
		err = e.commitFault(err)
	}
	if err == nil {
		w.rows.open = false
		e.hook("after-commit")
		return done, nil
	}
	if w.inTransaction() || !wrote {
		return e.undo(refuseSQLite("commit", err))
	}
	return e.resolve(err)
}

// undo rolls back.
func (e *sqliteEngine) undo(err error) (verdict, error) {
	if e.writer != nil && !e.writer.end() {
		e.dropWriter()
	}
	return retry, err
}

// dropWriter closes a connection that cannot be trusted; the next transaction
// opens another.
func (e *sqliteEngine) dropWriter() {
	e.writer.close()
	e.writer = nil
}

// resolve finds out with fresh eyes whether a transaction took place whose
// COMMIT failed and left nothing open.
func (e *sqliteEngine) resolve(cause error) (verdict, error) {
	rows := e.writer.rows
	rows.open = false
	committed, known := e.readBack(rows)
	e.dropWriter()
	switch {
	case !known:
		r := refuseSQLite("commit", cause).(*launch.Refusal)
		return fatal, launch.Refuse(launch.ErrOutcomeUnknown, "%s; repeat with the same key", r.Message)
	case committed:
		return done, nil
	}
	return retry, refuseSQLite("commit", cause)
}

// readBack compares the last row that was put with what another connection
// finds.
func (e *sqliteEngine) readBack(rows *sqliteRows) (committed, known bool) {
	last := &rows.last
	if last.table == nil {
		return false, false
	}
	var fresh *reader
	err := retryLocked("read back", time.Now().Add(e.o.BusyTimeout), func() (err error) {
		if fresh == nil {
			if fresh, err = openReader(e.path); err != nil {
				return err
			}
		}
		return fresh.snapshot()
	})
	if fresh != nil {
		defer func() { _ = fresh.rows.conn.Close() }()
	}
	if err != nil {
		return false, false
	}
	found, err := fresh.rows.find(last.table, last.next)
	switch {
	case err != nil:
		return false, false
	case found && sameValues(fresh.rows.in, last.next):
		return true, true
	case last.insert:
		return false, !found
	}
	key := last.table.Key
	return false, found && sameValues(fresh.rows.in[key:], last.old[key:])
}

func sameValues(a, b []Value) bool {
	return slices.EqualFunc(a, b, func(a, b Value) bool { return equal(&a, &b) })
}

// lock begins the transaction of those ops that are still wanted when the lock
// is free, and settles the others. When the first of several, which is the
// leader's, is not wanted any more, it begins none and returns the others as
// rest, so that no caller is kept for the sake of others.
func (e *sqliteEngine) lock(ops []*op) (begun, rest []*op) {
	var now time.Time
	for wait := backoff(0); ; wait.sleep() {
		begun = e.wanted(ops, now)
		if len(begun) == 0 {
			return nil, nil
		}
		if begun[0] != ops[0] {
			return nil, begun
		}
		ops = begun
		err := e.begin()
		if err == nil {
			return begun, nil
		}
		if !locked(err) {
			if _, ok := err.(*launch.Refusal); !ok {
				err = refuseSQLite("begin", err)
			}
			settle(ops, err)
			return nil, nil
		}
		now = time.Now()
		for _, o := range ops {
			if o.since.IsZero() {
				o.since = now
			}
		}
	}
}

// wanted settles the ops whose wait is over and returns the others.
func (e *sqliteEngine) wanted(ops []*op, now time.Time) []*op {
	kept, same := ops, true
	for i, o := range ops {
		if err := o.expired(now, e.o.BusyTimeout); err != nil {
			if same {
				kept, same = slices.Clone(ops[:i]), false
			}
			o.settle(err)
		} else if !same {
			kept = append(kept, o)
		}
	}
	return kept
}

func (e *sqliteEngine) begin() error {
	if e.writer == nil {
		w, err := openWriter(e.path, e.o)
		if err != nil {
			return err
		}
		e.writer = w
	}
	if err := stepOnce(e.writer.begin); err != nil {
		return err
	}
	e.writer.look()
	return nil
}

// look forgets what another connection may have changed. The write lock is
// taken.
func (w *writer) look() {
	if _, err := w.version.Step(); err != nil {
		w.rows.cache.clear()
	} else {
		w.rows.cache.at(w.version.ColumnInt64(0))
	}
	reset(w.version)
}

func (e *sqliteEngine) hook(point string) {
	if e.o.Hook != nil {
		e.o.Hook(point)
	}
}
