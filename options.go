package piworkflows

import (
	"io"
	"log/slog"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Options of a host. Path and Workflows are what a host sets;
// everything else has a working default.
type Options struct {
	// Path of the SQLite file, on a local disk. It is created when missing,
	// readable by the owner alone.
	Path string
	// Workflows that this host offers and runs.
	Workflows []*engine.Workflow
	// Source identifies where the definitions come from: 1 to 512 printable
	// bytes, "default" when empty. Hosts that share a file run each other's
	// headless runs only under the same source.
	Source string
	// Capacity is how many live claims in the file this host respects, 1 to
	// 1000; 0 means 4. Waiting runs need none.
	Capacity int
	// Lease is for how long a claim lasts without renewal, and Renew how often
	// it is renewed; 0 means 30 s and 10 s, or a third of a shorter lease. Renew is
	// less than half of Lease.
	Lease, Renew time.Duration
	// BusyTimeout is how long a command waits for another process's lock unless
	// its context ends earlier; 0 means 10 s.
	BusyTimeout time.Duration
	// Observe is called with each fact after its commit, in order. It must not
	// block and must not call the runtime. Events hold no private content.
	Observe func(store.Event)
	// Log receives what is for the developer; nil means nowhere.
	Log *slog.Logger

	// Clock and Entropy replace the system's, for tests; nil means real ones.
	Clock   clock.Clock
	Entropy io.Reader
	// Engine replaces the SQLite file, for tests and for stores on another
	// database; Path must be empty then. The runtime closes it.
	Engine store.Engine
	// Probe is called before and after every commit, for crash tests; see
	// [store.Options].
	Probe func(point string)
}

func (o *Options) check() error {
	bad := func(field, message string) error {
		r := launch.Refuse(launch.ErrInvalid, "Options.%s %s", field, message)
		r.Field = field
		return r
	}
	switch {
	case o.Path == "" && o.Engine == nil:
		return bad("Path", "is not set; name the SQLite file")
	case o.Path != "" && o.Engine != nil:
		return bad("Path", "and Options.Engine exclude each other; set one")
	case o.BusyTimeout < 0:
		return bad("BusyTimeout", "is negative; use 0 for the default")
	}
	return nil
}
