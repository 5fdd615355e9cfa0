package store

import (
	"context"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Configure changes a run's settings by a JSON merge patch against a revision.
// An attempt that has begun goes on with what stood when it began (rule
// run/settings). Answer: the new revision.
type Configure struct {
	Run      launch.RunID
	Plan     *run.Plan     // the pinned one
	Digest   launch.Digest // of the definition that Plan is of
	Revision uint32        // that the change was made against
	Patch    []byte
	Actor    launch.Actor // Model, Person or Host
	Session  launch.SessionKey
	Epoch    uint64 // of the connection; 0 = none
}

func (c Configure) run(x *tx) (uint32, error) {
	l, err := x.visible(c.Run, c.Session, c.Actor, c.Epoch)
	if err != nil {
		return 0, err
	}
	switch {
	case l.State.Terminal():
		return 0, launch.Refuse(launch.ErrEnded, "run %s has already ended: %s", l.ID, l.State)
	case !l.HasRecord():
		return 0, launch.Refuse(launch.ErrNotAllowed, "run %s has not begun; change its settings once it runs", l.ID)
	case c.Plan == nil || c.Digest != l.Digest:
		return 0, launch.Refuse(launch.ErrSourceChanged, "this host's definition of workflow %s is not the one that is pinned for run %s", l.Workflow, l.ID)
	}
	r, err := x.record(l)
	if err != nil {
		return 0, err
	}
	if err := x.applyRun(l, r, run.Configure{Revision: c.Revision}, c.Plan); err != nil {
		return 0, err
	}
	old, err := x.setting(l.ID, c.Revision)
	if err != nil {
		return 0, err
	}
	var paths []string // nil: a person or the host changes anything
	if c.Actor == launch.Model {
		paths = append([]string{}, c.Plan.Settings.Model...)
	}
	value, err := run.Patch(old.Value, c.Patch, paths)
	if err != nil {
		return 0, err
	}
	if value, err = request.CheckForm(c.Plan.Settings.Form, nil, value, "settings"); err != nil {
		return 0, err
	}
	x.settings.insert(settingsRow{Run: l.ID, Revision: r.Settings, Value: value, By: c.Actor, At: x.now.Wall})
	return r.Settings, nil
}

// setting returns a revision of a run's settings.
func (x *tx) setting(id launch.RunID, revision uint32) (*settingsRow, error) {
	row, err := x.settings.load(x, settingsRow{Run: id, Revision: revision}, func(r *settingsRow) bool { return r.Run == id && r.Revision == revision })
	if err == nil && row == nil {
		err = launch.Refuse(launch.ErrNotFound, "run %s has no settings of revision %d", id, revision)
	}
	return row, err
}

// Settings returns a revision of a run's settings as JSON; 0 is the latest.
func (s *Store) Settings(ctx context.Context, id launch.RunID, revision uint32) (value []byte, latest uint32, err error) {
	err = s.view(ctx, func(x *tx) error {
		l, err := x.launch(id)
		if err != nil {
			return err
		}
		if l.HasRecord() {
			r, err := x.record(l)
			if err != nil {
				return err
			}
			latest = r.Settings
		}
		if revision == 0 {
			revision = latest
		}
		row, err := x.setting(id, revision)
		if err == nil {
			value = row.Value
		}
		return err
	})
	return value, latest, err
}
