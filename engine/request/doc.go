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
//   - request/id: the id is a digest of run, node, visit and attempt, opaque and
//     no credential: session and actor are checked before any receipt is looked
//     up, and what a caller may not see reads as not found.
//   - request/matrix: each kind takes its own actions, from its own actors; see
//     [Matrix]. Nothing is permitted because of a status, and nothing retargeted.
//   - request/keys: an action key is random per execution of the action. The same
//     key with the same payload adopts its first answer, with another payload it
//     is a conflict. A fingerprint covers action and payload, never a connection.
//   - request/order: visible, receipt, matrix, state, revision, form; the first
//     that refuses decides.
//   - request/refused: a refused action leaves a receipt and nothing else.
//   - request/accepted: a request is accepted once and never changes after that.
//     Later equal payloads adopt, others are told who decided.
//   - request/form: an answer is checked against the contract that is stored with
//     the request. A rejected one keeps the request open with the reason.
//   - request/validating: a node with validation code of its own takes a
//     candidate, and no other while it is checked. Code that ends without a
//     verdict is run once more, then the candidate is rejected.
//   - request/decision: only a verified person decides; the first valid decision
//     wins. It binds the digest of what is decided, which no channel sees.
//   - request/expiry: an attempt timeout, the reminder limit or a deadline ends an
//     open request; a declared default is accepted at the deadline instead, with
//     the timer as its provenance.
//   - request/end: the end of its run cancels an open request; a pause keeps it.
//   - request/prompts: a latest turn that ended lost, aborted or with an error is
//     prompted again, at most [MaxResumed] times between explicit resumes; an
//     error holds the run first.
//   - request/reminders: a latest turn that completed without a usable answer is
//     reminded of, at most [MaxReminders] times in an attempt, then the request
//     is over as submission_missing.
//   - request/text: one formatter makes every message of a request, complete in
//     itself: task, exact id, form, allowed actions, last rejection.
package request
