package request

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Act is one action that somebody does to a request, by its exact id.
type Act struct {
	Request string
	Action  Action
	Actor   launch.Actor
	Session launch.SessionKey // where a model's action comes from
	Key     string            // random per execution (rule request/keys)
	// Revision is the one that the caller saw. It must be current for a new key;
	// 0 names none, which a decision may not do.
	Revision uint64
	Payload  []byte // JSON: an output, a [Progress], a response text or a [Decision]
	// Of a person: who, as the channel has verified, where, and the channel's id
	// of the event.
	Person, Channel, Event string
}

// Decision is the payload of [ActDecide].
type Decision struct {
	Choice string `json:"choice"`
	Text   string `json:"text,omitempty"`
}

// Receipt is what one action came to; session, request and key name it.
type Receipt struct {
	Session  launch.SessionKey // of a model's action, else empty
	Request  string            // as the caller wrote it
	Key      string
	Action   Action
	Actor    launch.Actor
	Print    launch.Digest // fingerprint of action and payload
	Outcome  Outcome
	Kind     launch.Kind // of a refusal, or 0
	Reason   string      // one safe line, or empty
	Revision uint64      // of the request then
	At       launch.Time
}

// Reply is what [Respond] decides.
type Reply struct {
	Request Request // zero when the caller may not know of it
	Changed bool
	Receipt *Receipt // to store; nil when the key has one, or is none
	Outcome Outcome
	Err     error // a launch.Refusal, or nil when the action stands
	Events  []Event
}

// Respond carries one action to a request (rule request/order). r is nil when
// there is none of that id; had is the receipt of the same key, or nil. A refused
// action leaves the request as it was, but for the reason of a misfit.
func Respond(r *Request, a Act, had *Receipt, now launch.Now) Reply {
	p := Reply{}
	if err := launch.CheckKey("action key", a.Key); err != nil {
		p.end(Rejected, err)
		return p
	}
	print := fingerprint(a.Action, a.Payload)
	if had == nil {
		p.Receipt = &Receipt{Request: a.Request, Key: a.Key, Action: a.Action, Actor: a.Actor, Print: print, At: now.Wall}
		if a.Actor == launch.Model {
			p.Receipt.Session = a.Session
		}
	}
	if r == nil || !r.visible(a) {
		p.end(NotFound, launch.Refuse(launch.ErrNotFound, "no such request here; use the exact request id of the message that asks"))
		return p
	}
	p.Request = *r
	if had == nil {
		p.Receipt.Revision = r.Revision
	}
	c, err := r.contract()
	switch {
	case err != nil:
		p.end(Conflict, err)
	case !responds(a.Action, a.Actor):
		p.end(Conflict, r.refuse(launch.ErrNotAllowed, "the %s may not %s; %s", a.Actor, a.Action, r.expects(&c)))
	case had != nil && (had.Print != print || had.Actor != a.Actor):
		p.end(Conflict, r.refuse(launch.ErrConflict, "the action key was used with another action or payload; use a new key for a new answer"))
	case had != nil:
		p.again(had)
	default:
		p.end(p.act(a, &c, print, now))
	}
	return p
}

// visible reports whether whoever acts may know of the request (rule
// request/id).
func (r *Request) visible(a Act) bool {
	return r.ID == a.Request && (a.Actor != launch.Model || a.Session != "" && a.Session == r.Session)
}

// end notes what the action came to, in the receipt too.
func (p *Reply) end(o Outcome, err error) {
	p.Outcome, p.Err = o, err
	if p.Receipt == nil {
		return
	}
	p.Receipt.Outcome = o
	if refused, ok := errors.AsType[*launch.Refusal](err); ok {
		p.Receipt.Kind, p.Receipt.Reason = refused.Kind, launch.SafeText(refused.Message, launch.MaxErrorMessage)
	}
}

// again answers a repeated action as its first execution was answered.
func (p *Reply) again(had *Receipt) {
	switch had.Outcome {
	case Taken, Adopted:
		p.Outcome = Adopted
	case Started:
		p.Outcome = Started
	default:
		p.Outcome, p.Err = had.Outcome, p.Request.refuse(had.Kind, "%s", had.Reason)
	}
}

// act decides about an action whose key is new.
func (p *Reply) act(a Act, c *Contract, print launch.Digest, now launch.Now) (Outcome, error) {
	r := &p.Request
	if !Allows(a.Action, r.Kind, a.Actor) || a.Action == ActUpdate && !c.Updates {
		return Conflict, r.refuse(launch.ErrWrongKind, "request %s does not take %s; %s", r.ID, a.Action, r.expects(c))
	}
	switch r.State {
	case Pending:
	case Validating:
		return Conflict, r.refuse(launch.ErrValidating, "an answer to request %s is being checked; wait for its verdict", r.ID)
	case Accepted:
		if r.Print == print {
			return Adopted, nil
		}
		return Conflict, r.refuse(launch.ErrAlreadyDecided, "request %s was answered at %s by %s; that stands", r.ID, r.Settled, r.winner())
	case Expired:
		return Conflict, r.refuse(launch.ErrExpired, "request %s is over (%s); look at the status of run %s", r.ID, r.Why, r.Run)
	default:
		return Conflict, r.refuse(launch.ErrEnded, "request %s ended with its run %s; nothing can be answered any more", r.ID, r.Run)
	}
	switch {
	case now.Passed(r.Deadline):
		return Conflict, r.refuse(launch.ErrExpired, "the deadline of request %s has passed; look at the status of run %s", r.ID, r.Run)
	case a.Revision != r.Revision && (a.Revision != 0 || a.Action == ActDecide):
		return Conflict, r.refuse(launch.ErrStale, "request %s is at revision %d, the action names %d; look at it again", r.ID, r.Revision, a.Revision)
	}
	by, err := a.by()
	if err != nil {
		return Rejected, err
	}
	if a.Action == ActUpdate {
		return p.update(a.Payload, now)
	}
	answer, err := c.answer(r.Kind, a)
	if err != nil {
		p.misfit(a.Actor, err)
		return Rejected, err
	}
	p.Changed = true
	if c.Validates {
		r.State, r.Candidate, r.CandidateBy = Validating, answer, by
		p.Events = []Event{{Kind: EvCandidate, By: by.Actor}}
		return Started, nil
	}
	r.accept(a.Action, by, answer, print, now)
	p.Events = []Event{{Kind: EvAccepted, By: by.Actor}}
	return Taken, nil
}

