package request

import (
	"encoding/json"

	"example.com/piworkflows/engine/run"
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
	EvRejected             // an answer did not fit; it stays open
	EvExpired              // its time was over
	EvCancelled            // its run ended
	EvPrompted             // a message puts it
	EvProgressed           // progress was reported
	EvUsed                 // an effect used it as its approval
)

var eventNames = [...]string{"none", "opened", "candidate", "accepted", "rejected", "expired", "cancelled", "prompted", "progressed", "used"}

// String returns the wire name.
func (k EventKind) String() string { return eventNames[min(int(k), len(eventNames)-1)] }

// Event is one committed fact about a request. It holds no private value.
type Event struct {
	Kind EventKind
	By   launch.Actor
	// Verdict and Key are set when a node's own code decided about a candidate:
	// the candidate's action has its outcome now.
	Verdict Outcome
	Key     Provenance
}

// Command is one of [Try], [Verdict], [NoVerdict], [Expire], [End], [Prompted],
// [TurnOpened], [TurnClosed], [Resume], [Take] and [Use].
type Command interface{ apply(*step) error }

// Try begins a run of the node's validation code. Beyond [MaxTries] the
// candidate is rejected instead.
type Try struct{}

// Verdict is what the validation code says: the candidate stands as Output, or
// is rejected for a safe reason.
type Verdict struct {
	Accepted bool
	Output   []byte // with Accepted; nil for the candidate as it is
	Reason   string
}

// NoVerdict says that the validation code failed or was stopped.
type NoVerdict struct{}

// Expire ends an open request: its deadline has passed (request_expired), its
// attempt used up its time (timed_out), or the model was reminded in vain
// (submission_missing).
type Expire struct{ Why launch.Code }

// End ends an open request with its run.
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
	s := &step{r: r, now: now}
	if err := c.apply(s); err != nil {
		return r, nil, err
	}
	return s.r, s.events, nil
}

func (s *step) event(e Event) { s.events = append(s.events, e) }

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

func (c Try) apply(s *step) error {
	if err := s.validating(); err != nil {
		return err
	}
	if s.r.Tries++; s.r.Tries > MaxTries {
		s.reject("its check did not come to an end; submit it again")
	}
	return nil
}

