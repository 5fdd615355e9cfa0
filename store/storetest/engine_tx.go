package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

func checkSnapshot(e store.Engine) error {
	if err := put(e, launchRow(1)); err != nil {
		return err
	}
	err := e.View(bg, func(tx store.Rows) error {
		updated := make(chan error)
		go func() { updated <- put(e, launchRow(2)) }()
		if err := <-updated; err != nil {
			return err
		}
		return first(
			func() error { return wantIn(tx, launchRow(1), true) },
			func() error { return wantIn(tx, launchRow(2), false) },
		)
	})
	if err != nil {
		return err
	}
	return want(e, launchRow(2), true)
}

func checkViewPut(e store.Engine) error {
	err := e.View(bg, func(tx store.Rows) error {
		_ = tx.Put(nil, launchRow(1))
		return nil
	})
	return first(
		func() error { return wantInternal("a view that puts", err) },
		func() error { return want(e, launchRow(1), false) },
	)
}

func checkVersion(e store.Engine) error {
	seen := map[int64]bool{}
	for i := range 3 {
		if err := put(e, launchRow(i)); err != nil {
			return err
		}
		a, err := e.Version(bg)
		if err != nil {
			return err
		}
		_ = e.Update(bg, func(store.Rows) error { return errRefused })
		if err := want(e, launchRow(i), true); err != nil {
			return err
		}
		b, err := e.Version(bg)
		if err != nil {
			return err
		}
		if seen[a] || a != b {
			return fmt.Errorf("the version is %d after commit %d, and %d a while later", a, i+1, b)
		}
		seen[a] = true
	}
	return nil
}

func checkCancelled(e store.Engine) error {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	ran := false
	err := e.Update(ctx, func(store.Rows) error { ran = true; return nil })
	if ran || !errors.Is(err, context.Canceled) {
		return fmt.Errorf("under a cancelled context the function runs: %v, and the answer is %v", ran, err)
	}
	// A context that ends during the function changes nothing any more.
	ctx, cancel = context.WithCancel(bg)
	err = e.Update(ctx, func(tx store.Rows) error {
		cancel()
		return tx.Put(nil, launchRow(1))
	})
	if err != nil {
		return fmt.Errorf("a context that ends while the function runs gives %w", err)
	}
	return want(e, launchRow(1), true)
}

func checkPanic(e store.Engine) error {
	for i, fn := range []func(tx store.Rows) error{
		func(store.Rows) error { panic("before a put") },
		func(tx store.Rows) error { _ = tx.Put(nil, launchRow(1)); panic("after a put") },
		func(tx store.Rows) error {
			if err := tx.Put(nil, launchRow(1)); err != nil {
				return err
			}
			ix := indexOf("workflow_run_queue_due")
			return tx.Scan(ix, nil, 9, &Record{In: ix.Table}, func() bool { panic("inside a scan") })
		},
	} {
		if err := wantInternal(fmt.Sprintf("panic %d", i+1), e.Update(bg, fn)); err != nil {
			return err
		}
	}
	err := e.View(bg, func(store.Rows) error { panic("in a view") })
	return first(
		func() error { return wantInternal("a panic in a view", err) },
		func() error { return want(e, launchRow(1), false) },
		func() error { return put(e, launchRow(1)) },
	)
}

func checkEscaped(e store.Engine) error {
	var escaped store.Rows
	for _, begin := range []func(context.Context, func(store.Rows) error) error{e.Update, e.View} {
		if err := begin(bg, func(tx store.Rows) error { escaped = tx; return nil }); err != nil {
			return err
		}
		if _, err := escaped.Get(key(launchRow(1))); err == nil {
			return errors.New("rows can be used after their function returned")
		}
	}
	return nil
}

func checkClosed(e store.Engine) error {
	if err := e.Close(); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("the second Close: %w", err)
	}
	_, version := e.Version(bg)
	for doing, err := range map[string]error{
		"Update":  e.Update(bg, func(store.Rows) error { return nil }),
		"View":    e.View(bg, func(store.Rows) error { return nil }),
		"Version": version,
	} {
		if !errors.Is(err, launch.ErrClosed) {
			return fmt.Errorf("%s after Close gives %v", doing, err)
		}
	}
	return nil
}

func checkNeighbours(e store.Engine) error {
	const callers, each = 64, 12
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				n := c*each + i
				mine := fmt.Errorf("refusal %d", n)
				err := e.Update(bg, func(tx store.Rows) error {
					switch i % 6 {
					case 1: // refused before a put
						return mine
					case 3: // refused after a put
						return errors.Join(tx.Put(nil, launchRow(n)), mine)
					case 4: // a put that fails
						return errors.Join(tx.Put(nil, launchRow(n)), tx.Put(nil, launchRow(n)))
					case 5:
						_ = tx.Put(nil, launchRow(n))
						panic("after a put")
					}
					return tx.Put(nil, launchRow(n))
				})
				ok := true
				switch i % 6 {
				case 0, 2:
					ok = err == nil
				case 1, 3:
					ok = errors.Is(err, mine)
				default:
					ok = errors.Is(err, launch.ErrInternal)
				}
				if !ok && errs[c] == nil {
					errs[c] = fmt.Errorf("caller %d, update %d: %v", c, i, err)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for n := range callers * each {
		if err := want(e, launchRow(n), n%each%6 == 0 || n%each%6 == 2); err != nil {
			return fmt.Errorf("update %d: %w", n%each, err)
		}
	}
	return nil
}

func checkSerial(e store.Engine) error {
	const callers, each = 8, 20
	if err := put(e, launchRow(1)); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		wg.Go(func() {
			for range each {
				errs[c] = errors.Join(errs[c], e.Update(bg, func(tx store.Rows) error {
					r := key(launchRow(1))
					if _, err := tx.Get(r); err != nil {
						return err
					}
					old := r.Clone()
					r.Set("progress", num(r.Column("progress").Int+1))
					return tx.Put(old, r)
				}))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r := launchRow(1)
	r.Set("progress", num(callers*each))
	return want(e, r, true)
}
