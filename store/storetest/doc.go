// Package storetest helps to prove a store: [Memory] is the reference engine,
// too simple to be wrong, and [TestEngine] is the conformance kit for others.
//
// A store on another database implements [store.Engine] and runs, in a test of
// its own:
//
//	storetest.TestEngine(t, func(t *testing.T) store.Engine { return open(t.TempDir()) })
package storetest
