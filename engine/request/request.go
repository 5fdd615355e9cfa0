package request

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Bounds of a request.
const (
	MaxTask      = 32 << 10 // bytes of a prompt, question or presentation
	MaxTitle     = 200      // bytes of a decision's title
	MaxReminders = 2        // in one attempt
	MaxResumed   = 3        // resumed prompts between explicit resumes
	MaxTries     = 2        // runs of a node's validation code for one candidate
)

// Contract is what a request asks and holds its answer to. It is stored as JSON
// and never changes.
type Contract struct {
	Title     string          `json:"title,omitempty"` // of a decision
	Task      string          `json:"task"`            // prompt, question or presentation
	Form      json.RawMessage `json:"form"`            // JSON Schema of the answer
	Choices   []string        `json:"choices,omitempty"`
	Texts     []run.TextInput `json:"texts,omitempty"`    // of a decision, by choice
	Audience  string          `json:"audience,omitempty"` // of a decision
	Updates   bool            `json:"updates,omitempty"`
	Validates bool            `json:"validates,omitempty"`
	Default   json.RawMessage `json:"default,omitempty"` // answer at the deadline
}

// Provenance says who answered. The zero value is nobody.
type Provenance struct {
	Actor   launch.Actor `json:"actor"`
	Key     string       `json:"key,omitempty"`     // of the action
	Person  string       `json:"person,omitempty"`  // as the channel verified
	Channel string       `json:"channel,omitempty"` // where
	Event   string       `json:"event,omitempty"`   // the channel's own id
}

// Request is the row of one request. Its bytes are shared, never changed.
type Request struct {
	ID             string
	Run            launch.RunID
	Node           string
	Visit, Attempt uint32
	Session        launch.SessionKey // empty when headless
	Kind           run.Kind
	Contract       []byte // see [Contract]
	Digest         launch.Digest
	Revision       uint64 // from 1; rises when the request is over, for what is asked never changes
	State          State

	Candidate   []byte // while validating
	CandidateBy Provenance
	Tries       uint8  // runs of the validation code so far
	Rejection   string // of the latest answer, one safe line

	Answer   []byte        // once accepted, until the run has taken it over
	Print    launch.Digest // fingerprint of the accepted payload
	By       Provenance
	ByAction Action
	Why      launch.Code // once expired

	Subject  launch.Digest // of what a decision is about
	Deadline launch.Time   // on the wall clock, or 0
	UsedBy   launch.Digest // the effect that used this decision as its approval

	Progress      []byte // latest update
	ProgressAt    launch.Time
	ProgressFrom  float64 // completed, in the first update
	ProgressSince launch.Time

	Prompts       uint32 // messages so far
	Resumed       uint8  // since the last explicit resume
	Reminders     uint8
	Latest        session.End // of the latest turn; 0 while it is open or there was none
	PromptEntry   string      // session entries of the latest turn
	ResponseEntry string

	Opened, Settled launch.Time
}

