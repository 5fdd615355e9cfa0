package main

import (
	"context"

	"example.com/piworkflows/engine"
)

type topic struct {
	Topic string `json:"topic"`
}

// report has two steps: collect, then write.
func report() (*engine.Workflow, error) {
	w := engine.New[topic]("report", "1")
	facts := engine.Compute(w, "collect", w.Input(), func(_ context.Context, in topic) ([]string, error) {
		return []string{in.Topic + " is durable", in.Topic + " is delivered once"}, nil
	})
	write := engine.Compute(w, "write", facts, func(_ context.Context, facts []string) (int, error) {
		return len(facts), nil
	})
	engine.Then(facts, write)
	return w.Build()
}

// deploy has one step, an action that may be repeated.
func deploy(version string) (*engine.Workflow, error) {
	w := engine.New[topic]("deploy", version)
	engine.Action(w, "ship", w.Input(), func(_ context.Context, a engine.Attempt, in topic) (string, error) {
		return "shipped " + in.Topic, nil
	}, engine.Repeatable())
	return w.Build()
}
