package engine

import (
	"errors"
	"fmt"
	"runtime/debug"

	"example.com/piworkflows/launch"
)

// said is an error whose text may be stored and shown. What caused it is kept
// for errors.Is and errors.As only.
type said struct {
	text  string
	cause error
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.cause }

// Explain returns an error whose message may be stored and shown to people and
// models: one line that names what failed and what corrects it, without private
// input. Known shapes of secrets are redacted and the length is bounded later.
// cause may be nil; its own text goes nowhere (rule engine/error).
func Explain(message string, cause error) error {
	return &said{text: message, cause: cause}
}

// explained returns the outermost explanation in err, or fallback.
func explained(err error, fallback string) string {
	if e, ok := errors.AsType[*said](err); ok {
		if text := launch.SafeText(e.text, launch.MaxErrorMessage); text != "" {
			return text
		}
	}
	return fallback
}

type unknown struct{ cause error }

func (e *unknown) Error() string { return "effect unknown: " + e.cause.Error() }
func (e *unknown) Unwrap() error { return e.cause }

// Unknown marks an error of an action whose effect may or may not have
// happened, such as a timeout of a request that was sent (rule engine/unknown).
// It returns nil for nil.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknown{cause: err}
}

// panicked is a panic of user code. Its value is dropped, only its type is kept.
type panicked struct {
	kind  string
	stack []byte
}

func (e *panicked) Error() string { return "panic of type " + e.kind }

// guard runs user code and turns a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{kind: fmt.Sprintf("%T", v), stack: debug.Stack()}
		}
	}()
	return f()
}

// typeName names the type of the innermost error that is not of this package.
func typeName(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}