func (c NoVerdict) apply(s *step) error {
	if err := s.validating(); err != nil {
		return err
	}
	if s.r.Tries >= MaxTries {
		s.reject("its check did not come to an end; submit it again")
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
	by, action := r.CandidateBy, answering(r.Kind)
	print, _, err := fingerprint(Act{Action: action, Payload: r.Candidate})
	if err != nil {
		return err
	}
	answer := r.Candidate
	if c.Output != nil {
		answer = c.Output
	}
	r.accept(action, by, answer, print, s.now)
	s.event(Event{Kind: EvAccepted, By: by.Actor, Verdict: Taken, Key: by})
	return nil
}

// answering is the action that answers requests of a kind.
func answering(k run.Kind) Action {
	switch k {
	case run.Agent:
		return ActSubmit
	case run.Assistant:
		return ActRespond
	case run.Checkpoint:
		return ActAnswer
	}
	return ActDecide
}

// reject drops the candidate and keeps the request open.
func (s *step) reject(why string) {
	r := &s.r
	by := r.CandidateBy
	if why = launch.SafeText(why, launch.MaxErrorMessage); why == "" {
		why = "the workflow's own check refused it and does not explain why"
	}
	r.State, r.Candidate, r.CandidateBy, r.Rejection = Pending, nil, Provenance{}, why
	s.event(Event{Kind: EvRejected, By: by.Actor, Verdict: Rejected, Key: by})
}

func (c Expire) apply(s *step) error {
	if err := s.open(); err != nil {
		return err
	}
	r := &s.r
	switch c.Why {
	case launch.CodeRequestExpired:
		if !s.now.Passed(r.Deadline) {
			return r.refuse(launch.ErrNotAllowed, "the deadline of request %s has not passed", r.ID)
		}
		if done, err := s.byDefault(); done || err != nil {
			return err
		}
	case launch.CodeTimedOut, launch.CodeSubmissionMissing:
	default:
		return r.refuse(launch.ErrInvalid, "a request expires as request_expired, timed_out or submission_missing")
	}
	key := r.CandidateBy
	r.Revision++
	r.State, r.Why, r.Settled = Expired, c.Why, s.now.Wall
	r.Candidate, r.CandidateBy = nil, Provenance{}
	e := Event{Kind: EvExpired, By: launch.Timer}
	if key != (Provenance{}) {
		e.Verdict, e.Key = Conflict, key
	}
	s.event(e)
	return nil
}

// byDefault accepts the declared answer, if there is one (rule request/expiry).
func (s *step) byDefault() (bool, error) {
	r := &s.r
	c, err := r.contract()
	if err != nil || c.Default == nil {
		return false, err
	}
	answer := []byte(c.Default)
	if r.Kind == run.Decision {
		var choice string
		if json.Unmarshal(c.Default, &choice) != nil {
			return false, r.refuse(launch.ErrInternal, "the stored default of request %s is no choice", r.ID)
		}
		if answer, err = decided(Decision{Choice: choice}, "timeout", ""); err != nil {
			return false, err
		}
	}
	print, _, err := fingerprint(Act{Action: ActDefault, Payload: answer})
	if err != nil {
		return false, err
	}
	key := r.CandidateBy
	r.accept(ActDefault, Provenance{Actor: launch.Timer}, answer, print, s.now)
	e := Event{Kind: EvAccepted, By: launch.Timer}
	if key != (Provenance{}) {
		e.Verdict, e.Key = Conflict, key
	}
	s.event(e)
	return true, nil
}

func (End) apply(s *step) error {
	if err := s.open(); err != nil {
		return err
	}
	r := &s.r
	e := Event{Kind: EvCancelled}
	if r.CandidateBy != (Provenance{}) {
		e.Verdict, e.Key = Conflict, r.CandidateBy
	}
	r.Revision++
	r.State, r.Settled = Cancelled, s.now.Wall
	r.Candidate, r.CandidateBy = nil, Provenance{}
	s.event(e)
	return nil
}

func (c Prompted) apply(s *step) error {
	if err := s.open(); err != nil {
		return err
	}
	r := &s.r
	r.Prompts++
	r.Latest = 0
	switch c.Form {
	case Initial:
	case Resumed:
		if r.Resumed >= MaxResumed {
			return r.refuse(launch.ErrOverBudget, "request %s was prompted again %d times; a person resumes its run", r.ID, MaxResumed)
		}
		r.Resumed++
	case Reminder:
		if r.Reminders >= MaxReminders {
			return r.refuse(launch.ErrOverBudget, "request %s was reminded of %d times", r.ID, MaxReminders)
		}
		r.Reminders++
	default:
		return r.refuse(launch.ErrInvalid, "a prompt is initial, resumed or a reminder")
	}
	s.event(Event{Kind: EvPrompted})
	return nil
}

func (TurnOpened) apply(s *step) error {
	s.r.Latest = 0
	return nil
}

func (c TurnClosed) apply(s *step) error {
	r := &s.r
	r.Latest = c.End
	if c.PromptEntry != "" || c.ResponseEntry != "" {
		r.PromptEntry, r.ResponseEntry = c.PromptEntry, c.ResponseEntry
	}
	return nil
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
	case r.Kind != run.Decision || r.State != Accepted || c.Effect == (launch.Digest{}):
		return r.refuse(launch.ErrNotAllowed, "request %s is no accepted decision and approves nothing", r.ID)
	case r.UsedBy == c.Effect:
		return nil
	case r.UsedBy != (launch.Digest{}):
		return r.refuse(launch.ErrConflict, "the approval of request %s was used by another effect; ask again", r.ID)
	}
	r.UsedBy = c.Effect
	s.event(Event{Kind: EvUsed})
	return nil
}

// Due is what has to be done about an open request.
type Due uint8

// What is due.
const (
	Nothing    Due = iota
	Remind         // queue a reminder
	Prompt         // queue a resumed prompt
	GiveUp         // it is over: the model was reminded in vain
	NeedPerson     // park its run for attention
	Hold           // pause its run: the provider failed
)

// Situation is what [Request.Next] has to know besides the request.
type Situation struct {
	Held     bool // its run is paused or parked for attention
	Unsent   bool // a message of it waits to be sent, or is blocked
	Open     bool // a turn of it is open
	Resuming bool // a person has just resumed its run
}

// Next says whether the model has to be told again (rules request/prompts and
// request/reminders).
func (r *Request) Next(s Situation) Due {
	if r.State != Pending || !r.Kind.Prompts() || s.Held || s.Unsent || s.Open {
		return Nothing
	}
	switch r.Latest {
	case session.Completed:
		if r.Reminders < MaxReminders {
			return Remind
		}
		return GiveUp
	case session.Error:
		if !s.Resuming {
			return Hold
		}
		fallthrough
	case session.Lost, session.Aborted:
		if r.Resumed < MaxResumed {
			return Prompt
		}
		return NeedPerson
	}
	return Nothing
}
