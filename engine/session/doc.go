// Package session holds the rules of delivery to one session as pure functions
// over values: connections and their epochs, messages with their subjects and
// issues, evidence, turns and holds.
//
// A [World] is what is stored of one session: its row and the messages that
// are still watched. [Apply] takes a command and a time and returns the new
// world, the events, and what the host has to do; or a launch.Refusal that
// leaves the world as it was.
//
// # Rules
//
//   - session/epoch: a connection raises the epoch; older ones are refused
//     everywhere, but for answers, which need the attempt's token instead. A
//     process that only connects again is refused when another one has since.
//   - session/takeover: after another process took over, nothing is sent before
//     the deadlines of unanswered attempts have passed.
//   - session/first-report: nothing is sent before the branch was reported once
//     on this connection, and only on a report made after the last attempt was
//     answered.
//   - session/free: a send needs a session that is connected, reported, not held,
//     and idle with nothing pending, or idle with the same thing pending for
//     [PendingGrace]. What pends is input, or the end of a turn that was not
//     reported; the first report of a connection ends such a wait at once.
//   - session/attempt: an attempt is recorded before the bridge is asked. A
//     refusal settles only an attempt that was asked once. Otherwise it is
//     settled by a report that shows the message, or by one of a free session,
//     asked for after the attempt's deadline, that names it as absent. Until then
//     only the same message is asked for again.
//   - session/order: one message at a time, in the order in which they became
//     eligible, then by intent.
//   - session/refusals: after [MaxRefusals] refusals other than "occupied", or
//     sends that left no trace, a message is blocked until a call re-opens it.
//   - session/evidence: only the id on the session's branch makes a message sent,
//     also after a cancel. A report says nothing about a message that it does
//     not name, and absence of a pending message proves nothing.
//   - session/confirm: a message that the branch shows is confirmed when its
//     entry is on disk, its turn is over, or the bridge cannot tell.
//   - session/issues: a sent message that is absent from the branch of a free
//     session before it is confirmed is issued again under a new id, at most
//     [MaxIssues] in all, unless its subject needs no message any more. A subject
//     has at most one unsent issue, and none while the branch shows one.
//   - session/watched: reports are asked about all issues of a subject while a
//     report can still change one of them, and no longer.
//   - session/turns: a turn belongs to the message that opened it, if that
//     message may own it: it starts turns, its subject needs it, and it opened
//     none since it was sent. A session has at most one open turn; it ends at
//     settled, when another begins, with its run, or by a report of a free
//     session, which also records the turn of a message that it shows and that
//     opened none. The first end stands; one that comes after a loss is recorded.
//   - session/hold: an abort by the person holds the session until user input
//     has settled or a person starts something, and the run whose own turn it
//     ended until a person resumes it. A shutdown on the same connection, with no
//     user input between, lifts what the abort held.
//   - session/abort: an abort names the message whose turn it ends, is asked for
//     after the cause is recorded, and is forgotten once the agent rests.
//   - session/abandon: a session that was given up has no open turn and no unsent
//     message. If it comes back, it is connected and sent to as any other.
//   - session/budget: what the model starts without a person is counted per turn
//     and per chain of runs, and refused beyond the bounds of [Chain].
package session
