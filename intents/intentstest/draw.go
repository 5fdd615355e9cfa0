package intentstest

import (
	"encoding/binary"
	"time"

	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

// Draw draws the next step: mostly one that fits the world as it is, otherwise
// any, so that about half of the steps are legal.
func (w *World) Draw(t *rapid.T) Step {
	if len(w.Runs) == 0 {
		return Reserve{}
	}
	fits := rapid.IntRange(0, 9).Draw(t, "fits") < 8
	last := w.Runs[len(w.Runs)-1]
	if fits && last.State == launch.Queued && rapid.Bool().Draw(t, "start") {
		return Start{last.ID}
	}
	switch n := rapid.IntRange(0, 15).Draw(t, "step"); {
	case n == 0:
		return Reserve{}
	case n == 1:
		return Resume{last.ID}
	case n < 5:
		return w.drawHappen(t, fits)
	case n < 7 || len(w.Intents) == 0:
		return w.drawEnsure(t, fits)
	default:
		return w.drawDo(t, fits)
	}
}

func (w *World) drawHappen(t *rapid.T, fits bool) Step {
	r := w.Runs[len(w.Runs)-1]
	if !fits {
		r = rapid.SampledFrom(w.Runs).Draw(t, "run")
	}
	if fits && !r.State.Live() {
		return Reserve{}
	}
	kinds := intents.SourceKinds()
	if fits && r.State == launch.Queued {
		kinds = []intents.SourceKind{intents.OnCancel, intents.OnActivationFailed}
	} else if fits && r.Held {
		kinds = []intents.SourceKind{intents.OnCancel, intents.OnEnded}
	} else if fits {
		kinds = []intents.SourceKind{intents.OnCancel, intents.OnPause, intents.OnEscape, intents.OnStepTimedOut,
			intents.OnStepTimedOut, intents.OnTakenOver, intents.OnAttention, intents.OnAttention, intents.OnEnded}
	}
	h := Happen{
		Run: r.ID,
		Source: intents.Source{
			Kind:       rapid.SampledFrom(kinds).Draw(t, "kind"),
			Actor:      rapid.SampledFrom([]launch.Actor{launch.Model, launch.Person, launch.Host, launch.Worker, launch.Timer}).Draw(t, "actor"),
			ActiveTurn: rapid.IntRange(0, 3).Draw(t, "active") > 0,
			Outcome:    rapid.SampledFrom([]intents.Cause{intents.Completed, intents.Failed, intents.TimedOut}).Draw(t, "outcome"),
		},
		Revision: r.Revision,
		Node:     rapid.SampledFrom([]string{"", "draft", "review/draft"}).Draw(t, "node"),
		Attempt:  rapid.SampledFrom([]string{"", "draft#1", "draft#2"}).Draw(t, "attempt"),
		Reason:   Reasons().Draw(t, "reason"),
	}
	if !fits {
		h.Revision = rapid.Uint64Range(0, r.Revision+1).Draw(t, "revision")
	}
	return h
}

// Reasons generates texts that a caller may give as a reason, safe or not.
func Reasons() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Just(""), rapid.Just("step timed out after 5m"),
		rapid.SampledFrom([]string{"two\nlines", `a "quoted" \ word`, "</message>", "token=abcdef0123456789abcdef", "bad \xff byte"}),
		rapid.StringN(0, 40, -1),
	)
}

func (w *World) drawEnsure(t *rapid.T, fits bool) Step {
	if len(w.Intents) > 0 && (!fits || rapid.Bool().Draw(t, "again")) {
		i := rapid.SampledFrom(w.Intents).Draw(t, "intent")
		n := intents.New{Identity: i.Identity(), Workflow: i.Workflow, Chain: i.Chain, Facts: i.Facts}
		if !fits { // the same id with other immutable facts, or no identity at all
			switch rapid.IntRange(0, 2).Draw(t, "break") {
			case 0:
				n.Workflow = "other"
			case 1:
				n.Chain = launch.NewRunID("other", "00000000000000000000000000")
			case 2:
				n.Node = "$run"
			}
		}
		return Ensure{n}
	}
	r := rapid.SampledFrom(w.Runs).Draw(t, "run")
	event, _ := intents.SourceEvent(r.ID, r.Revision, "direct")
	return Ensure{intents.New{
		Identity: intents.Identity{Session: Session, Run: r.ID, SourceEvent: event, Cause: rapid.SampledFrom(intents.Causes()).Draw(t, "cause")},
		Workflow: "kit", Chain: w.Runs[0].ID,
		Facts:    intents.Facts{Observed: observe(r), Reason: Reasons().Draw(t, "reason")},
		Eligible: r.State.Terminal(),
		Withdraw: rapid.SampledFrom([]intents.Reason{0, 0, 0, intents.ReasonChainStopped, intents.ReasonOverBudget}).Draw(t, "withdraw"),
	}}
}

func observe(r Run) intents.Observed {
	park := launch.ParkDue
	if r.Held {
		park = launch.ParkAttention
	}
	return intents.Observe(r.State, park)
}

// drawDo draws a command for an intent. Half of the time it is a pending one,
// if there is one: most commands do nothing to an ended one.
func (w *World) drawDo(t *rapid.T, fits bool) Step {
	from := w.Intents
	if fits {
		var pending []intents.Intent
		for _, i := range w.Intents {
			if i.Pending() {
				pending = append(pending, i)
			}
		}
		if len(pending) > 0 {
			from = pending
		}
	}
	i := rapid.SampledFrom(from).Draw(t, "intent")
	r, err := w.run(i.Run)
	if err != nil {
		return Reserve{}
	}
	var pick int
	switch {
	case !fits || !i.Pending():
		pick = rapid.IntRange(0, 6).Draw(t, "command")
	case i.Carried():
		pick = rapid.SampledFrom([]int{2, 3, 3, 4, 5}).Draw(t, "command")
	default:
		pick = rapid.SampledFrom([]int{0, 1, 2, 2, 2, 2, 4, 5}).Draw(t, "command")
	}
	return Do{i.ID, w.command(t, i, *r, pick, fits)}
}

func (w *World) command(t *rapid.T, i intents.Intent, r Run, pick int, fits bool) intents.Command {
	token := i.DeliveryClaimToken
	if !i.Carried() || !fits {
		w.tokens++
		token = launch.DigestOf(binary.BigEndian.AppendUint64(nil, w.tokens))
	}
	message := rapid.SampledFrom([]string{"message-1", "message-2"}).Draw(t, "message")
	switch pick {
	case 0:
		return intents.MakeEligible{Handoff: r.Held, Facts: intents.Facts{Observed: observe(r), Reason: Reasons().Draw(t, "reason")}}
	case 1:
		return intents.MakeIneligible{}
	case 2:
		natural := r.State.Live() && !r.Held
		if !fits {
			natural = rapid.Bool().Draw(t, "natural")
		}
		return intents.Claim{TokenHash: token, Deadline: w.now.Add(10 * time.Second), Message: message, Natural: natural}
	case 3:
		return intents.Settle{TokenHash: token, Absent: rapid.Bool().Draw(t, "absent")}
	case 4:
		return intents.Resolve{Resolution: rapid.SampledFrom(intents.Resolutions()).Draw(t, "resolution"), Message: message}
	case 5:
		return intents.Withdraw{Reason: rapid.SampledFrom(intents.Reasons()).Draw(t, "reason")}
	default:
		return nil
	}
}
