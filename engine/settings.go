package engine

import (
	"context"
	"encoding/json"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

type settings[S any] struct{ g *graph }

// Settings declares the live settings of a workflow with their defaults and
// returns them as a source: an attempt reads what stood when it began. A model
// may change only the paths that are named, members joined by '.'; a person or
// the host may change anything that fits S. S encodes to a JSON object of at most
// [run.MaxSettings] bytes.
func Settings[S, In any](w *Builder[In], defaults S, modelPaths ...string) Source[S] {
	g := w.g
	if g.settings != nil {
		g.fail("Settings is declared twice; put all members into one type")
		return settings[S]{g}
	}
	g.settings = &run.Settings{Model: modelPaths}
	var err error
	if g.settings.Form, err = schemaOf[S](); err != nil {
		g.fail("settings: %v", err)
	}
	if g.settings.Defaults, err = encode(defaults); err != nil {
		g.fail("settings: the defaults cannot be encoded")
	}
	return settings[S]{g}
}

func (s settings[S]) parts() []part { return []part{{g: s.g, settings: true}} }

func (s settings[S]) read(ctx context.Context, x *execution) (v S, err error) {
	raw, err := x.host.Settings(ctx, x.at.Seen)
	if err != nil {
		return v, err
	}
	if json.Unmarshal(raw, &v) != nil {
		return v, launch.Refuse(launch.ErrInternal, "the stored settings do not decode as those of workflow %s", x.wf.name)
	}
	return v, nil
}
