package store

import (
	"context"
	"strconv"

	"example.com/piworkflows/launch"
)

// Rows is what a storage engine offers inside one transaction: get and put by
// key and a few ordered scans. Every rule lives above it, so a store on another
// engine implements these three methods and nothing else.
type Rows interface {
	// Get fills row, which holds its key, and reports whether it exists.
	Get(row Row) (bool, error)
	// Put writes row. old is a copy of the row as it was read in this
	// transaction, of which only the differences are written, or nil to insert.
	// An insert of an existing key, an update of an absent one or a violated
	// constraint is an error, after which the transaction cannot commit.
	Put(old, row Row) error
	// Scan visits the rows of an index whose first columns equal prefix, in
	// index order and then in key order, at most limit of them, until each
	// returns false. It fills row before every call of each, which must not use
	// the rows itself: collect first.
	Scan(ix *Index, prefix []Value, limit int, row Row, each func() bool) error
	// Count counts the rows of an index whose first columns equal prefix.
	Count(ix *Index, prefix []Value) (int, error)
}

// Engine runs transactions over rows. [OpenSQLite] returns the one that ships;
// package storetest has an in-memory reference and the conformance kit.
type Engine interface {
	// Update runs fn in one durable transaction and returns once its outcome is
	// known. fn must touch nothing but rows and its own variables, and must
	// decide before its first Put: an error that it returns before then leaves
	// the transaction usable by others. fn may run again from the start. A
	// cancelled ctx prevents an update that has not begun. Errors of fn come
	// back unchanged.
	Update(ctx context.Context, fn func(rows Rows) error) error
	// View runs fn over a consistent snapshot that writes nothing.
	View(ctx context.Context, fn func(rows Rows) error) error
	// Version identifies the last commit by anyone, of this process or another:
	// it changes whenever the content may have changed.
	Version(ctx context.Context) (int64, error)
	// Close waits for what has begun and frees everything. Calls after it fail
	// with launch.ErrClosed; a second Close does nothing.
	Close() error
}

// Row is one row of a table. Implementations are pointers to structs of this
// package.
type Row interface {
	// Table says where the row lives.
	Table() *Table
	// Fields visits every column in the table's order. The same method reads
	// and writes, so the two cannot disagree.
	Fields(f *Fields)
}

// Column is one column of a table.
type Column struct {
	Name string
	Decl string // type and constraints, as in CREATE TABLE
}

// Table describes a table. The first Key columns are its primary key.
type Table struct {
	Name    string
	Key     int
	Columns []Column
	Checks  []string // table constraints
	Indexes []*Index
	Cached  bool // its rows are read again soon after they were written
	id      int
}

// ID returns the table's position in [Schema].
func (t *Table) ID() int { return t.id }

// Index is an ordered access path of a table: the rows that satisfy Where, in
// the order of Columns.
type Index struct {
	Name    string
	Table   *Table // set by the schema
	Columns []string
	Unique  bool
	// Primary marks an access path over the primary key itself (Columns are its
	// first columns), for which nothing is created. Desc scans it backwards.
	Primary, Desc bool
	Where         string                            // SQL; empty = every row
	Has           func(col func(string) Value) bool // the same condition over the columns; nil = every row
	id            int
	cols          []int
}

// ID returns the index's position in [Indexes].
func (ix *Index) ID() int { return ix.id }

// ColumnNumbers returns the positions of the index's columns in its table.
func (ix *Index) ColumnNumbers() []int { return ix.cols }

// ValueKind says what a column value holds.
type ValueKind uint8

// The value kinds.
const (
	Null ValueKind = iota
	Int
	Text
	Blob
)

// Value is one column value. Bytes that an engine hands out are only valid
// until the next call on the same transaction; Fields copies what it keeps.
type Value struct {
	Kind ValueKind
	Int  int64
	Text string // with Text
	Blob []byte // with Blob
}

// Fields carries the column values of one row between a struct and an engine.
type Fields struct {
	Values  []Value
	reading bool
	only    int // of the columns, that are wanted at least; 0 = all
	err     error
	i       int
	keys    [2][16]byte // room for run keys, so that a visit allocates nothing
	nkeys   int
	run     keyOf
}

// Write sets f to the column values of row.
func (f *Fields) Write(row Row) {
	f.Values, f.reading, f.only, f.i, f.nkeys, f.err = f.Values[:0], false, 0, 0, 0, nil
	row.Fields(f)
}

// Key sets f to the values of the columns of row's key.
func (f *Fields) Key(row Row) {
	f.Values, f.reading, f.only, f.i, f.nkeys, f.err = f.Values[:0], false, row.Table().Key, 0, 0, nil
	row.Fields(f)
	f.Values = f.Values[:f.only]
}

