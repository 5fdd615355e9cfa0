package launchtest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
	"github.com/google/go-cmp/cmp"
)

func kindOf(err error) launch.Kind {
	for _, k := range launch.Kinds() {
		if errors.Is(err, k) {
			return k
		}
	}
	return 0
}

// complains checks that err is what the named invariant says.
func complains(t *testing.T, why, name string, err error) {
	t.Helper()
	if name == "" {
		if err != nil {
			t.Errorf("%s: refused: %v", why, err)
		}
		return
	}
	if err == nil || !strings.HasPrefix(err.Error(), name+": ") {
		t.Errorf("%s: got %v, want a complaint of %s", why, err, name)
	}
}

const run = launch.RunID("demo-00000000000000000000000001")

// row returns a sound launch in that state.
func row(s launch.State) launch.Launch {
	l := launch.Launch{
		ID: run, Workflow: "demo", Source: "source", Mode: launch.Interactive, Session: "s@0123456789abcdef0123456789abcdef",
		State: s, Generation: 1, Activations: 1, Created: 1, Updated: 1,
	}
	switch s {
	case launch.Queued:
		l.Ready, l.Input = 1, []byte("{}")
	case launch.Parked:
		l.Park, l.Ready = launch.ParkDue, 1
	case launch.Failed:
		l.Error = launch.NewSafeError(launch.CodeNodeFailed, "")
	}
	if s.Claimed() {
		l.Claim = launch.Claim{Runner: "r", Token: launch.DigestOf([]byte("t")), Expiry: 100, Lease: time.Second}
	}
	if s != launch.Queued && s != launch.Starting {
		l.Started = 1
	}
	if s.Terminal() {
		l.Finished = 1
	}
	return l
}

