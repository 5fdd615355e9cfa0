package store

import "hash/maphash"

// Rule store/cache: the connection that writes remembers the rows that it read
// or wrote last, so that the next command of a run reads nothing again. What it
// remembers is what a read would find: it forgets everything when anybody else
// has committed (SQLite's data_version, read under the write lock) and when
// anything is rolled back.

const (
	cacheSets, cacheWays = 64, 4
	maxCachedBytes       = 4 << 10 // of one row's text and blobs
)

// rowCache holds a bounded number of rows, each in one of the few places that
// its key allows.
type rowCache struct {
	seed    maphash.Seed
	sets    [cacheSets][cacheWays]cachedRow
	clock   uint64 // counts uses
	cleared uint64 // rows used last at or before it are forgotten
	version int64  // the data_version that the rows belong to
}

type cachedRow struct {
	used   uint64
	hash   uint64 // of table and key
	table  *Table
	values []Value
	raw    []byte // the bytes of values
}

func (c *rowCache) clear() { c.cleared = c.clock }

// at forgets what belongs to another version of the file.
func (c *rowCache) at(version int64) {
	if version != c.version {
		c.version = version
		c.clear()
	}
}

// place returns where the row whose key begins values, of that hash, is, or
// where it may go.
func (c *rowCache) place(h uint64, t *Table, values []Value) (row *cachedRow, found bool) {
	set := &c.sets[h%cacheSets]
	row = &set[0]
	for i := range set {
		r := &set[i]
		if r.hash == h && r.used > c.cleared && r.table == t && sameValues(r.values[:t.Key], values[:t.Key]) {
			return r, true
		}
		if r.used < row.used {
			row = r
		}
	}
	return row, false
}

func (c *rowCache) hash(t *Table, values []Value) uint64 {
	h := uint64(t.id)
	for i := range values[:t.Key] {
		v := &values[i]
		h = 31*h + uint64(v.Int) + maphash.String(c.seed, v.Text) + maphash.Bytes(c.seed, v.Blob)
	}
	return h
}

// find returns the values of the row whose key begins values, or nil. They are
// valid until the next call.
func (c *rowCache) find(t *Table, values []Value) []Value {
	if c == nil || !t.Cached {
		return nil
	}
	row, found := c.place(c.hash(t, values), t, values)
	if !found {
		return nil
	}
	c.clock++
	row.used = c.clock
	return row.values
}

// put remembers a row as it is stored now. It takes the memory of values and
// gives other memory for it.
func (c *rowCache) put(t *Table, values *[]Value) {
	if c == nil || !t.Cached {
		return
	}
	h := c.hash(t, *values)
	row, found := c.place(h, t, *values)
	if size(*values) > maxCachedBytes {
		if found {
			row.used = 0
		}
		return
	}
	c.clock++
	row.used, row.hash, row.table = c.clock, h, t
	row.values, *values = *values, row.values
	row.raw = own(row.values, row.raw)
}

func size(values []Value) (n int) {
	for i := range values {
		n += len(values[i].Text) + len(values[i].Blob)
	}
	return n
}

// own moves the blobs of values into raw, which it returns.
func own(values []Value, raw []byte) []byte {
	n := 0
	for i := range values {
		n += len(values[i].Blob)
	}
	if n > cap(raw) {
		raw = make([]byte, n)
	}
	rest := raw[:n]
	for i := range values {
		if v := &values[i]; v.Kind == Blob {
			n := copy(rest, v.Blob)
			v.Blob, rest = rest[:n:n], rest[n:]
		}
	}
	return raw
}
