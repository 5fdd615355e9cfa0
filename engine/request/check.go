package request

import (
	"encoding/json"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Check reports whether a stored row can have been made by this package: it is
// the row invariant "request/row".
func Check(r Request) error {
	bad := func(what string) error { return r.refuse(launch.ErrInternal, "request/row: %s", what) }
	var c Contract
	none := launch.Digest{}
	switch {
	case r.Visit == 0 || r.Attempt == 0 || r.ID != ID(r.Run, r.Node, r.Visit, r.Attempt):
		return bad("the id is not that of its attempt")
	case !r.Kind.Asks() || r.State < Pending || r.State > Cancelled || r.Revision == 0:
		return bad("no kind, state or revision")
	case r.Digest != launch.DigestOf(r.Contract):
		return bad("another contract than its digest says")
	case len(r.Contract) > MaxContract || json.Unmarshal(r.Contract, &c) != nil:
		return bad("the contract cannot be read")
	case (r.State == Validating) != (r.Candidate != nil), (r.State == Validating) != (r.CandidateBy != Provenance{}):
		return bad("a candidate goes with validating")
	case r.State == Validating && !c.Validates, r.Tries > 0 && r.State != Validating, r.Tries > MaxTries:
		return bad("only a node with validation code has candidates, and each at most two tries")
	case (r.State == Accepted) != (r.Print != none), (r.State == Accepted) != (r.By != Provenance{}), (r.State == Accepted) != (r.ByAction != 0):
		return bad("a fingerprint and who answered go with accepted")
	case r.State == Accepted && !Allows(r.ByAction, r.Kind, r.By.Actor):
		return bad("answered by an action or actor that its kind does not take")
	case r.State == Accepted && r.By.Actor == launch.Person && (r.By.Person == "" || r.By.Channel == "" || r.By.Event == ""):
		return bad("answered by a person whom no channel verified")
	case (r.State == Expired) != (r.Why != ""), r.Why != "" && !r.Why.OfRun():
		return bad("a reason goes with expired")
	case r.State.Over() != (r.Settled != 0):
		return bad("a settling time goes with a request that is over")
	case r.Answer != nil && r.State != Accepted:
		return bad("an answer goes with accepted")
	case r.Deadline != 0 && r.Kind.Prompts():
		return bad("only checkpoints and decisions have a deadline")
	case r.Reminders > MaxReminders || r.Resumed > MaxResumed:
		return bad("more prompts than there may be")
	case uint32(r.Reminders)+uint32(r.Resumed) > max(r.Prompts, 1)-1, r.Prompts > 1 && !r.Kind.Prompts():
		return bad("more prompts than were counted")
	case r.Latest > session.Lost:
		return bad("no such end of a turn")
	case r.UsedBy != none && (r.Kind != run.Decision || r.State != Accepted):
		return bad("only an accepted decision approves an effect")
	case (r.Progress != nil) != (r.ProgressAt != 0), r.Progress != nil && !c.Updates:
		return bad("progress goes with its time, and with a contract that takes it")
	}
	return nil
}