func TestBrokenRowsAreFound(t *testing.T) {
	for _, s := range launch.States() {
		complains(t, "a sound "+s.String()+" row", "", launchtest.CheckRows([]launch.Launch{row(s)}))
	}
	for _, c := range []struct {
		why, name string
		state     launch.State
		spoil     func(*launch.Launch)
	}{
		{"an interactive launch without a session", "OneReservation", launch.Done, func(l *launch.Launch) { l.Session = "" }},
		{"a headless launch with a session", "OneReservation", launch.Done, func(l *launch.Launch) { l.Mode = launch.Headless }},
		{"running without a claim", "ClaimFields", launch.Running, func(l *launch.Launch) { l.Claim = launch.Claim{} }},
		{"a claim without a lease length", "ClaimFields", launch.Starting, func(l *launch.Launch) { l.Claim.Lease = 0 }},
		{"a token that stayed after the end", "ClaimFields", launch.Done, func(l *launch.Launch) { l.Claim.Token = launch.DigestOf(nil) }},
		{"a claim of generation 0", "ClaimFields", launch.Starting, func(l *launch.Launch) { l.Generation, l.Activations = 0, 0 }},
		{"more activations than generations", "ClaimFields", launch.Parked, func(l *launch.Launch) { l.Activations = 2 }},
		{"parked without a reason", "ParkFields", launch.Parked, func(l *launch.Launch) { l.Park, l.Ready = 0, 0 }},
		{"a reason on a running launch", "ParkFields", launch.Running, func(l *launch.Launch) { l.Park = launch.ParkPaused }},
		{"attention without its reason", "ParkFields", launch.Parked, func(l *launch.Launch) { l.Park, l.Ready = launch.ParkAttention, 0 }},
		{"a reason for attention on one that is due", "ParkFields", launch.Parked, func(l *launch.Launch) { l.Attention = launch.NoProgress }},
		{"starting while paused", "ParkFields", launch.Starting, func(l *launch.Launch) { l.Paused = true }},
		{"due while paused", "ParkFields", launch.Parked, func(l *launch.Launch) { l.Paused = true }},
		{"paused after the end", "ParkFields", launch.Done, func(l *launch.Launch) { l.Paused = true }},
		{"queued and nobody may claim it", "ParkFields", launch.Queued, func(l *launch.Launch) { l.Ready = 0 }},
		{"waiting and yet claimable", "ParkFields", launch.Parked, func(l *launch.Launch) { l.Park = launch.ParkWaiting }},
		{"the host's pause without a pause", "ParkFields", launch.Parked, func(l *launch.Launch) { l.HostPause = true }},
		{"ended without a time", "ParkFields", launch.Failed, func(l *launch.Launch) { l.Finished = 0 }},
		{"queued with a record", "RecordFields", launch.Queued, func(l *launch.Launch) { l.Started = 1 }},
		{"parked without a record", "RecordFields", launch.Parked, func(l *launch.Launch) { l.Started = 0 }},
		{"input kept by a running launch", "InputCleared", launch.Running, func(l *launch.Launch) { l.Input = []byte("{}") }},
		{"failed without an error", "FailureSafe", launch.Failed, func(l *launch.Launch) { l.Error = launch.SafeError{} }},
		{"an error on a done launch", "FailureSafe", launch.Done, func(l *launch.Launch) { l.Error = launch.NewSafeError(launch.CodeNodeFailed, "") }},
		{"a launch's code on a run that ran", "FailureSafe", launch.Failed, func(l *launch.Launch) { l.Error.Code = launch.CodeActivationFailed }},
		{"a run's code on a launch that never ran", "FailureSafe", launch.Failed, func(l *launch.Launch) { l.Started = 0 }},
		{"a message beyond its bound", "FailureSafe", launch.Failed, func(l *launch.Launch) { l.Error.Message = strings.Repeat("a", launch.MaxErrorMessage+1) }},
		{"a secret in the message", "FailureSafe", launch.Failed, func(l *launch.Launch) { l.Error.Message = "failed with Authorization: Bearer abcdefghijklmnopqrstuvwx" }},
	} {
		l := row(c.state)
		c.spoil(&l)
		complains(t, c.why, c.name, launchtest.CheckRows([]launch.Launch{l}))
	}
	second := row(launch.Parked)
	second.ID = "demo-00000000000000000000000002"
	complains(t, "two live launches of a session", "OneReservation", launchtest.OneReservation([]launch.Launch{row(launch.Queued), second}))
	complains(t, "one live after one ended", "", launchtest.OneReservation([]launch.Launch{row(launch.Cancelled), second}))
	first, second := row(launch.Queued), second
	first.Mode, first.Session, second.Mode, second.Session = launch.Headless, "", launch.Headless, ""
	complains(t, "two headless launches", "", launchtest.OneReservation([]launch.Launch{first, second}))
}

func TestRecordAgrees(t *testing.T) {
	for _, c := range []struct {
		why, name string
		state     launch.State
		status    launch.RecordStatus
	}{
		{"a queued launch has none", "", launch.Queued, launch.NoRecord},
		{"a running one has one that runs", "", launch.Running, launch.RecordRunning},
		{"ends agree: done", "", launch.Done, launch.RecordDone},
		{"ends agree: failed", "", launch.Failed, launch.RecordFailed},
		{"ends agree: unreadable is failed", "", launch.Failed, launch.RecordUnreadable},
		{"ends agree: cancelled", "", launch.Cancelled, launch.RecordCancelled},
		{"a record of a launch that never ran", "RecordAgrees", launch.Starting, launch.RecordRunning},
		{"a run whose record is gone", "RecordAgrees", launch.Running, launch.NoRecord},
		{"done against failed", "RecordAgrees", launch.Done, launch.RecordFailed},
		{"cancelled against still running", "RecordAgrees", launch.Cancelled, launch.RecordRunning},
		{"parked against done", "RecordAgrees", launch.Parked, launch.RecordDone},
	} {
		l := row(c.state)
		complains(t, c.why, c.name, launchtest.RecordAgrees(&l, c.status))
	}
}

