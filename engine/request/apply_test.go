package request_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	ses "example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Which command is refused in which state, for every kind.
func TestEveryCommand(t *testing.T) {
	const (
		no    = launch.ErrNotAllowed
		ended = launch.ErrEnded
		wrong = launch.ErrWrongKind
		lacks = launch.ErrConflict // nothing is being checked
	)
	effect := launch.DigestOf([]byte("effect"))
	for _, c := range []struct {
		command request.Command
		want    [5]launch.Kind // by state
	}{
		{request.Try{}, [5]launch.Kind{lacks, 0, lacks, lacks, lacks}},
		{request.NoVerdict{}, [5]launch.Kind{lacks, 0, lacks, lacks, lacks}},
		{request.Verdict{Accepted: true}, [5]launch.Kind{lacks, 0, lacks, lacks, lacks}},
		{request.Verdict{Reason: "no"}, [5]launch.Kind{lacks, 0, lacks, lacks, lacks}},
		{request.Expire{Why: launch.CodeTimedOut}, [5]launch.Kind{0, 0, ended, ended, ended}},
		{request.Expire{Why: launch.CodeNodeFailed}, [5]launch.Kind{launch.ErrInvalid, launch.ErrInvalid, ended, ended, ended}},
		{request.Expire{Why: launch.CodeRequestExpired}, [5]launch.Kind{no, no, ended, ended, ended}},
		{request.Expire{Why: launch.CodeSubmissionMissing}, [5]launch.Kind{no, no, ended, ended, ended}},
		{request.End{}, [5]launch.Kind{0, 0, ended, ended, ended}},
		{request.Prompted{Form: request.Initial}, [5]launch.Kind{0, 0, ended, ended, ended}},
		{request.Prompted{Form: request.Reminder}, [5]launch.Kind{lacks, lacks, ended, ended, ended}},
		{request.Prompted{}, [5]launch.Kind{lacks, lacks, ended, ended, ended}},
		{request.TurnOpened{}, [5]launch.Kind{}},
		{request.TurnClosed{End: ses.Lost}, [5]launch.Kind{}},
		{request.TurnClosed{}, [5]launch.Kind{launch.ErrInvalid, launch.ErrInvalid, launch.ErrInvalid, launch.ErrInvalid, launch.ErrInvalid}},
		{request.Resume{}, [5]launch.Kind{}},
		{request.Take{}, [5]launch.Kind{no, no, 0, no, no}},
		{request.Use{}, [5]launch.Kind{no, no, no, no, no}},
		{request.Use{Effect: effect}, [5]launch.Kind{no, no, no, no, no}}, // but a decision, below
		{nil, [5]launch.Kind{launch.ErrInternal, launch.ErrInternal, launch.ErrInternal, launch.ErrInternal, launch.ErrInternal}},
	} {
		for _, k := range kinds {
			for i, s := range request.States() {
				r, ok := in(t, k, s)
				if !ok {
					continue
				}
				want := c.want[i]
				if c.command == (request.Use{Effect: effect}) && k == run.Decision && s == request.Accepted {
					want = 0
				}
				why := k.String() + " " + s.String()
				got, events, err := request.Apply(r, c.command, after(time.Minute))
				if wantKind(t, why, err, want); err != nil {
					same(t, why, r, got)
					if events != nil {
						t.Errorf("%s: %T is refused with events", why, c.command)
					}
				}
				sound(t, got)
			}
		}
	}
	for _, k := range []run.Kind{run.Checkpoint, run.Decision} { // put once
		for _, f := range []request.PromptForm{request.Resumed, request.Reminder} {
			r := applied(t, open(t, k), request.Prompted{Form: request.Initial})
			_, _, err := request.Apply(r, request.Prompted{Form: f}, after(0))
			wantKind(t, k.String()+" "+f.String(), err, wrong)
		}
	}
}

// validating returns a request whose candidate is being checked, and its event.
func validating(t *testing.T, k run.Kind) request.Request {
	t.Helper()
	r, _ := in(t, k, request.Validating)
	return r
}

