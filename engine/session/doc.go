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
//     everywhere.
//   - session/first-report: nothing is sent before the branch was reported once
//     on this connection, and only on a report made after the last attempt was
//     answered.
//   - session/free: a send needs a session that is idle with nothing pending, or
//     idle with the same pending input for [PendingGrace].
//   - session/attempt: an attempt is recorded before the bridge is asked. A
//     refusal settles only its own attempt. An unanswered one is settled by
//     asking again with the same message id, or by a report of a free session,
//     made after the attempt's deadline, that names the message as absent.
//   - session/order: one message at a time, in the order in which they became
//     eligible, then by intent.
//   - session/refusals: after [MaxRefusals] refusals other than "occupied", or
//     sends that left no trace, a message is blocked until a call re-opens it.
//   - session/evidence: only the id on the session's branch makes a message sent,
//     also after a cancel. A report says nothing about a message that it does
//     not name, and absence of a pending message proves nothing.
//   - session/issues: a sent message that later is absent from the branch is
//     issued again under a new id while its subject is open, at most [MaxIssues]
//     times.
//   - session/turns: a turn belongs to the message that opened it, if that
//     message may own it; a session has at most one open turn; it ends at
//     settled, or by a report of a free session.
//   - session/hold: an abort by the person holds the session until user input
//     has settled or a person starts something; a shutdown right after lifts it.
package session
