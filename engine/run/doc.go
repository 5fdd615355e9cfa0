// Package run holds the rules of one run as pure functions over values: the
// plan that pins its graph, the row that says where it stands, and the
// commands that move it.
//
// Nothing here runs user code, reads a clock or keeps a value between calls.
// [Begin] enters the start node; [Apply] takes the row, a command and the plan
// and returns the new row with what there is to store, or a [launch.Refusal]
// that changes nothing. A host stores row, step and events in one transaction.
//
// # Rules
//
//   - run/graph: a node has at most one outgoing edge: plain, or a switch on its
//     output or its outcome. Plain edges and switches on the output are taken
//     only on outcome ok. See [Plan.Validate].
//   - run/reads: a node may read only outputs that every path to it has
//     accepted; an optional read may find none.
//   - run/exact: only the current node, visit and attempt of a running run can
//     be settled, so an old attempt cannot answer for its replacement.
//   - run/visit: a visit is the n-th time a node is entered, an attempt the n-th
//     execution of that visit. Interruption starts a new attempt of the same
//     visit.
//   - run/route: a settled node without a way on ends the run: ok as completed,
//     failed as failed, timed_out as timed_out, cancelled as cancelled.
//   - run/step-limit: a run settles at most MaxSteps executions; one that would
//     go on after that fails with step_limit.
//   - run/output: an output is valid JSON of at most [launch.MaxOutput] bytes and
//     a member of the node's closed set where there is one.
//   - run/revision: the revision rises by one with each accepted change; a
//     command that changes nothing leaves it and writes no event.
//   - run/ended: a terminal run refuses every command with [launch.ErrEnded].
package run
