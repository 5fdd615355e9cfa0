package store

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// presentationRow is a row of workflow_presentations: one decision that one
// channel of a host shows, or was about to show.
type presentationRow struct {
	Channel string
	Request string
	Shown   launch.Time // 0: nobody knows whether it is
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

// Present says what a channel has to do about a decision, and records before it
// is shown that it may be: what a channel may show is taken back once it is over,
// whatever becomes of this process (rule delivery/channel). Answer: [Presenting].
type Present struct {
	Channel string // 1 to 512 printable bytes
	Request string
}

// Presenting is the answer to [Present].
type Presenting struct {
	Due bool // Presentation is to be shown, or taken back if it is over
	Presentation
}

func (c Present) run(x *tx) (Presenting, error) {
	row, q, err := x.shown(c.Channel, c.Request)
	if err != nil || row == nil && q.State.Over() || row != nil && (row.Told != 0 || row.Shown != 0 && !q.State.Over()) {
		return Presenting{}, err
	}
	p, err := x.presentation(q)
	if err != nil {
		return Presenting{}, err
	}
	if row == nil {
		x.shows.insert(presentationRow{Channel: c.Channel, Request: c.Request})
	}
	return Presenting{true, p}, nil
}

// Shown records that a channel shows a decision, or that it was told that the
// decision is over. Answer: nothing.
type Shown struct {
	Channel string // as in [Present], which comes first
	Request string
	Over    bool
}

func (c Shown) run(x *tx) (struct{}, error) {
	row, _, err := x.shown(c.Channel, c.Request)
	switch {
	case err != nil:
	case row == nil:
		err = launch.Refuse(launch.ErrNotFound, "the channel was not given that decision; present it first")
	case c.Over && row.Told == 0:
		row.Told = x.now.Wall
	case !c.Over && row.Shown == 0:
		row.Shown = x.now.Wall
	}
	return struct{}{}, err
}

// shown returns a decision, and the row of a channel about it or nil.
func (x *tx) shown(channel, id string) (*presentationRow, *requestRow, error) {
	for _, k := range [...]struct{ field, value string }{{"channel", channel}, {"request id", id}} {
		if err := launch.CheckKey(k.field, k.value); err != nil {
			return nil, nil, err
		}
	}
	q, err := x.request(id)
	if err != nil {
		return nil, nil, err
	}
	if q == nil || q.Kind != run.Decision {
		return nil, nil, launch.Refuse(launch.ErrNotFound, "no such decision; check the request id")
	}
	row, err := x.shows.load(x, presentationRow{Channel: channel, Request: id}, func(r *presentationRow) bool {
		return r.Channel == channel && r.Request == id
	})
	return row, q, err
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

// Unpresented returns the decisions about which a channel has something to do:
// open ones that it does not show yet, the oldest first, and then those over that
// it shows. [Present] says what.
func (s *Store) Unpresented(ctx context.Context, channel string) (due []string, err error) {
	err = s.view(ctx, func(x *tx) error {
		const all = math.MaxInt32  // ids alone
		shows := map[string]bool{} // whether that is known
		var row presentationRow
		if err := x.rows.Scan(presentationsOpen, []Value{{Kind: Text, Text: channel}}, all, &row, func() bool {
			shows[row.Request] = row.Shown != 0
			return true
		}); err != nil {
			return err
		}
		var q requestRow
		if err := x.rows.Scan(requestsDecisions, nil, all, &q, func() bool {
			if !shows[q.ID] {
				due = append(due, q.ID)
			}
			delete(shows, q.ID)
			return true
		}); err != nil {
			return err
		}
		due = append(due, slices.Sorted(maps.Keys(shows))...)
		return nil
	})
	return due, err
}

func (x *tx) presentation(q *requestRow) (Presentation, error) {
	l, err := x.launch(q.Run)
	if err != nil {
		return Presentation{}, err
	}
	p := Presentation{Request: q.ID, Revision: q.Revision, Workflow: l.Workflow, Run: q.Run, Session: string(q.Session), Deadline: q.Deadline,
		Over: q.State.Over(), State: q.State.String(), By: q.By}
	if json.Unmarshal(q.Contract, &p.Contract) != nil {
		return Presentation{}, launch.Refuse(launch.ErrInternal, "the stored contract of a request cannot be read; run verify and restore a backup")
	}
	if q.State == request.Accepted {
		if p.Choice, err = x.choice(q); err != nil {
			return Presentation{}, err
		}
	}
	return p, nil
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
