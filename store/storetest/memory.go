package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Memory returns an empty engine in memory: the reference. It keeps every row
// in a map, sorts on every scan, and enforces primary keys and unique indexes,
// but not the other constraints of the schema. It is safe for concurrent use
// and costs more with each row.
func Memory() store.Engine {
	return &memory{tables: make([]table, len(store.Schema))}
}

// table holds rows by the text of their key. A table is never changed once it
// is part of a committed state.
type table map[string][]store.Value

type memory struct {
	write sync.Mutex // held by the one update that runs

	mu      sync.Mutex
	tables  []table
	version int64
	closed  bool
	active  sync.WaitGroup
}

func (m *memory) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return launch.Refuse(launch.ErrClosed, "the store is closed; open it again")
	}
	m.active.Add(1)
	return nil
}

func (m *memory) state() []table {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tables)
}

// Update implements store.Engine.
func (m *memory) Update(ctx context.Context, fn func(store.Rows) error) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.active.Done()
	m.write.Lock()
	defer m.write.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	rows := &memoryRows{tables: m.state(), owned: make([]bool, len(store.Schema))}
	if err := rows.call(fn); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(rows.owned, true) {
		m.tables = rows.tables
		m.version++
	}
	return nil
}

// View implements store.Engine.
func (m *memory) View(ctx context.Context, fn func(store.Rows) error) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.active.Done()
	return (&memoryRows{tables: m.state()}).call(fn)
}

// Version implements store.Engine.
func (m *memory) Version(ctx context.Context) (int64, error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.active.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version, nil
}

// Close implements store.Engine.
func (m *memory) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.active.Wait()
	return nil
}

// memoryRows is one transaction. It copies a table before it first changes it.
type memoryRows struct {
	tables   []table
	owned    []bool // nil: a view
	failed   error
	ended    bool
	scanning bool
}

// call runs fn and returns its error, or why the transaction cannot commit.
func (r *memoryRows) call(fn func(store.Rows) error) (err error) {
	defer func() {
		r.ended = true
		if p := recover(); p != nil {
			err = launch.Refuse(launch.ErrInternal, "a function panicked in a transaction (%T) and changed nothing; report it", p)
		}
		if r.failed != nil {
			err = r.failed
		}
	}()
	return fn(r)
}

func (r *memoryRows) fail(format string, args ...any) error {
	if r.failed == nil {
		r.failed = launch.Refuse(launch.ErrInternal, format, args...)
	}
	return r.failed
}

func (r *memoryRows) usable() error {
	if r.ended {
		return launch.Refuse(launch.ErrInternal, "rows are used after their transaction; keep them inside the function")
	}
	if r.scanning {
		return r.fail("rows are used inside a scan; collect first")
	}
	return r.failed
}

// values returns the column values of row and the text of its key.
func values(row store.Row) ([]store.Value, string) {
	var f store.Fields
	f.Write(row)
	v := clone(f.Values)
	key := ""
	for _, k := range v[:row.Table().Key] {
		key += fmt.Sprintf("%d %d %q %x|", k.Kind, k.Int, k.Text, k.Blob)
	}
	return v, key
}

// Get implements store.Rows.
func (r *memoryRows) Get(row store.Row) (bool, error) {
	if err := r.usable(); err != nil {
		return false, err
	}
	_, key := values(row)
	found, ok := r.tables[row.Table().ID()][key]
	if !ok {
		return false, nil
	}
	if err := fill(row, found); err != nil {
		return false, err
	}
	return true, nil
}

func fill(row store.Row, v []store.Value) error {
	f := store.Fields{Values: clone(v)}
	return f.Read(row)
}

