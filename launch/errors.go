package launch

import "fmt"

// Kind is the closed set of error kinds. Every error that a caller may want to
// branch on matches exactly one kind with errors.Is; no kind matches another.
type Kind uint8

// The kinds. The text after each says what a caller does next.
const (
	_                  Kind = iota
	ErrInvalid              // invalid input: correct the field that the error names
	ErrNotAllowed           // this actor may not do that: let the named actor do it
	ErrNotFound             // no such thing for this caller: check the id
	ErrConflict             // same key, other content: use a new key or the old content
	ErrStale                // the caller lost its authority: stop and do nothing more
	ErrWrongKind            // the target takes another action: use the one named
	ErrValidating           // a candidate is being checked: wait for its verdict
	ErrAlreadyDecided       // someone decided first: read the decision
	ErrEnded                // the target has ended: start a new one
	ErrExpired              // the claim or deadline is over: renew it, or give up
	ErrPaused               // a person paused it: a person resumes it
	ErrSourceChanged        // the definition differs from the pinned one: start a new run
	ErrUnsettledEffect      // an external effect is unresolved: resolve it first
	ErrOverBudget           // the chain's budget is used up: let a person start
	ErrSessionBusy          // the session already has a run: cancel or await it
	ErrBusy                 // the store's lock is taken: retry
	ErrFull                 // no free slot or no space: retry later or make room
	ErrClosed               // the host is closed: open a new one
	ErrOutcomeUnknown       // the commit's outcome is unknown: repeat with the same key
	ErrStorageReplaced      // the file was replaced under the host: reopen
	ErrIncompatible         // the file has another layout: back it up and reset it
	ErrInternal             // a bug or an I/O fault: report it
	kindEnd
)

var kindText = [kindEnd]string{
	ErrInvalid: "invalid input", ErrNotAllowed: "not allowed", ErrNotFound: "not found",
	ErrConflict: "conflict", ErrStale: "stale", ErrWrongKind: "wrong kind",
	ErrValidating: "validating", ErrAlreadyDecided: "already decided", ErrEnded: "ended",
	ErrExpired: "expired", ErrPaused: "paused", ErrSourceChanged: "source changed",
	ErrUnsettledEffect: "unsettled effect", ErrOverBudget: "over budget",
	ErrSessionBusy: "session busy", ErrBusy: "busy", ErrFull: "full", ErrClosed: "closed",
	ErrOutcomeUnknown: "outcome unknown", ErrStorageReplaced: "storage replaced",
	ErrIncompatible: "incompatible layout", ErrInternal: "internal",
}

// Kinds returns all kinds in their order.
func Kinds() []Kind {
	all := make([]Kind, 0, kindEnd-1)
	for k := ErrInvalid; k < kindEnd; k++ {
		all = append(all, k)
	}
	return all
}

// Error returns the kind's name, so that a Kind is a sentinel error.
func (k Kind) Error() string { return k.String() }

// String returns the kind's name.
func (k Kind) String() string {
	if k == 0 || k >= kindEnd {
		return "unknown kind"
	}
	return kindText[k]
}

// Retryable reports whether the same call may succeed later without a change
// by the caller.
func (k Kind) Retryable() bool {
	switch k {
	case ErrValidating, ErrBusy, ErrFull, ErrOutcomeUnknown:
		return true
	}
	return false
}

// Fence says which part of a claim or connection did not match (rule
// launch/fence). It is set on refusals of kind [ErrStale] and [ErrExpired].
type Fence uint8

// The fences. FenceNone is the zero value.
const (
	FenceNone         Fence = iota
	MissingAuthority        // nobody holds a claim, or the caller named none
	LeaseExpired            // the caller's own claim has expired and is not renewed
	OwnerChanged            // another runner holds the claim
	TokenChanged            // the same runner holds it under another token
	GenerationChanged       // the claim is of another generation
	EpochChanged            // the session was connected again since
)

// String returns the wire name.
func (f Fence) String() string {
	switch f {
	case MissingAuthority:
		return "missingAuthority"
	case LeaseExpired:
		return "expired"
	case OwnerChanged:
		return "ownerChanged"
	case TokenChanged:
		return "tokenChanged"
	case GenerationChanged:
		return "generationChanged"
	case EpochChanged:
		return "epochChanged"
	}
	return ""
}

// Refusal is why a command was refused. It changed nothing. The message says
// what was expected, what was found and what to do next; it never holds
// private input.
type Refusal struct {
	Kind    Kind
	Fence   Fence // set with ErrStale and ErrExpired
	Run     RunID // the run that stands in the way, when there is one
	State   State // the state found, when it matters
	Field   string
	Message string
}

// Refuse builds a refusal with a formatted message.
func Refuse(kind Kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Error returns kind and message.
func (r *Refusal) Error() string {
	if r.Fence != FenceNone {
		return r.Kind.String() + " (" + r.Fence.String() + "): " + r.Message
	}
	return r.Kind.String() + ": " + r.Message
}

// Unwrap returns the kind, so that errors.Is(err, launch.ErrConflict) works.
func (r *Refusal) Unwrap() error { return r.Kind }
