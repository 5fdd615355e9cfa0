// Package deliverytest has a conformance kit for bridges, and a scripted
// coding-agent session that behaves as the real Pi does, for tests of what
// delivers to sessions.
//
// # The kit
//
// [Run] plays the host and checks a bridge to any agent, one sub-test per rule:
//
//	func TestBridge(t *testing.T) {
//		deliverytest.Run(t, func(tb deliverytest.TB, host deliverytest.Host) deliverytest.Subject {
//			a := newAgent(tb.TempDir(), host.Connect, host.Model) // an Agent; not started
//			tb.Cleanup(a.Close)
//			return deliverytest.Subject{Agent: a, Cannot: deliverytest.Fork | deliverytest.Rewind}
//		})
//	}
//
// The kit waits for what the bridge reports and for requests to the model, and
// looks again when the bridge says Changed. It polls nothing and does not sleep;
// [Subject].Patience bounds each wait. A send that it makes while a report
// waits is judged only if the bridge answers before [Subject].Quiet is over,
// because a bridge may let nothing through while it reports. [Rules] lists what
// is checked. Not checked, because no agent could be driven so: a send during a
// compaction, a deadline that passes between arrival and execution, two processes
// on one session, and losses of power.
//
// # The scripted session
//
// A [File] is a session file: what is on disk. A [Process] opens it, and dies
// or ends when the test says so. Its bridge implements [delivery.Session]
// correctly and reports to a [Reporter]; what goes wrong is asked for
// ([Process.LoseAnswer], [Process.LoseSend], [Process.Kill] at any [Point]).
//
//	file := deliverytest.NewFile("s1", "/s1.jsonl")
//	pi := file.Start(deliverytest.Options{Model: model, Tools: tools})
//	err := pi.Connect(deliverytest.Via(coordinator.Connect))
//	err = pi.Prompt("do it") // the turn is over and reported
//	pi.Wait()                // and so is what the host sent after it
//
// Nothing sleeps and nothing is random. Each run of the agent is a goroutine:
// [Process.Prompt] waits for its own, [Process.Wait] for all, and a [Hold] stops
// one at a point. All waiting is on channels, so that a test may live in a
// testing/synctest bubble, where synctest.Wait finds the session at rest.
//
// # What it does as Pi does
//
//   - A message that starts a turn is neither on the branch nor on disk when
//     its send returns, nor when the turn's start is reported; it is on both
//     before the first model request. The session is busy from the send on.
//   - As long as the session has no assistant message, nothing is on disk: a
//     death loses what the branch showed.
//   - A passive message is on branch and disk when its send returns.
//   - A message sent while Pi is busy goes into a hidden queue. The bridge
//     does not do that; it answers Occupied.
//   - From a person's input to the start of its run another run that begins
//     destroys the text. The bridge holds its sends in that time, for at most
//     [session.PendingGrace].
//   - A provider failure repeats the start with the same turn key; three
//     failures more end the turn with an error. Escape in the wait between is
//     an error, Escape elsewhere an abort. Only the bridge's own flag tells it
//     from the host's abort; an abort by a shutdown looks like a person's.
//   - A tool call that is aborted has its result on the branch, and an empty
//     aborted answer after it. A tool call in which the process dies has none.
//   - The leaf is not on disk: opening a file makes the last line the leaf.
//     Two processes append to one file and see only their own entries.
//   - Forks and clones keep the ids and details of entries.
//
// # What the bridge does
//
// Reports go out one by one, in order, and are repeated on the next connection
// until they are confirmed; then it asks to be looked at. Each waits for the
// host's answer, and Look waits for them all, so a host must not wait in a
// report for an answer of the bridge. A message that is on its way to the
// branch counts as present, so that asking again after a lost answer never
// sends twice.
package deliverytest
