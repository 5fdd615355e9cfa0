package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/piworkflows/launch"
)

// Host is what a worker needs from whoever keeps the run. It checks every
// proposal against actor, revision, exact attempt and claim, and decides.
type Host interface {
	// Propose offers what an execution came to. The answer says what the worker
	// does next. An error, such as a lost claim, stops the worker.
	Propose(ctx context.Context, p Proposal) (Next, error)
	// Output returns the latest accepted output of a node in this run, or ok
	// false when there is none. The worker does not change or keep the bytes.
	Output(ctx context.Context, node string) (json []byte, ok bool, err error)
	// Settings returns that revision of the run's settings as JSON.
	Settings(ctx context.Context, revision uint32) (json []byte, err error)
	// Reserve reserves the effect of the current action, for which it uses the
	// approval that the plan names (rule engine/approval).
	Reserve(ctx context.Context, fingerprint launch.Digest) error
	// Limit returns a context that ends with cause [ErrBudget] after d, on a
	// monotonic clock. The worker calls the function when it is done with it.
	Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// ErrBudget is the cause of a context whose active time is used up; see
// [Host.Limit].
var ErrBudget = errors.New("the active time of the attempt is used up")

// Job is one stretch of work on a run, from a claim until the run ends or parks.
type Job struct {
	Run     launch.RunID
	Input   []byte // normalized, as [Workflow.CheckInput] returned it
	Current Next   // where the run stands
	// Log gets what is for the developer and is never stored: where code
	// panicked, and the types of errors. Nil means nowhere.
	Log *slog.Logger
}

// Next is where the host says that the run stands.
type Next struct {
	Node                  string
	Visit, Attempt, Retry uint32
	Ended, Parked         bool // nothing to run; the rest is not looked at
	// Recovering says that the effect of this visit was reserved before this
	// attempt and is not settled.
	Recovering bool
	// Ambiguous says besides that it is known to be ambiguous: only observation
	// or a person can settle it, so that no code runs again.
	Ambiguous bool
	// Reserve says that the effect is not reserved yet: it needs an approval, and
	// so [Host.Reserve] before its code runs.
	Reserve bool
	// Budget is what is left of the attempt's active time; 0 means unlimited.
	Budget time.Duration
	// Seen is the revision of the settings that the attempt sees; 0 means that
	// there are none.
	Seen uint32
	// Candidate is an answer that the node's validation code has to judge, as
	// JSON that fits its form. Nil means that there is none.
	Candidate []byte
}

// Proposal is what one execution came to: an outcome, a request to open, a
// verdict, or that the effect is unknown.
type Proposal struct {
	Node           string
	Visit, Attempt uint32
	Outcome        Outcome          // OK, Failed or TimedOut; zero with Unknown, Ask and Verdict
	Output         []byte           // with OK: JSON that fits the node; with Accepted: the candidate
	Failure        launch.SafeError // with Failed, TimedOut, Unknown and Rejected
	// Unknown says that the effect of the action may or may not have happened:
	// the effect becomes ambiguous and the node stays unsettled.
	Unknown bool
	// Observed says that the outcome comes from the author's observer: OK, it
	// had happened; Failed, an ambiguous effect had surely not.
	Observed bool
	// Applied says that the effect happened although the outcome is Failed: its
	// output cannot be stored.
	Applied bool
	Ask     *Ask   // the request that the node opens
	Notice  string // with OK of a notify: the message
	Verdict Verdict
}

// Ask is what a node asks in its request. The plan says what answers it.
type Ask struct {
	Title   string        // of a decision: one line
	Task    string        // prompt, question or presentation
	Subject launch.Digest // of a decision: of what is decided (rule engine/approval)
}

// Verdict is what validation code said of a candidate.
type Verdict uint8

// The verdicts.
const (
	_         Verdict = iota
	Accepted          // it stands
	Rejected          // it has to be corrected, for the reason in Failure
	NoVerdict         // the code panicked or was stopped
)

// String returns the wire name.
func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case Rejected:
		return "rejected"
	case NoVerdict:
		return "none"
	}
	return "unknown"
}
