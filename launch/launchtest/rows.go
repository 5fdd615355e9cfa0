package launchtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"example.com/piworkflows/launch"
)

// CheckRows checks every invariant of rows and joins what is broken. What a
// run's own record says is taken from the row; a store that has the records
// calls [RecordAgrees] with them as well.
func CheckRows(ls []launch.Launch) error {
	errs := []error{OneReservation(ls)}
	for i := range ls {
		l := &ls[i]
		errs = append(errs, ClaimFields(l), ParkFields(l), RecordFields(l), InputCleared(l), FailureSafe(l))
	}
	return errors.Join(errs...)
}

func broken(name string, l *launch.Launch, format string, args ...any) error {
	return fmt.Errorf("%s: run %s (%s): %s", name, l.ID, l.State, fmt.Sprintf(format, args...))
}

// OneReservation: a session has at most one interactive launch that is queued,
// starting, running or parked; headless launches reserve nothing.
func OneReservation(ls []launch.Launch) error {
	taken := map[launch.SessionKey]launch.RunID{}
	for i := range ls {
		l := &ls[i]
		if (l.Mode == launch.Interactive) != (l.Session != "") {
			return broken("OneReservation", l, "mode %s with session %q", l.Mode, l.Session)
		}
		if l.Mode != launch.Interactive || !l.State.Live() {
			continue
		}
		if first, ok := taken[l.Session]; ok {
			return broken("OneReservation", l, "its session is reserved by run %s", first)
		}
		taken[l.Session] = l.ID
	}
	return nil
}

// ClaimFields: runner, token, expiry and lease are all set in starting and
// running, and all empty elsewhere; a claim has a generation.
func ClaimFields(l *launch.Launch) error {
	c := l.Claim
	set := 0
	for _, is := range []bool{c.Runner != "", c.Token != launch.Digest{}, c.Expiry != 0, c.Lease != 0} {
		if is {
			set++
		}
	}
	want := 0
	if l.State.Claimed() {
		want = 4
	}
	switch {
	case set != want:
		return broken("ClaimFields", l, "%d of 4 claim fields are set", set)
	case (l.State.Claimed() || l.HasRecord()) && l.Generation == 0:
		return broken("ClaimFields", l, "it was claimed without a generation")
	case uint64(l.Activations) > l.Generation:
		return broken("ClaimFields", l, "%d activations with %d generations", l.Activations, l.Generation)
	}
	return nil
}

// ParkFields: a park reason stands exactly on parked launches and an attention
// reason exactly on those parked for attention; a paused launch is not
// starting, has not ended, and when parked is parked as paused or for
// attention; the host's pause is one; exactly a queued launch that is not paused and a parked one that
// is due wait for a claim; exactly ended launches have a time of the end.
func ParkFields(l *launch.Launch) error {
	due := l.State == launch.Queued && !l.Paused || l.Park == launch.ParkDue
	held := l.Park == launch.ParkPaused || l.Park == launch.ParkAttention
	switch {
	case (l.State == launch.Parked) != (l.Park != launch.NotParked):
		return broken("ParkFields", l, "park reason %q", l.Park)
	case (l.Park == launch.ParkAttention) != (l.Attention != launch.NoAttention):
		return broken("ParkFields", l, "parked as %q with attention %q", l.Park, l.Attention)
	case l.Paused && (l.State == launch.Starting || l.State.Terminal() || l.State == launch.Parked && !held):
		return broken("ParkFields", l, "paused with park reason %q", l.Park)
	case l.HostPause && !l.Paused:
		return broken("ParkFields", l, "the pause of the host stands without a pause")
	case due != (l.Ready != 0):
		return broken("ParkFields", l, "ready since %s with park reason %q and paused %v", l.Ready, l.Park, l.Paused)
	case l.State.Terminal() != (l.Finished != 0):
		return broken("ParkFields", l, "finished %s", l.Finished)
	}
	return nil
}

// RecordFields: a queued launch has no run record; a running, parked or done
// one has.
func RecordFields(l *launch.Launch) error {
	switch l.State {
	case launch.Queued:
		if l.HasRecord() {
			return broken("RecordFields", l, "queued with a run record")
		}
	case launch.Running, launch.Parked, launch.Done:
		if !l.HasRecord() {
			return broken("RecordFields", l, "%s without a run record", l.State)
		}
	}
	return nil
}

// RecordAgrees: a run record exists when the launch says so, and has ended as
// the launch has, or not at all.
func RecordAgrees(l *launch.Launch, status launch.RecordStatus) error {
	if err := RecordFields(l); err != nil {
		return err
	}
	if l.HasRecord() != (status != launch.NoRecord) {
		return broken("RecordAgrees", l, "has a record: %v, but its status is %d", l.HasRecord(), status)
	}
	if !l.HasRecord() {
		return nil
	}
	var want []launch.RecordStatus
	switch l.State {
	case launch.Done:
		want = []launch.RecordStatus{launch.RecordDone}
	case launch.Cancelled:
		want = []launch.RecordStatus{launch.RecordCancelled}
	case launch.Failed:
		want = []launch.RecordStatus{launch.RecordFailed, launch.RecordUnreadable}
	default:
		want = []launch.RecordStatus{launch.RecordRunning, launch.RecordWaiting, launch.RecordAttention, launch.RecordUnreadable}
	}
	for _, s := range want {
		if s == status {
			return nil
		}
	}
	return broken("RecordAgrees", l, "its record has status %d", status)
}

// InputCleared: private input is kept only while queued or starting.
func InputCleared(l *launch.Launch) error {
	if l.Input != nil && l.State != launch.Queued && l.State != launch.Starting {
		return broken("InputCleared", l, "%d bytes of private input are still there", len(l.Input))
	}
	return nil
}

// SecretHidden: a secret, such as a marker that stands in private input or the
// text of a claim token, appears in none of the values, however they print or
// encode. The input of a launch that may still hold it is left out. Use a
// marker of letters, digits and dashes.
func SecretHidden(secret string, shown ...any) error {
	for _, v := range shown {
		switch l := v.(type) {
		case launch.Launch:
			v = withoutInput(l)
		case *launch.Launch:
			v = withoutInput(*l)
		}
		encoded, _ := json.Marshal(v) // a value that has no JSON form shows nothing in it
		for _, text := range []string{fmt.Sprintf("%+v", v), fmt.Sprintf("%s", v), string(encoded)} {
			if strings.Contains(text, secret) {
				return fmt.Errorf("SecretHidden: a %T shows a secret", v)
			}
		}
	}
	return nil
}

func withoutInput(l launch.Launch) launch.Launch {
	if InputCleared(&l) == nil {
		l.Input = nil
	}
	return l
}

// FailureSafe: exactly a failed launch has an error; its code is of the set of
// launches that never ran or of runs that failed, as the case may be, and its
// message is in bounds and clean.
func FailureSafe(l *launch.Launch) error {
	e := l.Error
	if l.State != launch.Failed {
		if !e.IsZero() {
			return broken("FailureSafe", l, "it has error code %s", e.Code)
		}
		return nil
	}
	if err := e.Check(); err != nil {
		return broken("FailureSafe", l, "%v", err)
	}
	if l.HasRecord() && !e.Code.OfRun() || !l.HasRecord() && !e.Code.OfLaunch() {
		return broken("FailureSafe", l, "code %s with a record: %v", e.Code, l.HasRecord())
	}
	if launch.SafeText(e.Message, launch.MaxErrorMessage) != e.Message {
		return broken("FailureSafe", l, "its message of code %s is not clean", e.Code)
	}
	return nil
}
