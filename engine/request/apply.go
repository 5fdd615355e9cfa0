package request

import (
	"encoding/json"
	"unicode/utf8"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// EventKind says what happened to a request.
type EventKind uint8

// The event kinds.
const (
	_            EventKind = iota
	EvOpened               // it was asked
	EvCandidate            // an answer is being checked
	EvAccepted             // it is answered
	EvRejected             // the check refused the answer; it is open again
	EvExpired              // its time was over
	EvCancelled            // its run ended
	EvPrompted             // a message puts it
	EvProgressed           // progress was reported
	EvUsed                 // an effect used it as its approval
)

var eventNames = []string{EvOpened: "opened", EvCandidate: "candidate", EvAccepted: "accepted", EvRejected: "rejected",
	EvExpired: "expired", EvCancelled: "cancelled", EvPrompted: "prompted", EvProgressed: "progressed", EvUsed: "used"}

// String returns the wire name.
func (k EventKind) String() string { return nameOf(eventNames, k) }

// Event is one committed fact about a request. It holds no private value.
type Event struct {
	Kind EventKind
	By   launch.Actor
	// Verdict and Key are set when it is decided about a candidate: the receipt
	// of that action, until now [Started], has this outcome.
	Verdict Outcome
	Key     Provenance
}

// Command is one of [Try], [Verdict], [NoVerdict], [Expire], [End], [Prompted],
// [TurnOpened], [TurnClosed], [Resume], [Take] and [Use].
type Command interface{ apply(*step) error }

// Try begins a run of the node's validation code. Beyond [MaxTries] the
// candidate is rejected instead.
type Try struct{}

// Verdict is what the validation code says of the candidate: it stands, as
// Output, or it is rejected for a safe reason.
type Verdict struct {
	Accepted bool
	Output   []byte // with Accepted; nil for the candidate as it is
	Reason   string
}

// NoVerdict says that the validation code failed or was stopped.
type NoVerdict struct{}

// Expire ends an open request: its deadline has passed (request_expired), its
// attempt used up its time (timed_out), or the model was reminded in vain
// (submission_missing). A request with a default is accepted at its deadline
// instead.
type Expire struct{ Why launch.Code }

// End cancels an open request because its run ended.
type End struct{}

// Prompted counts a message that puts the request.
type Prompted struct{ Form PromptForm }

// TurnOpened and TurnClosed tell what became of a turn of the request.
type (
	TurnOpened struct{}
	TurnClosed struct {
		End                        session.End
		PromptEntry, ResponseEntry string // or empty
	}
)

// Resume counts resumed prompts anew, because a person resumed the run.
type Resume struct{}

// Take says that the run has taken the answer over.
type Take struct{}

// Use lets an effect use an accepted decision as its approval, once.
type Use struct{ Effect launch.Digest }

type step struct {
	r      Request
	now    launch.Now
	events []Event
}

// Apply applies one command to a request and returns the request and what
// happened, or a refusal with the request unchanged.
func Apply(r Request, c Command, now launch.Now) (Request, []Event, error) {
	if c == nil {
		return r, nil, r.refuse(launch.ErrInternal, "no command for request %s", r.ID)
	}
	s := &step{r: r, now: now}
	if err := c.apply(s); err != nil {
		return r, nil, err
	}
	return s.r, s.events, nil
}

// open refuses a command for a request that is over.
func (s *step) open() error {
	if s.r.State.Over() {
		return s.r.refuse(launch.ErrEnded, "request %s is over: %s", s.r.ID, s.r.State)
	}
	return nil
}

func (s *step) validating() error {
	if s.r.State != Validating {
		return s.r.refuse(launch.ErrConflict, "no answer to request %s is being checked; the verdict changes nothing", s.r.ID)
	}
	return nil
}

// settled notes an event that settles the candidate, if there is one, in some
// way.
func (s *step) settled(kind EventKind, by launch.Actor, verdict Outcome) {
	e := Event{Kind: kind, By: by}
	if s.r.State == Validating {
		e.Verdict, e.Key = verdict, s.r.CandidateBy
	}
	s.events = append(s.events, e)
}

func (Try) apply(s *step) error {
	if err := s.validating(); err != nil {
		return err
	}
	if s.r.Tries >= MaxTries {
		s.reject(noVerdict)
		return nil
	}
	s.r.Tries++
	return nil
}

const noVerdict = "its check came to no end twice; submit it again"

func (NoVerdict) apply(s *step) error {
	if err := s.validating(); err != nil {
		return err
	}
	if s.r.Tries >= MaxTries {
		s.reject(noVerdict)
	}
	return nil
}

func (c Verdict) apply(s *step) error {
	if err := s.validating(); err != nil {
		return err
	}
	if !c.Accepted {
		s.reject(c.Reason)
		return nil
	}
	r := &s.r
	answer := r.Candidate
	if c.Output != nil {
		answer = c.Output
	}
	if err := launch.CheckSize("output", len(answer), launch.MaxOutput); err != nil {
		return err
	}
	if !utf8.Valid(answer) || !json.Valid(answer) {
		return invalid("output", "is not one valid JSON value in UTF-8")
	}
	by, action := r.CandidateBy, answering(r.Kind)
	s.settled(EvAccepted, by.Actor, Taken)
	r.accept(action, by, answer, fingerprint(action, r.Candidate), s.now)
	return nil
}

// reject drops the candidate and keeps the request open.
func (s *step) reject(why string) {
	r := &s.r
	if why = launch.SafeText(why, launch.MaxErrorMessage); why == "" {
		why = "the workflow's own check refused it and does not explain why"
	}
	s.settled(EvRejected, r.CandidateBy.Actor, Rejected)
	r.State, r.Rejection = Pending, why
	r.Candidate, r.CandidateBy, r.Tries = nil, Provenance{}, 0
}

func (c Expire) apply(s *step) error {
	if err := s.open(); err != nil {
		return err
	}
	r := &s.r
	switch {
	case c.Why == launch.CodeRequestExpired && !s.now.Passed(r.Deadline):
		return r.refuse(launch.ErrNotAllowed, "the deadline of request %s has not passed", r.ID)
	case c.Why == launch.CodeRequestExpired:
		if done, err := s.byDefault(); done || err != nil {
			return err
		}
	case c.Why == launch.CodeSubmissionMissing && r.Reminders < MaxReminders:
		return r.refuse(launch.ErrNotAllowed, "request %s was reminded of %d times; the limit is %d", r.ID, r.Reminders, MaxReminders)
	case c.Why != launch.CodeTimedOut && c.Why != launch.CodeSubmissionMissing:
		return r.refuse(launch.ErrInvalid, "a request expires as request_expired, timed_out or submission_missing")
	}
	s.settled(EvExpired, launch.Timer, Conflict)
	r.Revision++
	r.State, r.Why, r.Settled = Expired, c.Why, s.now.Wall
	r.Candidate, r.CandidateBy, r.Tries = nil, Provenance{}, 0
	return nil
}

// byDefault accepts the declared default, if there is one (rule request/expiry).
func (s *step) byDefault() (bool, error) {
	r := &s.r
	c, err := r.contract()
	if err != nil || c.Default == nil {
		return false, err
	}
	payload, answer, err := c.byDefault(r.Kind)
	if err != nil {
		return false, r.refuse(launch.ErrInternal, "the stored default of request %s does not fit; run verify and restore a backup", r.ID)
	}
	s.settled(EvAccepted, launch.Timer, Conflict)
	r.accept(ActDefault, Provenance{Actor: launch.Timer}, answer, fingerprint(answering(r.Kind), payload), s.now)
	return true, nil
}

func (End) apply(s *step) error {
	if err := s.open(); err != nil {
		return err
	}
	r := &s.r
	s.settled(EvCancelled, launch.Host, Conflict)
	r.Revision++
	r.State, r.Settled = Cancelled, s.now.Wall
	r.Candidate, r.CandidateBy, r.Tries = nil, Provenance{}, 0
	return nil
}

func (c Prompted) apply(s *step) error {
	if err := s.open(); err != nil {
		return err
	}
	r := &s.r
	switch {
	case (c.Form == Initial) != (r.Prompts == 0):
		return r.refuse(launch.ErrConflict, "request %s was put %d times; its first prompt is initial, and only that", r.ID, r.Prompts)
	case c.Form == Initial:
	case c.Form != Resumed && c.Form != Reminder:
		return r.refuse(launch.ErrInvalid, "a prompt is initial, resumed or a reminder")
	case !r.Kind.Prompts():
		return r.refuse(launch.ErrWrongKind, "request %s is of kind %s and is put once", r.ID, r.Kind)
	case c.Form == Resumed:
		if r.Resumed >= MaxResumed {
			return r.refuse(launch.ErrOverBudget, "request %s was put again %d times; let a person resume its run", r.ID, MaxResumed)
		}
		r.Resumed++
	default:
		if r.Reminders >= MaxReminders {
			return r.refuse(launch.ErrOverBudget, "request %s was reminded of %d times, which is the limit", r.ID, MaxReminders)
		}
		r.Reminders++
	}
	r.Prompts++
	r.Latest = 0
	s.events = append(s.events, Event{Kind: EvPrompted, By: launch.Host})
	return nil
}

func (TurnOpened) apply(s *step) error {
	s.r.Latest = 0
	return nil
}

func (c TurnClosed) apply(s *step) error {
	r := &s.r
	if c.End < session.Completed || c.End > session.Lost {
		return r.refuse(launch.ErrInvalid, "a turn ends completed, aborted, with an error or lost")
	}
	r.Latest = c.End
	if c.PromptEntry != "" || c.ResponseEntry != "" {
		r.PromptEntry, r.ResponseEntry = entry(c.PromptEntry), entry(c.ResponseEntry)
	}
	return nil
}

// entry leaves out an id that cannot be one; evidence refuses no end of a turn.
func entry(id string) string {
	if launch.CheckKey("session entry", id) != nil {
		return ""
	}
	return id
}

func (Resume) apply(s *step) error {
	s.r.Resumed = 0
	return nil
}

func (Take) apply(s *step) error {
	if s.r.State != Accepted {
		return s.r.refuse(launch.ErrNotAllowed, "request %s is %s and has no answer to take", s.r.ID, s.r.State)
	}
	s.r.Answer = nil
	return nil
}

func (c Use) apply(s *step) error {
	r := &s.r
	switch {
	case answering(r.Kind) != ActDecide || r.State != Accepted || c.Effect == (launch.Digest{}):
		return r.refuse(launch.ErrNotAllowed, "request %s is no accepted decision and approves nothing", r.ID)
	case r.UsedBy == c.Effect:
		return nil
	case r.UsedBy != (launch.Digest{}):
		return r.refuse(launch.ErrConflict, "the approval of request %s was used by another effect; ask again", r.ID)
	}
	r.UsedBy = c.Effect
	s.events = append(s.events, Event{Kind: EvUsed, By: launch.Worker})
	return nil
}
