package engine

import (
	"context"
	"errors"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// ask runs the code that writes what the node asks.
func (x *execution) ask(ctx context.Context, in any) (Proposal, error) {
	var text Presentation
	err := guard(func() (err error) {
		text, err = x.n.prompt(ctx, in)
		return err
	})
	if err != nil {
		return x.failed(ctx, err), nil
	}
	p := x.proposal(0)
	p.Ask = &Ask{Title: text.Title, Task: text.Text}
	if x.n.kind == run.Decision {
		if p.Ask.Subject, err = digestOf(in); err != nil {
			return x.fail("decides about a value that cannot be encoded"), nil
		}
	}
	return p, nil
}

// digestOf identifies a value by its canonical JSON.
func digestOf(v any) (launch.Digest, error) {
	raw, err := encode(v)
	if err == nil {
		raw, err = canon.Canonical(raw)
	}
	return launch.DigestOf(raw), err
}

// reserve asks for the reservation of an approved effect. done is true when the
// action may not run.
func (x *execution) reserve(ctx context.Context, in any) (p Proposal, done bool, err error) {
	print, err := digestOf(in)
	if err != nil {
		return x.fail("reads a value that cannot be encoded"), true, nil
	}
	err = x.host.Reserve(context.WithoutCancel(ctx), print)
	var r *launch.Refusal
	if errors.As(err, &r) && (r.Kind == launch.ErrConflict || r.Kind == launch.ErrNotAllowed) {
		return x.fail("is not approved: " + r.Message), true, nil
	}
	return Proposal{}, false, err
}

// verdict lets the node's own code check an answer.
func (x *execution) verdict(ctx context.Context) Proposal {
	p := x.proposal(0)
	p.Verdict = NoVerdict
	limited, stop := x.host.Limit(ctx, ValidateWithin)
	defer stop()
	if x.n.check == nil {
		return p
	}
	var out []byte
	err := guard(func() (err error) {
		out, err = x.n.check(limited, x.at.Candidate)
		return err
	})
	_, isPanic := errors.AsType[*panicked](err)
	switch {
	case isPanic:
		x.log("validation failed", err)
	case limited.Err() != nil:
	case err != nil:
		p.Verdict = Rejected
		p.Failure = launch.NewSafeError(launch.CodeNodeFailed, explained(err, "the workflow's own check refused the answer and does not explain why"))
	default:
		p.Verdict, p.Output = Accepted, out
	}
	return p
}
