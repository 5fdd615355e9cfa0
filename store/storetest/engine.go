package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// TestEngine proves that an engine keeps the rules that the store builds on,
// one sub-test a rule. open returns an empty engine, which TestEngine closes;
// it is called once a rule.
func TestEngine(t *testing.T, open func(t *testing.T) store.Engine) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			e := open(t)
			defer e.Close()
			if err := r.check(e); err != nil {
				t.Errorf("%v\nthe rule: %s", err, r.why)
			}
		})
	}
}

// rule is one thing that every engine does.
type rule struct {
	name, why string
	check     func(e store.Engine) error
}

var rules = []rule{
	{"put and get", "a row reads back as it was put, each kind of value with its own empty value, also within the update", checkPutGet},
	{"absent", "a row that was never put is not found, which is no error", checkAbsent},
	{"copies", "an engine keeps and hands out copies, so that a caller may reuse its memory", checkCopies},
	{"refused", "an update whose function returns an error changes nothing, and the error comes back unchanged", checkRefused},
	{"changed columns", "an update of a row writes what differs from the old one, and a put of no difference is none", checkChanges},
	{"duplicate key", "an insert of an existing key fails, and then nothing of the update is kept, whatever its function returns", checkDuplicate},
	{"update of nothing", "a row that does not exist cannot be updated, nor a key be changed", checkUpdateAbsent},
	{"unique index", "a unique index admits one row among those that it holds, and others once that one has left", checkUnique},
	{"scan order", "a scan visits the rows under its prefix in the order of the index and then of the key, at most limit of them, until it is told to stop", checkScan},
	{"scan backwards", "a scan of a descending index is the reverse", checkScanDesc},
	{"scan alone", "rows are not used inside a scan, which would change what it walks over", checkScanAlone},
	{"snapshot", "a view sees one state from its beginning to its end, while updates go on", checkSnapshot},
	{"view writes nothing", "a put in a view fails", checkViewPut},
	{"version", "the version changes with each commit, and not without one", checkVersion},
	{"cancelled", "a context that has ended prevents what has not begun, and is the answer", checkCancelled},
	{"panic", "a function that panics changes nothing, harms nobody, and gets launch.ErrInternal", checkPanic},
	{"escaped rows", "rows are of no use after their function returned", checkEscaped},
	{"closed", "after Close every call is launch.ErrClosed, and another Close does nothing", checkClosed},
	{"neighbours", "of updates that run at the same time each gets its own answer, and exactly the accepted ones are there", checkNeighbours},
	{"serial", "updates run one after another: what one read is still so when it writes", checkSerial},
}

var bg = context.Background()

func text(s string) store.Value { return store.Value{Kind: store.Text, Text: s} }
func blob(s string) store.Value { return store.Value{Kind: store.Blob, Blob: []byte(s)} }
func num(n int64) store.Value   { return store.Value{Kind: store.Int, Int: n} }

func tableOf(name string) *store.Table {
	for _, t := range store.Schema {
		if t.Name == name {
			return t
		}
	}
	panic("storetest: the schema has no table " + name)
}

func indexOf(name string) *store.Index {
	for _, ix := range store.Indexes {
		if ix.Name == name {
			return ix
		}
	}
	panic("storetest: the schema has no index " + name)
}

// launchRow returns the n-th of many valid rows: a headless launch that waits.
func launchRow(n int) *Record {
	r := &Record{In: tableOf("workflow_run_queue")}
	for name, v := range map[string]store.Value{
		"run_id": blob(fmt.Sprintf("run%013d", n)), "workflow": text("w"), "source": text(""),
		"digest": blob(fmt.Sprintf("%032d", n)), "mode": num(2), "input": blob("{}"), "options": blob(""),
		"content": blob(fmt.Sprintf("%032d", n)), "state": num(1), "due_at": num(int64(n)),
	} {
		r.Set(name, v)
	}
	for i, c := range r.In.Columns { // every counter that must be there
		if r.Values[i].Kind == store.Null && has(c.Decl, "INTEGER NOT NULL") {
			r.Values[i] = num(0)
		}
	}
	return r
}

func has(s, prefix string) bool { return len(s) >= len(prefix) && s[:len(prefix)] == prefix }

// key returns a row that holds only r's key.
func key(r *Record) *Record {
	return (&Record{In: r.In, Values: r.Values[:r.In.Key]}).Clone()
}

func put(e store.Engine, rows ...*Record) error {
	return e.Update(bg, func(tx store.Rows) error {
		for _, r := range rows {
			if err := tx.Put(nil, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// want returns an error unless the row is there with these values, or is not
// there.
func want(e store.Engine, r *Record, there bool) error {
	return e.View(bg, func(tx store.Rows) error { return wantIn(tx, r, there) })
}

func wantIn(tx store.Rows, r *Record, there bool) error {
	got := key(r)
	found, err := tx.Get(got)
	switch {
	case err != nil:
		return fmt.Errorf("get: %w", err)
	case found != there:
		return fmt.Errorf("the row is there: %v, want %v", found, there)
	case found && !same(got, r):
		return fmt.Errorf("the row reads back as %v, want %v", got.Values, r.Values)
	}
	return nil
}

func same(a, b *Record) bool {
	for i := range a.In.Columns {
		if compare(a.Values[i], b.Values[i]) != 0 {
			return false
		}
	}
	return true
}

// wantInternal returns an error unless err is launch.ErrInternal, which a
// caller's mistake is.
func wantInternal(doing string, err error) error {
	if !errors.Is(err, launch.ErrInternal) {
		return fmt.Errorf("%s gives %v, want launch.ErrInternal", doing, err)
	}
	return nil
}

// first returns the first error.
func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
