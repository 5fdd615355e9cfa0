// Package launch holds the rules of durable launches as pure functions over
// values: the states of a launch, claims and their fences, the reservation of
// a session, recovery after a lost lease, and errors that are safe to show.
//
// Nothing in this package reads a clock, a file, a random source or a context.
// Time, tokens and ids come in as values; what a command changes comes out as
// a new [Launch] and a list of [Event] values. A refused command returns a
// [Refusal] and changes nothing.
//
// The vocabulary that every other package of the module shares (run ids,
// session keys, wall and monotonic time, error kinds) lives here too, because
// this package imports nothing else of the module.
//
// # Rules
//
//   - launch/table: only the edges of [Table] are legal.
//   - launch/fence: a claim is runner id, token, generation and lease expiry. A
//     command of a worker names all of the first three; see [Fence].
//   - launch/expiry: expiry lets others take over. It does not by itself revoke
//     an owner whom nobody has replaced: Renew and Release accept an expired
//     claim, every other command is refused until the claim is renewed.
//   - launch/generation: a generation is never reused.
//   - launch/input: private input is kept only while a launch is queued or
//     starting.
//   - launch/recovery: three lost leases before a run record exists fail the
//     launch; with a run record, one relaunch without saved progress is
//     allowed, then the run is parked for attention.
//   - launch/pause: the model, a person and the host pause a launch; paused, it
//     is not claimed. A person resumes it, whoever paused it. The host lifts
//     only a pause that it made and nobody else asked for since; that ends no
//     attention and gives no further try.
//   - launch/attention: a launch is parked for attention with a reason and is not
//     claimed; the host may ask for it on a parked launch only. A person's
//     resume ends it, and so does an accepted answer or a person's finding,
//     unless the definition changed. Either gives one more try without saved
//     progress. A pause on top stands until it is resumed.
//   - launch/request-key: a start with a key that was used adopts the first answer
//     for the same content and is a conflict for any other; see [Adopt].
//   - launch/restart: a restart names a run that has ended, at its execution
//     revision, without an unsettled effect. It is a fresh run with the same input
//     and a recorded parent; nothing else is copied.
//   - launch/clock: a host whose clock jumped treats no lease as expired for one
//     lease length; an expiry implausibly far ahead counts as expired.
//   - launch/safe-error: what is stored of a failure is a code of a closed set
//     and one redacted line of at most [MaxErrorMessage] bytes.
package launch
