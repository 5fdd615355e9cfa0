package engine

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Option declares something more about a node. One that does not fit the node
// is refused by Build.
type Option interface{ apply(n *node) }

type option func(n *node)

func (o option) apply(n *node) { o(n) }

func (n *node) options(opts []Option) {
	for _, o := range opts {
		if o == nil {
			n.g.failNode(n.name, "an option is nil")
			continue
		}
		o.apply(n)
	}
}

// only refuses an option on a node of another kind.
func (n *node) only(what string, kinds ...run.Kind) bool {
	if slices.Contains(kinds, n.kind) {
		return true
	}
	n.g.failNode(n.name, "%s is not for a node of kind %s", what, n.kind)
	return false
}

// Budget bounds the active time of one attempt, up to [run.MaxBudget]: while its
// code runs, or while a turn of its request is open. What uses it up ends as
// timed_out (rule engine/budget).
func Budget(d time.Duration) Option {
	return option(func(n *node) {
		if n.only("Budget", run.Compute, run.Action, run.Agent, run.Assistant) {
			if n.budget = d; d <= 0 {
				n.g.failNode(n.name, "Budget must be positive")
			}
		}
	})
}

// Retry tries a visit again after one of the outcomes, [Failed] or [TimedOut], at
// most max times, after a backoff that doubles each time; 0 is none.
func Retry(max int, backoff time.Duration, on ...Outcome) Option {
	return option(func(n *node) {
		if max < 1 || max > run.MaxRetries {
			n.g.failNode(n.name, "Retry has %d retries; it must have 1 to %d", max, run.MaxRetries)
			return
		}
		n.retry = &run.Retry{Max: uint32(max), Backoff: backoff, On: slices.Clone(on)}
	})
}

// Validate checks an answer with code of its own, beyond its form, before it is
// accepted. What it says is shown to the model only where it uses [Explain]. It
// is stopped after [ValidateWithin] and may be run again.
func Validate[O any](check func(ctx context.Context, out O) error) Option {
	return option(func(n *node) {
		switch {
		case !n.only("Validate", run.Agent, run.Assistant, run.Checkpoint):
		case check == nil:
			n.g.failNode(n.name, "Validate needs a function")
		case n.out != reflect.TypeFor[O]():
			n.g.failNode(n.name, "Validate takes %s, but the node's output is %s", reflect.TypeFor[O](), n.out)
		default:
			n.ask.Validates = true
			n.check = func(ctx context.Context, raw []byte) ([]byte, error) {
				var out O
				if err := canon.Decode(raw, launch.MaxOutput, "output", &out); err != nil {
					return nil, Explain(refusalText(err), err)
				}
				if err := check(ctx, out); err != nil {
					return nil, err
				}
				return encode(out)
			}
		}
	})
}

// ValidateWithin is how long validation code may run.
const ValidateWithin = 30 * time.Second

func refusalText(err error) string {
	if r, ok := errors.AsType[*launch.Refusal](err); ok {
		return r.Message
	}
	return "does not decode"
}

// Updates lets the model report progress on an agent's step.
func Updates() Option {
	return option(func(n *node) {
		if n.only("Updates", run.Agent) {
			n.ask.Updates = true
		}
	})
}

// Expires ends a checkpoint or a decision that nobody answers within d on the
// wall clock, also while no host runs: with its [Default], or as timed_out.
func Expires(d time.Duration) Option {
	return option(func(n *node) {
		if n.only("Expires", run.Checkpoint, run.Decision) {
			if n.ask.Expires = d; d <= 0 {
				n.g.failNode(n.name, "Expires must be positive")
			}
		}
	})
}

// Default is the answer of a checkpoint, or the choice of a decision, that is
// taken when it expires.
func Default[O any](answer O) Option {
	return option(func(n *node) {
		if !n.only("Default", run.Checkpoint, run.Decision) {
			return
		}
		want := n.out
		if n.kind == run.Decision {
			field, _ := n.out.FieldByName("Choice")
			want = field.Type
		}
		if want != reflect.TypeFor[O]() {
			n.g.failNode(n.name, "Default is %s, but the answer is %s", reflect.TypeFor[O](), want)
			return
		}
		raw, err := encode(answer)
		if err != nil {
			n.g.failNode(n.name, "Default cannot be encoded")
			return
		}
		n.ask.Default = json.RawMessage(raw)
	})
}

// Audience says for people who is to decide, up to 200 bytes.
func Audience(who string) Option {
	return option(func(n *node) {
		if n.only("Audience", run.Decision) {
			n.ask.Audience = who
		}
	})
}

// TextFor lets the person write up to max characters with that choice of a
// decision, or makes it necessary.
func TextFor[C ~string](choice C, max int, required bool) Option {
	return option(func(n *node) {
		if n.only("TextFor", run.Decision) {
			n.ask.Texts = append(n.ask.Texts, run.TextInput{Choice: string(choice), Max: max, Required: required})
		}
	})
}

// Final marks a notification as the last word of the run, not progress.
func Final() Option {
	return option(func(n *node) {
		if n.only("Final", run.Notify) {
			n.final = true
		}
	})
}

// Approved lets an action take effect only after that decision was made with one
// of the choices, once, and only for exactly what was decided: the decision and
// the action read equal values (rule engine/approval).
func Approved[C Choice[C]](decision DecisionNode[C], choices ...C) Option {
	return option(func(n *node) {
		d := decision.node()
		switch {
		case !n.only("Approved", run.Action):
		case d == nil:
			n.g.failNode(n.name, "Approved names a zero handle")
		case d.g != n.g:
			n.g.failNode(n.name, "Approved names a decision of another workflow's builder")
		case d.reading != n.reading:
			n.g.failNode(n.name, "reads %s, but its approval is for %s; let both read the same source", n.reading, d.reading)
		case len(choices) == 0:
			n.g.failNode(n.name, "Approved needs a choice that approves")
		default:
			n.approval = d.name
			n.reads = insert(n.reads, d.name) // it is surely decided before
			for _, c := range choices {
				n.approving = append(n.approving, string(c))
			}
		}
	})
}

// MustExitZero makes a shell command that exits with another code fail its node.
func MustExitZero() Option {
	return option(func(n *node) {
		if n.shell == nil {
			n.g.failNode(n.name, "MustExitZero is for shell commands")
			return
		}
		n.shell.mustExitZero = true
	})
}