// enough reports whether a row may leave out the columns that it has not
// visited yet.
func (f *Fields) enough() bool { return f.only > 0 && len(f.Values) >= f.only }

// Read fills row from f.Values, which must hold one value per column.
func (f *Fields) Read(row Row) error {
	f.reading, f.only, f.i, f.err = true, 0, 0, nil
	if len(f.Values) != len(row.Table().Columns) {
		return launch.Refuse(launch.ErrInternal, "table %s: %d values for %d columns", row.Table().Name, len(f.Values), len(row.Table().Columns))
	}
	row.Fields(f)
	return f.err
}

// Reading reports whether the visit fills the row rather than reading it.
func (f *Fields) Reading() bool { return f.reading }

func (f *Fields) next(write Value) *Value {
	if !f.reading {
		f.Values = append(f.Values, write)
		return nil
	}
	v := &f.Values[f.i]
	f.i++
	return v
}

func (f *Fields) bad(want string) {
	if f.err == nil {
		f.err = launch.Refuse(launch.ErrInternal, "stored row: column %d is not %s; run verify and restore a backup", f.i, want)
	}
}

// Fail records that a stored value is out of its set.
func (f *Fields) Fail(what string) { f.bad(what) }

// integer is any integer type that fits a column.
type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// num visits an integer column; zero is stored as 0.
func num[T integer](f *Fields, p *T) {
	if v := f.next(Value{Kind: Int, Int: int64(*p)}); v != nil {
		if v.Kind != Int || int64(T(v.Int)) != v.Int {
			f.bad("an integer in range")
			return
		}
		*p = T(v.Int)
	}
}

// opt visits an integer column in which zero is stored as NULL.
func opt[T integer](f *Fields, p *T) {
	w := Value{Kind: Int, Int: int64(*p)}
	if *p == 0 {
		w = Value{}
	}
	if v := f.next(w); v != nil {
		if v.Kind == Null {
			*p = 0
			return
		}
		if v.Kind != Int || int64(T(v.Int)) != v.Int {
			f.bad("an integer in range")
			return
		}
		*p = T(v.Int)
	}
}

// decimal visits a number column, stored as text so that every engine keeps it;
// zero is NULL.
func decimal(f *Fields, p *float64) {
	s := ""
	if !f.reading && *p != 0 {
		s = strconv.FormatFloat(*p, 'g', -1, 64)
	}
	optText(f, &s)
	if f.reading {
		*p = 0
		if s == "" {
			return
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			f.bad("a number")
			return
		}
		*p = v
	}
}

// flag visits a boolean column, stored as 0 or 1.
func flag(f *Fields, p *bool) {
	n := uint8(0)
	if *p {
		n = 1
	}
	num(f, &n)
	*p = n == 1
}

// text visits a string column that is always set.
func text[T ~string](f *Fields, p *T) {
	if v := f.next(Value{Kind: Text, Text: string(*p)}); v != nil {
		if v.Kind != Text {
			f.bad("text")
			return
		}
		if string(*p) != v.Text {
			*p = T(v.Text)
		}
	}
}

// optText visits a string column in which the empty string is stored as NULL.
func optText[T ~string](f *Fields, p *T) {
	w := Value{Kind: Text, Text: string(*p)}
	if *p == "" {
		w = Value{}
	}
	if v := f.next(w); v != nil {
		switch v.Kind {
		case Null:
			*p = ""
		case Text:
			*p = T(v.Text)
		default:
			f.bad("text")
		}
	}
}

// blob visits a bytes column in which nil is stored as NULL.
func blob(f *Fields, p *[]byte) {
	w := Value{Kind: Blob, Blob: *p}
	if *p == nil {
		w = Value{}
	}
	if v := f.next(w); v != nil {
		switch v.Kind {
		case Null:
			*p = nil
		case Blob:
			*p = append(make([]byte, 0, len(v.Blob)), v.Blob...)
		default:
			f.bad("bytes")
		}
	}
}

// digest visits a 32-byte column; the zero digest is stored as NULL.
func digest(f *Fields, p *launch.Digest) {
	w := Value{}
	if !f.reading && *p != (launch.Digest{}) {
		w = Value{Kind: Blob, Blob: p[:]}
	}
	if v := f.next(w); v != nil {
		switch {
		case v.Kind == Null:
			*p = launch.Digest{}
		case v.Kind == Blob && len(v.Blob) == len(p):
			copy(p[:], v.Blob)
		default:
			f.bad("a digest")
		}
	}
}
