package yardstick

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestCompareRunsEachIndexOnce(t *testing.T) {
	const reps = 3
	var (
		mu     sync.Mutex
		seen   = map[int]bool{}
		twice  int
		order  []string
		closed atomic.Int32
	)
	note := func(name string) {
		if len(order) == 0 || order[len(order)-1] != name {
			order = append(order, name)
		}
	}
	arm := func(name string, callers int, track bool) Arm {
		return Arm{Name: name, Callers: callers, Commands: 2, Setup: func(dir string) (func(int) error, func() error, error) {
			if found, err := os.ReadDir(dir); err != nil || len(found) != 0 {
				t.Errorf("%s: directory holds %v, %v", name, found, err)
			}
			op := func(i int) error {
				mu.Lock()
				defer mu.Unlock()
				note(name)
				if track {
					if seen[i] {
						twice++
					}
					seen[i] = true
				}
				return nil
			}
			return op, func() error { closed.Add(1); return nil }, nil
		}}
	}
	reports, err := compare(t.TempDir(), reps, time.Millisecond, []Arm{arm("a", 0, false), arm("b", 4, true), arm("c", 1, false)})
	if err != nil {
		t.Fatal(err)
	}
	if twice != 0 {
		t.Errorf("%d indexes came twice", twice)
	}
	for i := range len(seen) {
		if !seen[i] {
			t.Fatalf("index %d of %d never came", i, len(seen))
		}
	}
	// The warm-ups, then to, fro and to; an arm that follows itself shows once.
	want := strings.Split("a b c a b c b a b c", " ")
	if !slices.Equal(order, want) {
		t.Errorf("got order %v, want %v", order, want)
	}
	if closed.Load() != 3 {
		t.Errorf("%d arms were closed, want 3", closed.Load())
	}
	for i, r := range reports {
		if r.name != string("abc"[i]) || len(r.rates) != reps || len(r.p50s) != reps || slices.Min(r.rates) <= 0 {
			t.Errorf("report %d: %+v", i, r)
		}
	}
}

func TestCompareErrorsNameTheArm(t *testing.T) {
	boom := errors.New("boom")
	var closes int
	ok := Arm{Name: "fine", Setup: func(string) (func(int) error, func() error, error) {
		return func(int) error { return nil }, func() error { closes++; return nil }, nil
	}}
	failing := func(setup error, at int, close error) Arm {
		return Arm{Name: "broken", Setup: func(string) (func(int) error, func() error, error) {
			return func(i int) error {
				if i == at {
					return boom
				}
				return nil
			}, func() error { return close }, setup
		}}
	}
	for _, tc := range []struct {
		reason string
		arms   []Arm
		want   string
	}{
		{"no arms", nil, "at least one arm"},
		{"two of a name", []Arm{ok, ok}, `two arms are named "fine"`},
		{"setup", []Arm{ok, failing(boom, -1, nil)}, "set up broken: boom"},
		{"the first op", []Arm{ok, failing(nil, 0, nil)}, "warm up broken: boom"},
		{"an op after the warm-up", []Arm{ok, failing(nil, warmOps, nil)}, "run broken: boom"},
		{"close", []Arm{ok, failing(nil, -1, boom)}, "close broken: boom"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			closes = 0
			_, err := compare(t.TempDir(), 1, time.Millisecond, tc.arms)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
			if want := min(len(tc.arms), 1); closes != want {
				t.Errorf("the good arm was closed %d times, want %d", closes, want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		reason string
		in     []float64
		want   float64
	}{
		{"one", []float64{3}, 3},
		{"odd, unsorted", []float64{9, 1, 2}, 2},
		{"even: between the middle two", []float64{4, 1, 3, 2}, 2.5},
	} {
		if got := median(tc.in); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	}
}
