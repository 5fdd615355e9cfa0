package storetest

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"example.com/piworkflows/store"
)

func openSQLite(t testing.TB) store.Engine {
	e, err := store.OpenSQLite(filepath.Join(t.TempDir(), "store.db"), store.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestMemory(t *testing.T) { TestEngine(t, func(*testing.T) store.Engine { return Memory() }) }

func TestSQLite(t *testing.T) {
	TestEngine(t, func(t *testing.T) store.Engine { return openSQLite(t) })
}

// broken is an engine with one thing wrong.
type broken struct {
	store.Engine
	put  func(rows store.Rows, old, row store.Row) error
	scan func(rows store.Rows, ix *store.Index, prefix []store.Value, limit int, row store.Row, each func() bool) error
	end  func(err error) error // what becomes of the function's error inside the transaction
	view bool                  // views see the present
}

type brokenRows struct {
	store.Rows
	b *broken
}

func (r brokenRows) Put(old, row store.Row) error {
	if r.b.put != nil {
		return r.b.put(r.Rows, old, row)
	}
	return r.Rows.Put(old, row)
}

func (r brokenRows) Scan(ix *store.Index, prefix []store.Value, limit int, row store.Row, each func() bool) error {
	if r.b.scan != nil {
		return r.b.scan(r.Rows, ix, prefix, limit, row, each)
	}
	return r.Rows.Scan(ix, prefix, limit, row, each)
}

func (b *broken) Update(ctx context.Context, fn func(store.Rows) error) error {
	var own error
	err := b.Engine.Update(ctx, func(rows store.Rows) error {
		own = fn(brokenRows{rows, b})
		if b.end != nil {
			return b.end(own)
		}
		return own
	})
	if err == nil {
		err = own
	}
	return err
}

func (b *broken) View(ctx context.Context, fn func(store.Rows) error) error {
	if b.view {
		return b.Engine.Update(ctx, fn)
	}
	return b.Engine.View(ctx, func(rows store.Rows) error { return fn(brokenRows{rows, b}) })
}

// The kit finds what is wrong with an engine, under the rule that says so.
func TestKitFindsBrokenEngines(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		make       func() *broken
	}{
		{"loses a put", "put and get", func() *broken {
			return &broken{put: func(store.Rows, store.Row, store.Row) error { return nil }}
		}},
		{"keeps what a refused function put", "refused", func() *broken {
			return &broken{end: func(error) error { return nil }}
		}},
		{"overwrites an existing key", "duplicate key", func() *broken {
			return &broken{put: func(rows store.Rows, old, row store.Row) error {
				there := key(row.(*Record))
				if found, _ := rows.Get(there); found && old == nil {
					old = there
				}
				return rows.Put(old, row)
			}}
		}},
		{"hides a second row of a unique index", "unique index", func() *broken {
			return &broken{put: func(rows store.Rows, old, row store.Row) error {
				r := row.(*Record)
				n, _ := rows.Count(indexOf("workflow_run_queue_reservation"), []store.Value{r.Column("session_id")})
				if n > 0 && old == nil {
					return nil
				}
				return rows.Put(old, row)
			}}
		}},
		{"scans in another order", "scan order", func() *broken {
			return &broken{scan: func(rows store.Rows, ix *store.Index, prefix []store.Value, limit int, row store.Row, each func() bool) error {
				var all []*Record
				r := &Record{In: ix.Table}
				if err := rows.Scan(ix, prefix, limit, r, func() bool { all = append(all, r.Clone()); return true }); err != nil {
					return err
				}
				slices.Reverse(all)
				for _, v := range all {
					row.(*Record).Values = v.Values
					if !each() {
						break
					}
				}
				return nil
			}}
		}},
		{"ignores the limit", "scan order", func() *broken {
			return &broken{scan: func(rows store.Rows, ix *store.Index, prefix []store.Value, limit int, row store.Row, each func() bool) error {
				return rows.Scan(ix, prefix, 1000, row, each)
			}}
		}},
		{"lets a view write", "view writes nothing", func() *broken { return &broken{view: true} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var failed []string
			for _, r := range rules {
				if c.name == "lets a view write" && r.name == "snapshot" {
					continue // would wait for itself
				}
				b := c.make()
				b.Engine = Memory()
				if r.check(b) != nil {
					failed = append(failed, r.name)
				}
			}
			if !slices.Contains(failed, c.rule) {
				t.Errorf("the kit fails %q, want %q among them", failed, c.rule)
			}
		})
	}
}
