package request

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// ProgressSchema names the form of a progress update.
const ProgressSchema = "pi-workflows.progress.v1"

// Bounds of a progress update, which has at most [launch.MaxOptions] bytes.
const (
	MaxStatus = 1024    // characters
	MaxUnit   = 64      // characters
	MaxUnits  = 1 << 53 // that a step can have
)

// Progress says how far an agent's step is (rule request/progress).
type Progress struct {
	Schema    string  `json:"schema,omitempty"`    // ProgressSchema, or empty
	Status    string  `json:"status,omitempty"`    // in words
	Completed float64 `json:"completed,omitempty"` // units done
	Total     float64 `json:"total,omitempty"`     // units in all; 0 when unknown
	Unit      string  `json:"unit,omitempty"`      // what is counted
}

// ParseProgress reads a progress update strictly and returns it with its schema.
func ParseProgress(payload []byte) (p Progress, err error) {
	if err := canon.Decode(payload, launch.MaxOptions, "progress", &p); err != nil {
		return Progress{}, err
	}
	switch status, unit := utf8.RuneCountInString(p.Status), utf8.RuneCountInString(p.Unit); {
	case p.Schema != "" && p.Schema != ProgressSchema:
		return Progress{}, invalid("progress.schema", "must be %s", ProgressSchema)
	case status > MaxStatus:
		return Progress{}, invalid("progress.status", "has %d characters; the bound is %d", status, MaxStatus)
	case unit > MaxUnit:
		return Progress{}, invalid("progress.unit", "has %d characters; the bound is %d", unit, MaxUnit)
	case p.Completed < 0 || p.Completed > MaxUnits:
		return Progress{}, invalid("progress.completed", "must be 0 to %d", int64(MaxUnits))
	case p.Total < 0 || p.Total > MaxUnits:
		return Progress{}, invalid("progress.total", "must be 0 to %d", int64(MaxUnits))
	case p.Total > 0 && p.Completed > p.Total:
		return Progress{}, invalid("progress.completed", "must be at most progress.total")
	case p == Progress{Schema: p.Schema}:
		return Progress{}, invalid("progress", "says nothing; give status or completed")
	}
	p.Schema = ProgressSchema
	return p, nil
}

// update records a progress update. One that counts nothing keeps the count
// before it. The rate is measured anew where the count went back or counts
// something else.
func (p *Reply) update(payload []byte, now launch.Now) (Outcome, error) {
	next, err := ParseProgress(payload)
	if err != nil {
		return Rejected, err
	}
	r := &p.Request
	var last Progress
	first := json.Unmarshal(r.Progress, &last) != nil
	if next.Completed == 0 && next.Total == 0 {
		next.Completed, next.Total, next.Unit = last.Completed, last.Total, last.Unit
	}
	if first || next.Completed < last.Completed || next.Unit != last.Unit {
		r.ProgressSince, r.ProgressFrom = now.Wall, next.Completed
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return Rejected, launch.Refuse(launch.ErrInternal, "a progress update cannot be encoded")
	}
	if p.Changed = !bytes.Equal(r.Progress, raw) || r.ProgressAt != now.Wall; p.Changed {
		r.Progress, r.ProgressAt = raw, now.Wall
		p.Events = []Event{{Kind: EvProgressed, By: launch.Model}}
	}
	return Taken, nil
}

// Estimate derives from the updates how many units a second takes, and how long
// the rest takes as of now, at most a year. ok is false when they do not tell.
func (r *Request) Estimate(now launch.Time) (ratePerSecond float64, left time.Duration, ok bool) {
	const year = 365 * 24 * time.Hour
	var p Progress
	if json.Unmarshal(r.Progress, &p) != nil {
		return 0, 0, false
	}
	over, done := r.ProgressAt.Sub(r.ProgressSince), p.Completed-r.ProgressFrom
	if over <= 0 || done <= 0 || p.Total <= 0 {
		return 0, 0, false
	}
	ratePerSecond = done / over.Seconds()
	seconds := (p.Total-p.Completed)/ratePerSecond - max(0, now.Sub(r.ProgressAt).Seconds())
	return ratePerSecond, time.Duration(min(max(0, seconds), year.Seconds()) * float64(time.Second)), true
}
