package launch

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Code says in one word why a launch or a run failed. The set is closed; a
// launch that never ran and a run that failed draw from disjoint halves of it.
type Code string

// Codes of a launch that never ran.
const (
	CodeWorkflowNotFound Code = "workflow_not_found" // no workflow of that name
	CodeWorkflowInvalid  Code = "workflow_invalid"   // its definition does not validate
	CodeInputInvalid     Code = "input_invalid"      // the input does not match the workflow
	CodeSourceChanged    Code = "source_changed"     // the definition differs from the pinned one
	CodeStoreUnavailable Code = "store_unavailable"  // the store could not be read or written
	CodeActivationFailed Code = "activation_failed"  // the engine could not be built
	CodeCancelled        Code = "cancelled"          // cancelled before it ran
)

// Codes of a run that failed.
const (
	CodeNodeFailed        Code = "node_failed"        // a node failed and nothing routes it
	CodeTimedOut          Code = "timed_out"          // an active-time budget is spent
	CodeStepLimit         Code = "step_limit"         // the graph took more steps than allowed
	CodeRequestExpired    Code = "request_expired"    // nobody answered in time
	CodeSubmissionMissing Code = "submission_missing" // a step ended without its submission
	CodeRecordUnreadable  Code = "record_unreadable"  // the stored record does not decode
)

// MaxErrorMessage bounds the message of a [SafeError], in bytes.
const MaxErrorMessage = 2048

// OfLaunch reports whether c belongs to a launch that never ran.
func (c Code) OfLaunch() bool {
	switch c {
	case CodeWorkflowNotFound, CodeWorkflowInvalid, CodeInputInvalid, CodeSourceChanged,
		CodeStoreUnavailable, CodeActivationFailed, CodeCancelled:
		return true
	}
	return false
}

// OfRun reports whether c belongs to a run that failed.
func (c Code) OfRun() bool {
	switch c {
	case CodeNodeFailed, CodeTimedOut, CodeStepLimit, CodeRequestExpired,
		CodeSubmissionMissing, CodeRecordUnreadable:
		return true
	}
	return false
}

// Valid reports whether c is of the closed set.
func (c Code) Valid() bool { return c.OfLaunch() || c.OfRun() }

// String returns the wire name.
func (c Code) String() string { return string(c) }

// fixedText is what a code says when the caller says nothing: the check that
// failed and what corrects it.
func (c Code) fixedText() string {
	switch c {
	case CodeWorkflowNotFound:
		return "No workflow of that name is registered; list the workflows and start one of them."
	case CodeWorkflowInvalid:
		return "The workflow definition does not validate; correct the definition and start again."
	case CodeInputInvalid:
		return "The input does not match what the workflow declares; correct the input and start again."
	case CodeSourceChanged:
		return "The workflow definition changed after the start was queued; start it again to use the new one."
	case CodeStoreUnavailable:
		return "The store could not be used; check its file and disk, then start again."
	case CodeActivationFailed:
		return "The workflow could not be activated; check what it needs on this host, then start again."
	case CodeCancelled:
		return "The launch was cancelled before it ran; start it again if it is still wanted."
	case CodeNodeFailed:
		return "A node failed and no edge routes its failure; inspect the node, correct the cause and restart the run."
	case CodeTimedOut:
		return "The active time of the run or of a node is spent; raise the limit or shorten the work, then restart the run."
	case CodeStepLimit:
		return "The run took more steps than its limit; correct the loop or raise the limit, then restart the run."
	case CodeRequestExpired:
		return "A request was not answered in time; restart the run and answer it before its deadline."
	case CodeSubmissionMissing:
		return "A step ended without the required submission; restart the run and submit with the exact request id."
	case CodeRecordUnreadable:
		return "The stored record of the run cannot be read; verify the store, then start a new run."
	}
	return "The failure has no known code; inspect the status of the run."
}

// SafeError is all that is kept and shown of a failure (rule
// launch/safe-error). The zero value means "no error". Build one with
// [NewSafeError]; a literal must pass Check before it is stored.
type SafeError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// NewSafeError cleans message as [SafeText] does, to at most [MaxErrorMessage]
// bytes. An empty message becomes a fixed text of the code. It never fails; with
// a code outside the set the result is what Check refuses.
//
// What no pattern can recognise stays the caller's duty: never pass raw input,
// a stack trace or the text of a cause chain.
func NewSafeError(code Code, message string) SafeError {
	message = SafeText(message, MaxErrorMessage)
	if message == "" {
		message = code.fixedText()
	}
	return SafeError{Code: code, Message: message}
}

// IsZero reports whether e means "no error".
func (e SafeError) IsZero() bool { return e == SafeError{} }

// Check refuses a code outside the set, and a message that is not one line of
// valid UTF-8 of 1 to [MaxErrorMessage] bytes, with [ErrInvalid].
func (e SafeError) Check() error {
	field, message := "", ""
	switch {
	case !e.Code.Valid():
		field, message = "code", "must be one of the known codes"
	case len(e.Message) == 0 || len(e.Message) > MaxErrorMessage:
		field, message = "message", "must have 1 to 2048 bytes"
	case !utf8.ValidString(e.Message):
		field, message = "message", "must be valid UTF-8"
	case strings.ContainsFunc(e.Message, func(r rune) bool { return r != ' ' && blank(r) }):
		field, message = "message", "must be one line without control characters"
	default:
		return nil
	}
	r := Refuse(ErrInvalid, "%s of a safe error %s; build it with NewSafeError", field, message)
	r.Field = field
	return r
}

// maxSlack is how far beyond the bound SafeText looks, so that a long secret at
// the front does not hide what follows, and a huge text costs little.
const maxSlack = 16 << 10

// SafeText makes any text fit to be stored and shown: valid UTF-8, one line,
// secret shapes redacted as by [Redact], at most maxBytes bytes, cut last and
// between runes so that no half of a secret stays. Blanks, line breaks, control
// and text-direction characters become single spaces; terminal colours go.
// Cleaning a cleaned text again changes nothing.
func SafeText(s string, maxBytes int) string {
	if maxBytes <= 0 {
		return ""
	}
	if len(s)-maxSlack > maxBytes {
		// End at a blank: a word that this cut splits is not shown at all.
		s = s[:strings.LastIndexAny(s[:maxBytes+maxSlack], " \t\r\n")+1]
	}
	s = oneLine(s)
	// A cut can leave the front of a harmless word that no longer reads as
	// one, so look once more at what is left.
	for range 4 {
		t := strings.TrimRight(cut(Redact(s), maxBytes), " ")
		if t == s {
			break
		}
		s = t
	}
	return s
}

// colour is a terminal colour or an erased line.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*[mK]`)

// oneLine returns s as valid UTF-8 with single spaces and no other blanks.
func oneLine(s string) string {
	s = colour.ReplaceAllLiteralString(strings.ToValidUTF8(s, "\uFFFD"), "")
	return strings.Join(strings.FieldsFunc(s, blank), " ")
}

// blank reports whether r separates words or lines, or would change how a line
// is displayed.
func blank(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// cut returns at most max bytes of the valid UTF-8 text s.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}
