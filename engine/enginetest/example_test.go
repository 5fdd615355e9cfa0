package enginetest_test

import (
	"fmt"

	"example.com/piworkflows/engine/enginetest"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// A world answers steps as a store of one run must. Do the same with your own
// store, compare, and check the invariants of both. A generated sequence comes
// from [enginetest.World.Draw]; this one is written out.
func Example() {
	w := enginetest.NewWorld(run.Plan{MaxSteps: 9, Start: "gate", Nodes: []run.Node{
		{Path: "gate", Kind: run.Decision, Choices: []string{"yes", "no"}, Ask: &run.Ask{Form: []byte(`{"type":"string"}`)}}}})
	decide := request.Act{Request: request.ID(enginetest.RunID, "gate", 1, 1), Action: request.ActDecide, Actor: launch.Person, Key: "key-1",
		Revision: 1, Payload: []byte(`{"choice":"yes"}`), Person: "ada", Channel: "pi", Event: "event-1"}
	model := decide
	model.Actor, model.Session, model.Key = launch.Model, enginetest.Session, "key-2"
	for _, s := range []enginetest.Step{enginetest.Ask{}, enginetest.Act{Act: model}, enginetest.Act{Act: decide}} {
		err, broken := w.Apply(s)
		fmt.Printf("%T refused: %v, broken: %v\n", s, err != nil, broken)
	}
	fmt.Println(w.Requests[0].State, "with", len(w.Receipts), "receipts")
	fmt.Println(enginetest.ByMatrix(w.Requests[0]))
	// Output:
	// enginetest.Ask refused: false, broken: <nil>
	// enginetest.Act refused: true, broken: <nil>
	// enginetest.Act refused: false, broken: <nil>
	// accepted with 2 receipts
	// <nil>
}
