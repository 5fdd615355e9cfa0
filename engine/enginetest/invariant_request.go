package enginetest

import (
	"fmt"
	"reflect"
	"slices"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// OneOpen: a run has at most one request that is pending or validating, it is
// that of its current attempt, and a run that has ended has none. A run that has
// asked has the request.
func OneOpen(runs []run.Run, all []request.Request) error {
	of, open := map[launch.RunID]*run.Run{}, map[launch.RunID]string{}
	ids := map[string]bool{}
	for i := range runs {
		of[runs[i].ID] = &runs[i]
	}
	for _, q := range all {
		ids[q.ID] = true
		r := of[q.Run]
		switch {
		case r == nil:
			return fmt.Errorf("OneOpen: %s belongs to no run", q.ID)
		case q.State.Over():
		case open[q.Run] != "":
			return fmt.Errorf("OneOpen: %s and %s of run %s are both open", open[q.Run], q.ID, q.Run)
		case r.Status.Terminal():
			return fmt.Errorf("OneOpen: %s is %s and its run has ended as %s", q.ID, q.State, r.Status)
		case !r.Asked || q.Node != r.Node || q.Visit != r.Visit || q.Attempt != r.Attempt:
			return fmt.Errorf("OneOpen: %s is %s and its run has gone on", q.ID, q.State)
		default:
			open[q.Run] = q.ID
		}
	}
	for _, r := range runs {
		if id := request.ID(r.ID, r.Node, r.Visit, r.Attempt); r.Asked && !ids[id] {
			return fmt.Errorf("OneOpen: run %s has asked and %s is gone", r.ID, id)
		}
	}
	return nil
}

// Bound: from one commit to the next a request stays bound to its run, node,
// visit, attempt, session, contract, subject and deadline, and its revision rises
// by one when it is over, and else stays.
func Bound(before, after request.Request) error {
	b, a := before, after
	bad := func(what string) error { return fmt.Errorf("Bound: %s of %s", what, before.ID) }
	switch {
	case b.ID != a.ID || b.Run != a.Run || b.Node != a.Node || b.Visit != a.Visit || b.Attempt != a.Attempt || b.Session != a.Session || b.Kind != a.Kind:
		return bad("what it is bound to changed")
	case b.Digest != a.Digest || string(b.Contract) != string(a.Contract) || b.Subject != a.Subject || b.Deadline != a.Deadline || b.Opened != a.Opened:
		return bad("the contract, subject or deadline changed")
	case a.Revision != b.Revision && !(a.Revision == b.Revision+1 && a.State.Over() && !b.State.Over()), a.Revision == b.Revision && a.State.Over() != b.State.Over():
		return bad("the revision does not say that it is over")
	}
	return nil
}

// Final: a request that is over stays as it is. Only its run may take the answer
// over, one effect may use it as its approval, and its last turn may still end.
func Final(before, after request.Request) error {
	if !before.State.Over() {
		return nil
	}
	b, a := before, after
	taken := a.Answer == nil
	used := b.UsedBy == (launch.Digest{})
	if taken {
		b.Answer = nil
	}
	if used {
		b.UsedBy = a.UsedBy
	}
	b.Latest, b.PromptEntry, b.ResponseEntry = a.Latest, a.PromptEntry, a.ResponseEntry
	if !reflect.DeepEqual(b, a) {
		return fmt.Errorf("Final: %s was %s and changed", before.ID, before.State)
	}
	return nil
}

// ByMatrix: an accepted request was answered by an action and an actor that the
// matrix has for its kind; a decision never by a model.
func ByMatrix(q request.Request) error {
	if q.State != request.Accepted {
		return nil
	}
	for _, c := range request.Matrix() {
		if c.Action == q.ByAction && c.Kind == q.Kind && slices.Contains(c.Actors, q.By.Actor) &&
			q.ByAction != request.ActUpdate && q.ByAction != request.ActExpire && q.ByAction != request.ActEnd {
			return nil
		}
	}
	return fmt.Errorf("ByMatrix: %s of kind %s was answered by %s of the %s", q.ID, q.Kind, q.ByAction, q.By.Actor)
}

// PromptBounds: a request is prompted, resumed and reminded only while it is
// open, reminders never fall, and neither passes its bound.
func PromptBounds(before, after request.Request) error {
	b, a := before, after
	switch {
	case a.Reminders > request.MaxReminders || a.Resumed > request.MaxResumed:
		return fmt.Errorf("PromptBounds: %s has %d reminders and %d resumed prompts", a.ID, a.Reminders, a.Resumed)
	case a.Reminders < b.Reminders || a.Prompts < b.Prompts:
		return fmt.Errorf("PromptBounds: a prompt of %s was taken back", a.ID)
	case b.State.Over() && a.Prompts != b.Prompts:
		return fmt.Errorf("PromptBounds: %s was prompted after its end", a.ID)
	case a.Resumed != 0 && int(a.Resumed)-int(b.Resumed)+int(a.Reminders)-int(b.Reminders) > int(a.Prompts)-int(b.Prompts):
		return fmt.Errorf("PromptBounds: %s counts more prompts than were made", a.ID)
	}
	return nil
}

// RefusedKeeps: an action that is refused changes nothing. One of the model whose
// payload does not fit leaves the reason, and nothing else.
func RefusedKeeps(before *request.Request, p request.Reply) error {
	if p.Err == nil {
		return nil
	}
	var want request.Request
	if before != nil {
		want = *before
	}
	if p.Changed && p.Outcome == request.Rejected {
		want.Rejection = p.Request.Rejection
	}
	switch {
	case p.Changed && p.Outcome != request.Rejected || !reflect.DeepEqual(want, p.Request):
		return fmt.Errorf("RefusedKeeps: %s was refused (%v) and changed", want.ID, p.Err)
	case !p.Changed && len(p.Events) > 0:
		return fmt.Errorf("RefusedKeeps: %s was refused (%v) with an event", want.ID, p.Err)
	}
	return nil
}

// Answered: what the matrix calls an answer was taken once for each request, and
// the receipt of who answered says so. An action that was taken, or whose
// candidate is checked, has a fingerprint.
func Answered(all []request.Request, receipts []request.Receipt) error {
	type key struct {
		session      launch.SessionKey
		request, key string
	}
	of, taken := map[key]request.Receipt{}, map[string]int{}
	for _, r := range receipts {
		k := key{r.Session, r.Request, r.Key}
		if _, twice := of[k]; twice {
			return fmt.Errorf("Answered: key %q of %s has two receipts", r.Key, r.Request)
		}
		of[k] = r
		if r.Outcome == request.Taken && r.Action != request.ActUpdate {
			taken[r.Request]++
		}
		if (r.Outcome == request.Taken || r.Outcome == request.Started) && r.Print == (launch.Digest{}) || (r.Outcome == 0) {
			return fmt.Errorf("Answered: receipt %q of %s has no fingerprint or outcome", r.Key, r.Request)
		}
	}
	for _, q := range all {
		k := key{q.Session, q.ID, q.By.Key}
		if q.By.Actor != launch.Model {
			k.session = ""
		}
		r, ok := of[k]
		switch {
		case q.State == request.Accepted && q.By.Actor != launch.Timer && (!ok || r.Outcome != request.Taken || r.Print != q.Print):
			return fmt.Errorf("Answered: %s was answered under key %q, whose receipt says %s", q.ID, q.By.Key, r.Outcome)
		case taken[q.ID] > 1 || taken[q.ID] == 1 && (q.State != request.Accepted || q.By.Actor == launch.Timer):
			return fmt.Errorf("Answered: %s is %s and %d actions are said to have answered it", q.ID, q.State, taken[q.ID])
		}
	}
	return nil
}

// ReceiptFixed: from one commit to the next a receipt stays as it is, but for the
// outcome of a candidate that was being checked.
func ReceiptFixed(before, after request.Receipt) error {
	b := before
	if b.Outcome == request.Started {
		b.Outcome, b.Kind, b.Reason = after.Outcome, after.Kind, after.Reason
	}
	if b != after {
		return fmt.Errorf("ReceiptFixed: the receipt of key %q of %s changed", before.Key, before.Request)
	}
	return nil
}

// ApprovalUsedOnce: a decision approves one effect, which exists and asks for
// what was decided about; no effect is approved twice.
func ApprovalUsedOnce(all []request.Request, effects []effect.Effect) error {
	of, used := map[launch.Digest]effect.Effect{}, map[launch.Digest]string{}
	for _, e := range effects {
		of[e.Key.ID()] = e
	}
	for _, q := range all {
		if q.UsedBy == (launch.Digest{}) {
			continue
		}
		e, ok := of[q.UsedBy]
		switch {
		case q.Kind != run.Decision || q.State != request.Accepted:
			return fmt.Errorf("ApprovalUsedOnce: %s is no accepted decision and approves an effect", q.ID)
		case used[q.UsedBy] != "":
			return fmt.Errorf("ApprovalUsedOnce: %s and %s approve one effect", used[q.UsedBy], q.ID)
		case !ok || e.Key.Run != q.Run:
			return fmt.Errorf("ApprovalUsedOnce: %s approves an effect that its run has not", q.ID)
		case e.Fingerprint != q.Subject:
			return fmt.Errorf("ApprovalUsedOnce: %s approves something else than what was decided about", q.ID)
		}
		used[q.UsedBy] = q.ID
	}
	return nil
}
