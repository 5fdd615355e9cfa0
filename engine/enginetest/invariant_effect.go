package enginetest

import (
	"fmt"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/launch"
)

// KeyUnique: no two effects have one key, and no two keys one id.
func KeyUnique(all []effect.Effect) error {
	seen := map[launch.Digest]bool{}
	for _, e := range all {
		if seen[e.Key.ID()] {
			return fmt.Errorf("KeyUnique: two effects of node %s, visit %d, retry %d", e.Key.Path, e.Key.Visit, e.Key.Retry)
		}
		seen[e.Key.ID()] = true
	}
	return nil
}

// EffectFixed: from one commit to the next the key, fingerprint, policy and
// reservation time of an effect are constant, its attempt never falls, one that
// is settled stays as it is, and an ambiguous one is not run again.
func EffectFixed(before, after effect.Effect) error {
	bad := func(what string) error {
		return fmt.Errorf("EffectFixed: %s of the effect of node %s, visit %d", what, before.Key.Path, before.Key.Visit)
	}
	switch {
	case before.Key != after.Key || before.Fingerprint != after.Fingerprint || before.Policy != after.Policy || before.Reserved != after.Reserved:
		return bad("key, fingerprint, policy or reservation changed")
	case before.State.Final() && before != after:
		return bad("something changed after the end")
	case after.Attempt < before.Attempt || after.Attempt == before.Attempt && after.Token != before.Token:
		return bad("another or an earlier attempt took the reservation")
	case before.State == effect.Ambiguous && (after.State == effect.Pending || after.Attempt != before.Attempt):
		return bad("an ambiguous state was left without a finding")
	}
	return nil
}
