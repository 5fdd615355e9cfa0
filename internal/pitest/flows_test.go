package pitest_test

import (
	"context"
	"errors"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/examples/review/flow"
)

type topic struct {
	Topic string `json:"topic,omitempty"`
}

// workflows are those of a host: deploy ships at once, slow waits at the gate,
// broken waits there and fails; review is the example's, say takes a visible
// text, and brief gives the model half a second.
func workflows(version string, wait func(context.Context, string) error) ([]*engine.Workflow, error) {
	ship := engine.New[topic]("deploy", version)
	engine.Action(ship, "ship", ship.Input(), func(context.Context, engine.Attempt, topic) (string, error) {
		return "shipped", nil
	}, engine.Repeatable())
	slow := engine.New[topic]("slow", "1")
	engine.Action(slow, "wait", slow.Input(), func(ctx context.Context, _ engine.Attempt, _ topic) (string, error) {
		return "waited", wait(ctx, "slow")
	}, engine.Repeatable())
	broken := engine.New[topic]("broken", "1")
	first := engine.Compute(broken, "first", broken.Input(), func(_ context.Context, in topic) (topic, error) { return in, nil })
	second := engine.Action(broken, "second", first, func(ctx context.Context, _ engine.Attempt, _ topic) (string, error) {
		if err := wait(ctx, "broken"); err != nil {
			return "", err
		}
		return "", errors.New("the disk of the test is full")
	}, engine.Repeatable())
	engine.Then(first, second)
	say := engine.New[topic]("say", "1")
	text := engine.Respond(say, "text", say.Input(), func(_ context.Context, in topic) (string, error) { return "Tell me about " + in.Topic + ".", nil })
	heard := engine.Notify(say, "heard", text, func(_ context.Context, s string) (string, error) { return "heard: " + s, nil })
	engine.Then(text, heard)
	brief := engine.New[topic]("brief", "1")
	engine.Agent[topic](brief, "hurry", brief.Input(), func(context.Context, topic) (string, error) { return "Hand in a topic.", nil }, engine.Budget(500*time.Millisecond))
	whole, err := flow.New()
	if err != nil {
		return nil, err
	}
	all := []*engine.Workflow{whole}
	for _, w := range []interface {
		Build() (*engine.Workflow, error)
	}{ship, slow, broken, say, brief} {
		wf, err := w.Build()
		if err != nil {
			return nil, err
		}
		all = append(all, wf)
	}
	return all, nil
}