// ID returns the id of an attempt's request: "req-" and the first 16 bytes, in
// lower hex, of the SHA-256 of run id and node path, each as a 4-byte big-endian
// length and its bytes, then visit and attempt as 4 bytes big-endian (rule
// request/id).
func ID(id launch.RunID, node string, visit, attempt uint32) string {
	h := sha256.New()
	var n [4]byte
	number := func(v uint32) {
		binary.BigEndian.PutUint32(n[:], v)
		h.Write(n[:])
	}
	for _, s := range [...]string{string(id), node} {
		number(uint32(len(s)))
		h.Write([]byte(s))
	}
	number(visit)
	number(attempt)
	return "req-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// Opening is what an execution asks.
type Opening struct {
	Run            launch.RunID
	Node           *run.Node
	Visit, Attempt uint32
	Session        launch.SessionKey
	Title          string // of a decision, 1 to MaxTitle bytes
	Task           string // 1 to MaxTask bytes
	Subject        launch.Digest
}

// Open makes the request of an execution. Errors of kind [launch.ErrInvalid]
// name the field and the bound.
func Open(o Opening, now launch.Time) (Request, error) {
	n := o.Node
	if n == nil || n.Ask == nil || !n.Kind.Asks() {
		return Request{}, launch.Refuse(launch.ErrInvalid, "a node of this kind asks nothing")
	}
	if err := checkText("the prompt", o.Task, MaxTask, 1); err != nil {
		return Request{}, err
	}
	least := 0
	if n.Kind == run.Decision {
		least = 1
	}
	if err := checkText("the title", o.Title, MaxTitle*least, least); err != nil {
		return Request{}, err
	}
	c := Contract{Title: o.Title, Task: o.Task, Form: n.Ask.Form, Choices: n.Choices, Texts: n.Ask.Texts, Audience: n.Ask.Audience,
		Updates: n.Ask.Updates, Validates: n.Ask.Validates, Default: n.Ask.Default}
	raw, err := json.Marshal(c)
	if err != nil {
		return Request{}, launch.Refuse(launch.ErrInvalid, "the form or the default of the node is not JSON")
	}
	r := Request{
		ID: ID(o.Run, n.Path, o.Visit, o.Attempt), Run: o.Run, Node: n.Path, Visit: o.Visit, Attempt: o.Attempt, Session: o.Session,
		Kind: n.Kind, Contract: raw, Digest: launch.DigestOf(raw), Revision: 1, State: Pending, Subject: o.Subject, Opened: now,
	}
	if n.Ask.Expires > 0 {
		r.Deadline = now.Add(n.Ask.Expires)
	}
	for _, form := range [...]PromptForm{Initial, Resumed, Reminder} {
		text, err := Text(r, form)
		if err != nil {
			return Request{}, err
		}
		if err := launch.CheckSize("the message of the prompt with its form", len(strconv.Quote(text)), launch.MaxOptions); err != nil {
			return Request{}, err
		}
	}
	return r, nil
}

func checkText(field, text string, most, least int) error {
	if n := len(text); n < least || n > most || !utf8.ValidString(text) {
		return launch.Refuse(launch.ErrInvalid, "%s has %d bytes; it must have %d to %d of valid UTF-8", field, n, least, most)
	}
	return nil
}

func (r *Request) contract() (c Contract, err error) {
	if json.Unmarshal(r.Contract, &c) != nil {
		err = r.refuse(launch.ErrInternal, "the stored contract of request %s cannot be read; run verify and restore a backup", r.ID)
	}
	return c, err
}

func (r *Request) refuse(kind launch.Kind, format string, args ...any) error {
	e := launch.Refuse(kind, format, args...)
	e.Run = r.Run
	return e
}

// Message returns the subject of the latest message that puts the request, or
// an empty string before there is one.
func (r *Request) Message() string {
	switch {
	case r.Prompts == 0:
		return ""
	case r.Kind.Prompts():
		return "step:" + r.ID + ":" + strconv.FormatUint(uint64(r.Prompts), 10)
	}
	return r.Kind.String() + ":" + r.ID
}

// Check reports whether a stored row can have been made by this package: it is
// the row invariant "request/row".
func Check(r Request) error {
	bad := func(what string) error { return r.refuse(launch.ErrInternal, "request/row: %s", what) }
	switch {
	case r.ID != ID(r.Run, r.Node, r.Visit, r.Attempt) || r.Visit == 0 || r.Attempt == 0:
		return bad("the id is not that of its attempt")
	case !r.Kind.Asks() || !slices.Contains(States(), r.State) || r.Revision == 0:
		return bad("no kind, state or revision")
	case r.Digest != launch.DigestOf(r.Contract):
		return bad("another contract than its digest says")
	case (r.State == Validating) != (r.Candidate != nil) || (r.State == Validating) != (r.CandidateBy != Provenance{}):
		return bad("a candidate goes with validating")
	case (r.State == Accepted) != (r.Print != launch.Digest{}) || (r.State == Accepted) != (r.By != Provenance{}):
		return bad("a fingerprint and who answered go with accepted")
	case r.State == Accepted && (takes(r.ByAction, r.Kind) == nil || !slices.Contains(takes(r.ByAction, r.Kind).By, r.By.Actor)):
		return bad("answered by an action or actor that its kind does not take")
	case (r.State == Expired) != (r.Why != "") || r.Why != "" && !r.Why.OfRun():
		return bad("a reason goes with expired")
	case r.State.Over() != (r.Settled != 0):
		return bad("a settling time goes with a request that is over")
	case r.Answer != nil && r.State != Accepted:
		return bad("an answer goes with accepted")
	case r.Reminders > MaxReminders || r.Resumed > MaxResumed || r.Tries > MaxTries+1:
		return bad("more prompts or tries than there may be")
	case r.UsedBy != (launch.Digest{}) && (r.Kind != run.Decision || r.State != Accepted):
		return bad("only an accepted decision approves an effect")
	}
	return nil
}
