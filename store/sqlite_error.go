package store

import (
	"time"

	"example.com/piworkflows/launch"
	"zombiezen.com/go/sqlite"
)

// refuseSQLite turns what SQLite answered into a refusal that says what to do
// (rule store/errors). It is the only place where result codes are read, and it
// never passes on SQLite's own text, which may quote a value.
func refuseSQLite(doing string, err error) error {
	if err == nil {
		return nil
	}
	code := sqlite.ErrCode(err)
	if code == sqlite.ResultReadOnlyRollback {
		return launch.Refuse(launch.ErrIncompatible, "%s: another program left the file in an unfinished transaction (%v); nothing was changed: %s", doing, code, howToReset)
	}
	switch code.ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultProtocol:
		return launch.Refuse(launch.ErrBusy, "%s: another connection holds the store's lock (%v); retry", doing, code)
	case sqlite.ResultFull:
		return launch.Refuse(launch.ErrFull, "%s: no space left for the database (%v); free disk space and retry", doing, code)
	case sqlite.ResultCorrupt, sqlite.ResultNotADB, sqlite.ResultFormat:
		return launch.Refuse(launch.ErrIncompatible, "%s: the file is damaged or not a database (%v); run verify, restore a backup, or %s", doing, code, howToReset)
	case sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultPerm, sqlite.ResultAuth:
		return launch.Refuse(launch.ErrInvalid, "%s: the file cannot be opened for writing (%v); give this user read and write permission on the file and its directory, on a local disk that is not mounted read-only", doing, code)
	case sqlite.ResultConstraint:
		return launch.Refuse(launch.ErrInternal, "%s: the row violates a constraint of the schema (%v); report it", doing, code)
	case sqlite.ResultIOErr:
		return launch.Refuse(launch.ErrInternal, "%s: the disk failed (%v); check it, then repeat", doing, code)
	}
	return launch.Refuse(launch.ErrInternal, "%s: %v; report it", doing, code)
}

// locked reports whether the same call may succeed once another connection has
// let go of a lock, whatever that connection is doing with it.
func locked(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultProtocol:
		return err != nil
	}
	return false
}

func refuseBusy(doing string, waited time.Duration) error {
	return launch.Refuse(launch.ErrBusy, "%s: another connection held the store's lock for %v; retry", doing, waited.Round(time.Millisecond))
}

// backoff waits between two attempts to take a lock: short enough that two
// processes share a store fairly, and never longer than a millisecond.
type backoff time.Duration

func (b *backoff) sleep() {
	if *b == 0 {
		*b = backoff(50 * time.Microsecond)
	}
	time.Sleep(time.Duration(*b))
	*b = min(2**b, backoff(time.Millisecond))
}
