// Package scheduler decides who may run, and when, and sees to it that it runs:
// it claims launches that wait, runs their workflow's code under the claim,
// renews the claim meanwhile, and takes over what a lost host left behind. What
// it may do is decided by the store in the transaction that does it; the
// scheduler only asks at the right moment.
//
// # Rules
//
//   - scheduler/owner: a headless run is claimed by a host with a workflow of that
//     name and the same source identity; an interactive one by the host that
//     holds its session's live connection.
//   - scheduler/boundary: an interactive run that never ran starts when its
//     session is connected, reported, free and not held.
//   - scheduler/capacity: a host claims while fewer claims than its capacity are
//     live in the file, counted in the transaction that claims, and while fewer
//     pieces of its own code are running. Origins take turns (admit/order), among
//     the 1,000 oldest runs that wait in each state.
//   - scheduler/refused: a refusal means "not yours": nothing is done, and it is
//     no failure.
//   - scheduler/fence: a run's code starts only after the claim was seen to stand
//     once more, and the next node only under a lease that has not ended on the
//     monotonic clock. That clock is read before the store is asked, so that the
//     host's own lease ends first.
//   - scheduler/lease: a claim is renewed while its code runs. If that fails, the
//     code's context ends a tenth of the lease before the lease does. A process
//     that was stopped for longer asks once more before it gives up. A claim that
//     is gone (cancelled, paused before it ran, taken over) ends the code's
//     context at once, when this process or [Scheduler.Wake] learns of it.
//   - scheduler/cause: why code was told to stop is the cause of its context:
//     [launch.ErrClosed] the host closes, [launch.ErrExpired] the lease could not
//     be renewed, [launch.ErrEnded] the run was cancelled, [launch.ErrStale] the
//     run is someone else's.
//   - scheduler/receipt: that an action took effect is recorded also when its
//     context, its claim or its run has ended meanwhile.
//   - scheduler/stop: a stop of ours is no outcome. The claim is given back, and
//     the run goes on elsewhere or later.
//   - scheduler/lapse: when a run cannot go on for a reason that repeating would
//     not mend, its claim is left to lapse, so that the rule launch/recovery
//     bounds the repetitions.
//   - scheduler/recovery: whoever finds an expired claim takes the run over, or
//     when it is not its own, parks it for its owner. It is looked for at the
//     start, whenever another process committed, when a lease ends and when a
//     slot gets free. Nothing else polls.
//   - scheduler/deadlines: one timer is armed for the earliest stored deadline: of
//     an open request, or of a declared retry. Handling it needs no slot; what it
//     makes due does. After a jump of the wall clock it is noticed within a minute.
//   - scheduler/clock: a timer that fired more than [launch.ClockTolerance] late
//     means that this process slept; the store is told before anything is taken
//     over.
//   - scheduler/close: see [Scheduler.Close].
package scheduler