func TestVerdicts(t *testing.T) {
	for _, k := range kinds[:3] {
		r := validating(t, k)
		by := request.Provenance{Actor: launch.Model, Key: answer(open(t, k)).Key}
		if r.Revision != 1 || string(r.Candidate) != answers[k].payload || r.CandidateBy != by {
			t.Fatalf("%s: candidate %s of %+v at revision %d", k, r.Candidate, r.CandidateBy, r.Revision)
		}
		r = applied(t, r, request.Try{})

		got, events, err := request.Apply(r, request.Verdict{Accepted: true}, after(time.Minute))
		sound(t, got)
		if err != nil || got.State != request.Accepted || string(got.Answer) != answers[k].payload || got.By != by || got.ByAction != answers[k].action || got.Revision != 2 {
			t.Errorf("%s: accepted as %+v, %v", k, got, err)
		}
		if d := cmp.Diff([]request.Event{{Kind: request.EvAccepted, By: launch.Model, Verdict: request.Taken, Key: by}}, events); d != "" {
			t.Errorf("%s: %s", k, d)
		}
		// The payload that was sent is what adopts, not what the check made of it.
		got, _, err = request.Apply(r, request.Verdict{Accepted: true, Output: []byte(`{"text":"clean"}`)}, after(time.Minute))
		if err != nil || string(got.Answer) != `{"text":"clean"}` {
			t.Errorf("%s: the output of the check is not taken: %s, %v", k, got.Answer, err)
		}
		a := act(got, answers[k].action, launch.Model, answers[k].payload)
		a.Key = "again"
		if p := request.Respond(&got, a, nil, after(time.Minute)); p.Outcome != request.Adopted {
			t.Errorf("%s: the payload that was accepted is %s", k, p.Outcome)
		}

		got, events, err = request.Apply(r, request.Verdict{Reason: "too\nshort"}, after(time.Minute))
		sound(t, got)
		if err != nil || got.State != request.Pending || got.Rejection != "too short" || got.Revision != 1 {
			t.Errorf("%s: rejected as %+v, %v", k, got, err)
		}
		if d := cmp.Diff([]request.Event{{Kind: request.EvRejected, By: launch.Model, Verdict: request.Rejected, Key: by}}, events); d != "" {
			t.Errorf("%s: %s", k, d)
		}
		answered(t, got, act(got, answers[k].action, launch.Model, answers[k].another))
	}

	r := validating(t, run.Agent)
	for why, output := range map[string][]byte{"no JSON": []byte("{"), "no UTF-8": []byte("\"\xff\""), "too large": []byte(`"` + strings.Repeat("x", launch.MaxOutput) + `"`)} {
		got, _, err := request.Apply(r, request.Verdict{Accepted: true, Output: output}, after(0))
		wantKind(t, why, err, launch.ErrInvalid)
		same(t, why, r, got)
	}
	if got := applied(t, r, request.Verdict{}); got.Rejection == "" {
		t.Error("a verdict without a reason explains nothing")
	}
	if got := applied(t, r, request.Verdict{Reason: strings.Repeat("long ", 1000)}); len(got.Rejection) > launch.MaxErrorMessage {
		t.Errorf("a reason of %d bytes is kept", len(got.Rejection))
	}
}

// A check that ends without a verdict is run once more, then the candidate is
// rejected, whether the check said so or its worker was lost.
func TestTries(t *testing.T) {
	for why, ends := range map[string][]request.Command{
		"says nothing twice":      {request.Try{}, request.NoVerdict{}, request.Try{}, request.NoVerdict{}},
		"lost twice":              {request.Try{}, request.Try{}, request.Try{}},
		"lost, then says nothing": {request.Try{}, request.Try{}, request.NoVerdict{}},
	} {
		r := validating(t, run.Agent)
		before := applied(t, r, ends[:len(ends)-1]...)
		if before.State != request.Validating || before.Revision != r.Revision {
			t.Errorf("%s: is %s too early", why, before.State)
		}
		if after := applied(t, before, ends[len(ends)-1]); after.State != request.Pending || after.Rejection == "" || after.Tries != 0 {
			t.Errorf("%s: %s %q", why, after.State, after.Rejection)
		}
	}
}

