package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
)

type Task struct {
	Title string            `json:"title"`
	Size  int8              `json:"size,omitempty"`
	Tags  []string          `json:"tags,omitempty"`
	Notes map[string]string `json:"notes,omitempty"`
	Ratio float64           `json:"ratio,omitempty"`
	Extra json.RawMessage   `json:"extra,omitempty"`
}

type Draft struct {
	Text string `json:"text"`
}

type Verdict string

const (
	Good Verdict = "good"
	Bad  Verdict = "bad"
)

func (Verdict) Choices() []Verdict { return []Verdict{Good, Bad} }

func pass[D, O any](context.Context, D) (o O, err error)                { return o, nil }
func act[D, O any](context.Context, engine.Attempt, D) (o O, err error) { return o, nil }
func look[D, O any](context.Context, engine.Attempt, D) (o O, ok bool, err error) {
	return o, false, nil
}

// review is draft -> judge -> {good: publish, bad: draft}.
func review(version string, change func(*engine.Builder[Task])) (*engine.Workflow, error) {
	w := engine.New[Task]("review", version)
	if change != nil {
		change(w)
	}
	var judge engine.Node[Verdict]
	draft := engine.Compute(w, "draft", w.Input(), pass[Task, Draft])
	judge = engine.Compute(w, "judge", engine.Both(w.Input(), draft), pass[engine.Pair[Task, Draft], Verdict])
	publish := engine.Action(w, "publish", draft, act[Draft, string], engine.Unrepeatable())
	engine.Then(draft, judge)
	engine.Switch(judge, engine.Case(Good, publish), engine.Case(Bad, draft))
	return w.Build()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// host is a fake that keeps outputs and follows the plan without any checks.
type host struct {
	wf       *engine.Workflow
	outputs  map[string][]byte
	visits   map[string]uint32
	got      []engine.Proposal
	answer   func(p engine.Proposal) (engine.Next, bool, error) // instead of following the plan
	onOutput func() error
	settings map[uint32]string
	reserve  func(launch.Digest) error
	limits   []time.Duration         // that were asked for
	end      context.CancelCauseFunc // of the latest limit
	limited  func()                  // called by Limit
}

func (h *host) Settings(_ context.Context, revision uint32) ([]byte, error) {
	raw, ok := h.settings[revision]
	if !ok {
		return nil, launch.Refuse(launch.ErrNotFound, "no revision %d", revision)
	}
	return []byte(raw), nil
}

func (h *host) Reserve(_ context.Context, fingerprint launch.Digest) error {
	return h.reserve(fingerprint)
}

func (h *host) Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	h.limits = append(h.limits, d)
	ctx, h.end = context.WithCancelCause(ctx)
	if h.limited != nil {
		h.limited()
	}
	return ctx, func() { h.end(nil) }
}

func newHost(wf *engine.Workflow) *host {
	return &host{wf: wf, outputs: map[string][]byte{}, visits: map[string]uint32{}}
}

func (h *host) Output(_ context.Context, node string) ([]byte, bool, error) {
	if h.onOutput != nil {
		if err := h.onOutput(); err != nil {
			return nil, false, err
		}
	}
	out, ok := h.outputs[node]
	return out, ok, nil
}

func (h *host) Propose(_ context.Context, p engine.Proposal) (engine.Next, error) {
	h.got = append(h.got, p)
	if h.answer != nil {
		if next, ok, err := h.answer(p); ok {
			return next, err
		}
	}
	if p.Unknown || p.Ask != nil || p.Verdict != 0 {
		return engine.Next{Parked: true}, nil
	}
	if p.Outcome == engine.OK {
		h.outputs[p.Node] = p.Output
	}
	h.visits[p.Node] = p.Visit
	plan := h.wf.Plan()
	next := plan.Route(p.Node, p.Outcome, p.Output)
	if next == "" {
		return engine.Next{Ended: true}, nil
	}
	return engine.Next{Node: next, Visit: h.visits[next] + 1, Attempt: 1}, nil
}

// story is one line for each proposal.
func (h *host) story() string {
	var b strings.Builder
	for _, p := range h.got {
		fmt.Fprintf(&b, "%s %d.%d ", p.Node, p.Visit, p.Attempt)
		switch {
		case p.Ask != nil:
			b.WriteString(strings.TrimSpace("asks " + p.Ask.Title + " " + p.Ask.Task))
		case p.Verdict != 0:
			b.WriteString("verdict " + p.Verdict.String() + " " + p.Failure.Message)
		case p.Unknown:
			b.WriteString("unknown: " + p.Failure.Message)
		case p.Outcome == engine.OK:
			b.WriteString("ok " + string(p.Output))
		default:
			b.WriteString(p.Outcome.String() + ": " + p.Failure.Message)
		}
		if p.Observed {
			b.WriteString(" (observed)")
		}
		if p.Applied {
			b.WriteString(" (applied)")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func job(wf *engine.Workflow, input string) engine.Job {
	return engine.Job{Run: "w-1", Input: []byte(input), Current: engine.Next{Node: wf.Plan().Start, Visit: 1, Attempt: 1}}
}

func wantErr(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		return
	}
	if !errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want invalid input with %q", err, want)
	}
}
