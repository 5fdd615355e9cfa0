package piworkflows_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"example.com/piworkflows"
	"example.com/piworkflows/engine"
)

type person struct {
	Name string `json:"name"`
}

func Example() {
	w := engine.New[person]("greet", "1")
	engine.Compute(w, "say", w.Input(), func(_ context.Context, in person) (string, error) {
		return "hello " + in.Name, nil
	})
	greet, err := w.Build()
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("piworkflows-%d", os.Getpid()), "flows.db")
	rt, err := piworkflows.Open(piworkflows.Options{Path: path, Workflows: []*engine.Workflow{greet}})
	if err != nil {
		log.Fatal(err) // says what to do next
	}
	ctx := context.Background()
	defer rt.Close(ctx)
	started, err := rt.Start(ctx, piworkflows.StartOptions{Workflow: "greet", Input: []byte(`{"name":"Ada"}`)})
	if err != nil {
		log.Fatal(err)
	}
	ended, err := rt.Wait(ctx, started.Run)
	output, _, _ := rt.Output(ctx, started.Run, "say")
	fmt.Println(ended.Status, string(output), err)
	// Output: completed "hello Ada" <nil>
}
