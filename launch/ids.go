package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of everything that is stored, in bytes unless said otherwise. Each is
// enforced with a [Refusal] of kind [ErrInvalid] that names the field and the
// bound.
const (
	// MaxKey bounds every id and key: 1 to MaxKey bytes of printable UTF-8.
	MaxKey = 512
	// MaxWorkflowName bounds a workflow name, which matches [a-z0-9-]{1,64}.
	MaxWorkflowName = 64
	// MaxInput bounds a workflow's JSON input.
	MaxInput = 1 << 20
	// MaxOutput bounds a node's JSON output.
	MaxOutput = 1 << 20
	// MaxOptions bounds the launch options, an event and a message body.
	MaxOptions = 64 << 10
	// MaxList bounds every list that a read returns, in entries.
	MaxList = 1000
)

// RunID names one run for ever: a workflow name, '-', and a ULID. Run ids are
// never reused (rule launch/run-id).
type RunID string

const ulidLen = 26

// NewRunID joins a workflow name and a ULID in its text form.
func NewRunID(workflow, ulid string) RunID { return RunID(workflow + "-" + ulid) }

// Split returns the workflow name and the ULID text of a well-formed id.
func (id RunID) Split() (workflow, ulid string, ok bool) {
	n := len(id) - ulidLen - 1
	if n < 1 || id[n] != '-' {
		return "", "", false
	}
	workflow, ulid = string(id[:n]), string(id[n+1:])
	if !validWorkflowName(workflow) {
		return "", "", false
	}
	for i := range len(ulid) {
		if c := ulid[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z' || c == 'I' || c == 'L' || c == 'O' || c == 'U') {
			return "", "", false
		}
	}
	return workflow, ulid, ulid[0] <= '7'
}

// SessionKey names one conversation: its header id, '@', and 32 hex digits of
// the SHA-256 of the absolute path of its file. The empty key means "no
// session" (a headless run).
type SessionKey string

// NewSessionKey builds the key of the session with that header id in that
// file. The path must be absolute; the header id is 1 to 400 printable bytes.
func NewSessionKey(headerID, file string) (SessionKey, error) {
	if err := CheckKey("session header id", headerID); err != nil {
		return "", err
	}
	if len(headerID) > 400 {
		return "", Refuse(ErrInvalid, "session header id has %d bytes; use at most 400", len(headerID))
	}
	if !filepath.IsAbs(file) {
		return "", Refuse(ErrInvalid, "session file must be an absolute path")
	}
	sum := sha256.Sum256([]byte(file))
	return SessionKey(headerID + "@" + hex.EncodeToString(sum[:16])), nil
}

// CheckSessionKey refuses a key that [NewSessionKey] cannot have made.
func CheckSessionKey(k SessionKey) error {
	if err := CheckKey("session key", string(k)); err != nil {
		return err
	}
	at := strings.LastIndexByte(string(k), '@')
	if at < 1 || len(k)-at-1 != 32 || strings.Trim(string(k[at+1:]), "0123456789abcdef") != "" {
		return Refuse(ErrInvalid, "session key must be a header id, '@' and 32 lower-case hex digits")
	}
	return nil
}

// Digest is a SHA-256 sum.
type Digest [sha256.Size]byte

// String returns lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// DigestOf returns the SHA-256 of its argument.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// CheckKey refuses a key that is not 1 to [MaxKey] bytes of printable UTF-8;
// field names it in the error.
func CheckKey(field, s string) error {
	if len(s) == 0 || len(s) > MaxKey {
		return Refuse(ErrInvalid, "%s has %d bytes; it must have 1 to %d", field, len(s), MaxKey)
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n <= 1 {
				return Refuse(ErrInvalid, "%s is not valid UTF-8", field)
			}
		}
		if !unicode.IsPrint(r) {
			return Refuse(ErrInvalid, "%s has a character that is not printable at byte %d", field, i)
		}
	}
	return nil
}

// CheckWorkflowName refuses a name that does not match [a-z0-9-]{1,64}.
func CheckWorkflowName(s string) error {
	if !validWorkflowName(s) {
		return Refuse(ErrInvalid, "workflow name must match [a-z0-9-]{1,%d}", MaxWorkflowName)
	}
	return nil
}

func validWorkflowName(s string) bool {
	if len(s) == 0 || len(s) > MaxWorkflowName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// CheckSize refuses a value of more than max bytes; field names it in the error.
func CheckSize(field string, n, max int) error {
	if n > max {
		return Refuse(ErrInvalid, "%s has %d bytes; the bound is %d", field, n, max)
	}
	return nil
}
