package view_test

import (
	"slices"
	"testing"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
)

const now = launch.Time(1e18)

func facts(change func(*view.Facts)) view.Facts {
	f := view.Facts{Now: launch.Now{Wall: now}, Launch: launch.Launch{
		ID: "w-01ARZ3NDEKTSV4RRFFQ69G5FAV", Workflow: "w", Mode: launch.Headless, State: launch.Queued, Ready: now, Created: now,
	}}
	change(&f)
	return f
}

func claimed(f *view.Facts, left time.Duration) {
	f.Launch.State, f.Launch.Started = launch.Running, now
	f.Launch.Claim = launch.Claim{Runner: "h", Token: launch.Digest{1}, Expiry: now.Add(left), Lease: 30 * time.Second}
	f.Run = &run.Run{Node: "n", Status: run.Running}
}

func parked(f *view.Facts, why launch.Park, a launch.Attention) {
	f.Launch.State, f.Launch.Park, f.Launch.Attention, f.Launch.Started = launch.Parked, why, a, now
	f.Run = &run.Run{Node: "n"}
}

// Each situation reads differently, says who is waited for, and offers only
// what its rules accept.
func TestSituations(t *testing.T) {
	both := []string{"cancel", "pause"}
	for _, c := range []struct {
		name    string
		change  func(*view.Facts)
		status  view.Status
		waits   string
		actions []string
	}{
		{"queued, headless", func(*view.Facts) {}, view.Queued, "a free slot", both},
		{"queued, session away", func(f *view.Facts) { f.Session = &session.Session{} }, view.Queued, "the boundary of its session: the session is not connected", both},
		{"running", func(f *view.Facts) { claimed(f, time.Second) }, view.Running, "", both},
		{"running, lease lost", func(f *view.Facts) { claimed(f, 0) }, view.Running, "its host to return, or another to take over", both},
		{"running, pause asked for", func(f *view.Facts) { claimed(f, time.Second); f.Launch.Paused = true }, view.Paused, "a person to resume it", []string{"cancel", "resume"}},
		{"paused", func(f *view.Facts) { parked(f, launch.ParkPaused, 0); f.Launch.Paused = true }, view.Paused, "a person to resume it", []string{"cancel", "resume"}},
		{"due to resume", func(f *view.Facts) { parked(f, launch.ParkDue, 0) }, view.Queued, "a free slot", both},
		{"waiting", func(f *view.Facts) { parked(f, launch.ParkWaiting, 0) }, view.Waiting, "an answer to its request", both},
		{"no progress", func(f *view.Facts) { parked(f, launch.ParkAttention, launch.NoProgress) }, view.Waiting, "a person to resume, cancel or restart it (no_progress)", []string{"cancel", "pause", "resume"}},
		{"effect that only a person can settle", func(f *view.Facts) { parked(f, launch.ParkAttention, launch.EffectAmbiguous) }, view.Ambiguous, "a person to find out whether the effect of node n happened, and to resolve it or cancel the run", both},
		{"effect that its observer can settle", func(f *view.Facts) {
			parked(f, launch.ParkAttention, launch.EffectAmbiguous)
			f.Effect = &effect.Effect{State: effect.Ambiguous, Policy: run.Observed}
		}, view.Ambiguous, "a person to resume, cancel or restart it (effect_ambiguous)", []string{"cancel", "pause", "resume", "resolve"}},
		{"done", func(f *view.Facts) { f.Launch.State = launch.Done }, view.Completed, "", nil},
		{"timed out", func(f *view.Facts) {
			f.Launch.State, f.Launch.Error = launch.Failed, launch.SafeError{Code: launch.CodeTimedOut, Message: "too long"}
		}, view.TimedOut, "", nil},
		{"failed", func(f *view.Facts) {
			f.Launch.State, f.Launch.Error = launch.Failed, launch.SafeError{Code: launch.CodeNodeFailed, Message: "it failed"}
		}, view.Failed, "", nil},
		{"cancelled", func(f *view.Facts) { f.Launch.State = launch.Cancelled }, view.Cancelled, "", nil},
	} {
		v := view.Of(facts(c.change))
		if v.Status != c.status || v.WaitsFor != c.waits || !slices.Equal(v.Actions, c.actions) {
			t.Errorf("%s: %s, waits for %q, actions %q; want %s, %q, %q", c.name, v.Status, v.WaitsFor, v.Actions, c.status, c.waits, c.actions)
		}
	}
}
