package clusterstate_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestSharedUUIDs: a UUID that two machines were observed with tells neither which machine it is, nor that one of them
// is back.
func TestSharedUUIDs(t *testing.T) {
	t.Parallel()

	rt := clusterstate.Runtime{Machines: map[string]clusterstate.Machine{
		"w-0": {UUID: "a"}, "w-1": {UUID: "b"}, "w-2": {UUID: "b"}, "w-3": {},
	}}
	for _, uuid := range []string{"a", "b", "c"} {
		rt.GiveUp(clusterstate.GivenUp{Name: "gone-" + uuid, UUID: uuid})
	}

	rt.GiveUp(clusterstate.GivenUp{Name: "gone"})

	for machine, want := range map[string]string{"w-0": "a", "w-1": "", "w-2": "", "w-3": "", "w-4": ""} {
		if got := rt.UUID(machine); got != want {
			t.Errorf("the UUID of %s is %q, want %q", machine, got, want)
		}
	}

	for uuid, want := range map[string]string{"a": "w-0", "b": "", "c": "", "": ""} {
		if got := rt.OwnerOf(uuid); got != want {
			t.Errorf("%q belongs to %q, want %q", uuid, got, want)
		}
	}

	for uuid, want := range map[string]string{"a": "", "b": "", "c": "gone-c", "": "", "d": ""} {
		key, is := rt.Returned(uuid)
		if got := rt.GivenUp[key].Name; is != (want != "") || is && got != want {
			t.Errorf("%q is %q, %v; want %q", uuid, got, is, want)
		}
	}
}
