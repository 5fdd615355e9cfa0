package run

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// MaxSettings bounds the settings of a run as JSON, in bytes.
const MaxSettings = launch.MaxOptions

// Settings declares the live settings of a workflow (rule run/settings).
type Settings struct {
	Defaults json.RawMessage `json:"defaults"` // a JSON object of at most MaxSettings bytes
	Form     json.RawMessage `json:"form"`     // its JSON Schema
	Model    []string        `json:"model,omitempty"`
}

// Configure makes the next revision of the run's settings known to the run. It
// names the revision that it changes.
type Configure struct{ Revision uint32 }

func (c Configure) apply(ch *change) error {
	r := &ch.r
	switch {
	case r.Settings == 0:
		return r.refuse(launch.ErrNotAllowed, "the workflow declares no settings; there is nothing to change")
	case c.Revision != r.Settings:
		return r.refuse(launch.ErrStale, "the settings are at revision %d, the change is for %d; read them and repeat", r.Settings, c.Revision)
	}
	r.Settings++
	ch.event(Configured)
	return nil
}

// Patch applies a JSON merge patch (RFC 7396) to settings and returns the new
// ones. paths, each members joined by '.', are all that may change, with what is
// below them; nil means everything. A refusal names the member.
func Patch(settings, patch []byte, paths []string) ([]byte, error) {
	var strict map[string]any
	if err := canon.Decode(patch, MaxSettings, "settings patch", &strict); err != nil {
		return nil, err
	}
	old, errOld := object(settings)
	change, err := object(patch)
	switch {
	case err != nil || change == nil:
		return nil, launch.Refuse(launch.ErrInvalid, "settings patch must be a JSON object")
	case errOld != nil:
		return nil, launch.Refuse(launch.ErrInternal, "the stored settings cannot be read")
	}
	if paths != nil {
		if err := allowed("", old, change, paths); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(merge(old, change)) != nil {
		return nil, launch.Refuse(launch.ErrInvalid, "settings patch cannot be applied")
	}
	merged := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return merged, launch.CheckSize("settings", len(merged), MaxSettings)
}

// object reads a JSON object; its numbers stay as they are written.
func object(raw []byte) (o map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return o, d.Decode(&o)
}

func merge(old, change map[string]any) map[string]any {
	if old == nil {
		old = map[string]any{}
	}
	for name, v := range change {
		switch v := v.(type) {
		case nil:
			delete(old, name)
		case map[string]any:
			below, _ := old[name].(map[string]any)
			old[name] = merge(below, v)
		default:
			old[name] = v
		}
	}
	return old
}

// allowed refuses the first member, in the order of names, that no path covers.
// What lies above a path is an object, or not there yet.
func allowed(above string, old, change map[string]any, paths []string) error {
	names := make([]string, 0, len(change))
	for name := range change {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		path := above + name
		if slices.Contains(paths, path) {
			continue
		}
		below, isObject := change[name].(map[string]any)
		was, exists := old[name]
		wasBelow, wasObject := was.(map[string]any)
		leads := slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, path+".") })
		if !isObject || !leads || exists && !wasObject {
			return launch.Refuse(launch.ErrNotAllowed, "settings member %.80q may not be changed from here; allowed are %q", path, paths)
		}
		if err := allowed(path+".", wasBelow, below, paths); err != nil {
			return err
		}
	}
	return nil
}
