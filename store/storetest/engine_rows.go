package storetest

import (
	"errors"
	"fmt"
	"slices"

	"example.com/piworkflows/store"
)

var errRefused = errors.New("refused")

func checkPutGet(e store.Engine) error {
	r := launchRow(1)
	err := e.Update(bg, func(tx store.Rows) error {
		if err := tx.Put(nil, r); err != nil {
			return err
		}
		return wantIn(tx, r, true)
	})
	if err != nil {
		return fmt.Errorf("within the update: %w", err)
	}
	return want(e, r, true)
}

func checkAbsent(e store.Engine) error { return want(e, launchRow(1), false) }

func checkCopies(e store.Engine) error {
	mine := launchRow(1)
	if err := put(e, mine); err != nil {
		return err
	}
	for i := range mine.Values {
		for j := range mine.Values[i].Blob {
			mine.Values[i].Blob[j] ^= 1
		}
	}
	err := e.Update(bg, func(tx store.Rows) error {
		got := key(launchRow(1))
		if _, err := tx.Get(got); err != nil {
			return err
		}
		for i := range got.Values {
			for j := range got.Values[i].Blob {
				got.Values[i].Blob[j] ^= 1
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return want(e, launchRow(1), true)
}

func checkRefused(e store.Engine) error {
	if err := put(e, launchRow(1)); err != nil {
		return err
	}
	late := e.Update(bg, func(tx store.Rows) error {
		old, changed := launchRow(1), launchRow(1)
		changed.Set("progress", num(7))
		if err := errors.Join(tx.Put(nil, launchRow(2)), tx.Put(old, changed)); err != nil {
			return err
		}
		return errRefused
	})
	early := e.Update(bg, func(store.Rows) error { return errRefused })
	if late != errRefused || early != errRefused {
		return fmt.Errorf("the errors are %v and %v, want the functions' own", late, early)
	}
	return first(
		func() error { return want(e, launchRow(1), true) },
		func() error { return want(e, launchRow(2), false) },
	)
}

func checkChanges(e store.Engine) error {
	r := launchRow(1)
	if err := put(e, r); err != nil {
		return err
	}
	changed := r.Clone()
	changed.Set("progress", num(7))
	changed.Set("input", store.Value{})
	changed.Set("origin_group", text("g"))
	err := e.Update(bg, func(tx store.Rows) error {
		return errors.Join(tx.Put(r, changed), tx.Put(changed, changed.Clone()))
	})
	if err != nil {
		return err
	}
	if err := want(e, changed, true); err != nil {
		return err
	}
	err = e.Update(bg, func(tx store.Rows) error { return tx.Put(changed, changed) })
	return wantInternal("a put of a row as its own old one", err)
}

func checkDuplicate(e store.Engine) error {
	if err := put(e, launchRow(1)); err != nil {
		return err
	}
	other := launchRow(1)
	other.Set("progress", num(7))
	err := e.Update(bg, func(tx store.Rows) error {
		if err := tx.Put(nil, launchRow(2)); err != nil {
			return err
		}
		if tx.Put(nil, other) == nil {
			return errors.New("the second insert was accepted")
		}
		return nil
	})
	return first(
		func() error { return wantInternal("an update that hides a failed put", err) },
		func() error { return want(e, launchRow(1), true) },
		func() error { return want(e, launchRow(2), false) },
	)
}

func checkUpdateAbsent(e store.Engine) error {
	if err := put(e, launchRow(2)); err != nil {
		return err
	}
	changed := launchRow(1)
	changed.Set("progress", num(7))
	for doing, old := range map[string]*Record{"an update of an absent row": launchRow(1), "a changed key": launchRow(2)} {
		err := e.Update(bg, func(tx store.Rows) error { return tx.Put(old, changed) })
		if err := wantInternal(doing, err); err != nil {
			return err
		}
	}
	return want(e, changed, false)
}

func checkUnique(e store.Engine) error {
	keyed := func(n int) *Record {
		r := launchRow(n)
		r.Set("mode", num(1))
		r.Set("session_id", text("s"))
		return r
	}
	ended := keyed(1)
	ended.Set("state", num(7))
	ended.Set("input", store.Value{})
	ended.Set("finished_at", num(9))
	if err := put(e, keyed(1), launchRow(3)); err != nil {
		return err
	}
	err := wantInternal("a second row in a unique index", put(e, keyed(2)))
	if err != nil {
		return err
	}
	err = e.Update(bg, func(tx store.Rows) error {
		old, taken := launchRow(3), keyed(3)
		return tx.Put(old, taken)
	})
	if err := wantInternal("an update into a unique index", err); err != nil {
		return err
	}
	err = e.Update(bg, func(tx store.Rows) error { return errors.Join(tx.Put(keyed(1), ended), tx.Put(nil, keyed(2))) })
	if err != nil {
		return fmt.Errorf("the place in the index is free again: %w", err)
	}
	return want(e, keyed(2), true)
}

// scan returns the named column of what a scan visits.
func scan(e store.Engine, index, column string, limit int, prefix ...store.Value) (got []string, err error) {
	ix := indexOf(index)
	err = e.View(bg, func(tx store.Rows) error {
		n, err := tx.Count(ix, prefix)
		if err != nil {
			return err
		}
		r := &Record{In: ix.Table}
		err = tx.Scan(ix, prefix, limit, r, func() bool {
			v := r.Column(column)
			got = append(got, string(v.Blob)+v.Text+fmt.Sprint(v.Int))
			return true
		})
		if err == nil && (n < len(got) || len(got) < limit && n != len(got)) {
			return fmt.Errorf("count of %s is %d, a scan visits %d", index, n, len(got))
		}
		return err
	})
	return got, err
}

func checkScan(e store.Engine) error {
	const due = "workflow_run_queue_due"
	for _, in := range [][3]int64{{1, 0, 20}, {2, 0, 20}, {3, 0, 10}, {4, 0, -5}, {5, 1, 1}} { // run, claimed, due
		r := launchRow(int(in[0]))
		r.Set("claimed", num(in[1]))
		r.Set("due_at", num(in[2]))
		if in[1] == 1 {
			r.Set("state", num(2))
			r.Set("runner", text("r"))
			r.Set("token_hash", blob("t"))
		}
		if err := put(e, r); err != nil {
			return err
		}
	}
	out := launchRow(6)
	out.Set("due_at", store.Value{})
	if err := put(e, out); err != nil {
		return err
	}
	for _, c := range []struct {
		limit  int
		prefix []store.Value
		want   []string
		why    string
	}{
		{9, nil, []string{"-5", "10", "20", "20", "1"}, "all, by claimed and due; a row outside of a partial index is not in it"},
		{9, []store.Value{num(0)}, []string{"-5", "10", "20", "20"}, "one value of it"},
		{2, []store.Value{num(0)}, []string{"-5", "10"}, "the first two"},
		{9, []store.Value{num(0), num(20)}, []string{"20", "20"}, "two columns"},
		{9, []store.Value{num(2)}, nil, "nothing there"},
		{0, nil, nil, "none asked for"},
		{-1, nil, nil, "none asked for"},
	} {
		got, err := scan(e, due, "due_at", c.limit, c.prefix...)
		if err != nil {
			return err
		}
		if !slices.Equal(got, c.want) {
			return fmt.Errorf("a scan of %v limit %d visits due_at %v, want %v: %s", c.prefix, c.limit, got, c.want, c.why)
		}
	}
	ix, visited := indexOf(due), 0
	err := e.View(bg, func(tx store.Rows) error {
		return tx.Scan(ix, nil, 9, &Record{In: ix.Table}, func() bool { visited++; return visited < 2 })
	})
	if err == nil && visited != 2 {
		err = fmt.Errorf("a scan that was stopped at 2 visits %d", visited)
	}
	return err
}

func stepRow(node string, visit, attempt int64) *Record {
	r := &Record{In: tableOf("workflow_steps")}
	for name, v := range map[string]store.Value{
		"run_id": blob("run0000000000001"), "node": text(node), "visit": num(visit), "attempt": num(attempt),
		"outcome": num(2), "error_code": text("c"), "error_message": text("m"), "began_at": num(1), "happened": num(0), "at": num(visit*10 + attempt),
	} {
		r.Set(name, v)
	}
	return r
}

func checkScanDesc(e store.Engine) error {
	err := put(e, stepRow("a", 1, 1), stepRow("a", 1, 2), stepRow("a", 2, 1), stepRow("b", 1, 1))
	if err != nil {
		return err
	}
	got, err := scan(e, "workflow_steps_latest", "at", 9, blob("run0000000000001"), text("a"))
	if err == nil && !slices.Equal(got, []string{"21", "12", "11"}) {
		err = fmt.Errorf("a descending scan visits %v, want 21, 12, 11", got)
	}
	return err
}

func checkScanAlone(e store.Engine) error {
	if err := put(e, launchRow(1), launchRow(2)); err != nil {
		return err
	}
	ix := indexOf("workflow_run_queue_due")
	err := e.Update(bg, func(tx store.Rows) error {
		_ = tx.Scan(ix, nil, 9, &Record{In: ix.Table}, func() bool {
			_, _ = tx.Get(key(launchRow(1)))
			return true
		})
		return nil
	})
	return wantInternal("an update that reads inside a scan", err)
}
