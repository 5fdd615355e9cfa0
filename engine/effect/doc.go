// Package effect holds the rules of one intended side effect on the outside
// world as pure functions over values. An effect is reserved before its code
// starts, so that a crash in between is seen afterwards.
//
// # Rules
//
//   - effect/key: the key is run, effect type, the author's name, the full node
//     path, the visit and the declared retry. A repeat after an interruption
//     keeps it.
//   - effect/fingerprint: one key asks for one thing. The same key with another
//     fingerprint is a conflict.
//   - effect/table: only the cells of [Table] that are not refusals are legal.
//     Applied and rejected are final.
//   - effect/reserve: an effect is reserved in the transaction after which its code
//     starts, and its code starts only after that.
//   - effect/approval: an effect that needs an approval is reserved only when the
//     latest decision of the named node is an approving choice, about exactly what
//     the effect is going to ask. A decision approves one effect.
//   - effect/recovery: a pending effect whose worker was lost is observed where
//     the author declared how, run again where the author declared it
//     repeatable, and otherwise ambiguous; ambiguous too once its run has ended.
//   - effect/ambiguous: an ambiguous effect becomes applied or rejected only by
//     observation or by a person with evidence.
//   - effect/token: a receipt carries the token of the newest reservation. It is
//     accepted also after the run has ended or changed owner. One that comes
//     after the effect became ambiguous is evidence for the person and settles
//     nothing.
//   - effect/receipt: a receipt of a lost worker settles its effect and moves
//     nothing else; the next attempt ends by it without running the code again.
package effect
