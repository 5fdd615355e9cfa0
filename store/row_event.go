package store

import (
	"encoding/json"
	"strconv"

	"example.com/piworkflows/launch"
)

// eventRow is a row of workflow_events: the immutable facts that one command
// added to a stream. The stream of a run is keyed by its ULID, that of a session
// by the first 16 bytes of the SHA-256 of its key.
type eventRow struct {
	Stream [16]byte
	N      uint64 // number of the first fact, from 1, contiguous in the stream
	At     launch.Time
	Facts  string // JSON array of Record values, each [kind, state, generation, data]
}

var eventTable = &Table{
	Name: "workflow_events", Key: 2,
	Columns: []Column{
		{"stream", "BLOB NOT NULL CHECK (length(stream) = 16)"},
		{"n", "INTEGER NOT NULL"},
		{"at", "INTEGER NOT NULL"},
		{"facts", "TEXT NOT NULL"},
	},
}

// Table implements Row.
func (*eventRow) Table() *Table { return eventTable }

// Fields implements Row.
func (r *eventRow) Fields(f *Fields) {
	w := Value{Kind: Blob, Blob: r.Stream[:]}
	if v := f.next(w); v != nil {
		if v.Kind != Blob || copy(r.Stream[:], v.Blob) != 16 {
			f.bad("a stream key")
		}
	}
	num(f, &r.N)
	num(f, &r.At)
	text(f, &r.Facts)
}

// Record is one stored fact.
type Record struct {
	N          uint64 // in its stream
	At         launch.Time
	Kind       string          // "aggregate.what", as in [Event]
	State      uint8           // of the aggregate afterwards: launch.State, run.Status, effect.State or session.State, else 0
	Generation uint64          // of the run's claim; of a session's facts its epoch
	Data       json.RawMessage // more, or nil
}

// stream collects the facts that a command adds to one stream.
type stream struct {
	key   [16]byte
	first uint64
	facts []byte
}

func (s *stream) add(kind string, state uint8, generation uint64, data []byte) {
	sep := byte(',')
	if len(s.facts) == 0 {
		sep = '['
	}
	s.facts = append(s.facts, sep)
	s.facts = append(append(append(s.facts, '[', '"'), kind...), '"', ',')
	s.facts = append(strconv.AppendUint(s.facts, uint64(state), 10), ',')
	s.facts = strconv.AppendUint(s.facts, generation, 10)
	if len(data) > 0 {
		s.facts = append(append(s.facts, ','), data...)
	}
	s.facts = append(s.facts, ']')
}

func (s *stream) row(at launch.Time) eventRow {
	return eventRow{Stream: s.key, N: s.first, At: at, Facts: string(append(s.facts, ']'))}
}

// decodeEvents reads the facts of a row.
func decodeEvents(r eventRow) ([]Record, error) {
	var facts [][]json.RawMessage
	if err := json.Unmarshal([]byte(r.Facts), &facts); err != nil || len(facts) == 0 {
		return nil, launch.Refuse(launch.ErrInternal, "stored facts cannot be read; run verify and restore a backup")
	}
	all := make([]Record, len(facts))
	for i, f := range facts {
		e := &all[i]
		e.N, e.At = r.N+uint64(i), r.At
		into := []any{&e.Kind, &e.State, &e.Generation, &e.Data}
		if len(f) < 3 || len(f) > 4 {
			return nil, launch.Refuse(launch.ErrInternal, "a stored fact cannot be read; run verify and restore a backup")
		}
		for j := range f {
			if err := json.Unmarshal(f[j], into[j]); err != nil {
				return nil, launch.Refuse(launch.ErrInternal, "a stored fact cannot be read; run verify and restore a backup")
			}
		}
	}
	return all, nil
}
