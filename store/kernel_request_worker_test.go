package store_test

import (
	"errors"
	"testing"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// A worker does not answer for its node: an output of its own, and any result
// while an answer is checked, is refused and changes nothing. That its prompt
// function failed, it may say.
func TestWorkerDoesNotAnswer(t *testing.T) {
	failed := launch.NewSafeError(launch.CodeNodeFailed, "no prompt")
	for _, c := range []struct {
		why    string
		kind   run.Kind
		asks   bool // and is answered, so that its code checks the answer
		change func(*store.Propose)
		want   error
	}{
		{"nobody decided", run.Decision, false, func(p *store.Propose) { p.Outcome, p.Output = run.OK, []byte(`"approve"`) }, launch.ErrNotAllowed},
		{"nobody answered", run.Checkpoint, false, func(p *store.Propose) { p.Outcome, p.Output = run.OK, []byte(`{"n":1}`) }, launch.ErrNotAllowed},
		{"the prompt function failed", run.Checkpoint, false, func(p *store.Propose) { p.Outcome, p.Failure = run.Failed, failed }, nil},
		{"the answer is not checked yet", run.Checkpoint, true, func(p *store.Propose) { p.Outcome, p.Output = run.OK, []byte(`{"n":1}`) }, launch.ErrNotAllowed},
		{"nor can the node fail meanwhile", run.Checkpoint, true, func(p *store.Propose) { p.Outcome, p.Failure = run.Failed, failed }, launch.ErrNotAllowed},
	} {
		t.Run(c.why, func(t *testing.T) {
			plan := planOf(c.kind)
			if c.asks {
				plan = planOf(c.kind, validates)
			}
			r := newBed(t).start("", plan)
			r.claim()
			if c.asks {
				r.ask()
				r.answer()
				r.claim()
			}
			before := must(r.all())
			p := r.proposal()
			c.change(&p)
			if _, err := try(r.bed, p); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			after := must(r.all())
			if c.want != nil && len(after.Events) != len(before.Events) {
				t.Fatal("a refused proposal left an event")
			}
			if c.asks && r.request().State != request.Validating {
				t.Fatalf("the request is %s", r.request().State)
			}
		})
	}
}
