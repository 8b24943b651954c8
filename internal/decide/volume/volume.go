// Package volume decides what a change of the volumes of Talos means for a machine that has them already. Talos accepts
// each of them, and shows at the next boot, when it is too late, that it does nothing with it or cannot open a volume.
// It is pure.
package volume

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Have is what is known about a volume of a machine.
type Have struct {
	// Absent: the machine has no such volume, and never opened it.
	Absent bool
	// Encrypted: it was opened with a key, or holds what needs one.
	Encrypted bool
	// Slot of the key that opened it; nil if the machine does not tell.
	Slot *int
	// Keys are the types of the keys that it was configured for when it was opened.
	Keys []string
	// Unsynced: not all of those keys could be written into it.
	Unsynced bool
	// Booted are the keys that it was configured for at the boot, as far as that was observed.
	Booted map[int]machineconfig.VolumeKey
	// Applied is the volume as the operator configured it last; nil if that is what the machine is configured with.
	Applied *machineconfig.ConfiguredVolume
	// Unlisted: it was not part of the configuration, and the machine still has it.
	Unlisted bool
	// Needed: the machine must not be wiped, because its cluster is lost with it.
	Needed bool
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

// remedy is how a machine gets what a volume cannot get that it has already.
func (h Have) remedy() string {
	if h.Needed {
		return "restore what the machine runs with; it cannot be reinstalled while it is the only control-plane machine"
	}

	return "restore what the machine runs with, or reinstall it: take it out of the list of machines, which wipes it, " +
		"and list it again"
}

// Judge returns why a volume cannot change from what the machine is configured with to what is desired; nil if it can.
// What restores the last applied volume is judged by what the machine has, too.
func Judge(name string, live, want machineconfig.ConfiguredVolume, have Have) *Refusal {
	if have.Absent || !have.Unlisted && reflect.DeepEqual(live, want) {
		return nil
	}

	refuse := func(problem string) *Refusal { return &Refusal{Volume: name, Problem: problem, Remedy: have.remedy()} }

	if problem := judgePlace(live, want, have); problem != "" {
		return refuse(problem)
	}

	switch {
	case want.Encrypted && !have.Encrypted:
		return refuse("it holds data that is not encrypted, and Talos would not open it at the next boot")
	case !want.Encrypted && have.Encrypted:
		return refuse("it is encrypted, and Talos would not open it without keys at the next boot")
	case !want.Encrypted:
		return nil
	case have.Unlisted:
		return refuse("the machine has it from before it was unlisted, and whether these keys open it is not known")
	case live.Encrypted && have.changes(live, want, func(v machineconfig.ConfiguredVolume) any { return v.Format }):
		return refuse("cipher, key size and block size were determined when it was encrypted, and Talos ignores other ones")
	}

	return judgeKeys(name, live, want, have)
}

// changes tells whether a property of a volume is changed, and not restored.
func (h Have) changes(live, want machineconfig.ConfiguredVolume, of func(machineconfig.ConfiguredVolume) any) bool {
	return !h.Unlisted && of(live) != of(want) && (h.Applied == nil || of(*h.Applied) != of(want))
}

// judgePlace returns what Talos would not do about where a volume is and what it is; empty for nothing.
func judgePlace(live, want machineconfig.ConfiguredVolume, have Have) string {
	switch {
	case have.changes(live, want, func(v machineconfig.ConfiguredVolume) any { return v.Place }):
		return "its disk and its minimum size were determined when it was provisioned, and Talos ignores other ones"
	case have.changes(live, want, func(v machineconfig.ConfiguredVolume) any { return v.Limit }) &&
		(!want.Grow || !want.Limit.Above(live.Limit)):
		return "its size was determined when it was provisioned, and Talos ignores another one; with grow it can become " +
			"larger"
	case have.changes(live, want, func(v machineconfig.ConfiguredVolume) any { return v.Data }):
		return "its type and its file system were determined when it was provisioned, and Talos would not mount it with " +
			"others at the next boot"
	}

	return ""
}

// judgeKeys keeps at least one key that opens the volume. Talos writes keys into a volume, and removes them, when it
// opens it at a boot, and for that it needs a key that the volume has already. So what counts are the keys of the boot:
// the live configuration may have others since then.
func judgeKeys(name string, live, want machineconfig.ConfiguredVolume, have Have) *Refusal {
	var (
		stay    []int
		pending bool
	)

	for _, slot := range slices.Sorted(maps.Keys(want.Keys)) {
		key := want.Keys[slot]
		old, taken := have.Booted[slot]
		pending = pending || live.Keys[slot] == key

		switch {
		case taken && old != key:
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
	case len(stay) == 0 && !pending:
		return &Refusal{
			Volume: name, Problem: "none of the keys is one that it has, so that Talos could not open it at the next boot",
			Remedy: "keep a key with its slot, add the new one, reboot the machine, and remove the old one then",
		}
	}

	return &Refusal{
		Volume: name, Passing: true,
		Problem: "the remaining keys are not yet confirmed to open the volume: Talos writes new ones at a boot",
		Remedy:  "keep the other key until the machine has been rebooted, and look for failed keys in status.volumes",
	}
}

// opens reports whether one of the desired keys is known to open the volume. stay are the slots of the keys of the boot
// that are desired.
func opens(live, want machineconfig.ConfiguredVolume, have Have, stay []int) bool {
	switch {
	case len(live.Keys) > 0 && keeps(live.Keys, want.Keys): // nothing is removed
		return true
	case len(have.Booted) == 0:
		// Another program took the encryption away before the boot was observed, and what was applied is put back.
		return have.Applied != nil && reflect.DeepEqual(have.Applied.Keys, want.Keys) && have.Slot != nil &&
			want.Keys[*have.Slot].Type != "" && sameTypes(want.Keys, have.Keys)
	case !sameTypes(have.Booted, have.Keys): // these are not the keys that it was opened with
		return false
	case have.Slot != nil && slices.Contains(stay, *have.Slot):
		return true
	}

	// The volume has all keys that it was opened with, if they could be written.
	return len(stay) > 0 && !have.Unsynced
}

// keeps reports whether all keys are still desired.
func keeps(keys, want map[int]machineconfig.VolumeKey) bool {
	for slot, key := range keys {
		if want[slot] != key {
			return false
		}
	}

	return true
}

// sameTypes compares keys to types of keys that a node reports, each of which it reports once.
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

	return slices.Equal(slices.Compact(types), slices.Compact(have))
}