// by is the provenance of an action. A person has to be verified (rule
// request/provenance).
func (a *Act) by() (Provenance, error) {
	by := Provenance{Actor: a.Actor, Key: a.Key}
	if a.Actor != launch.Person {
		return by, nil
	}
	for _, k := range [...]struct{ field, value string }{{"person", a.Person}, {"channel", a.Channel}, {"channel event id", a.Event}} {
		if err := launch.CheckKey(k.field, k.value); err != nil {
			return by, err
		}
	}
	by.Person, by.Channel, by.Event = a.Person, a.Channel, a.Event
	return by, nil
}

// misfit records why an answer of the model was rejected, for the next prompt
// (rule request/refused).
func (p *Reply) misfit(by launch.Actor, err error) {
	refused, ok := errors.AsType[*launch.Refusal](err)
	if !ok || by != launch.Model {
		return
	}
	why := launch.SafeText(refused.Message, launch.MaxErrorMessage)
	if p.Changed = why != p.Request.Rejection; p.Changed {
		p.Request.Rejection = why
		p.Events = []Event{{Kind: EvRejected, By: by}}
	}
}

// accept makes an open request accepted (rule request/accepted).
func (r *Request) accept(action Action, by Provenance, answer []byte, print launch.Digest, now launch.Now) {
	r.Revision++
	r.State, r.Settled = Accepted, now.Wall
	r.ByAction, r.By, r.Answer, r.Print = action, by, answer, print
	r.Candidate, r.CandidateBy, r.Tries = nil, Provenance{}, 0
}

// winner says who answered.
func (r *Request) winner() string {
	if r.ByAction == ActDefault {
		return "the default of its deadline"
	}
	return "the " + r.By.Actor.String()
}

// expects says what answers the request, and who.
func (r *Request) expects(c *Contract) string {
	switch r.Kind {
	case run.Agent:
		if c.Updates {
			return "the model of its session submits its output, and may update its progress before"
		}
		return "the model of its session submits its output"
	case run.Assistant:
		return "the model of its session answers it with the visible text of its turn"
	case run.Checkpoint:
		return "the model of its session or a person answers it"
	}
	return "only a person decides it" + c.audience() + ", with /workflow decide " + r.ID + " <choice>; tell the person and wait"
}

func (c *Contract) audience() string {
	if c.Audience == "" {
		return ""
	}
	return " (" + c.Audience + ")"
}

// fingerprint is the digest of action and payload as canonical JSON; a payload
// that is no JSON counts byte by byte (rule request/keys).
func fingerprint(a Action, payload []byte) launch.Digest {
	clean, err := canon.Canonical(payload)
	if err != nil {
		clean = payload
	}
	return launch.DigestOf(slices.Concat([]byte(`{"action":"`+a.String()+`","payload":`), clean, []byte("}")))
}

// answer returns the answer that a payload stands for, or why it does not fit.
func (c *Contract) answer(k run.Kind, a Act) ([]byte, error) {
	if k != run.Decision {
		return CheckForm(c.Form, c.Choices, a.Payload, "output")
	}
	var d Decision
	if err := canon.Decode(a.Payload, launch.MaxOptions, "decision", &d); err != nil {
		return nil, err
	}
	if err := c.checkDecision(d, "choice"); err != nil {
		return nil, err
	}
	return decided(d, "person", a.Person)
}

// checkDecision refuses a choice outside the closed set, and a text that the
// choice does not take.
func (c *Contract) checkDecision(d Decision, field string) error {
	if !slices.Contains(c.Choices, d.Choice) {
		return invalid(field, "must be one of %q", c.Choices)
	}
	text := run.TextInput{Choice: d.Choice}
	if i := slices.IndexFunc(c.Texts, func(t run.TextInput) bool { return t.Choice == d.Choice }); i >= 0 {
		text = c.Texts[i]
	}
	switch n := utf8.RuneCountInString(d.Text); {
	case text.Required && strings.TrimSpace(d.Text) == "":
		return invalid(field, "%s needs a text of 1 to %d characters", d.Choice, text.Max)
	case n > text.Max:
		return invalid(field, "%s takes a text of at most %d characters; this one has %d", d.Choice, text.Max, n)
	}
	return nil
}

// decided is the output of a decision: choice and text, and whether a "person"
// or the "timeout" made it.
func decided(d Decision, by, person string) ([]byte, error) {
	raw, err := json.Marshal(struct {
		Decision
		By     string `json:"by"`
		Person string `json:"person,omitempty"`
	}{d, by, person})
	if err != nil {
		return nil, launch.Refuse(launch.ErrInternal, "a decision cannot be encoded")
	}
	return raw, nil
}
