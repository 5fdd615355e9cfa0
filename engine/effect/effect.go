package effect

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// MaxEvidence bounds what a person writes to resolve an ambiguous effect, in
// bytes of valid UTF-8.
const MaxEvidence = launch.MaxErrorMessage

// TypeAction is the effect type of function actions.
const TypeAction = "action"

// Key names one effect for ever (rule effect/key).
type Key struct {
	Run   launch.RunID
	Type  string // effect type: [TypeAction]
	Name  string // the author's name of the effect
	Path  string // full path of the node
	Visit uint32 // from 1
	Retry uint32 // declared retries before this execution
}

// ActionKey is the key of a function action, which is named as its node.
func ActionKey(id launch.RunID, path string, visit, retry uint32) Key {
	return Key{Run: id, Type: TypeAction, Name: path[strings.LastIndexByte(path, '/')+1:], Path: path, Visit: visit, Retry: retry}
}

// Check refuses a key with an empty, oversize or unprintable part.
func (k Key) Check() error {
	for _, part := range [...]struct{ field, text string }{
		{"effect run id", string(k.Run)}, {"effect type", k.Type}, {"effect name", k.Name}, {"effect node path", k.Path},
	} {
		if err := launch.CheckKey(part.field, part.text); err != nil {
			return err
		}
	}
	if k.Visit == 0 {
		return launch.Refuse(launch.ErrInvalid, "effect visit must be at least 1")
	}
	return nil
}

// ID returns the SHA-256 of the key's parts in order: each text as a 4-byte
// big-endian length and its bytes, then visit and retry as 4 bytes big-endian.
// Its hex form is the idempotency key that user code passes to the outside.
func (k Key) ID() launch.Digest {
	h := sha256.New()
	var n [4]byte
	number := func(v uint32) {
		binary.BigEndian.PutUint32(n[:], v)
		h.Write(n[:])
	}
	for _, s := range [...]string{string(k.Run), k.Type, k.Name, k.Path} {
		number(uint32(len(s)))
		h.Write([]byte(s))
	}
	number(k.Visit)
	number(k.Retry)
	return launch.Digest(h.Sum(nil))
}

// State is what is known about an effect.
type State uint8

// The states.
const (
	_         State = iota
	Pending         // reserved; its code may be running
	Applied         // it happened; final
	Rejected        // it did not happen and will not; final
	Ambiguous       // nobody knows; see rule effect/ambiguous
	stateEnd
)

// Final reports whether a state never changes again.
func (s State) Final() bool { return s == Applied || s == Rejected }

// String returns the wire name.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Applied:
		return "applied"
	case Rejected:
		return "rejected"
	case Ambiguous:
		return "ambiguous"
	}
	return "unknown"
}

// Effect is the row of one effect. Key, Fingerprint, Policy and Reserved never
// change.
type Effect struct {
	Key         Key
	Fingerprint launch.Digest // of what is asked of the outside world
	State       State
	Policy      run.Policy
	Token       launch.Digest // hash of the newest reservation's token
	Attempt     uint32        // that made the newest reservation
	Reserved    launch.Time
	Settled     launch.Time // when it became applied or rejected
}

// Observable reports whether the author's observer can still settle the effect,
// so that a resumed run need not wait for a person's finding.
func (e *Effect) Observable() bool { return !e.State.Final() && e.Policy == run.Observed }

// Reservation is what a host asks for before an action's code starts.
type Reservation struct {
	Key         Key
	Fingerprint launch.Digest
	Policy      run.Policy
	Token       launch.Digest // hash of the token that the receipt will carry
	Attempt     uint32        // from 1
}

// Reserve records the intent, or adopts what the key already stands for
// (adopted true). existing is the row with that key, or nil.
//
// A pending effect with the same fingerprint is adopted: by the same attempt
// with the same token nothing changes, by a later attempt its token and attempt
// replace the old ones, so that a receipt of the superseded execution is stale
// (rule effect/token). Refused are another fingerprint or policy, or another
// token for the same attempt ([launch.ErrConflict]), an earlier attempt
// ([launch.ErrStale]), a final effect ([launch.ErrAlreadyDecided]) and an
// ambiguous one ([launch.ErrUnsettledEffect]).
func Reserve(existing *Effect, want Reservation, now launch.Time) (e Effect, adopted bool, err error) {
	if err := want.Key.Check(); err != nil {
		return Effect{}, false, err
	}
	if want.Policy < run.Repeatable || want.Policy > run.Unrepeatable || want.Attempt == 0 {
		return Effect{}, false, refuse(want.Key, launch.ErrInvalid, "a reservation needs a known policy and an attempt from 1")
	}
	if existing == nil {
		return Effect{Key: want.Key, Fingerprint: want.Fingerprint, State: Pending, Policy: want.Policy,
			Token: want.Token, Attempt: want.Attempt, Reserved: now}, false, nil
	}
	e = *existing
	switch {
	case e.Key != want.Key:
		return e, false, refuse(want.Key, launch.ErrInternal, "the row found is of another effect")
	case e.Fingerprint != want.Fingerprint || e.Policy != want.Policy:
		return e, false, refuse(e.Key, launch.ErrConflict, "the effect is reserved with another request; one key asks for one thing")
	case e.State.Final():
		return e, false, refuse(e.Key, launch.ErrAlreadyDecided, "the effect is %s; use its receipt", e.State)
	case e.State != Pending:
		return e, false, refuse(e.Key, launch.ErrUnsettledEffect, "the effect is %s; observe it or let a person resolve it", e.State)
	case want.Attempt < e.Attempt:
		return e, false, refuse(e.Key, launch.ErrStale, "attempt %d has reserved the effect; stop attempt %d", e.Attempt, want.Attempt)
	case want.Attempt == e.Attempt && want.Token != e.Token:
		return e, false, refuse(e.Key, launch.ErrConflict, "this attempt has reserved the effect with another token")
	}
	e.Token, e.Attempt = want.Token, want.Attempt
	return e, true, nil
}

func refuse(k Key, kind launch.Kind, format string, args ...any) error {
	r := launch.Refuse(kind, format, args...)
	r.Run, r.Field = k.Run, k.Path
	return r
}

// Check reports whether a stored row can have been made by this package: it is
// the row invariant "effect/row".
func Check(e Effect) error {
	if err := e.Key.Check(); err != nil {
		return err
	}
	switch {
	case e.State == 0 || e.State >= stateEnd:
		return refuse(e.Key, launch.ErrInternal, "effect/row: no state")
	case e.Policy < run.Repeatable || e.Policy > run.Unrepeatable || e.Attempt == 0:
		return refuse(e.Key, launch.ErrInternal, "effect/row: no policy or attempt")
	case e.State.Final() != (e.Settled != 0):
		return refuse(e.Key, launch.ErrInternal, "effect/row: a settling time goes with applied and rejected")
	}
	return nil
}
