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
	Shown   launch.Time // 0: it is being shown for the first time
	Told    launch.Time // that it is over
}

var presentationTable = &Table{
	Name: "workflow_presentations", Key: 2,
	Columns: []Column{
		{"channel", "TEXT NOT NULL"},
		{"request_id", "TEXT NOT NULL"},
		{"shown_at", "INTEGER"},
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
	opt(f, &r.Shown)
	opt(f, &r.Told)
}

// Shown records that a channel is about to show a decision, shows it, or was told
// that it is over. Answer: nothing.
type Shown struct {
	Channel string // 1 to 512 printable bytes
	Request string
	// Begins is set before the first call that shows it, so that the channel is
	// told of its end whatever comes of that call.
	Begins bool
	Over   bool
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
		row = x.shows.insert(presentationRow{Channel: c.Channel, Request: c.Request})
	}
	if !c.Begins && row.Shown == 0 {
		row.Shown = x.now.Wall
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
	// Over is set once the decision is no longer open; State, and if it was accepted
	// Choice and By, then say how it ended.
	Over   bool               `json:"over,omitempty"`
	State  string             `json:"state"`
	Choice string             `json:"choice,omitempty"`
	By     request.Provenance `json:"by"`
}

// Presentations returns what a channel has to do: open decisions that it does
// not show yet, and those that it shows or may show and that are over, at most
// limit of each, the oldest first.
func (s *Store) Presentations(ctx context.Context, channel string, limit int) (all []Presentation, err error) {
	err = s.view(ctx, func(x *tx) error {
		var q requestRow
		all, err = x.present(all, requestsDecisions, nil, &q, &q.ID, limit, func(id string) (bool, error) {
			row := presentationRow{Channel: channel, Request: id}
			found, err := x.rows.Get(&row)
			return !found || row.Shown == 0, err
		})
		if err != nil {
			return err
		}
		var shown presentationRow
		all, err = x.present(all, presentationsOpen, []Value{{Kind: Text, Text: channel}}, &shown, &shown.Request, limit, func(id string) (bool, error) {
			q := requestRow{request.Request{ID: id}}
			found, err := x.rows.Get(&q)
			return found && q.State.Over(), err
		})
		return err
	})
	return all, err
}

// present adds the first limit decisions of an index that are wanted, however
// many others come before them. id is that of the row that a scan reads.
func (x *tx) present(all []Presentation, ix *Index, prefix []Value, row Row, id *string, limit int, wanted func(id string) (bool, error)) ([]Presentation, error) {
	for most := launch.MaxList; ; most *= 4 {
		var read, ids []string
		if err := x.rows.Scan(ix, prefix, most, row, func() bool { read = append(read, *id); return true }); err != nil {
			return all, err
		}
		for _, id := range read {
			if len(ids) == limit {
				break
			}
			ok, err := wanted(id)
			if err != nil {
				return all, err
			}
			if ok {
				ids = append(ids, id)
			}
		}
		if len(ids) < limit && len(read) == most {
			continue
		}
		for _, id := range ids {
			var err error
			if all, err = x.presentation(all, id); err != nil {
				return all, err
			}
		}
		return all, nil
	}
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
	if q.State == request.Accepted {
		if p.Choice, err = x.choice(q); err != nil {
			return all, err
		}
	}
	return append(all, p), nil
}

// choice is what a decision came to. Its answer lies in the request until the run
// has taken it over.
func (x *tx) choice(q *requestRow) (string, error) {
	answer := q.Answer
	if answer == nil {
		step := stepRow{run.Step{Run: q.Run, Node: q.Node, Visit: q.Visit, Attempt: q.Attempt}}
		if _, err := x.rows.Get(&step); err != nil {
			return "", err
		}
		answer = step.Output
	}
	var d request.Decision
	if json.Unmarshal(answer, &d) != nil { // a run that ended before it took it over
		return "", nil
	}
	return d.Choice, nil
}