func TestExpiry(t *testing.T) {
	late := after(time.Hour)
	for _, k := range []run.Kind{run.Checkpoint, run.Decision} {
		r := open(t, k)
		got, events, err := request.Apply(r, request.Expire{Why: launch.CodeRequestExpired}, late)
		sound(t, got)
		if err != nil || got.State != request.Expired || got.Why != launch.CodeRequestExpired || got.Settled != late.Wall || got.Revision != 2 {
			t.Errorf("%s: %+v, %v", k, got, err)
		}
		if d := cmp.Diff([]request.Event{{Kind: request.EvExpired, By: launch.Timer}}, events); d != "" {
			t.Error(d)
		}
		_, _, err = request.Apply(r, request.Expire{Why: launch.CodeRequestExpired}, launch.Now{Wall: late.Wall, Distrust: true})
		wantKind(t, "distrusted clock", err, launch.ErrNotAllowed)
	}
	for _, c := range []struct {
		kind                        run.Kind
		declared, want, same, other string
	}{
		{run.Checkpoint, ` 3 `, `3`, `3`, `4`},
		{run.Decision, `"ship"`, `{"choice":"ship","by":"timeout"}`, `{"choice":"ship"}`, `{"choice":"hold","text":"x"}`},
	} {
		r := open(t, c.kind, defaults(c.declared))
		got, events, err := request.Apply(r, request.Expire{Why: launch.CodeRequestExpired}, late)
		sound(t, got)
		if err != nil || got.State != request.Accepted || string(got.Answer) != c.want || got.ByAction != request.ActDefault ||
			got.By != (request.Provenance{Actor: launch.Timer}) {
			t.Errorf("%s: %+v, %v", c.kind, got, err)
		}
		if d := cmp.Diff([]request.Event{{Kind: request.EvAccepted, By: launch.Timer}}, events); d != "" {
			t.Error(d)
		}
		p := request.Respond(&got, act(got, answers[c.kind].action, launch.Person, c.other), nil, late)
		if refused := wantKind(t, "too late", p.Err, launch.ErrAlreadyDecided); !strings.Contains(refused.Message, "the default of its deadline") {
			t.Errorf("%q does not name the winner", refused.Message)
		}
		if p := request.Respond(&got, act(got, answers[c.kind].action, launch.Person, c.same), nil, late); p.Outcome != request.Adopted {
			t.Errorf("%s: the same answer as the default is %s: %v", c.kind, p.Outcome, p.Err)
		}
		// An attempt that used up its time has no answer, whatever is declared.
		if got := applied(t, r, request.Expire{Why: launch.CodeTimedOut}); got.State != request.Expired {
			t.Errorf("%s: timed out as %s", c.kind, got.State)
		}
	}
}

// Whatever ends a request while a candidate is checked settles that action.
func TestEndWhileValidating(t *testing.T) {
	r := open(t, run.Checkpoint, validates, defaults(`3`))
	r = answered(t, r, answer(r)).Request
	by := r.CandidateBy
	for _, c := range []struct {
		command request.Command
		want    request.Event
	}{
		{request.End{}, request.Event{Kind: request.EvCancelled, By: launch.Host}},
		{request.Expire{Why: launch.CodeTimedOut}, request.Event{Kind: request.EvExpired, By: launch.Timer}},
		{request.Expire{Why: launch.CodeRequestExpired}, request.Event{Kind: request.EvAccepted, By: launch.Timer}},
	} {
		c.want.Verdict, c.want.Key = request.Conflict, by
		got, events, err := request.Apply(r, c.command, after(time.Hour))
		sound(t, got)
		if d := cmp.Diff([]request.Event{c.want}, events); d != "" || err != nil {
			t.Errorf("%T: %v (-want +got)\n%s", c.command, err, d)
		}
		_, _, err = request.Apply(got, request.Verdict{Accepted: true}, after(time.Hour))
		wantKind(t, "a verdict that comes too late", err, launch.ErrConflict)
	}
}

func TestApproval(t *testing.T) {
	one, two := launch.DigestOf([]byte("1")), launch.DigestOf([]byte("2"))
	r, _ := in(t, run.Decision, request.Accepted)
	r = applied(t, r, request.Take{})
	if r.Answer != nil || r.State != request.Accepted {
		t.Errorf("taken: %+v", r)
	}
	used := applied(t, r, request.Use{Effect: one})
	same(t, "the same effect again", used, applied(t, used, request.Use{Effect: one}))
	_, _, err := request.Apply(used, request.Use{Effect: two}, after(0))
	wantKind(t, "another effect", err, launch.ErrConflict)
}

func TestEvidence(t *testing.T) {
	r := applied(t, open(t, run.Agent), request.Prompted{Form: request.Initial}, request.TurnOpened{},
		request.TurnClosed{End: ses.Completed, PromptEntry: "p1", ResponseEntry: "r1"}, request.TurnOpened{})
	if r.Latest != 0 || r.PromptEntry != "p1" || r.ResponseEntry != "r1" {
		t.Errorf("evidence %s %s, end %s while a turn is open", r.PromptEntry, r.ResponseEntry, r.Latest)
	}
	r = applied(t, r, request.TurnClosed{End: ses.Lost})
	if r.PromptEntry != "p1" || r.Latest != ses.Lost {
		t.Errorf("an end without evidence: %s, %s", r.PromptEntry, r.Latest)
	}
	r = applied(t, r, request.TurnClosed{End: ses.Completed, PromptEntry: "p2", ResponseEntry: strings.Repeat("x", 1000)})
	if r.PromptEntry != "p2" || r.ResponseEntry != "" {
		t.Errorf("an id that is none is kept: %.20s", r.ResponseEntry)
	}
}

