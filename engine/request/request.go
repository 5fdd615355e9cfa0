package request

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// Bounds of a request.
const (
	MaxTask      = 32 << 10              // bytes of a prompt, question or presentation
	MaxTitle     = 200                   // bytes of a decision's title and of its audience
	MaxContract  = 2 * launch.MaxOptions // bytes of the stored contract
	MaxReminders = 2                     // in one attempt
	MaxResumed   = 3                     // resumed prompts between explicit resumes
	MaxTries     = 2                     // runs of a node's validation code for one candidate
)

// Contract is what a request asks and holds its answer to. It is stored as JSON
// and never changes.
type Contract struct {
	Title     string          `json:"title,omitempty"` // of a decision
	Task      string          `json:"task"`            // prompt, question or presentation
	Form      json.RawMessage `json:"form,omitempty"`  // JSON Schema of the answer; empty: any
	Choices   []string        `json:"choices,omitempty"`
	Texts     []run.TextInput `json:"texts,omitempty"`    // of a decision, by choice
	Audience  string          `json:"audience,omitempty"` // of a decision
	Updates   bool            `json:"updates,omitempty"`
	Validates bool            `json:"validates,omitempty"`
	Default   json.RawMessage `json:"default,omitempty"` // answer, or choice, at the deadline
}

// Provenance says who answered (rule request/provenance). The zero value is
// nobody.
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
	Revision       uint64 // from 1; rule request/revision
	State          State

	Candidate   []byte // while validating
	CandidateBy Provenance
	Tries       uint8  // runs of the validation code for the candidate
	Rejection   string // of the latest answer that was rejected, one safe line

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
	ProgressFrom  float64 // completed, in the update that the rate is measured from
	ProgressSince launch.Time

	Prompts       uint32 // messages so far
	Resumed       uint8  // of them since the last explicit resume
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
	Title          string // of a decision, 1 to MaxTitle printable bytes
	Task           string // 1 to MaxTask bytes
	Subject        launch.Digest
}

// Open makes the request of an execution. Errors of kind [launch.ErrInvalid]
// name the field and the bound. A request that opens can be put in every
// [PromptForm], whatever it is answered.
func Open(o Opening, now launch.Time) (Request, error) {
	n := o.Node
	if n == nil || n.Ask == nil || !n.Kind.Asks() {
		return Request{}, invalid("node", "asks nothing")
	}
	if o.Visit == 0 || o.Attempt == 0 {
		return Request{}, invalid("visit and attempt", "must be at least 1")
	}
	c := Contract{Title: o.Title, Task: o.Task, Form: n.Ask.Form, Choices: n.Choices, Texts: n.Ask.Texts, Audience: n.Ask.Audience,
		Updates: n.Ask.Updates, Validates: n.Ask.Validates, Default: n.Ask.Default}
	if err := c.check(n); err != nil {
		return Request{}, err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return Request{}, invalid("form", "is not JSON")
	}
	if err := launch.CheckSize("prompt with its form, as JSON,", len(raw), MaxContract); err != nil {
		return Request{}, err
	}
	r := Request{
		ID: ID(o.Run, n.Path, o.Visit, o.Attempt), Run: o.Run, Node: n.Path, Visit: o.Visit, Attempt: o.Attempt, Session: o.Session,
		Kind: n.Kind, Contract: raw, Digest: launch.DigestOf(raw), Revision: 1, State: Pending, Subject: o.Subject, Opened: now,
	}
	if n.Ask.Expires > 0 {
		r.Deadline = now.Add(n.Ask.Expires)
	}
	return r, r.checkText()
}

// check refuses a contract that node n cannot ask or be answered by.
func (c *Contract) check(n *run.Node) error {
	if size := len(c.Task); size == 0 || size > MaxTask || !utf8.ValidString(c.Task) {
		return invalid("prompt", "has %d bytes; it must have 1 to %d of valid UTF-8", size, MaxTask)
	}
	decision := n.Kind == run.Decision
	for _, line := range [...]struct {
		field, text string
		needed      bool
	}{{"title", c.Title, decision}, {"audience", c.Audience, false}} {
		switch {
		case line.text == "" && !line.needed:
		case !decision:
			return invalid(line.field, "is of decisions only")
		case len(line.text) > MaxTitle || launch.CheckKey(line.field, line.text) != nil:
			return invalid(line.field, "has %d bytes; it must have 1 to %d, printable and on one line", len(line.text), MaxTitle)
		}
	}
	switch {
	case decision && len(c.Choices) == 0:
		return invalid("choices", "are missing; a decision needs a closed set")
	case !decision && len(c.Texts) > 0:
		return invalid("texts", "are of decisions only")
	case decision && c.Validates:
		return invalid("validation code", "is not for decisions")
	case n.Kind != run.Agent && c.Updates:
		return invalid("updates", "are of agents only")
	case n.Kind.Prompts() && (n.Ask.Expires != 0 || c.Default != nil):
		return invalid("deadline", "is of checkpoints and decisions only")
	case n.Ask.Expires < 0 || n.Ask.Expires > run.MaxBudget:
		return invalid("deadline", "must be after 0 to %s", run.MaxBudget)
	case c.Default == nil:
		return nil
	case n.Ask.Expires == 0:
		return invalid("default", "needs a deadline at which it is taken")
	}
	_, _, err := c.byDefault(n.Kind)
	return err
}

// byDefault returns the declared default as the payload that would answer the
// same, and the answer that it stands for.
func (c *Contract) byDefault(k run.Kind) (payload, answer []byte, err error) {
	payload = c.Default
	if k != run.Decision {
		answer, err = CheckForm(c.Form, c.Choices, payload, "default")
		return payload, answer, err
	}
	d := Decision{}
	if json.Unmarshal(payload, &d.Choice) != nil {
		return nil, nil, invalid("default", "must be one of %q", c.Choices)
	}
	if err := c.checkDecision(d, "default"); err != nil {
		return nil, nil, err
	}
	if payload, err = json.Marshal(d); err != nil {
		return nil, nil, invalid("default", "cannot be encoded")
	}
	answer, err = decided(d, "timeout", "")
	return payload, answer, err
}

func invalid(field, format string, args ...any) *launch.Refusal {
	r := launch.Refuse(launch.ErrInvalid, field+" "+format, args...)
	r.Field = field
	return r
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
