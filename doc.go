// Package piworkflows makes workflow work in coding-agent sessions durable, on
// one SQLite file, in any Go process.
//
// A model calls the workflow tool in a turn; the answer is given once a launch
// is durable with its final run id. The run activates once, only after that
// turn has settled. Every event that strands the model (a launch that fails
// afterwards, a run that ends) owes its session exactly one successor turn,
// which is delivered once, through crashes of either side.
//
// # A host
//
// [Open] is the one call that wires store, scheduler, engine and delivery:
//
//	rt, err := piworkflows.Open(piworkflows.Options{Path: "flows.db", Workflows: workflows})
//
// The duties of a host, in order:
//
//  1. Define workflows with package engine, and give each a new version when
//     its code changes in a way that its graph does not show: the digest that a
//     launch pins is made of name, version, graph and schemas.
//  2. [Open] the file on a local disk. Several hosts on one machine may open it.
//  3. For each session, implement [delivery.Session] and call [Runtime.Connect];
//     repeat turn reports that were not confirmed, then call Conn.Changed.
//  4. Report what the session does, in order: turns, input, changes. Execute a
//     send in one synchronous step, and look before every send.
//  5. Offer the tool that [Runtime.Tool] describes and hand each call to
//     [Conn.Tool], with a random request key for each execution.
//  6. Let user code obey its context: a worker whose lease ends is cancelled.
//  7. [Runtime.Close] with a deadline when stopping; what does not finish is
//     given back and goes on later, and does not count as a failure.
//
// # Requests
//
// A node can ask the model of a session, or a person (see package engine). The
// run waits in the same run until the exact request is answered: by the tool
// ([Conn.Tool]), or by [Runtime.Answer] and [Runtime.Decide] for a person whom the
// host has verified. [Runtime.Present] shows decisions on a channel.
//
// # What is not promised
//
// That a model started or finished a turn; exactly-once effects outside the
// file (an action is declared repeatable, observed, or is ambiguous after a
// crash and waits for a person to resolve it); one model request when a fresh session is
// killed before its first reply reached the disk, or while a fenced second
// process still runs a turn on the same session file; delivery after the loss
// of process, session, file, machine or provider for good.
// [Runtime.AbandonSession] gives up a session that will never return.
//
// # Errors
//
// Every error that a caller may branch on matches exactly one kind with
// errors.Is; no message holds private input.
//
//	situation                               kind                          next step
//	a field is out of bounds or unknown     launch.ErrInvalid             correct the field that is named
//	unknown workflow, run or message        launch.ErrNotFound            check the id
//	request key with other content          launch.ErrConflict            new key, or the first content
//	the session has a live run              launch.ErrSessionBusy         wait for the run that is named, or cancel it
//	the model's starts are used up          launch.ErrOverBudget          a person starts
//	a fenced connection, a lost claim       launch.ErrStale               stop; connect again at the next session start
//	a person paused the run                 launch.ErrPaused              a person resumes it
//	another action than the request takes   launch.ErrWrongKind           the action that is named
//	an answer is being checked              launch.ErrValidating (retryable) wait for the verdict
//	the request was answered                launch.ErrAlreadyDecided      read who decided
//	a deadline or a lease is over           launch.ErrExpired             what the message says
//	the definition is not the pinned one    launch.ErrSourceChanged       the host that has it, or a new run
//	an effect may or may not have happened  launch.ErrUnsettledEffect     find out and resolve it
//	not this actor, not in this state       launch.ErrNotAllowed          what the message says
//	the run has ended                       launch.ErrEnded               start a new one
//	another process holds the lock          launch.ErrBusy (retryable)    retry
//	no free slot, no space                  launch.ErrFull (retryable)    wait, or make room
//	the commit's outcome is unknown         launch.ErrOutcomeUnknown      repeat with the same request key
//	the file has another layout             launch.ErrIncompatible        back it up and reset it, as the message says
//	use after Close                         launch.ErrClosed              open again
//	a bug or an I/O fault                   launch.ErrInternal            report it
package piworkflows
