package engine

import (
	"context"
	"encoding/json"
	"slices"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

type settings[S any] struct{ g *graph }

// Settings declares the live settings of a workflow and returns them as a source.
// S is a struct, or a map with string keys, of what [New] allows; a run begins
// with the defaults. People and the host change the settings while it runs; the
// model changes only what is at or below modelPaths, each the JSON names of
// members joined by '.'. An attempt sees the settings that stood when it began
// (rule run/settings).
func Settings[S, In any](w *Builder[In], defaults S, modelPaths ...string) Source[S] {
	g := w.graph()
	if g.sealed() {
		return settings[S]{g}
	}
	if g.settings != nil {
		g.fail("Settings are declared twice; use one type for all")
		return settings[S]{g}
	}
	form, loose, err := schemaOf[S]()
	if err == nil && loose != nil {
		err = launch.Refuse(launch.ErrInvalid, "type %s has a text form of its own; use a plain string", loose)
	}
	var raw []byte
	if err == nil {
		err = guard(func() (err error) {
			raw, err = encode(defaults)
			return err
		})
	}
	if err != nil {
		g.fail("settings: %v", err)
	}
	g.settings = &run.Settings{Defaults: raw, Form: form, Model: slices.Sorted(slices.Values(modelPaths))}
	return settings[S]{g}
}

func (s settings[S]) parts() []part { return []part{{g: s.g}} }

func (s settings[S]) read(ctx context.Context, x *execution) (v S, err error) {
	raw, err := x.host.Settings(ctx, x.at.Seen)
	if err == nil && json.Unmarshal(raw, &v) != nil {
		err = launch.Refuse(launch.ErrInternal, "the stored settings do not decode as those of workflow %s", x.wf.name)
	}
	return v, err
}
