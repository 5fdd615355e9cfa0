package engine

import (
	"errors"
	"maps"
	"slices"

	"example.com/piworkflows/launch"
)

// Registry is the closed set of workflows that a host offers. It never changes
// and is safe for concurrent use.
type Registry struct {
	source string
	byName map[string]*Workflow
}

// NewRegistry returns a registry. source identifies where the host's
// definitions come from, such as a module path: 1 to 512 printable bytes. A
// host runs a headless run only when its workflow has the same source. Two
// workflows of one name and nil workflows are refused.
func NewRegistry(source string, ws ...*Workflow) (*Registry, error) {
	errs := []error{launch.CheckKey("source identity", source)}
	r := &Registry{source: source, byName: make(map[string]*Workflow, len(ws))}
	for i, w := range ws {
		switch {
		case w == nil || w.nodes == nil:
			errs = append(errs, launch.Refuse(launch.ErrInvalid, "workflow %d of the registry is not one that Build returned", i+1))
		case r.byName[w.name] != nil:
			errs = append(errs, launch.Refuse(launch.ErrInvalid, "workflow %s is registered twice", w.name))
		default:
			r.byName[w.name] = w
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// Source returns the source identity.
func (r *Registry) Source() string { return r.source }

// Lookup returns the workflow of that name.
func (r *Registry) Lookup(name string) (*Workflow, bool) {
	w, ok := r.byName[name]
	return w, ok
}

// Names returns all names, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }
