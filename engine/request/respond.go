package request

import (
	"bytes"
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
	// 0 names none, which only the model may do.
	Revision uint64
	Payload  []byte // JSON: an output, progress, a response text, or a decision
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
	Print    launch.Digest // of action and payload; zero when the payload is no JSON
	Outcome  Outcome
	Kind     launch.Kind // of a refusal, or 0
	Reason   string      // one safe line, or empty
	Revision uint64      // of the request then
	At       launch.Time
}

// Reply is what [Respond] decides.
type Reply struct {
	Request Request
	Changed bool
	Receipt *Receipt // to store; nil when the key has one
	Outcome Outcome
	Err     error // a launch.Refusal, or nil when the action stands
	Events  []Event
}

// Respond carries one action to a request (rule request/order). r is nil when
// there is none of that id that the caller may know of; had is the receipt of the
// same key, or nil. A refused action changes nothing.
func Respond(r *Request, a Act, had *Receipt, now launch.Now) Reply {
	p := Reply{}
	if r != nil {
		p.Request = *r
	}
	print, clean, invalid := fingerprint(a)
	refuse := func(o Outcome, err error) Reply {
		p.Outcome, p.Err = o, err
		return p
	}
	if had != nil {
		switch {
		case r == nil:
			return refuse(NotFound, notFound())
		case had.Print != print || had.Action != a.Action || had.Actor != a.Actor:
			return refuse(Conflict, r.refuse(launch.ErrConflict, "the action key was used with another payload; use a new key for a new answer"))
		}
		return adopt(p, had)
	}
	p.Receipt = &Receipt{Session: a.Session, Request: a.Request, Key: a.Key, Action: a.Action, Actor: a.Actor, Print: print, At: now.Wall}
	err := error(nil)
	switch {
	case r == nil:
		p.Outcome, err = NotFound, notFound()
	case invalid != nil:
		p.Outcome, err = Rejected, invalid
	default:
		p.Receipt.Revision = r.Revision
		err = p.act(a, print, clean, now)
	}
	p.Receipt.Outcome = p.Outcome
	if err == nil {
		return p
	}
	var refused *launch.Refusal
	if errors.As(err, &refused) {
		p.Receipt.Kind, p.Receipt.Reason = refused.Kind, launch.SafeText(refused.Message, launch.MaxErrorMessage)
	}
	p.Err = err
	return p
}

func notFound() error {
	return launch.Refuse(launch.ErrNotFound, "no such request here; use the exact request id of the message that asks")
}

// adopt answers a repeated action as its first execution was answered.
func adopt(p Reply, had *Receipt) Reply {
	p.Outcome = Adopted
	switch had.Outcome {
	case Taken, Adopted:
	case Started:
		p.Outcome = Started
	default:
		p.Outcome = had.Outcome
		e := launch.Refuse(had.Kind, "%s", had.Reason)
		e.Run = p.Request.Run
		p.Err = e
	}
	return p
}

// act decides about an action whose key is new.
func (p *Reply) act(a Act, print launch.Digest, payload []byte, now launch.Now) error {
	r := &p.Request
	c, err := r.contract()
	if err != nil {
		return err
	}
	p.Outcome = Conflict
	if err := permitted(r, a, &c); err != nil {
		return err
	}
	switch r.State {
	case Validating:
		return r.refuse(launch.ErrValidating, "an answer to request %s is being checked; wait for its verdict", r.ID)
	case Accepted:
		if r.Print == print {
			p.Outcome = Adopted
			return nil
		}
		return r.refuse(launch.ErrAlreadyDecided, "request %s is answered already, by %s; nothing is done twice", r.ID, r.winner())
	case Expired:
		return r.refuse(launch.ErrExpired, "request %s is over (%s); look at the status of run %s", r.ID, r.Why, r.Run)
	case Cancelled:
		return r.refuse(launch.ErrEnded, "request %s ended with its run %s; nothing can be answered any more", r.ID, r.Run)
	}
	if now.Passed(r.Deadline) {
		return r.refuse(launch.ErrExpired, "the deadline of request %s has passed; look at the status of run %s", r.ID, r.Run)
	}
	if a.Revision != r.Revision && (a.Revision != 0 || a.Action == ActDecide) {
		return r.refuse(launch.ErrStale, "request %s is at revision %d, the answer names %d; look at it again", r.ID, r.Revision, a.Revision)
	}
	if a.Action == ActUpdate {
		return p.update(payload, now)
	}
	answer, err := check(r.Kind, &c, a, payload)
	if err != nil {
		return p.reject(a.Actor, err)
	}
	by := Provenance{Actor: a.Actor, Key: a.Key, Person: a.Person, Channel: a.Channel, Event: a.Event}
	p.Changed = true
	if c.Validates {
		p.Outcome, r.State, r.Candidate, r.CandidateBy, r.Tries = Started, Validating, answer, by, 0
		p.event(Event{Kind: EvCandidate, By: by.Actor})
		return nil
	}
	p.Outcome = Taken
	r.accept(a.Action, by, answer, print, now)
	p.event(Event{Kind: EvAccepted, By: by.Actor})
	return nil
}

func (p *Reply) event(e Event) { p.Events = append(p.Events, e) }

