package deliverytest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
)

// broken is how a bridge is broken. The zero value is a correct one.
type broken struct {
	why  string
	rule string // that finds it
	says string // in the failure

	cannot   deliverytest.Ability
	careless bool // see deliverytest.Options
	loses    bool
	once     bool // does not connect again
	hello    func(*scripted, *delivery.Hello)
	session  func(*scripted, delivery.Session) delivery.Session
	reports  func(*scripted, deliverytest.Reporter) deliverytest.Reporter
}

// recorder notes how a check ended.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	failed   string
	skipped  string
	cleanups []func()
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed += fmt.Sprintf(format, args...)
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// check checks one rule in a bubble, where waiting costs nothing, and returns
// what the failure says.
func check(t *testing.T, rule deliverytest.Rule, f deliverytest.Factory) (failed, skipped string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{T: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			rule.Check(r, f)
		}()
		<-done
		for _, f := range slices.Backward(r.cleanups) {
			f()
		}
		synctest.Wait()
		failed, skipped = r.failed, r.skipped
	})
	return failed, skipped
}

// TestBroken: each broken bridge is found by the rule that it breaks, and each
// rule finds one.
func TestBroken(t *testing.T) {
	found := map[string]bool{}
	for _, b := range brokenBridges {
		t.Run(b.why, func(t *testing.T) {
			var also []string
			for _, rule := range deliverytest.Rules() {
				failed, _ := check(t, rule, pi(b))
				// Some faults show only when two goroutines of the agent meet in one
				// order, which a bubble does not fix: such a rule looks again.
				for try := 1; rule.Name == b.rule && !strings.Contains(failed, b.says) && try < 10; try++ {
					failed, _ = check(t, rule, pi(b))
				}
				switch {
				case rule.Name != b.rule && failed != "":
					also = append(also, rule.Name)
				case rule.Name == b.rule && !strings.Contains(failed, b.says):
					t.Errorf("rule %s has to find it and say %q; it said:\n%s", b.rule, b.says, failed)
				case rule.Name == b.rule:
					found[b.rule] = true
					for _, want := range []string{rule.Says, rule.Fix} {
						if !strings.Contains(failed, want) {
							t.Errorf("the failure does not explain the rule:\n%s", failed)
						}
					}
				}
			}
			t.Logf("found by %s; also: %s", b.rule, strings.Join(also, " "))
		})
	}
	for _, rule := range deliverytest.Rules() {
		if !found[rule.Name] {
			t.Errorf("no broken bridge shows that rule %s finds anything", rule.Name)
		}
	}
}

// TestCannot: what an agent cannot do is skipped by name, and no more.
func TestCannot(t *testing.T) {
	names := map[string]bool{}
	for _, rule := range deliverytest.Rules() {
		if names[rule.Name] || rule.Says == "" || rule.Fix == "" {
			t.Errorf("rule %q is there twice or explains nothing", rule.Name)
		}
		names[rule.Name] = true
		all := deliverytest.Durability<<10 - 1
		failed, skipped := check(t, rule, pi(broken{cannot: all}))
		if failed != "" || (skipped != "") != (rule.Needs != 0) || !strings.Contains(skipped, rule.Needs.String()) {
			t.Errorf("rule %s needs %q: failed %q, skipped %q", rule.Name, rule.Needs, failed, skipped)
		}
	}
}

// wrap changes some of a bridge's answers.
type wrap struct {
	delivery.Session
	send   func(context.Context, delivery.Message) (delivery.Answer, error)
	look   func(context.Context, []string) (delivery.Report, error)
	abort  func(context.Context, string) error
	fenced func()
}

func (w wrap) Send(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
	if w.send == nil {
		return w.Session.Send(ctx, m)
	}
	return w.send(ctx, m)
}

func (w wrap) Look(ctx context.Context, names []string) (delivery.Report, error) {
	if w.look == nil {
		return w.Session.Look(ctx, names)
	}
	return w.look(ctx, names)
}

