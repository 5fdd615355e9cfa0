package request

import (
	"time"
	"unicode/utf8"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// ProgressSchema names the form of a progress update.
const ProgressSchema = "pi-workflows.progress.v1"

// Progress is an update of how far an agent's step is.
type Progress struct {
	Schema    string  `json:"schema,omitempty"`    // ProgressSchema, or empty
	Status    string  `json:"status,omitempty"`    // at most 1,024 characters
	Completed float64 `json:"completed,omitempty"` // units done, from 0
	Total     float64 `json:"total,omitempty"`     // units in all; 0 when unknown
	Unit      string  `json:"unit,omitempty"`      // at most 64 characters
}

func (p *Reply) update(payload []byte, now launch.Now) error {
	next, err := ParseProgress(payload)
	if err != nil {
		p.Outcome = Rejected
		return err
	}
	r := &p.Request
	if r.ProgressSince == 0 {
		r.ProgressSince, r.ProgressFrom = now.Wall, next.Completed
	}
	r.Progress, r.ProgressAt = payload, now.Wall
	p.Outcome, p.Changed = Taken, true
	p.event(Event{Kind: EvProgressed, By: launch.Model})
	return nil
}

// ParseProgress reads a progress update of at most 64 KiB strictly.
func ParseProgress(payload []byte) (p Progress, err error) {
	if err := canon.Decode(payload, launch.MaxOptions, "progress", &p); err != nil {
		return p, err
	}
	bad := func(format string, args ...any) (Progress, error) {
		return p, launch.Refuse(launch.ErrInvalid, "progress: "+format, args...)
	}
	switch {
	case p.Schema != "" && p.Schema != ProgressSchema:
		return bad("schema must be %s", ProgressSchema)
	case utf8.RuneCountInString(p.Status) > 1024:
		return bad("status has %d characters; the bound is 1024", utf8.RuneCountInString(p.Status))
	case utf8.RuneCountInString(p.Unit) > 64:
		return bad("unit has %d characters; the bound is 64", utf8.RuneCountInString(p.Unit))
	case p.Completed < 0 || p.Total < 0:
		return bad("completed and total must not be negative")
	case p.Total > 0 && p.Completed > p.Total:
		return bad("completed is beyond total")
	}
	return p, nil
}

// Estimate derives units per second from the first and the latest update of the
// attempt, and how long the rest takes at that rate as of now. ok is false when
// the updates do not tell.
func (r *Request) Estimate(now launch.Time) (rate float64, left time.Duration, ok bool) {
	p, err := ParseProgress(r.Progress)
	over := r.ProgressAt.Sub(r.ProgressSince)
	done := p.Completed - r.ProgressFrom
	if r.Progress == nil || err != nil || over <= 0 || done <= 0 || p.Total <= 0 {
		return 0, 0, false
	}
	rate = done / over.Seconds()
	seconds := (p.Total-p.Completed)/rate - max(0, now.Sub(r.ProgressAt)).Seconds()
	const year = 365 * 24 * 3600
	return rate, time.Duration(min(max(seconds, 0), year) * float64(time.Second)), true
}
