// Package intents holds the rules of turn intents as pure functions over
// values. An intent is the durable obligation to give a session one successor
// turn after something ended a turn or a run in it: which events owe one, who
// may carry it, and how it ends.
//
// Nothing in this package reads a clock, a file, a random source or a context.
// A refused command returns a [launch.Refusal] and changes nothing; no function
// mutates its input.
//
// # Rules
//
//   - intents/end-once: an intent ends once: resolved by exactly one kind of
//     message, or withdrawn. Both are final. The resolution fields are set
//     together or not at all.
//   - intents/identity: an intent's id is a digest of its immutable facts, so
//     that repeating the source event finds the same intent. The same id with
//     other immutable facts is a conflict. The time of the first request is
//     kept and not compared.
//   - intents/policy: [Policy] is a table, read top-down, first match wins.
//   - intents/facts: what is told about the event is small, safe text; a
//     hand-over never says that the run has ended.
//   - intents/join: a further event of a run is added to its pending intent that
//     no message carries; id and cause stay. So at most one intent per run and
//     session is pending and uncarried.
//   - intents/eligible: pending and eligible are separate. A fallback or result
//     message carries only an eligible intent, and eligibility is checked again
//     at the claim against the run as it then is. A step or checkpoint message
//     of the run may carry an intent that is not eligible.
//   - intents/attempt: claiming and recording the attempt are one write. An
//     unanswered attempt is settled before another message carries the intent.
//     Sending needs the claim's token; recording a resolution does not.
//   - intents/no-ineligible-end: no terminal run keeps an ineligible pending
//     intent: an end by a person withdraws it, every other end makes it eligible.
//   - intents/text: a fallback message states what was observed. It never says
//     that recovery ran, resumes nothing and grants nothing, and facts cannot
//     break out of their quotes.
//
// The test data of the module holds identity vectors (vectors/intents.json)
// and the policy (contract/intents-policy.json) for other implementations.
package intents
