package yardstick

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// repetitions of a comparison; -benchtime=15x, say, asks for more.
	repetitions, mostRepetitions = 5, 50
	// turn is about how long an arm runs in one repetition. Its warm-up decides how many ops that
	// is; from then on the number is fixed.
	turn = 250 * time.Millisecond
	// warmOps fill more than the 1,000 log frames after which checkpoints begin and the log is
	// reused instead of grown, which makes a commit cheaper; a slow arm stops at warmLimit.
	warmOps, warmLimit = 1500, 3 * time.Second
)

// Compare measures the arms in turns, to and fro, and reports for each arm after the first the medians
// over the repetitions of two ratios to the first arm in the same repetition:
//
//	NAME/FIRST-rate    commands per second
//	NAME/FIRST-p50     median time of one op
//
// and of the first arm, so that the ratios can be placed, FIRST/s and FIRST-p50-µs. Only ratios can
// be compared between runs, and of a busy machine not even those. There are five repetitions, with
// -benchtime=Nx N if that is more; an arm costs about its warm-up plus a quarter of a second for each.
// An error of an arm ends the benchmark.
func Compare(b *testing.B, arms ...Arm) {
	b.Helper()
	reps := min(max(repetitions, b.N), mostRepetitions)
	reports, err := compare(b.TempDir(), reps, turn, arms)
	if err != nil {
		b.Fatal(err)
	}
	first := reports[0]
	b.ReportMetric(0, "ns/op") // the time of the whole comparison says nothing
	b.ReportMetric(median(first.rates), first.name+"/s")
	b.ReportMetric(median(first.p50s)*1e6, first.name+"-p50-µs")
	for _, r := range reports[1:] {
		name := r.name + "/" + first.name
		b.ReportMetric(median(ratios(r.rates, first.rates)), name+"-rate")
		b.ReportMetric(median(ratios(r.p50s, first.p50s)), name+"-p50")
	}
}

// report is what an arm did: one entry per repetition.
type report struct {
	name  string
	rates []float64 // commands per second
	p50s  []float64 // seconds per op
}

// compare opens each arm in its own directory under dir, warms it and runs the repetitions.
func compare(dir string, reps int, turn time.Duration, arms []Arm) (reports []report, err error) {
	runners := make([]*runner, 0, len(arms))
	defer func() {
		for _, r := range runners {
			if closeErr := r.close(); err == nil && closeErr != nil {
				err = fmt.Errorf("close %s: %w", r.Name, closeErr)
			}
		}
	}()
	if len(arms) == 0 {
		return nil, fmt.Errorf("nothing to compare: name at least one arm")
	}
	for _, arm := range arms {
		if slices.ContainsFunc(runners, func(r *runner) bool { return r.Name == arm.Name }) {
			return nil, fmt.Errorf("two arms are named %q: give each its own name", arm.Name)
		}
		r, err := newRunner(dir, arm)
		if err != nil {
			return nil, fmt.Errorf("set up %s: %w", arm.Name, err)
		}
		runners = append(runners, r)
		reports = append(reports, report{name: arm.Name})
		if err := r.warm(turn); err != nil {
			return nil, fmt.Errorf("warm up %s: %w", arm.Name, err)
		}
	}
	for rep := range reps {
		for i := range runners {
			if rep%2 == 1 {
				i = len(runners) - 1 - i // so that nobody always inherits the same neighbour's write-back
			}
			rate, p50, err := runners[i].measure()
			if err != nil {
				return nil, fmt.Errorf("run %s: %w", runners[i].Name, err)
			}
			reports[i].rates = append(reports[i].rates, rate)
			reports[i].p50s = append(reports[i].p50s, p50)
		}
	}
	return reports, nil
}

// runner is an arm that has been set up.
type runner struct {
	Arm
	op    func(i int) error
	close func() error
	used  int             // values of i handed out in finished turns
	times []time.Duration // one per op of a turn; its length is the fixed number of ops
}

func newRunner(dir string, arm Arm) (*runner, error) {
	arm.Callers, arm.Commands = max(arm.Callers, 1), max(arm.Commands, 1)
	dir = filepath.Join(dir, arm.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	op, close, err := arm.Setup(dir)
	if err != nil {
		return nil, err
	}
	if close == nil {
		close = func() error { return nil }
	}
	return &runner{Arm: arm, op: op, close: close}, nil
}

// warm runs the arm past its start-up costs and fixes how many ops take about one turn.
func (r *runner) warm(turn time.Duration) error {
	const parts = 10
	r.times = make([]time.Duration, max(warmOps/parts, r.Callers))
	var last time.Duration
	began := time.Now()
	for done := 0; done < warmOps && time.Since(began) < warmLimit; done += len(r.times) {
		var err error
		if last, err = r.turn(); err != nil {
			return err
		}
	}
	ops := float64(len(r.times)) * turn.Seconds() / max(last.Seconds(), 1e-6)
	r.times = make([]time.Duration, max(int(min(ops, 1e6)), r.Callers))
	return nil
}

// measure runs one turn and returns its commands per second and its median seconds per op.
func (r *runner) measure() (rate, p50 float64, err error) {
	took, err := r.turn()
	if err != nil {
		return 0, 0, err
	}
	seconds := make([]float64, len(r.times))
	for i, t := range r.times {
		seconds[i] = t.Seconds()
	}
	return float64(len(r.times)*r.Commands) / took.Seconds(), median(seconds), nil
}

// turn runs len(r.times) ops on all callers and returns how long they took together. After an error
// no caller begins another op.
func (r *runner) turn() (time.Duration, error) {
	var (
		next   atomic.Int64
		failed atomic.Pointer[error]
		all    sync.WaitGroup
	)
	work := func() {
		for failed.Load() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(r.times) {
				return
			}
			began := time.Now()
			if err := r.op(r.used + i); err != nil {
				failed.CompareAndSwap(nil, &err)
				return
			}
			r.times[i] = time.Since(began)
		}
	}
	began := time.Now()
	for range r.Callers - 1 {
		all.Go(work)
	}
	work() // a lone caller runs here, without a second goroutine in the picture
	all.Wait()
	took := time.Since(began)
	r.used += len(r.times)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return took, nil
}

// ratios divides pairwise.
func ratios(values, by []float64) []float64 {
	out := make([]float64, len(values))
	for i := range values {
		out[i] = values[i] / by[i]
	}
	return out
}

// median sorts a copy; of an even number it takes the mean of the two in the middle.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
