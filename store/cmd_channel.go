package store

import (
	"context"
	"encoding/json"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// presentationRow is a row of workflow_presentations: one decision as one channel
// of a host shows it.
type presentationRow struct {
	Channel string
	Request string
	Shown   launch.Time
	Told    launch.Time // that it is over
}

var presentationTable = &Table{
	Name: "workflow_presentations", Key: 2,
	Columns: []Column{
		{"channel", "TEXT NOT NULL"},
		{"request_id", "TEXT NOT NULL"},
		{"shown_at", "INTEGER NOT NULL"},
		{"told_at", "INTEGER"},
	},
	Indexes: []*Index{presentationsOpen},
}

// presentationsOpen visits what a channel shows and has not taken back.
var presentationsOpen = &Index{
	Name: "workflow_presentations_open", Columns: []string{"channel", "request_id"},
	Where: "told_at IS NULL",
	Has:   func(col func(string) Value) bool { return col("told_at").Kind == Null },
}

// Table implements Row.
func (*presentationRow) Table() *Table { return presentationTable }

// Fields implements Row.
func (r *presentationRow) Fields(f *Fields) {
	text(f, &r.Channel)
	text(f, &r.Request)
	if f.enough() {
		return
	}
	num(f, &r.Shown)
	opt(f, &r.Told)
}

// Shown records that a channel shows a decision, or that it was told that the
// decision is over. Answer: nothing.
type Shown struct {
	Channel string // 1 to 512 printable bytes
	Request string
	Over    bool
}

func (c Shown) run(x *tx) (struct{}, error) {
	none := struct{}{}
	for _, k := range [...]struct{ field, value string }{{"channel", c.Channel}, {"request id", c.Request}} {
		if err := launch.CheckKey(k.field, k.value); err != nil {
			return none, err
		}
	}
	q, err := x.request(c.Request)
	if err != nil {
		return none, err
	}
	if q == nil || q.Kind != run.Decision {
		return none, launch.Refuse(launch.ErrNotFound, "no such decision; check the request id")
	}
	row, err := x.shows.load(x, presentationRow{Channel: c.Channel, Request: c.Request}, func(r *presentationRow) bool {
		return r.Channel == c.Channel && r.Request == c.Request
	})
	if err != nil {
		return none, err
	}
	if row == nil {
		row = x.shows.insert(presentationRow{Channel: c.Channel, Request: c.Request, Shown: x.now.Wall})
	}
	if c.Over && row.Told == 0 {
		row.Told = x.now.Wall
	}
	return none, nil
}

// Presentation is a decision as a channel gets to see it. What it is about, its
// subject, is never part of it.
type Presentation struct {
	Request  string           `json:"requestId"`
	Revision uint64           `json:"revision"`
	Workflow string           `json:"workflow"`
	Run      launch.RunID     `json:"runId"`
	Session  string           `json:"session,omitempty"`
	Contract request.Contract `json:"contract"` // title, text, choices, audience
	Deadline launch.Time      `json:"deadline,omitempty"`
	// Over is set once the decision is no longer open; State, Choice and By then
	// say how it ended.
	Over  bool               `json:"over,omitempty"`
	State string             `json:"state"`
	By    request.Provenance `json:"by"`
}

// Presentations returns what a channel has to do: open decisions that it does
// not show yet, and shown ones that are over, at most limit of each.
func (s *Store) Presentations(ctx context.Context, channel string, limit int) (all []Presentation, err error) {
	err = s.view(ctx, func(x *tx) error {
		var open []string
		var q requestRow
		if err := x.rows.Scan(requestsDecisions, nil, launch.MaxList, &q, func() bool {
			open = append(open, q.ID)
			return true
		}); err != nil {
			return err
		}
		isOpen := make(map[string]bool, len(open))
		n := 0
		for _, id := range open {
			isOpen[id] = true
			row := presentationRow{Channel: channel, Request: id}
			found, err := x.rows.Get(&row)
			if err != nil {
				return err
			}
			if found || n >= limit {
				continue
			}
			n++
			if all, err = x.presentation(all, id); err != nil {
				return err
			}
		}
		var over []string
		var shown presentationRow
		if err := x.rows.Scan(presentationsOpen, []Value{{Kind: Text, Text: channel}}, launch.MaxList, &shown, func() bool {
			if !isOpen[shown.Request] {
				over = append(over, shown.Request)
			}
			return len(over) < limit
		}); err != nil {
			return err
		}
		for _, id := range over {
			if all, err = x.presentation(all, id); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

func (x *tx) presentation(all []Presentation, id string) ([]Presentation, error) {
	q, err := x.request(id)
	if err != nil || q == nil {
		return all, err
	}
	l, err := x.launch(q.Run)
	if err != nil {
		return all, err
	}
	p := Presentation{Request: q.ID, Revision: q.Revision, Workflow: l.Workflow, Run: q.Run, Session: string(q.Session), Deadline: q.Deadline,
		Over: q.State.Over(), State: q.State.String(), By: q.By}
	if json.Unmarshal(q.Contract, &p.Contract) != nil {
		return all, launch.Refuse(launch.ErrInternal, "the stored contract of a request cannot be read; run verify and restore a backup")
	}
	return append(all, p), nil
}
