package engine

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Option declares something of a node beyond its code. Each is given once,
// [TextFor] once for each choice. Build refuses one that does not fit the node's
// kind or types.
type Option interface{ apply(n *node) }

type option struct {
	name string
	set  func(n *node)
}

func (o option) apply(n *node) {
	if slices.Contains(n.given, o.name) {
		n.fail("option %s is given twice", o.name)
		return
	}
	if o.name != textFor {
		n.given = append(n.given, o.name)
	}
	o.set(n)
}

// asked is an option of a node that asks.
func asked(name string, set func(n *node, a *run.Ask)) Option {
	return option{name, func(n *node) {
		if n.plan.Ask == nil {
			n.fail("option %s is for a node that asks, not for %s", name, n.plan.Kind)
			return
		}
		set(n, n.plan.Ask)
	}}
}

// takes checks that an option is of the type that answers the node.
func takes[T any](n *node, name string) bool {
	if t := reflect.TypeFor[T](); t != n.answer {
		n.fail("option %s is of type %s, but what answers the node is a %s", name, t, n.answer)
		return false
	}
	return true
}

func (n *node) options(opts []Option) {
	for _, o := range opts {
		if o == nil {
			n.fail("has a nil option")
			continue
		}
		o.apply(n)
	}
	if a := n.plan.Ask; a != nil && !a.Validates && n.loose != nil {
		n.fail("an answer that fits its form may not decode, because %s has a text form of its own; use a plain string, or add Validate", n.loose)
	}
}

// Budget bounds the active time of each attempt: while its code runs, or a turn
// of its request. It is at most [run.MaxBudget]. Without it there is no bound.
func Budget(d time.Duration) Option {
	return option{"Budget", func(n *node) {
		if n.plan.Budget = d; d <= 0 {
			n.fail("its budget is %s; it must be above 0", d)
		}
	}}
}

// Retry tries a visit again that ended with one of the outcomes [Failed] and
// [TimedOut], at most max times (1 to [run.MaxRetries]), after a backoff that
// doubles and is at most [run.MaxBackoff].
func Retry(max int, backoff time.Duration, on ...Outcome) Option {
	return option{"Retry", func(n *node) {
		n.plan.Retry = &run.Retry{Max: uint32(min(uint(max), run.MaxRetries+1)), Backoff: backoff, On: slices.Sorted(slices.Values(on))}
	}}
}

// Validate checks an answer beyond its form, before it is accepted. The check
// runs under the run's claim for at most 30 s. What an error says is shown where
// it uses [Explain], so that whoever answered can correct it.
func Validate[O any](check func(ctx context.Context, in O) error) Option {
	const name = "Validate"
	return asked(name, func(n *node, a *run.Ask) {
		if a.Validates = true; !takes[O](n, name) {
			return
		}
		if check == nil {
			n.fail("option %s needs a function", name)
		}
		n.judge = func(ctx context.Context, candidate []byte) error {
			var in O
			err := canon.Decode(candidate, launch.MaxOutput, "output", &in)
			if r, ok := errors.AsType[*launch.Refusal](err); ok {
				return Explain(r.Message, nil)
			}
			return check(ctx, in)
		}
	})
}

// Updates lets the model report progress while it works on an agent's task.
func Updates() Option {
	return asked("Updates", func(_ *node, a *run.Ask) { a.Updates = true })
}

// Expires ends a checkpoint or a decision that nobody answers that long, on the
// wall clock and at most [run.MaxBudget]: with the [Default], else as timed out.
func Expires(after time.Duration) Option {
	return asked("Expires", func(n *node, a *run.Ask) {
		if a.Expires = after; after <= 0 {
			n.fail("it expires after %s; that must be above 0", after)
		}
	})
}

// Default is what answers a checkpoint, or the choice of a decision, that
// [Expires].
func Default[O any](answer O) Option {
	const name = "Default"
	return asked(name, func(n *node, a *run.Ask) {
		if !takes[O](n, name) {
			return
		}
		err := guard(func() (err error) {
			a.Default, err = encode(answer)
			return err
		})
		if err != nil {
			n.fail("its default %s", explained(err, "cannot be encoded: its own code panicked"))
		}
	})
}

// Audience says who is asked to decide: one line of at most [run.MaxAudience]
// bytes that channels show.
func Audience(who string) Option {
	return asked("Audience", func(n *node, a *run.Ask) {
		if a.Audience = who; who == "" {
			n.fail("its audience is empty; leave the option out")
		}
	})
}

const textFor = "TextFor"

// TextFor lets the person who decides write to a choice, at most max characters
// (1 to [run.MaxText]).
func TextFor[C ~string](choice C, max int, required bool) Option {
	return asked(textFor, func(n *node, a *run.Ask) {
		if takes[C](n, textFor) {
			a.Texts = append(a.Texts, run.TextInput{Choice: string(choice), Max: max, Required: required})
		}
	})
}

// Final marks what a notify says as the last word of its workflow, not progress.
func Final() Option {
	return option{"Final", func(n *node) { n.plan.Final = true }}
}

// Approved lets an action take effect only after the decision picked one of the
// choices, once for each decision, and only on exactly the value that was
// decided about: action and decision read the same type (rule engine/approval).
func Approved[C Choice[C]](decision DecisionNode[C], choices ...C) Option {
	return option{"Approved", func(n *node) {
		d := decision.n
		switch {
		case d == nil:
			n.fail("its approval is a zero handle")
		case d.g == n.g && d.in == nil:
			n.fail("its approval is not defined yet; define decision %s first", cut(d.plan.Path))
		case d.g != n.g:
			n.fail("its approval is of another workflow's builder")
		case d.in != n.in:
			n.fail("reads %s, but decision %s is about %s; what is approved must be what is done", n.in, cut(d.plan.Path), d.in)
		default:
			n.plan.Approval = d.plan.Path
			for _, c := range choices {
				n.plan.Approving = append(n.plan.Approving, string(c))
			}
		}
	}}
}
