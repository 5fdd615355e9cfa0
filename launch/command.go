package launch

import "time"

// CommandKind names a command in the table.
type CommandKind uint8

// The command kinds.
const (
	_ CommandKind = iota
	CmdReserve
	CmdClaim
	CmdStart
	CmdRenew
	CmdRelease
	CmdPark
	CmdWake
	CmdPause
	CmdResume
	CmdFinish
	CmdFail
	CmdSettle
	CmdCancel
	CmdRecover
	CmdAttend
)

// String returns the command's name.
func (k CommandKind) String() string {
	names := [...]string{"none", "reserve", "claim", "start", "renew", "release", "park", "wake", "pause", "resume", "finish", "fail", "settle", "cancel", "recover", "attend"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Command is one of the commands below, each for a launch that exists; a
// launch comes into being through [Reserve].
type Command interface {
	Kind() CommandKind
	apply(*step)
}

// Authority is what a worker shows with every command: who it is and under
// which claim it acts (rule launch/fence).
type Authority struct {
	Runner     string
	Token      Digest
	Generation uint64
}

// RecordStatus is what a run's own record says about it.
type RecordStatus uint8

// The statuses of a run record.
const (
	NoRecord         RecordStatus = iota // the run never reached running
	RecordRunning                        // a node is due
	RecordWaiting                        // a request is open
	RecordAttention                      // an effect is unresolved
	RecordDone                           // ended: completed
	RecordFailed                         // ended: failed
	RecordCancelled                      // ended: cancelled
	RecordUnreadable                     // the record cannot be read
)

// Record is the part of a run's record that launches depend on.
type Record struct {
	Status   RecordStatus
	Progress uint64    // accepted outputs and effect receipts so far
	Error    SafeError // with RecordFailed
}

// Claim takes a queued launch, or a parked one that is due. The caller's
// definition is compared with the pinned one: with another digest a launch
// without a run record fails in the same step, and one with a record is parked
// for attention, unclaimed.
type ClaimCommand struct {
	Authority               // Generation is ignored: the launch assigns the next
	Lease     time.Duration // MinLease to MaxLease
	Digest    Digest        // of the caller's definition
	Progress  uint64        // of the run record, 0 without one
}

// StartCommand records that the engine is built and the run record exists.
type StartCommand struct{ Authority }

// RenewCommand extends the lease; it accepts an expired claim that nobody has
// replaced.
type RenewCommand struct {
	Authority
	Lease time.Duration
}

// ReleaseCommand gives a launch back politely, also under an expired claim. It
// is not a lost lease.
type ReleaseCommand struct {
	Authority
	Record Record
}

// ParkCommand gives up the slot of a running launch.
type ParkCommand struct {
	Authority
	Why       Park      // ParkDue, ParkWaiting, ParkPaused or ParkAttention
	Attention Attention // with ParkAttention
}

// WakeCommand makes a parked, waiting launch due: its request was answered or
// its timer fired. A paused launch or one parked for attention stays so, but an
// accepted answer, or a person's finding about an effect, ends the attention
// that was asked for want of one and gives one more try (rule launch/attention).
type WakeCommand struct {
	Answered bool // by an accepted answer or such a finding
}

// AttendCommand parks a parked launch for attention. One that is parked for
// attention keeps the reason that it has.
type AttendCommand struct{ Attention Attention }

// PauseCommand holds a launch until it is resumed (rule launch/pause). The host
// pauses on behalf of a person who stopped a turn of the run, or after a
// provider's error.
type PauseCommand struct{ Actor Actor }

// ResumeCommand ends a pause or attention. Waiting is set when the run still
// has an open request, so that it goes on waiting. The host only lifts its own
// pause, for an abort that turned out to be a disconnect: attention stays, and
// it gives no further try (rule launch/pause).
type ResumeCommand struct {
	Actor   Actor
	Waiting bool
}

// FinishCommand ends a running launch as completed.
type FinishCommand struct{ Authority }

// FailCommand ends a starting launch that could not activate, or a running one
// whose run failed.
type FailCommand struct {
	Authority
	Error SafeError
}

// SettleCommand ends a parked launch with an outcome that the host decides
// without running code: completed when Error is zero, else failed.
type SettleCommand struct{ Error SafeError }

// CancelCommand ends a launch in any live state.
type CancelCommand struct{ Actor Actor }

// RecoverCommand takes a lost lease away. Generation is the one that the scan
// saw, so that a launch which moved on is left alone.
type RecoverCommand struct {
	Generation uint64
	Record     Record
}

// Kind returns CmdClaim, and so on for each command.
func (ClaimCommand) Kind() CommandKind   { return CmdClaim }
func (StartCommand) Kind() CommandKind   { return CmdStart }   // see [Command]
func (RenewCommand) Kind() CommandKind   { return CmdRenew }   // see [Command]
func (ReleaseCommand) Kind() CommandKind { return CmdRelease } // see [Command]
func (ParkCommand) Kind() CommandKind    { return CmdPark }    // see [Command]
func (WakeCommand) Kind() CommandKind    { return CmdWake }    // see [Command]
func (PauseCommand) Kind() CommandKind   { return CmdPause }   // see [Command]
func (ResumeCommand) Kind() CommandKind  { return CmdResume }  // see [Command]
func (FinishCommand) Kind() CommandKind  { return CmdFinish }  // see [Command]
func (FailCommand) Kind() CommandKind    { return CmdFail }    // see [Command]
func (SettleCommand) Kind() CommandKind  { return CmdSettle }  // see [Command]
func (CancelCommand) Kind() CommandKind  { return CmdCancel }  // see [Command]
func (RecoverCommand) Kind() CommandKind { return CmdRecover } // see [Command]
func (AttendCommand) Kind() CommandKind  { return CmdAttend }  // see [Command]
