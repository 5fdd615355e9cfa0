package storetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawLaunch returns a valid row of a few possible keys, sessions and times, so
// that rows meet in the key and in every index.
func drawLaunch(t *rapid.T) *Record {
	r := launchRow(rapid.IntRange(0, 5).Draw(t, "run"))
	pick := func(name string, values ...store.Value) store.Value {
		v := rapid.SampledFrom(values).Draw(t, name)
		r.Set(name, v)
		return v
	}
	state := pick("state", num(1), num(1), num(2), num(3), num(4), num(5), num(6), num(7)).Int
	if pick("mode", num(1), num(2)).Int == 1 {
		pick("session_id", text("s"), text("é\x00x"))
	}
	if pick("scope", store.Value{}, text(""), text("a")).Kind == store.Text {
		pick("request_key", store.Value{}, text("k"), text("K"))
	}
	pick("input", store.Value{}, blob(""), blob("\x00\xff"))
	if state > 2 {
		r.Set("input", store.Value{})
	}
	pick("due_at", store.Value{}, num(-1<<63), num(-1), num(0), num(1<<63-1))
	if state == 2 || state == 3 {
		pick("due_at", num(7), num(8))
		r.Set("claimed", num(1))
		r.Set("runner", text("r"))
		r.Set("token_hash", blob("t"))
	}
	if state == 4 {
		r.Set("park", num(1))
	}
	if state >= 5 {
		r.Set("finished_at", num(1))
	}
	if state == 6 {
		r.Set("error_code", text("c"))
		r.Set("error_message", text("m"))
	}
	pick("progress", num(0), num(1))
	return r
}

// step is one call inside an update, drawn before it is made on both engines.
type step struct {
	op     int
	row    *Record
	ix     *store.Index
	prefix []store.Value
	limit  int
}

func drawStep(t *rapid.T) step {
	s := step{op: rapid.IntRange(0, 5).Draw(t, "op"), row: drawLaunch(t)}
	s.ix = rapid.SampledFrom(s.row.In.Indexes).Draw(t, "index")
	for _, c := range s.ix.ColumnNumbers()[:rapid.IntRange(0, len(s.ix.Columns)).Draw(t, "prefix")] {
		s.prefix = append(s.prefix, s.row.Values[c])
	}
	s.limit = rapid.IntRange(-1, 4).Draw(t, "limit")
	return s
}

// run makes the call and says what came of it.
func (s step) run(tx store.Rows) (string, error) {
	switch s.op {
	case 0, 1: // put, whatever is there
		old := key(s.row)
		found, err := tx.Get(old)
		if err != nil {
			return "", err
		}
		if !found {
			return "insert", tx.Put(nil, s.row)
		}
		return "update", tx.Put(old, s.row)
	case 2: // rarely right
		return "insert", tx.Put(nil, s.row)
	case 3:
		got := key(s.row)
		found, err := tx.Get(got)
		return fmt.Sprint(found, got.Values), err
	case 4:
		n, err := tx.Count(s.ix, s.prefix)
		return fmt.Sprint(n), err
	}
	var seen []string
	r := &Record{In: s.ix.Table}
	err := tx.Scan(s.ix, s.prefix, s.limit, r, func() bool {
		seen = append(seen, fmt.Sprint(r.Values))
		return len(seen) < 3
	})
	return fmt.Sprintf("%q", seen), err
}

// kind says what an error is to its caller.
func kind(err error) string {
	if k := launch.Kind(0); errors.As(err, &k) {
		return k.String()
	}
	return fmt.Sprint(err)
}

// Any updates give the same answers and the same rows on SQLite and in memory.
func TestSQLiteIsLikeMemory(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, fmt.Sprint(files))
		sqlite, err := store.OpenSQLite(path, store.SQLiteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		defer sqlite.Close()
		memory := Memory()
		for range rapid.IntRange(1, 8).Draw(t, "updates") {
			steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 6).Draw(t, "steps")
			refuse := rapid.IntRange(0, 4).Draw(t, "refuse") == 0
			answers := map[store.Engine][]string{}
			for _, e := range []store.Engine{sqlite, memory} {
				err := e.Update(bg, func(tx store.Rows) error {
					answers[e] = nil
					for _, s := range steps {
						got, err := s.run(tx)
						answers[e] = append(answers[e], got, kind(err))
						if err != nil {
							return err
						}
					}
					if refuse {
						return errRefused
					}
					return nil
				})
				answers[e] = append(answers[e], kind(err))
			}
			if d := cmp.Diff(answers[memory], answers[sqlite]); d != "" {
				t.Fatalf("memory and SQLite answer differently:\n%s", d)
			}
		}
		if d := cmp.Diff(dump(t, memory), dump(t, sqlite)); d != "" {
			t.Fatalf("memory and SQLite hold different rows:\n%s", d)
		}
	})
}

// dump reads all rows of the launch table by key and through each index.
func dump(t *rapid.T, e store.Engine) (all []string) {
	err := e.View(bg, func(tx store.Rows) error {
		for n := range 6 {
			r := key(launchRow(n))
			found, err := tx.Get(r)
			if err != nil {
				return err
			}
			all = append(all, fmt.Sprint(found, r.Values))
		}
		for _, ix := range launchRow(0).In.Indexes {
			r := &Record{In: ix.Table}
			if err := tx.Scan(ix, nil, 100, r, func() bool { all = append(all, fmt.Sprint(ix.Name, r.Values)); return true }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
