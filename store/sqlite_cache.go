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

// place returns where the row whose key begins values is, or where it may go.
func (c *rowCache) place(t *Table, values []Value) (row *cachedRow, found bool) {
	h := uint64(t.id)
	for i := range values[:t.Key] {
		v := &values[i]
		h = 31*h + uint64(v.Int) + maphash.String(c.seed, v.Text) + maphash.Bytes(c.seed, v.Blob)
	}
	set := &c.sets[h%cacheSets]
	row = &set[0]
	for i := range set {
		r := &set[i]
		if r.used > c.cleared && r.table == t && sameValues(r.values[:t.Key], values[:t.Key]) {
			return r, true
		}
		if r.used < row.used {
			row = r
		}
	}
	return row, false
}

// find returns the values of the row whose key begins values, or nil. They are
// valid until the next call.
func (c *rowCache) find(t *Table, values []Value) []Value {
	if c == nil || !t.Cached {
		return nil
	}
	row, found := c.place(t, values)
	if !found {
		return nil
	}
	c.clock++
	row.used = c.clock
	return row.values
}

// put remembers a row as it is stored now.
func (c *rowCache) put(t *Table, values []Value) {
	if c == nil || !t.Cached {
		return
	}
	row, found := c.place(t, values)
	n := 0
	for i := range values {
		n += len(values[i].Text) + len(values[i].Blob)
	}
	if n > maxCachedBytes {
		if found {
			row.used = 0
		}
		return
	}
	c.clock++
	row.used, row.table = c.clock, t
	row.values, row.raw = copyValues(row.values, row.raw, values)
}

// copyValues copies values into the memory of to and raw, so that their bytes
// are their own.
func copyValues(to []Value, raw []byte, values []Value) ([]Value, []byte) {
	to, raw = append(to[:0], values...), raw[:0]
	for i := range to {
		raw = append(raw, to[i].Blob...)
	}
	rest := raw
	for i := range to {
		if v := &to[i]; v.Kind == Blob {
			n := len(v.Blob)
			v.Blob, rest = rest[:n:n], rest[n:]
		}
	}
	return to, raw
}
