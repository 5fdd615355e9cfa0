package launch

import "bytes"

// Request is a start that has passed every other preflight check.
type Request struct {
	ID             RunID
	Workflow       string
	Source         string
	Digest         Digest
	Mode           Mode
	Session        SessionKey
	Group          string
	Input          []byte
	Options        []byte
	Scope          string
	RequestKey     string
	InitiatingTurn string
	Parent         RunID
	Chain          RunID // empty: the run begins a chain of its own
	Actor          Actor
}

// Reserve makes a durable launch of a request, or says which field is wrong.
func Reserve(r Request, now Now) (Launch, []Event, error) {
	if err := r.check(); err != nil {
		return Launch{}, nil, err
	}
	l := Launch{
		ID: r.ID, Workflow: r.Workflow, Source: r.Source, Digest: r.Digest, Mode: r.Mode,
		Session: r.Session, Group: r.Group, Input: r.Input, Options: r.Options,
		Scope: r.Scope, RequestKey: r.RequestKey, Content: DigestOf(r.Input),
		InitiatingTurn: r.InitiatingTurn, Parent: r.Parent, Chain: r.Chain,
		State: Queued, Ready: now.Wall, Created: now.Wall, Updated: now.Wall,
	}
	if l.Chain == "" {
		l.Chain = l.ID
	}
	return l, []Event{{Kind: EvReserved, To: Queued, Actor: r.Actor}}, nil
}

func (r *Request) check() error {
	if err := CheckWorkflowName(r.Workflow); err != nil {
		return err
	}
	if w, _, ok := r.ID.Split(); !ok || w != r.Workflow {
		return Refuse(ErrInvalid, "run id must be the workflow name, '-' and a ULID")
	}
	if err := CheckKey("source identity", r.Source); err != nil {
		return err
	}
	if r.Digest == (Digest{}) {
		return Refuse(ErrInvalid, "definition digest is not set")
	}
	switch r.Mode {
	case Interactive:
		if err := CheckSessionKey(r.Session); err != nil {
			return err
		}
	case Headless:
		if r.Session != "" || r.InitiatingTurn != "" {
			return Refuse(ErrInvalid, "a headless launch has no session and no initiating turn")
		}
	default:
		return Refuse(ErrInvalid, "mode must be interactive or headless")
	}
	for _, k := range [...]struct{ field, value string }{
		{"group", r.Group}, {"scope", r.Scope}, {"request key", r.RequestKey},
		{"initiating turn", r.InitiatingTurn}, {"parent run", string(r.Parent)}, {"chain", string(r.Chain)},
	} {
		if k.value != "" {
			if err := CheckKey(k.field, k.value); err != nil {
				return err
			}
		}
	}
	if r.RequestKey != "" && r.Scope == "" {
		return Refuse(ErrInvalid, "a request key needs a scope: the session, or a name that the host gives")
	}
	if err := CheckSize("input", len(r.Input), MaxInput); err != nil {
		return err
	}
	return CheckSize("launch options", len(r.Options), MaxOptions)
}

// Adopt answers a start whose request key is known (rule launch/request-key):
// nil when it asks for the same launch, else a conflict that names the field.
// It holds also after the launch has ended.
func Adopt(l *Launch, r *Request) error {
	field := ""
	switch {
	case l.Workflow != r.Workflow:
		field = "workflow"
	case l.Content != DigestOf(r.Input):
		field = "input"
	case l.Digest != r.Digest || l.Source != r.Source:
		field = "definition"
	case l.Mode != r.Mode || l.Session != r.Session:
		field = "session"
	case l.Parent != r.Parent:
		field = "parent run"
	case l.Group != r.Group:
		field = "group"
	case !bytes.Equal(l.Options, r.Options):
		field = "options"
	default:
		return nil
	}
	return &Refusal{Kind: ErrConflict, Run: l.ID, Field: field, State: l.State,
		Message: "the request key was used with another " + field + " for run " + string(l.ID) + "; repeat the first content or use a new key"}
}