func TestSecretHidden(t *testing.T) {
	const secret = "marker-1"
	holds := row(launch.Queued)
	holds.Input = []byte(secret)
	kept := row(launch.Done)
	kept.Input = []byte(secret)
	shown := row(launch.Failed)
	shown.Error.Message = "saw " + secret
	for _, c := range []struct {
		why, name string
		v         any
	}{
		{"the input of a queued launch may hold it", "", holds},
		{"also behind a pointer", "", &holds},
		{"input that should be gone", "SecretHidden", kept},
		{"a safe error", "SecretHidden", &shown},
		{"an error string", "SecretHidden", launch.Refuse(launch.ErrInvalid, "bad %s", secret)},
		{"an event", "SecretHidden", []launch.Event{{Kind: launch.EvFailed, Runner: secret}}},
		{"text", "SecretHidden", "a " + secret},
		{"bytes", "SecretHidden", []byte(secret)},
		{"nothing", "", nil},
	} {
		complains(t, c.why, c.name, launchtest.SecretHidden(secret, c.v))
	}
}

// story is a sound trace: a keyed start, claimed, started, lost, relaunched,
// parked, paused, resumed, claimed again and cancelled; then refused and adopted.
func story(t *testing.T) launchtest.Trace {
	w := launchtest.NewWorld()
	start := &launch.Request{
		ID: run, Workflow: "demo", Source: "source", Digest: launch.DigestOf(nil), Mode: launch.Headless,
		Scope: "host", RequestKey: "key", Input: []byte("{}"),
	}
	claim := func(n uint64) (launch.ClaimCommand, launch.Authority) {
		a := launch.Authority{Runner: "r", Token: launch.DigestOf([]byte{byte(n)}), Generation: n}
		return launch.ClaimCommand{Authority: a, Lease: launch.DefaultLease, Digest: start.Digest}, a
	}
	c1, a1 := claim(1)
	c2, a2 := claim(2)
	c3, a3 := claim(3)
	record := launch.Record{Status: launch.RecordRunning}
	w.Do(launchtest.Op{Request: start})
	for i, c := range []launch.Command{
		c1, launch.StartCommand{Authority: a1}, launch.RecoverCommand{Generation: 1, Record: record},
		c2, launch.StartCommand{Authority: a2}, launch.ParkCommand{Authority: a2, Why: launch.ParkDue},
		launch.PauseCommand{Actor: launch.Person}, launch.ResumeCommand{Actor: launch.Person},
		c3, launch.StartCommand{Authority: a3}, launch.CancelCommand{Actor: launch.Person},
	} {
		wait := time.Duration(0)
		if i == 2 {
			wait = launch.DefaultLease
		}
		if _, err := w.Do(launchtest.Op{Wait: wait, Run: run, Command: c}); err != nil {
			t.Fatalf("the story itself is broken at %d: %v", i, err)
		}
	}
	if _, err := w.Do(launchtest.Op{Run: run, Command: launch.StartCommand{Authority: a1}}); err == nil {
		t.Fatal("a stale start was accepted")
	}
	if _, err := w.Do(launchtest.Op{Request: start}); err != nil {
		t.Fatal(err)
	}
	if err := w.Trace.Check(); err != nil {
		t.Fatalf("the story itself is broken: %v", err)
	}
	return w.Trace
}

// The entries of the story.
const (
	reserved = iota
	claimed1
	started1
	lost1
	claimed2
	started2
	parked
	paused
	resumed
	claimed3
	started3
	cancelled
	refused
	adopted
)

// ending makes the resume of the story a command that ended attention.
func ending(c launch.Command, why launch.Attention) func(launchtest.Trace) launchtest.Trace {
	return func(tr launchtest.Trace) launchtest.Trace {
		e := &tr[resumed]
		e.Command, e.Before.Park, e.Before.Attention = c, launch.ParkAttention, why
		return tr
	}
}