func TestMessage(t *testing.T) {
	for _, k := range kinds {
		r := open(t, k)
		if r.Message() != "" {
			t.Errorf("%s: has message %s before the first", k, r.Message())
		}
		want := k.String() + ":" + r.ID
		if k.Prompts() {
			want = "step:" + r.ID + ":1"
		}
		if r = applied(t, r, request.Prompted{Form: request.Initial}); r.Message() != want {
			t.Errorf("%s: message %s, want %s", k, r.Message(), want)
		}
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		why       string
		end       ses.End
		resumed   uint8
		reminders uint8
		s         request.Situation
		want      request.Due
	}{
		{"no turn yet, or one is open", 0, 0, 0, request.Situation{}, request.Nothing},
		{"completed without an answer", ses.Completed, 0, 0, request.Situation{}, request.Remind},
		{"the second reminder", ses.Completed, 3, 1, request.Situation{}, request.Remind},
		{"reminded in vain", ses.Completed, 0, 2, request.Situation{}, request.GiveUp},
		{"lost", ses.Lost, 0, 0, request.Situation{}, request.Prompt},
		{"lost a third time", ses.Lost, 2, 2, request.Situation{}, request.Prompt},
		{"lost too often", ses.Lost, 3, 0, request.Situation{}, request.NeedPerson},
		{"aborted", ses.Aborted, 0, 0, request.Situation{}, request.Prompt},
		{"aborted too often", ses.Aborted, 3, 0, request.Situation{}, request.NeedPerson},
		{"provider error", ses.Error, 0, 0, request.Situation{}, request.Hold},
		{"provider error, at the limit", ses.Error, 3, 0, request.Situation{}, request.Hold},
		{"resumed after it", ses.Error, 0, 0, request.Situation{Resuming: true}, request.Prompt},
		{"resuming reminds too", ses.Completed, 0, 0, request.Situation{Resuming: true}, request.Remind},
		{"held", ses.Completed, 0, 0, request.Situation{Held: true}, request.Nothing},
		{"held, lost", ses.Lost, 3, 0, request.Situation{Held: true}, request.Nothing},
		{"a message waits to be sent", ses.Completed, 0, 2, request.Situation{Unsent: true}, request.Nothing},
		{"a turn is open", ses.Completed, 0, 0, request.Situation{Open: true}, request.Nothing},
	} {
		for _, k := range kinds {
			for _, s := range request.States() {
				r, ok := in(t, k, s)
				if !ok {
					continue
				}
				r.Latest, r.Resumed, r.Reminders = c.end, c.resumed, c.reminders
				want := c.want
				if s != request.Pending || !k.Prompts() {
					want = request.Nothing
				}
				if got := r.Next(c.s); got != want {
					t.Errorf("%s: %s %s: got %d, want %d", c.why, k, s, got, want)
				}
			}
		}
	}
	// An explicit resume gives three more prompts, and no reminder.
	r := applied(t, open(t, run.Agent), request.Prompted{Form: request.Initial}, request.Prompted{Form: request.Resumed},
		request.Prompted{Form: request.Resumed}, request.Prompted{Form: request.Resumed}, request.Prompted{Form: request.Reminder}, request.TurnClosed{End: ses.Lost})
	_, _, err := request.Apply(r, request.Prompted{Form: request.Resumed}, after(0))
	wantKind(t, "a fourth", err, launch.ErrOverBudget)
	if r = applied(t, r, request.Resume{}); r.Next(request.Situation{}) != request.Prompt || r.Reminders != 1 {
		t.Errorf("after a resume: %d prompts, %d reminders", r.Resumed, r.Reminders)
	}
	r = applied(t, r, request.Prompted{Form: request.Reminder})
	_, _, err = request.Apply(r, request.Prompted{Form: request.Reminder}, after(0))
	wantKind(t, "a third", err, launch.ErrOverBudget)
	if r = applied(t, r, request.Expire{Why: launch.CodeSubmissionMissing}); r.Why != launch.CodeSubmissionMissing {
		t.Errorf("given up as %s", r.Why)
	}
}