func (w wrap) Abort(ctx context.Context, message string) error {
	if w.abort == nil {
		return w.Session.Abort(ctx, message)
	}
	return w.abort(ctx, message)
}

func (w wrap) Fenced() {
	if w.fenced == nil {
		w.Session.Fenced()
	} else {
		w.fenced()
	}
}

// message makes a bridge that changes what it is to send.
func message(change func(*scripted, *delivery.Message)) func(*scripted, delivery.Session) delivery.Session {
	return func(s *scripted, b delivery.Session) delivery.Session {
		return wrap{Session: b, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
			change(s, &m)
			return b.Send(ctx, m)
		}}
	}
}

// forces makes a bridge that sends in spite of the answer.
func forces(anyway func(*scripted, delivery.Message, delivery.Answer) bool) func(*scripted, delivery.Session) delivery.Session {
	return func(s *scripted, b delivery.Session) delivery.Session {
		return wrap{Session: b, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
			a, err := b.Send(ctx, m)
			if err == nil && anyway(s, m, a) {
				if a.Verdict != delivery.Taken {
					s.process().SendMessage(m)
				}
				a = delivery.Answer{Verdict: delivery.Taken}
			}
			return a, err
		}}
	}
}

// looks makes a bridge that changes what it saw.
func looks(change func(*scripted, []string, *delivery.Report)) func(*scripted, delivery.Session) delivery.Session {
	return func(s *scripted, b delivery.Session) delivery.Session {
		return wrap{Session: b, look: func(ctx context.Context, names []string) (delivery.Report, error) {
			r, err := b.Look(ctx, names)
			change(s, names, &r)
			return r, err
		}}
	}
}

// evidence makes a bridge that changes what it says of each message.
func evidence(change func(*scripted, *delivery.Evidence)) func(*scripted, delivery.Session) delivery.Session {
	return looks(func(s *scripted, _ []string, r *delivery.Report) {
		for i := range r.Evidence {
			change(s, &r.Evidence[i])
		}
	})
}

// reporter changes some of a bridge's reports.
type reporter struct {
	deliverytest.Reporter
	start    func(ctx context.Context, turn, message string) (delivery.Ownership, error)
	replied  func(turn string, r delivery.Reply)
	settled  func(ctx context.Context, turn string, end delivery.End, byPerson bool) error
	input    func(context.Context) error
	changed  func()
	shutdown func(context.Context) error
	close    func()
}

func (r reporter) TurnStarted(ctx context.Context, turn, message string) (delivery.Ownership, error) {
	if r.start == nil {
		return r.Reporter.TurnStarted(ctx, turn, message)
	}
	return r.start(ctx, turn, message)
}

func (r reporter) Replied(turn string, said delivery.Reply) {
	if r.replied == nil {
		r.Reporter.Replied(turn, said)
	} else {
		r.replied(turn, said)
	}
}

func (r reporter) TurnSettled(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
	if r.settled == nil {
		return r.Reporter.TurnSettled(ctx, turn, end, byPerson)
	}
	return r.settled(ctx, turn, end, byPerson)
}

func (r reporter) Input(ctx context.Context) error {
	if r.input == nil {
		return r.Reporter.Input(ctx)
	}
	return r.input(ctx)
}

func (r reporter) Changed() {
	if r.changed == nil {
		r.Reporter.Changed()
	} else {
		r.changed()
	}
}

func (r reporter) Shutdown(ctx context.Context) error {
	if r.shutdown == nil {
		return r.Reporter.Shutdown(ctx)
	}
	return r.shutdown(ctx)
}

func (r reporter) Close() {
	if r.close == nil {
		r.Reporter.Close()
	} else {
		r.close()
	}
}

// reports makes a bridge that reports otherwise.
func reports(change func(*scripted, *reporter)) func(*scripted, deliverytest.Reporter) deliverytest.Reporter {
	return func(s *scripted, r deliverytest.Reporter) deliverytest.Reporter {
		w := &reporter{Reporter: r}
		change(s, w)
		return w
	}
}
