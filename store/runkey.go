package store

import (
	"example.com/piworkflows/launch"
	"github.com/oklog/ulid/v2"
)

// A run is keyed by the 16 bytes of its ULID; the workflow name that completes
// the id is a column of the launch. Rows of other tables are only ever read by
// a run id that is already known.

// runBytes returns the key of a well-formed run id.
func runBytes(id launch.RunID) (key [16]byte, ok bool) {
	_, text, ok := id.Split()
	if !ok {
		return key, false
	}
	u, err := ulid.ParseStrict(text)
	return u, err == nil
}

// keyOf remembers the key of the run id that was asked last.
type keyOf struct {
	id  launch.RunID
	key [16]byte
	ok  bool
}

func (k *keyOf) get(id launch.RunID) (key [16]byte, ok bool) {
	if id != k.id || id == "" {
		k.id = id
		k.key, k.ok = runBytes(id)
	}
	return k.key, k.ok
}

// runKey visits the key column of a row that belongs to a run. Reading keeps an
// id that is already set and else yields the bare ULID.
func runKey(f *Fields, id *launch.RunID) {
	if !f.reading {
		key, ok := f.run.get(*id)
		if !ok {
			key, _ = ulid.ParseStrict(string(*id))
		}
		slot := &f.keys[f.nkeys]
		f.nkeys++
		*slot = key
		f.next(Value{Kind: Blob, Blob: slot[:]})
		return
	}
	if key := readRunKey(f); *id == "" {
		*id = launch.RunID(key.String())
	}
}

func readRunKey(f *Fields) (key ulid.ULID) {
	if v := f.next(Value{}); v.Kind != Blob || copy(key[:], v.Blob) != len(key) || len(v.Blob) != len(key) {
		f.bad("a run key")
	}
	return key
}

// launchKey visits the two columns that an id is made of. Reading keeps the
// string that is set if it is that id.
func launchKey(f *Fields, id *launch.RunID, workflow *string) {
	if !f.reading {
		runKey(f, id)
		text(f, workflow)
		return
	}
	key := readRunKey(f)
	text(f, workflow)
	if set, ok := f.run.get(*id); !ok || set != key || string(*id)[:len(*id)-len("-")-ulid.EncodedSize] != *workflow {
		*id = launch.NewRunID(*workflow, key.String())
	}
}