// Check refuses what the rules cannot make.
func TestCheck(t *testing.T) {
	some := launch.DigestOf([]byte("x"))
	for _, c := range []struct {
		why    string
		kind   run.Kind
		state  request.State
		change func(*request.Request)
	}{
		{"another id", run.Agent, request.Pending, func(r *request.Request) { r.Attempt++ }},
		{"no visit", run.Agent, request.Pending, func(r *request.Request) { r.Visit = 0; r.ID = request.ID(r.Run, r.Node, 0, r.Attempt) }},
		{"a kind that asks nothing", run.Agent, request.Pending, func(r *request.Request) { r.Kind = run.Compute }},
		{"no state", run.Agent, request.Pending, func(r *request.Request) { r.State = 0 }},
		{"no revision", run.Agent, request.Pending, func(r *request.Request) { r.Revision = 0 }},
		{"another contract", run.Agent, request.Pending, func(r *request.Request) { r.Contract = append(r.Contract, ' ') }},
		{"an unreadable contract", run.Agent, request.Pending, func(r *request.Request) { r.Contract = []byte("{"); r.Digest = launch.DigestOf(r.Contract) }},
		{"a candidate of a pending one", run.Agent, request.Pending, func(r *request.Request) { r.Candidate = []byte("1") }},
		{"nobody's candidate", run.Agent, request.Validating, func(r *request.Request) { r.CandidateBy = request.Provenance{} }},
		{"three tries", run.Agent, request.Validating, func(r *request.Request) { r.Tries = 3 }},
		{"tries without a candidate", run.Agent, request.Pending, func(r *request.Request) { r.Tries = 1 }},
		{"accepted by nobody", run.Agent, request.Accepted, func(r *request.Request) { r.By = request.Provenance{} }},
		{"accepted without a fingerprint", run.Agent, request.Accepted, func(r *request.Request) { r.Print = launch.Digest{} }},
		{"accepted by nothing", run.Agent, request.Accepted, func(r *request.Request) { r.ByAction = 0 }},
		{"decided by the model", run.Decision, request.Accepted, func(r *request.Request) { r.By.Actor = launch.Model }},
		{"decided by an answer", run.Decision, request.Accepted, func(r *request.Request) { r.ByAction = request.ActAnswer }},
		{"decided by somebody", run.Decision, request.Accepted, func(r *request.Request) { r.By.Person = "" }},
		{"expired for nothing", run.Agent, request.Expired, func(r *request.Request) { r.Why = "" }},
		{"pending for a reason", run.Agent, request.Pending, func(r *request.Request) { r.Why = launch.CodeTimedOut }},
		{"expired for a launch's reason", run.Agent, request.Expired, func(r *request.Request) { r.Why = launch.CodeInputInvalid }},
		{"over at no time", run.Agent, request.Cancelled, func(r *request.Request) { r.Settled = 0 }},
		{"pending and settled", run.Agent, request.Pending, func(r *request.Request) { r.Settled = 1 }},
		{"an answer of a cancelled one", run.Agent, request.Cancelled, func(r *request.Request) { r.Answer = []byte("1") }},
		{"deadline of a step", run.Agent, request.Pending, func(r *request.Request) { r.Deadline = 1 }},
		{"three reminders", run.Agent, request.Pending, func(r *request.Request) { r.Reminders, r.Prompts = 3, 9 }},
		{"four resumed prompts", run.Agent, request.Pending, func(r *request.Request) { r.Resumed, r.Prompts = 4, 9 }},
		{"reminded before it was put", run.Agent, request.Pending, func(r *request.Request) { r.Reminders, r.Prompts = 1, 1 }},
		{"a decision that is put twice", run.Decision, request.Pending, func(r *request.Request) { r.Prompts = 2 }},
		{"no such end", run.Agent, request.Pending, func(r *request.Request) { r.Latest = 9 }},
		{"an open decision approves", run.Decision, request.Pending, func(r *request.Request) { r.UsedBy = some }},
		{"a checkpoint approves", run.Checkpoint, request.Accepted, func(r *request.Request) { r.UsedBy = some }},
		{"progress of a checkpoint", run.Checkpoint, request.Pending, func(r *request.Request) { r.Progress, r.ProgressAt = []byte("{}"), 1 }},
		{"progress at no time", run.Agent, request.Pending, func(r *request.Request) { r.Progress = []byte("{}") }},
	} {
		r, _ := in(t, c.kind, c.state)
		c.change(&r)
		wantKind(t, c.why, request.Check(r), launch.ErrInternal)
	}
}
