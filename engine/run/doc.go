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
//     visit, outside of the declared retries.
//   - run/retry: a node may declare that an execution which ended as failed or
//     timed_out is tried again in the same visit, a bounded number of times. The
//     retry is a new attempt; its backoff doubles, up to [MaxBackoff], and the run
//     waits for it without a worker. The last outcome is routed. An action that
//     took effect is never tried again, whatever its outcome.
//   - run/wait: a node that asks opens one request in an attempt and waits for
//     it. The attempt keeps its request over interruption and pause; it is settled
//     only by what becomes of the request, or of its budget.
//   - run/active: an attempt spends its budget only in recorded intervals, which
//     are open while its code or a turn of its request runs. They are measured on
//     a monotonic clock; an interval whose process is lost ends at its last
//     sample. Start times never change.
//   - run/settings: settings change by merge patches against their revision. An
//     attempt sees the revision that stood when it began.
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
