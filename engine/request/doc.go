// Package request holds the rules of one durable question that a run asks
// outward, as pure functions over values. A request binds one run, node, visit
// and attempt; an answer names its exact id, and nothing is guessed.
//
// [Open] makes a request, [Respond] carries one action to it, [Apply] does what
// time, the run and the session do to it, and [Request.Next] says when the model
// has to be told again. A host stores request, receipt and follow-on work in one
// transaction.
//
// # Rules
//
//   - request/id: the id is a digest of run, node, visit and attempt: opaque,
//     and no credential. What a caller may not see reads as not found. A model
//     sees the requests of its own session, persons and hosts see all.
//   - request/order: who sees and does it, receipt, matrix, state, revision,
//     bounds, form. The first that refuses decides.
//   - request/matrix: each kind takes its own actions from its own actors; see
//     [Matrix]. No status permits anything, and no action is sent on to another
//     request.
//   - request/keys: an action key is random per execution of the action. The same
//     key with the same payload gets its first answer again, a rejection too;
//     with another payload it is a conflict. A fingerprint covers action and
//     payload, never a connection.
//   - request/refused: a refused action leaves a receipt and nothing else. Of a
//     misfit that the model sent, the reason is kept too, for its next prompt.
//   - request/revision: what a request asks never changes, so its revision rises
//     only when it is over. What a person saw stays current until then, whatever
//     the model tries meanwhile.
//   - request/accepted: a request is accepted once, by an action and an actor of
//     the matrix, and that never changes. Later equal payloads adopt, others are
//     told who answered.
//   - request/form: an answer is checked against the contract that is stored with
//     the request. A misfit keeps the request open.
//   - request/validating: a node with validation code of its own takes one
//     candidate at a time. Code that ends without a verdict is run once more, then
//     the candidate is rejected.
//   - request/decision: only a verified person decides, or the declared default at
//     the deadline; the first valid one wins. A decision binds the digest of what
//     it is about, which no message and no channel shows, and approves at most
//     one effect.
//   - request/expiry: an attempt's timeout, the reminder limit or a deadline ends
//     an open request. At the deadline a declared default is accepted instead,
//     with the timer as its provenance. Nobody answers after the deadline.
//   - request/end: the end of its run cancels an open request; a pause keeps it,
//     and what puts it to the model waits until the run is resumed.
//   - request/prompts: a latest turn that ended lost, aborted or with an error is
//     prompted again, at most [MaxResumed] times between explicit resumes, then a
//     person is needed. An error holds the run first.
//   - request/reminders: a latest turn that completed without a usable answer is
//     reminded of, at most [MaxReminders] times in an attempt, then the request
//     is over as submission_missing. Only agent and assistant requests are put
//     to the model again.
//   - request/progress: an agent's request may take progress updates. They answer
//     nothing and leave the state.
//   - request/provenance: an accepted request names actor, action and key; of a
//     person also who, on which channel and in which of its events.
//   - request/text: one formatter makes every message of a request, complete in
//     itself: task, exact id, form, allowed actions, last rejection. The task
//     cannot end its frame.
//   - request/row: what a stored row has to satisfy; see [Check].
package request