// Put implements store.Rows.
func (r *memoryRows) Put(old, row store.Row) error {
	if err := r.usable(); err != nil {
		return err
	}
	t := row.Table()
	v, key := values(row)
	if r.owned == nil {
		return r.fail("put in %s: a view writes nothing; use an update", t.Name)
	}
	_, exists := r.tables[t.ID()][key]
	switch {
	case old == nil && exists:
		return r.fail("insert into %s: the row violates a constraint of the schema", t.Name)
	case old == nil:
	case old == row || old.Table() != t:
		return r.fail("put in %s: the old row must be a copy made before the change", t.Name)
	default:
		before, oldKey := values(old)
		switch {
		case oldKey != key:
			return r.fail("put in %s: a key never changes", t.Name)
		case slices.EqualFunc(before, v, func(a, b store.Value) bool { return compare(a, b) == 0 }):
			return nil
		case !exists:
			return r.fail("update %s: the row does not exist", t.Name)
		}
		// Only what differs from old is written.
		now := r.tables[t.ID()][key]
		for i := range v {
			if compare(before[i], v[i]) == 0 {
				v[i] = now[i]
			}
		}
	}
	for _, ix := range t.Indexes {
		if ix.Unique && r.taken(ix, key, v) {
			return r.fail("put in %s: the row violates a constraint of the schema", t.Name)
		}
	}
	if !r.owned[t.ID()] {
		r.owned[t.ID()] = true
		copied := make(table)
		maps.Copy(copied, r.tables[t.ID()])
		r.tables[t.ID()] = copied
	}
	r.tables[t.ID()][key] = v
	return nil
}

// taken reports whether another row than key's stands where v would in a unique
// index. NULL stands nowhere.
func (r *memoryRows) taken(ix *store.Index, key string, v []store.Value) bool {
	if !in(ix, v) {
		return false
	}
	for other, o := range r.tables[ix.Table.ID()] {
		same := other != key && in(ix, o)
		for _, c := range ix.ColumnNumbers() {
			same = same && v[c].Kind != store.Null && compare(v[c], o[c]) == 0
		}
		if same {
			return true
		}
	}
	return false
}

// in reports whether a row is part of an index.
func in(ix *store.Index, v []store.Value) bool {
	return ix.Has == nil || ix.Has((&Record{ix.Table, v}).Column)
}

// found returns the rows of an index under a prefix, in order.
func (r *memoryRows) found(ix *store.Index, prefix []store.Value) [][]store.Value {
	cols := ix.ColumnNumbers()
	var all [][]store.Value
	for _, v := range r.tables[ix.Table.ID()] {
		ok := in(ix, v)
		for i, p := range prefix {
			ok = ok && compare(v[cols[i]], p) == 0
		}
		if ok {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b []store.Value) int {
		if ix.Desc {
			a, b = b, a
		}
		for _, c := range cols {
			if d := compare(a[c], b[c]); d != 0 {
				return d
			}
		}
		for c := range ix.Table.Key {
			if d := compare(a[c], b[c]); d != 0 {
				return d
			}
		}
		return 0
	})
	return all
}

// Scan implements store.Rows.
func (r *memoryRows) Scan(ix *store.Index, prefix []store.Value, limit int, row store.Row, each func() bool) error {
	if err := r.usable(); err != nil || limit <= 0 {
		return err
	}
	if len(prefix) > len(ix.Columns) || row.Table() != ix.Table {
		return r.fail("scan of %s: the prefix is too long or the row of another table", ix.Name)
	}
	all := r.found(ix, prefix)
	defer func() { r.scanning = false }()
	for _, v := range all[:min(limit, len(all))] {
		if err := fill(row, v); err != nil {
			return err
		}
		r.scanning = true
		more := each()
		r.scanning = false
		if !more || r.failed != nil {
			break
		}
	}
	return r.failed
}

// Count implements store.Rows.
func (r *memoryRows) Count(ix *store.Index, prefix []store.Value) (int, error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	if len(prefix) > len(ix.Columns) {
		return 0, r.fail("count of %s: the prefix is too long", ix.Name)
	}
	return len(r.found(ix, prefix)), nil
}
