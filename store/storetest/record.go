package storetest

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"example.com/piworkflows/store"
)

// Record is a row of any table as its bare column values. A test reads and
// writes rows with it that it knows nothing else about.
type Record struct {
	In     *store.Table
	Values []store.Value // one per column; a nil slice holds only NULLs
}

// Table implements store.Row.
func (r *Record) Table() *store.Table { return r.In }

// Fields implements store.Row.
func (r *Record) Fields(f *store.Fields) {
	if f.Reading() {
		r.Values = clone(f.Values)
		return
	}
	f.Values = append(f.Values, r.Values...)
	for len(f.Values) < len(r.In.Columns) {
		f.Values = append(f.Values, store.Value{})
	}
}

// Clone returns a copy that shares no bytes.
func (r *Record) Clone() *Record { return &Record{r.In, clone(r.Values)} }

// Column returns the value of a column.
func (r *Record) Column(name string) store.Value {
	for i, c := range r.In.Columns {
		if c.Name == name && i < len(r.Values) {
			return r.Values[i]
		}
	}
	return store.Value{}
}

// Set sets the value of a column.
func (r *Record) Set(name string, v store.Value) {
	for len(r.Values) < len(r.In.Columns) {
		r.Values = append(r.Values, store.Value{})
	}
	for i, c := range r.In.Columns {
		if c.Name == name {
			r.Values[i] = v
		}
	}
}

func clone(values []store.Value) []store.Value {
	values = slices.Clone(values)
	for i := range values {
		if values[i].Kind == store.Blob {
			values[i].Blob = append([]byte{}, values[i].Blob...)
		}
	}
	return values
}

// compare orders column values as every engine does: NULL, then integers, then
// text, then blobs, the latter two by their bytes.
func compare(a, b store.Value) int {
	return cmp.Or(
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Int, b.Int),
		strings.Compare(a.Text, b.Text),
		bytes.Compare(a.Blob, b.Blob),
	)
}
