package intents

import (
	"strconv"
	"strings"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Identity is what an intent's id is made of (rule intents/identity).
type Identity struct {
	Session     launch.SessionKey // that the turn is owed to
	Run         launch.RunID
	SourceEvent string // see [SourceEvent]
	Node        string // full node path; empty when no node is known
	Attempt     string // attempt of that node; empty when none is known
	Cause       Cause
}

// SourceEvent names the event that owes a turn, independent of its delivery:
// "run:<id>:<revision>:<transition>". The revision is that of the run record,
// 0 without one; the transition is any printable name that tells the events of
// one revision apart.
func SourceEvent(run launch.RunID, revision uint64, transition string) (string, error) {
	if err := checkRun(run); err != nil {
		return "", err
	}
	if err := launch.CheckKey("transition", transition); err != nil {
		return "", err
	}
	s := "run:" + string(run) + ":" + strconv.FormatUint(revision, 10) + ":" + transition
	return s, launch.CheckKey("source event", s)
}

// ID returns "deferred-turn:" and the lower-case hex SHA-256 of the canonical
// JSON array of session, run, source event, node, attempt and cause. The node
// of an intent without one is written "$launch" if the launch failed, else
// "$run"; a missing attempt is "$none".
func ID(i Identity) (string, error) {
	if err := i.check(); err != nil {
		return "", err
	}
	node, attempt := i.Node, i.Attempt
	if node == "" && i.Cause == LaunchFailed {
		node = "$launch"
	} else if node == "" {
		node = "$run"
	}
	if attempt == "" {
		attempt = "$none"
	}
	b, err := canon.Strings(string(i.Session), string(i.Run), i.SourceEvent, node, attempt, i.Cause.String())
	if err != nil {
		return "", err
	}
	return "deferred-turn:" + launch.DigestOf(b).String(), nil
}

func (i Identity) check() error {
	if err := launch.CheckSessionKey(i.Session); err != nil {
		return err
	}
	if err := checkRun(i.Run); err != nil {
		return err
	}
	if err := checkSourceEvent(i.Run, i.SourceEvent); err != nil {
		return err
	}
	if err := checkPlace(i.Node, i.Attempt); err != nil {
		return err
	}
	if !valid(causeNames, uint8(i.Cause)) {
		return invalid("cause", "cause is not set")
	}
	return nil
}

func checkRun(id launch.RunID) error {
	if _, _, ok := id.Split(); !ok {
		return invalid("run id", "run id must be a workflow name, '-' and a ULID")
	}
	return nil
}

func checkSourceEvent(run launch.RunID, s string) error {
	if err := launch.CheckKey("source event", s); err != nil {
		return err
	}
	rest, ok := strings.CutPrefix(s, "run:"+string(run)+":")
	digits, transition, found := strings.Cut(rest, ":")
	revision, err := strconv.ParseUint(digits, 10, 64)
	if !ok || !found || transition == "" || err != nil || strconv.FormatUint(revision, 10) != digits {
		return invalid("source event", "source event must be run:<id>:<revision>:<transition> of its run; make it with SourceEvent")
	}
	return nil
}

// checkPlace refuses names that would read as the default of another.
func checkPlace(node, attempt string) error {
	for _, p := range [...]struct{ field, s string }{{"node", node}, {"attempt", attempt}} {
		if p.s == "" {
			continue
		}
		if err := launch.CheckKey(p.field, p.s); err != nil {
			return err
		}
		if p.s[0] == '$' {
			return invalid(p.field, "%s must not start with '$'; leave it empty when there is none", p.field)
		}
	}
	return nil
}
