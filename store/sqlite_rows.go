package store

import (
	"bytes"
	"hash/maphash"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// maxUpdates bounds the update statements that a connection keeps for a table;
// past it an update names every column.
const maxUpdates = 64

// tableStmts are the statements of one table on one connection, each prepared
// when it is first needed.
type tableStmts struct {
	get, insert *sqlite.Stmt
	update      map[uint64]*sqlite.Stmt // by the set of changed columns
}

// indexStmts are those of one index, by the length of the prefix.
type indexStmts struct{ scan, count []*sqlite.Stmt }

// sqliteRows implements [Rows] on one connection for one transaction after
// another.
type sqliteRows struct {
	conn    *sqlite.Conn
	tables  []tableStmts
	indexes []indexStmts

	open     bool  // inside a transaction
	readonly bool  // a Put is refused
	puts     int   // of this update, that wrote
	failed   error // the transaction cannot commit
	scanning bool

	key       Fields
	old, next Fields  // of the current Put
	in        []Value // of the current result row
	text, raw []byte  // the bytes that in refers to

	cache *rowCache // of the connection that writes, else nil

	last struct { // the Put that tells later whether a commit took place
		table     *Table
		insert    bool
		next, old []Value
		raw       [2][]byte // the blobs of next and old
	}
}

func newRows(conn *sqlite.Conn, readonly bool) *sqliteRows {
	r := &sqliteRows{
		conn: conn, readonly: readonly,
		tables: make([]tableStmts, len(Schema)), indexes: make([]indexStmts, len(Indexes)),
	}
	if !readonly {
		r.cache = &rowCache{seed: maphash.MakeSeed()}
	}
	for i, ix := range Indexes {
		n := len(ix.Columns) + 1
		r.indexes[i] = indexStmts{make([]*sqlite.Stmt, n), make([]*sqlite.Stmt, n)}
	}
	return r
}

// begin makes r ready for a transaction.
func (r *sqliteRows) begin() {
	r.open, r.failed, r.scanning, r.last.table, r.last.insert = true, nil, false, nil, false
}

// usable refuses a call at a wrong time.
func (r *sqliteRows) usable() error {
	switch {
	case !r.open:
		return launch.Refuse(launch.ErrInternal, "rows are used after their transaction; keep them inside the function")
	case r.scanning:
		return r.fail(launch.Refuse(launch.ErrInternal, "rows are used inside a scan; collect first"))
	}
	return r.failed
}

// fail records that the transaction cannot commit.
func (r *sqliteRows) fail(err error) error {
	if r.failed == nil {
		r.failed = err
	}
	return err
}

func (r *sqliteRows) failSQLite(doing string, t *Table, err error) error {
	return r.fail(refuseSQLite(doing+" "+t.Name, err))
}

// prepared returns *slot, filling it first if it is empty.
func (r *sqliteRows) prepared(slot **sqlite.Stmt, query func() string) (*sqlite.Stmt, error) {
	if *slot != nil {
		return *slot, nil
	}
	stmt, err := r.conn.Prepare(query())
	*slot = stmt
	return stmt, err
}

// Get implements [Rows].
func (r *sqliteRows) Get(row Row) (bool, error) {
	if err := r.usable(); err != nil {
		return false, err
	}
	r.key.Key(row)
	t := row.Table()
	if values := r.cache.find(t, r.key.Values); values != nil {
		err := r.key.readFrom(values, row)
		return err == nil, err
	}
	found, err := r.find(t, r.key.Values)
	if err != nil {
		return false, r.failSQLite("read", t, err)
	}
	if found {
		err = r.key.readFrom(r.in, row)
		r.cache.put(t, &r.in)
	}
	return found && err == nil, err
}

// find reads the row whose key begins values into r.in.
func (r *sqliteRows) find(t *Table, values []Value) (bool, error) {
	stmt, err := r.prepared(&r.tables[t.id].get, t.getSQL)
	if err != nil {
		return false, err
	}
	bind(stmt, 1, values[:t.Key])
	found, err := r.step(stmt)
	reset(stmt)
	return found, err
}

// readFrom fills row from values, which stay the caller's.
func (f *Fields) readFrom(values []Value, row Row) error {
	own := f.Values
	f.Values = values
	err := f.Read(row)
	f.Values = own
	return err
}

// Put implements [Rows].
func (r *sqliteRows) Put(old, row Row) error {
	if err := r.usable(); err != nil {
		return err
	}
	t := row.Table()
	if r.readonly {
		return r.fail(launch.Refuse(launch.ErrInternal, "put in %s: a view writes nothing; use an update", t.Name))
	}
	r.next.Write(row)
	if old == nil {
		stmt, err := r.prepared(&r.tables[t.id].insert, t.insertSQL)
		if err != nil {
			return r.failSQLite("insert into", t, err)
		}
		bind(stmt, 1, r.next.Values)
		return r.write("insert into", t, stmt, nil)
	}
	r.old.Key(old)
	before := r.cache.find(t, r.old.Values) // which old is a copy of
	if before == nil {
		r.old.Write(old)
		before = r.old.Values
	}
	changed, err := diff(t, old, row, before, r.next.Values)
	if err != nil {
		return r.fail(err)
	}
	if changed == 0 {
		return nil
	}
	stmt, all, err := r.updateStmt(t, changed)
	if err != nil {
		return r.failSQLite("update", t, err)
	}
	n := 1
	for i := range r.next.Values {
		if all&(1<<i) != 0 {
			bind(stmt, n, r.next.Values[i:i+1])
			n++
		}
	}
	bind(stmt, n, r.next.Values[:t.Key])
	return r.write("update", t, stmt, before)
}

// diff returns the set of columns in which two versions of a row differ.
func diff(t *Table, old, row Row, a, b []Value) (changed uint64, err error) {
	if old == row || old.Table() != t {
		return 0, launch.Refuse(launch.ErrInternal, "put in %s: the old row must be a copy made before the change", t.Name)
	}
	for i := range b {
		if !equal(&a[i], &b[i]) {
			changed |= 1 << i
		}
	}
	if changed&(1<<t.Key-1) != 0 {
		return 0, launch.Refuse(launch.ErrInternal, "put in %s: a key never changes", t.Name)
	}
	return changed, nil
}

func equal(a, b *Value) bool {
	return a.Kind == b.Kind && a.Int == b.Int && a.Text == b.Text && bytes.Equal(a.Blob, b.Blob)
}

// updateStmt returns a statement that sets the columns of all, which contains
// changed.
func (r *sqliteRows) updateStmt(t *Table, changed uint64) (stmt *sqlite.Stmt, all uint64, err error) {
	ts := &r.tables[t.id]
	if stmt = ts.update[changed]; stmt != nil {
		return stmt, changed, nil
	}
	if len(ts.update) >= maxUpdates {
		changed = 1<<len(t.Columns) - 1<<t.Key
		if stmt = ts.update[changed]; stmt != nil {
			return stmt, changed, nil
		}
	}
	if stmt, err = r.conn.Prepare(t.updateSQL(changed)); err != nil {
		return nil, 0, err
	}
	if ts.update == nil {
		ts.update = make(map[uint64]*sqlite.Stmt)
	}
	ts.update[changed] = stmt
	return stmt, changed, nil
}

// write runs a statement that must change exactly one row, which had the values
// before, or none.
func (r *sqliteRows) write(doing string, t *Table, stmt *sqlite.Stmt, before []Value) error {
	r.puts++
	_, err := stmt.Step()
	reset(stmt)
	if err != nil {
		return r.failSQLite(doing, t, err)
	}
	if r.conn.Changes() != 1 {
		return r.fail(launch.Refuse(launch.ErrInternal, "%s %s: the row does not exist", doing, t.Name))
	}
	if l := &r.last; !l.insert { // an event that is inserted stays as it is, whatever comes later
		l.table, l.insert = t, before == nil
		l.next, l.old = append(l.next[:0], r.next.Values...), append(l.old[:0], before...)
		l.raw[0], l.raw[1] = own(l.next, l.raw[0]), own(l.old, l.raw[1])
	}
	r.cache.put(t, &r.next.Values)
	return nil
}

// Scan implements [Rows].
func (r *sqliteRows) Scan(ix *Index, prefix []Value, limit int, row Row, each func() bool) error {
	if err := r.usable(); err != nil || limit <= 0 {
		return err
	}
	if err := checkScan(ix, prefix, row); err != nil {
		return r.fail(err)
	}
	stmt, err := r.prepared(&r.indexes[ix.id].scan[len(prefix)], func() string { return ix.scanSQL(len(prefix)) })
	if err != nil {
		return r.failSQLite("scan", ix.Table, err)
	}
	bind(stmt, 1, prefix)
	stmt.BindInt64(len(prefix)+1, int64(limit))
	defer r.endScan(stmt) // also when each panics
	for {
		found, err := r.step(stmt)
		if err != nil {
			return r.failSQLite("scan", ix.Table, err)
		}
		if !found {
			return nil
		}
		if err := r.key.readFrom(r.in, row); err != nil {
			return err
		}
		r.scanning = true
		more := each()
		r.scanning = false
		if !more || r.failed != nil {
			return r.failed
		}
	}
}

func (r *sqliteRows) endScan(stmt *sqlite.Stmt) {
	r.scanning = false
	reset(stmt)
}

func checkScan(ix *Index, prefix []Value, row Row) error {
	if len(prefix) > len(ix.Columns) || row != nil && row.Table() != ix.Table {
		return launch.Refuse(launch.ErrInternal, "scan of %s: the prefix is too long or the row of another table", ix.Name)
	}
	return nil
}

// Count implements [Rows].
func (r *sqliteRows) Count(ix *Index, prefix []Value) (int, error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	if err := checkScan(ix, prefix, nil); err != nil {
		return 0, r.fail(err)
	}
	stmt, err := r.prepared(&r.indexes[ix.id].count[len(prefix)], func() string { return ix.countSQL(len(prefix)) })
	if err != nil {
		return 0, r.failSQLite("count", ix.Table, err)
	}
	bind(stmt, 1, prefix)
	_, err = stmt.Step()
	n := 0
	if err == nil {
		n = stmt.ColumnInt(0)
	} else {
		err = r.failSQLite("count", ix.Table, err)
	}
	reset(stmt)
	return n, err
}

// bind binds values to the parameters from the n-th on. An error of a bind
// comes with the step.
func bind(stmt *sqlite.Stmt, n int, values []Value) {
	for i := range values {
		switch v := &values[i]; v.Kind {
		case Int:
			stmt.BindInt64(n+i, v.Int)
		case Text:
			stmt.BindText(n+i, v.Text)
		case Blob:
			stmt.BindBytes(n+i, v.Blob)
		default:
			stmt.BindNull(n + i)
		}
	}
}

// reset makes stmt ready for its next use. Its error repeats that of the step.
func reset(stmt *sqlite.Stmt) { _ = stmt.Reset() }

// step reads the next result row into r.in. All its text is one string, and its
// bytes are valid until the next step.
func (r *sqliteRows) step(stmt *sqlite.Stmt) (bool, error) {
	found, err := stmt.Step()
	if err != nil || !found {
		return false, err
	}
	n := stmt.ColumnCount()
	r.in, r.text, r.raw = r.in[:0], r.text[:0], r.raw[:0]
	for i := range n {
		v := Value{}
		switch stmt.ColumnType(i) {
		case sqlite.TypeInteger:
			v = Value{Kind: Int, Int: stmt.ColumnInt64(i)}
		case sqlite.TypeText:
			v.Kind = Text
			r.text, v.Int = column(stmt, i, r.text)
		case sqlite.TypeBlob:
			v.Kind = Blob
			r.raw, v.Int = column(stmt, i, r.raw)
		}
		r.in = append(r.in, v)
	}
	text, raw := string(r.text), r.raw
	for i := range r.in {
		switch v := &r.in[i]; v.Kind {
		case Text:
			v.Text, text, v.Int = text[:v.Int], text[v.Int:], 0
		case Blob:
			v.Blob, raw, v.Int = raw[:v.Int:v.Int], raw[v.Int:], 0
		}
	}
	return true, nil
}

// column appends the bytes of a text or blob column to buf and returns how many
// they are.
func column(stmt *sqlite.Stmt, col int, buf []byte) ([]byte, int64) {
	n := stmt.ColumnLen(col)
	if need := len(buf) + n; need > cap(buf) {
		buf = append(make([]byte, 0, max(2*cap(buf), need)), buf...)
	}
	end := len(buf) + n
	stmt.ColumnBytes(col, buf[len(buf):end])
	return buf[:end], int64(n)
}
