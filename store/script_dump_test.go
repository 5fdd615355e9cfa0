package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"example.com/piworkflows/store/storetest"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

var bg = context.Background()

// epoch is when every scripted clock starts.
const epoch launch.Time = 1_767_225_600_000_000_000 // 2026-01-01T00:00:00Z

// entropy is a deterministic source of ids and tokens.
type entropy struct{ n uint64 }

func (e *entropy) Read(p []byte) (int, error) {
	for i := range p {
		e.n += 0x9e3779b97f4a7c15
		z := e.n
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		p[i] = byte(z >> 56)
	}
	return len(p), nil
}

// bench is one store on one engine, with a clock of its own.
type bench struct {
	engine  store.Engine
	path    string // of the SQLite file; empty in memory
	raw     *sqlite.Conn
	clock   *clock.Manual
	entropy *entropy
	store   *store.Store
	events  []store.Event // since the last take
}

func newBench(path string) *bench {
	b := &bench{path: path, clock: clock.NewManual(epoch), entropy: new(entropy)}
	if path == "" {
		b.engine = storetest.Memory()
	}
	if err := b.open(); err != nil {
		panic(err) // a fault of the test
	}
	return b
}

func (b *bench) open() error {
	o := store.Options{Clock: b.clock, Entropy: b.entropy}
	if b.path == "" {
		b.store = store.New(b.engine, o)
	} else {
		s, err := store.Open(b.path, o)
		if err != nil {
			return err
		}
		b.store = s
		if b.raw, err = sqlite.OpenConn(b.path, sqlite.OpenReadOnly); err != nil {
			return err
		}
	}
	b.store.Subscribe(func(es []store.Event) { b.events = append(b.events, es...) })
	return nil
}

// reopen closes the file and opens it again; in memory only the store is new.
func (b *bench) reopen() error {
	if b.path != "" {
		b.close()
	}
	return b.open()
}

func (b *bench) close() {
	if b.raw != nil {
		b.raw.Close()
	}
	b.store.Close()
}

func (b *bench) take() []store.Event {
	es := b.events
	b.events = nil
	return es
}

// dump holds every row of every table: table, key, then column values.
type dump map[string]map[string][]store.Value

// dump reads all tables past the store.
func (b *bench) dump() (dump, error) {
	d := dump{}
	add := func(t *store.Table, v []store.Value) {
		if d[t.Name] == nil {
			d[t.Name] = map[string][]store.Value{}
		}
		d[t.Name][rowKey(v[:t.Key])] = v
	}
	for _, t := range store.Schema {
		var err error
		if b.path == "" {
			r := &storetest.Record{In: t}
			err = b.engine.View(bg, func(rows store.Rows) error {
				return rows.Scan(&store.Index{Name: "all", Table: t, Primary: true}, nil, 1<<30, r, func() bool {
					add(t, r.Clone().Values)
					return true
				})
			})
		} else {
			err = sqlitex.Execute(b.raw, "SELECT * FROM "+t.Name, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
				v := make([]store.Value, len(t.Columns))
				for i := range v {
					v[i] = column(s, i)
				}
				add(t, v)
				return nil
			}})
		}
		if err != nil {
			return nil, fmt.Errorf("dump %s: %w", t.Name, err)
		}
	}
	return d, nil
}

func rowKey(values []store.Value) string {
	var b []byte
	for _, v := range values {
		b = strconv.AppendInt(append(append(append(b, v.Text...), 0), v.Blob...), v.Int, 10)
	}
	return string(b)
}

func column(s *sqlite.Stmt, i int) store.Value {
	switch s.ColumnType(i) {
	case sqlite.TypeInteger:
		return store.Value{Kind: store.Int, Int: s.ColumnInt64(i)}
	case sqlite.TypeText:
		return store.Value{Kind: store.Text, Text: s.ColumnText(i)}
	case sqlite.TypeBlob:
		v := store.Value{Kind: store.Blob, Blob: make([]byte, s.ColumnLen(i))}
		s.ColumnBytes(i, v.Blob)
		return v
	}
	return store.Value{}
}

// all reads the tables of a store in memory as what they hold.
func (b *bench) all() (a store.All, err error) {
	err = b.engine.View(bg, func(rows store.Rows) error {
		a, err = store.ReadAll(rows)
		return err
	})
	return a, err
}

// secrets returns the columns in which a marker is stored.
func (d dump) secrets(marker string) (found []string) {
	for _, t := range store.Schema {
		seen := map[string]bool{}
		for _, v := range d[t.Name] {
			for i := range v {
				if strings.Contains(v[i].Text, marker) || strings.Contains(string(v[i].Blob), marker) {
					seen[t.Columns[i].Name] = true
				}
			}
		}
		for _, c := range t.Columns {
			if seen[c.Name] {
				found = append(found, t.Name+"."+c.Name)
			}
		}
	}
	return found
}

func fileIn(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") }