func TestBrokenTracesAreFound(t *testing.T) {
	for _, c := range []struct {
		why, name string
		check     func(launchtest.Trace) error
		spoil     func(launchtest.Trace) launchtest.Trace
	}{
		{"an edge that the table does not have", "LegalEdges", launchtest.Trace.LegalEdges, func(tr launchtest.Trace) launchtest.Trace {
			tr[claimed1].Events[0].To, tr[claimed1].After.State = launch.Done, launch.Done
			return tr
		}},
		{"a legal edge by the wrong command", "LegalEdges", launchtest.Trace.LegalEdges, func(tr launchtest.Trace) launchtest.Trace {
			tr[claimed1].Command = launch.WakeCommand{}
			return tr
		}},
		{"a change of state without an event", "LegalEdges", launchtest.Trace.LegalEdges, func(tr launchtest.Trace) launchtest.Trace {
			tr[started1].Events = nil
			return tr
		}},
		{"an event that begins elsewhere", "LegalEdges", launchtest.Trace.LegalEdges, func(tr launchtest.Trace) launchtest.Trace {
			tr[started1].Events[0].From = launch.Parked
			return tr
		}},
		{"a second terminal event", "LegalEdges", launchtest.Trace.LegalEdges, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr, tr[cancelled])
		}},
		{"a generation used twice", "GenerationsIncrease", launchtest.Trace.GenerationsIncrease, func(tr launchtest.Trace) launchtest.Trace {
			tr[claimed2].After.Generation, tr[claimed2].Events[0].Generation = 1, 1
			return tr
		}},
		{"a generation without a claim", "GenerationsIncrease", launchtest.Trace.GenerationsIncrease, func(tr launchtest.Trace) launchtest.Trace {
			tr[started1].After.Generation, tr[started1].Events[0].Generation = 2, 2
			return tr
		}},
		{"an event of another generation", "GenerationsIncrease", launchtest.Trace.GenerationsIncrease, func(tr launchtest.Trace) launchtest.Trace {
			tr[started2].Events[0].Generation = 1
			return tr
		}},
		{"a write by another owner", "WritesAuthorized", launchtest.Trace.WritesAuthorized, func(tr launchtest.Trace) launchtest.Trace {
			tr[started1].Before.Claim.Runner = "other"
			return tr
		}},
		{"a write with another token", "WritesAuthorized", launchtest.Trace.WritesAuthorized, func(tr launchtest.Trace) launchtest.Trace {
			tr[parked].Before.Claim.Token = launch.Digest{}
			return tr
		}},
		{"a write of another generation", "WritesAuthorized", launchtest.Trace.WritesAuthorized, func(tr launchtest.Trace) launchtest.Trace {
			tr[started2].Before.Generation = 3
			return tr
		}},
		{"a write under an expired lease", "WritesAuthorized", launchtest.Trace.WritesAuthorized, func(tr launchtest.Trace) launchtest.Trace {
			tr[started2].Now.Wall = tr[started2].Before.Claim.Expiry
			return tr
		}},
		{"a live lease taken away", "WritesAuthorized", launchtest.Trace.WritesAuthorized, func(tr launchtest.Trace) launchtest.Trace {
			tr[lost1].Now.Wall = tr[lost1].Before.Claim.Expiry - 1
			return tr
		}},
		{"a refusal that changed the launch", "RefusalChangesNothing", launchtest.Trace.RefusalChangesNothing, func(tr launchtest.Trace) launchtest.Trace {
			tr[refused].After.Updated++
			return tr
		}},
		{"a refusal with an event", "RefusalChangesNothing", launchtest.Trace.RefusalChangesNothing, func(tr launchtest.Trace) launchtest.Trace {
			tr[refused].Events = tr[started1].Events
			return tr
		}},
		{"a refusal without a kind", "RefusalChangesNothing", launchtest.Trace.RefusalChangesNothing, func(tr launchtest.Trace) launchtest.Trace {
			tr[refused].Err = errors.New("database is locked")
			return tr
		}},
		{"a stale caller who is not told why", "RefusalChangesNothing", launchtest.Trace.RefusalChangesNothing, func(tr launchtest.Trace) launchtest.Trace {
			tr[refused].Err = launch.Refuse(launch.ErrStale, "no")
			return tr
		}},
		{"a launch that changed between two commands", "RefusalChangesNothing", launchtest.Trace.RefusalChangesNothing, func(tr launchtest.Trace) launchtest.Trace {
			tr[started2].Before.Strikes++
			return tr
		}},
		{"a key that names a second run", "RequestKeyUnique", launchtest.Trace.RequestKeyUnique, func(tr launchtest.Trace) launchtest.Trace {
			tr[adopted].After.ID = "demo-00000000000000000000000002"
			return tr
		}},
		{"a run id used twice", "RequestKeyUnique", launchtest.Trace.RequestKeyUnique, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr, tr[reserved])
		}},
		{"a claim that starts twice", "OneStartPerGeneration", launchtest.Trace.OneStartPerGeneration, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr, tr[started2])
		}},
		{"a park after the cancel", "CancelFinal", launchtest.Trace.CancelFinal, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr, tr[parked])
		}},
		{"a renewal after the cancel", "CancelFinal", launchtest.Trace.CancelFinal, func(tr launchtest.Trace) launchtest.Trace {
			e := tr[cancelled]
			e.Events, e.Before, e.Command = nil, e.After, launch.RenewCommand{}
			e.After.Updated++
			return append(tr, e)
		}},
		{"starting while paused", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr[:resumed:resumed], tr[claimed3:]...)
		}},
		{"resumed by the host", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[resumed].Command = launch.ResumeCommand{Actor: launch.Host}
			return tr
		}},
		{"the host's pause lifted by the host", "", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[paused].Command, tr[resumed].Command = launch.PauseCommand{Actor: launch.Host}, launch.ResumeCommand{Actor: launch.Host}
			return tr
		}},
		{"a person's pause on top of it lifted by the host", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			host := tr[paused]
			host.Command = launch.PauseCommand{Actor: launch.Host}
			tr[resumed].Command = launch.ResumeCommand{Actor: launch.Host}
			return append(tr[:paused:paused], append(launchtest.Trace{host}, tr[paused:]...)...)
		}},
		{"the model's pause lifted by the host", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[paused].Command, tr[resumed].Command = launch.PauseCommand{Actor: launch.Model}, launch.ResumeCommand{Actor: launch.Host}
			return tr
		}},
		{"the host's pause lifted by the model", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[paused].Command, tr[resumed].Command = launch.PauseCommand{Actor: launch.Host}, launch.ResumeCommand{Actor: launch.Model}
			return tr
		}},
		{"starting while the host paused it", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[paused].Command = launch.PauseCommand{Actor: launch.Host}
			return append(tr[:resumed:resumed], tr[claimed3:]...)
		}},
		{"starting after the run parked itself as paused", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[parked].Command = launch.ParkCommand{Why: launch.ParkPaused}
			return append(tr[:paused:paused], tr[claimed3:]...)
		}},
		{"starting though the trace began paused", "PauseHolds", launchtest.Trace.PauseHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[claimed3].Before.Paused = true
			return tr[claimed3:]
		}},
		{"attention for a running launch", "AttentionHolds", launchtest.Trace.AttentionHolds, func(tr launchtest.Trace) launchtest.Trace {
			e := tr[parked]
			e.Command, e.After.Park, e.After.Attention = launch.AttendCommand{}, launch.ParkAttention, launch.PromptsLost
			return append(tr, e)
		}},
		{"attention that was asked for and did not come", "AttentionHolds", launchtest.Trace.AttentionHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr[paused].Command = launch.AttendCommand{Attention: launch.PromptsLost}
			return tr
		}},
		{"attention ended by a timer", "AttentionHolds", launchtest.Trace.AttentionHolds, ending(launch.WakeCommand{}, launch.PromptsLost)},
		{"by an answer", "", launchtest.Trace.AttentionHolds, ending(launch.WakeCommand{Answered: true}, launch.PromptsLost)},
		{"by an answer, though the definition changed", "AttentionHolds", launchtest.Trace.AttentionHolds, ending(launch.WakeCommand{Answered: true}, launch.SourceChanged)},
		{"by a person", "", launchtest.Trace.AttentionHolds, ending(launch.ResumeCommand{Actor: launch.Person}, launch.SourceChanged)},
		{"by the host", "AttentionHolds", launchtest.Trace.AttentionHolds, ending(launch.ResumeCommand{Actor: launch.Host}, launch.EffectAmbiguous)},
		{"by asking for attention for another reason", "AttentionHolds", launchtest.Trace.AttentionHolds, func(tr launchtest.Trace) launchtest.Trace {
			tr = ending(launch.AttendCommand{}, launch.EffectAmbiguous)(tr)
			tr[resumed].After.Park, tr[resumed].After.Attention = launch.ParkAttention, launch.PromptsLost
			return tr
		}},
		{"a second relaunch without progress", "RelaunchBounded", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr[:parked:parked], tr[lost1], tr[claimed3])
		}},
		{"a second relaunch after progress", "", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			e := tr[lost1]
			e.Command = launch.RecoverCommand{Record: launch.Record{Status: launch.RecordRunning, Progress: 1}}
			return append(tr[:parked:parked], e, tr[claimed3])
		}},
		{"a second relaunch after a person resumed", "", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			return append(tr[:parked:parked], tr[lost1], tr[resumed], tr[claimed3])
		}},
		{"a second relaunch after an answer ended attention", "", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			tr = ending(launch.WakeCommand{Answered: true}, launch.NoProgress)(tr)
			return append(tr[:parked:parked], tr[lost1], tr[resumed], tr[claimed3])
		}},
		{"a second relaunch after an answer that it did not need", "RelaunchBounded", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			tr[resumed].Command = launch.WakeCommand{Answered: true}
			return append(tr[:parked:parked], tr[lost1], tr[resumed], tr[claimed3])
		}},
		{"a second relaunch after the host lifted its pause", "RelaunchBounded", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			tr[resumed].Command = launch.ResumeCommand{Actor: launch.Host}
			return append(tr[:parked:parked], tr[lost1], tr[resumed], tr[claimed3])
		}},
		{"a third return to queued by expiry", "RelaunchBounded", launchtest.Trace.RelaunchBounded, func(tr launchtest.Trace) launchtest.Trace {
			e := tr[lost1]
			e.Command, e.After.State = launch.RecoverCommand{}, launch.Queued
			return launchtest.Trace{e, e, e}
		}},
		{"a row that its events do not make", "ReplayAgrees", launchtest.Trace.ReplayAgrees, func(tr launchtest.Trace) launchtest.Trace {
			tr[parked].After.Generation++
			return tr
		}},
		{"a code that no event has", "ReplayAgrees", launchtest.Trace.ReplayAgrees, func(tr launchtest.Trace) launchtest.Trace {
			tr[cancelled].After.Error.Code = launch.CodeCancelled
			return tr
		}},
	} {
		spoiled := c.spoil(story(t))
		complains(t, c.why, c.name, c.check(spoiled))
		if c.name != "" && spoiled.Check() == nil {
			t.Errorf("%s: Check does not call %s", c.why, c.name)
		}
	}
}

// The names that the entries of the story carry are what happened.
func TestStoryIsNamedRightly(t *testing.T) {
	var got []string
	for _, e := range story(t) {
		switch {
		case e.Err != nil:
			got = append(got, "refused")
		case len(e.Events) == 0:
			got = append(got, "adopted")
		default:
			got = append(got, e.Events[0].Kind.String())
		}
	}
	want := []string{"reserved", "claimed", "started", "recovered", "claimed", "started", "parked", "paused", "resumed", "claimed", "started", "cancelled", "refused", "adopted"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