// reject keeps the request open, with the reason if the model is to be told it
// again (rule request/form).
func (p *Reply) reject(by launch.Actor, err error) error {
	p.Outcome = Rejected
	var refused *launch.Refusal
	if by == launch.Model && errors.As(err, &refused) && refused.Kind == launch.ErrInvalid {
		p.Changed = true
		p.Request.Rejection = launch.SafeText(refused.Message, launch.MaxErrorMessage)
		p.event(Event{Kind: EvRejected})
	}
	return err
}

func (r *Request) accept(action Action, by Provenance, answer []byte, print launch.Digest, now launch.Now) {
	r.Revision++
	r.State, r.Settled = Accepted, now.Wall
	r.ByAction, r.By, r.Answer, r.Print = action, by, answer, print
	r.Candidate, r.CandidateBy = nil, Provenance{}
}

// winner says who answered.
func (r *Request) winner() string {
	switch {
	case r.ByAction == ActDefault:
		return "the timeout that its author declared"
	case r.By.Person != "":
		return "a person"
	}
	return "the " + r.By.Actor.String()
}

// permitted checks the matrix (rule request/matrix).
func permitted(r *Request, a Act, c *Contract) error {
	cell := takes(a.Action, r.Kind)
	switch {
	case r.Kind == run.Decision && a.Actor == launch.Model:
		return r.refuse(launch.ErrNotAllowed, "only a person decides request %s%s: in Pi with /workflow decide %s <choice>; tell the person and wait", r.ID, audience(c), r.ID)
	case cell == nil || !a.Action.Called() && a.Action != ActRespond:
		return r.refuse(launch.ErrWrongKind, "request %s is of kind %s and takes %s, not %s", r.ID, r.Kind, strings.Join(taken(r.Kind, c), " or "), a.Action)
	case !slices.Contains(cell.By, a.Actor):
		return r.refuse(launch.ErrNotAllowed, "request %s of kind %s is not for the %s to %s", r.ID, r.Kind, a.Actor, a.Action)
	case a.Action == ActUpdate && !c.Updates:
		return r.refuse(launch.ErrWrongKind, "request %s takes no progress updates; submit its output", r.ID)
	case a.Actor == launch.Person:
		for _, k := range [...]struct{ field, value string }{{"person", a.Person}, {"channel", a.Channel}, {"channel event id", a.Event}} {
			if err := launch.CheckKey(k.field, k.value); err != nil {
				return err
			}
		}
	}
	return nil
}

func audience(c *Contract) string {
	if c.Audience == "" {
		return ""
	}
	return " (" + launch.SafeText(c.Audience, 200) + ")"
}

// taken names the actions by which requests of a kind are answered.
func taken(k run.Kind, c *Contract) (names []string) {
	for _, cell := range matrix {
		if cell.Kind == k && (cell.Action.Called() || cell.Action == ActRespond) && (cell.Action != ActUpdate || c.Updates) {
			names = append(names, cell.Action.String())
		}
	}
	return names
}

// fingerprint returns the digest of action and payload, and the payload without
// white space.
func fingerprint(a Act) (print launch.Digest, clean []byte, err error) {
	if err := launch.CheckSize("payload", len(a.Payload), launch.MaxOutput); err != nil {
		return print, nil, err
	}
	canonical, err := canon.Canonical(a.Payload)
	if err != nil {
		return print, nil, launch.Refuse(launch.ErrInvalid, "the payload is not one JSON value in UTF-8")
	}
	var b bytes.Buffer
	if json.Compact(&b, a.Payload) != nil {
		return print, nil, launch.Refuse(launch.ErrInvalid, "the payload is not one JSON value in UTF-8")
	}
	return launch.DigestOf(append([]byte(a.Action.String()+":"), canonical...)), b.Bytes(), nil
}

// check returns the answer that a payload stands for, or why it does not fit.
func check(k run.Kind, c *Contract, a Act, payload []byte) ([]byte, error) {
	if k != run.Decision {
		return CheckForm(c.Form, c.Choices, payload, "output")
	}
	var d Decision
	if err := canon.Decode(payload, launch.MaxOptions, "decision", &d); err != nil {
		return nil, err
	}
	if !slices.Contains(c.Choices, d.Choice) {
		return nil, launch.Refuse(launch.ErrInvalid, "choice must be one of %q", c.Choices)
	}
	if err := checkInput(c, d); err != nil {
		return nil, err
	}
	return decided(d, "person", a.Person)
}

func checkInput(c *Contract, d Decision) error {
	at := slices.IndexFunc(c.Texts, func(t run.TextInput) bool { return t.Choice == d.Choice })
	switch {
	case at < 0 && d.Text != "":
		return launch.Refuse(launch.ErrInvalid, "choice %s takes no text", d.Choice)
	case at < 0:
	case c.Texts[at].Required && strings.TrimSpace(d.Text) == "":
		return launch.Refuse(launch.ErrInvalid, "choice %s needs a text", d.Choice)
	case utf8.RuneCountInString(d.Text) > c.Texts[at].Max:
		return launch.Refuse(launch.ErrInvalid, "text of choice %s has %d characters; the bound is %d", d.Choice, utf8.RuneCountInString(d.Text), c.Texts[at].Max)
	}
	return nil
}

// decided is the output of a decision: its choice and text, and whether a
// "person" or the "timeout" made it.
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
