// Package volume decides what a change of the volumes of Talos means for a machine that has them already. Talos accepts
// each of them, and shows at the next boot, when it is too late, that it does nothing with it or cannot open a volume.
// It is pure.
package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Have is what a machine reports about a volume.
type Have struct {
	// InUse: the machine has opened the volume. One that failed may be what the change describes, and one that does not
	// exist yet will be.
	InUse bool
	// Encrypted: it was opened with a key.
	Encrypted bool
	// Slot of the key that opened it; nil if the machine does not tell.
	Slot *int
	// Keys are the types of the keys that it was configured for when it was opened.
	Keys []string
	// Unsynced: not all of those keys could be written into it.
	Unsynced bool
}

// Refusal is a change that is not sent to a machine.
type Refusal struct {
	// Volume as Talos calls it.
	Volume string
	// Problem and Remedy are for people.
	Problem, Remedy string
	// Passing: a reboot of the machine may end it.
	Passing bool
}

// Message is one sentence about the refusal.
func (r Refusal) Message() string { return "volume " + r.Volume + ": " + r.Problem + "; " + r.Remedy }

// anew is how a machine gets what a volume cannot get that it has already.
const anew = "restore what the machine runs with, or have it installed anew: take it out of the list of machines, " +
	"which wipes it, and list it again"

// Judge returns why a volume cannot change from what the machine runs with to what is desired; nil if it can.
func Judge(name string, live, want machineconfig.ConfiguredVolume, have Have) *Refusal {
	if !have.InUse {
		return nil
	}

	refuse := func(problem string) *Refusal { return &Refusal{Volume: name, Problem: problem, Remedy: anew} }

	switch {
	case live.Place != want.Place:
		return refuse("its disk and its size were determined when it was provisioned, and Talos ignores other ones")
	case want.Encrypted && !have.Encrypted:
		return refuse("it holds data that is not encrypted, and Talos would not open it at the next boot")
	case !want.Encrypted && have.Encrypted:
		return refuse("it is encrypted, and Talos would not open it without keys at the next boot")
	case !want.Encrypted:
		return nil
	case live.Encrypted && live.Format != want.Format:
		return refuse("cipher, key size and block size were determined when it was encrypted, and Talos ignores other ones")
	}

	return judgeKeys(name, live, want, have)
}

// judgeKeys keeps at least one key that opens the volume. Talos writes keys into a volume, and removes them, when it
// opens it at a boot, and for that it needs a key that the volume has already.
func judgeKeys(name string, live, want machineconfig.ConfiguredVolume, have Have) *Refusal {
	var stay []int

	for _, slot := range slices.Sorted(maps.Keys(want.Keys)) {
		old, taken := live.Keys[slot]

		switch {
		case taken && old != want.Keys[slot]:
			return &Refusal{
				Volume: name, Problem: fmt.Sprintf("slot %d has another key", slot),
				Remedy: "leave that key as it is, and give the new one another slot; remove the old one after a reboot",
			}
		case taken:
			stay = append(stay, slot)
		}
	}

	switch {
	case opens(live, want, have, stay):
		return nil
	case len(stay) == 0:
		return &Refusal{
			Volume: name, Problem: "none of the keys is one that it has, so that Talos could not open it at the next boot",
			Remedy: "keep a key with its slot, add the new one, reboot the machine, and remove the old one then",
		}
	}

	return &Refusal{
		Volume: name, Passing: true,
		Problem: "the machine does not show yet that the keys that stay open it: Talos writes new ones at a boot",
		Remedy:  "keep the other key until the machine has been rebooted, and look for failed keys in status.volumes",
	}
}

// opens reports whether one of the desired keys is known to open the volume. stay are the slots that do not change.
func opens(live, want machineconfig.ConfiguredVolume, have Have, stay []int) bool {
	switch {
	case len(live.Keys) == 0:
		// Another program took the encryption out of the live configuration, and it is put back.
		_, opener := want.Keys[deref(have.Slot)]

		return sameTypes(want.Keys, have.Keys) && (have.Slot == nil || opener)
	case len(stay) == len(live.Keys): // what opens the volume now still does
		return true
	case have.Slot != nil && slices.Contains(stay, *have.Slot):
		return true
	}

	// The volume has all keys of the live configuration if it was opened with that.
	return len(stay) > 0 && !have.Unsynced && sameTypes(live.Keys, have.Keys)
}

func deref(slot *int) int {
	if slot == nil {
		return -1
	}

	return *slot
}

func sameTypes(keys map[int]machineconfig.VolumeKey, reported []string) bool {
	var types, have []string
	for _, k := range keys {
		types = append(types, strings.ToLower(k.Type))
	}

	for _, k := range reported {
		have = append(have, strings.ToLower(k))
	}

	slices.Sort(types)
	slices.Sort(have)

	return slices.Equal(types, have)
}
