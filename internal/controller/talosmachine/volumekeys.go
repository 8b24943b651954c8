package talosmachine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/volume"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// volumesOf reads the volumes of a config, with hashes as the identities of their keys that may be in a status.
func (s *scope) volumesOf(config []byte) (map[string]machineconfig.ConfiguredVolume, error) {
	out, err := machineconfig.ConfiguredVolumes(config)
	if err != nil {
		return nil, fmt.Errorf("reading the volumes of %s: %w", s.machine.Name, err)
	}

	for name, v := range out {
		for slot, k := range v.Keys {
			if s.held != nil {
				k.Identity = s.identityOf(name, slot, k)
			}

			v.Keys[slot] = k
		}
	}

	return out, nil
}

// hashScheme precedes the hash of a passphrase, and names how it was made. A hash without it is of an earlier version
// of the operator: that it differs says nothing about the passphrase. The hashes of other keys have been the same in
// all versions.
const hashScheme = "v1:"

const staticKey = "static"

// identityOf is the hash of a key that may be in a status. With the place of a passphrase in it, equal ones of two
// machines, volumes or slots do not show as equal.
func (s *scope) identityOf(volume string, slot int, k machineconfig.VolumeKey) string {
	if k.Type != staticKey {
		return s.held.State.Bundle.Mark(k.Identity)
	}

	return hashScheme + s.held.State.Bundle.Mark(s.placed(volume, slot, k))
}

func (s *scope) placed(volume string, slot int, k machineconfig.VolumeKey) string {
	return fmt.Sprintf("%s/%s/%d %s", s.machine.Name, volume, slot, k.Identity)
}

// isEarlier reports whether a recorded key is a passphrase whose hash is of an earlier version of the operator.
func isEarlier(key string) bool {
	kind, identity, _ := strings.Cut(key, " ")

	return kind == staticKey && !strings.HasPrefix(identity, hashScheme)
}

// rehash replaces the hashes of earlier versions of the operator in the record of this boot, where the live
// configuration has the very passphrase. Otherwise what the volume has there stays unknown until the next boot.
func (s *scope) rehash() error {
	st := &s.machine.Status

	live, err := machineconfig.ConfiguredVolumes(s.live)
	if err != nil {
		return fmt.Errorf("reading the volumes of %s: %w", s.machine.Name, err)
	}

	st.BootVolumes = st.BootVolumes.DeepCopy()

	for name, v := range live {
		for slot, k := range v.Keys {
			at := name + "/" + strconv.Itoa(slot)
			bundle, noted := s.held.State.Bundle, st.BootVolumes.Keys[at]

			for _, text := range []string{k.Identity, s.placed(name, slot, k)} {
				if k.Type == staticKey && noted == staticKey+" "+bundle.Mark(text) {
					st.BootVolumes.Keys[at] = staticKey + " " + s.identityOf(name, slot, k)
				}
			}
		}
	}

	return nil
}

// noteBoot records the keys that the machine is configured with when it is first compared in its boot: that is what it
// opened its volumes with, unless another program was faster, which the types of the keys show. Without the secret of
// the cluster nothing is recorded: the identity of a key is in a status only if that hides it.
func (s *scope) noteBoot() error {
	st := &s.machine.Status
	if s.held == nil || s.facts.BootID == "" {
		return nil
	}

	if noted := st.BootVolumes; noted != nil && noted.BootID == s.facts.BootID {
		if slices.ContainsFunc(slices.Collect(maps.Values(noted.Keys)), isEarlier) {
			return s.rehash()
		}

		return nil
	}

	live, err := s.volumesOf(s.live)
	if err != nil {
		return err
	}

	st.BootVolumes = &v1alpha1.BootVolumes{BootID: s.facts.BootID}

	for name, v := range live {
		for slot, k := range v.Keys {
			if st.BootVolumes.Keys == nil {
				st.BootVolumes.Keys = map[string]string{}
			}

			st.BootVolumes.Keys[name+"/"+strconv.Itoa(slot)] = k.Type + " " + k.Identity
		}
	}

	return nil
}

// bootKeys returns what noteBoot recorded for a volume. A passphrase with a hash of an earlier version of the operator
// is not among them: it may be the one that is configured, or another.
func (s *scope) bootKeys(name string) map[int]machineconfig.VolumeKey {
	noted, out := s.machine.Status.BootVolumes, map[int]machineconfig.VolumeKey{}
	if noted == nil || noted.BootID != s.facts.BootID {
		return out
	}

	for id, key := range noted.Keys {
		number, isVolume := strings.CutPrefix(id, name+"/")

		slot, err := strconv.Atoi(number)
		if !isVolume || err != nil || isEarlier(key) {
			continue
		}

		kind, identity, _ := strings.Cut(key, " ")
		out[slot] = machineconfig.VolumeKey{Type: kind, Identity: identity}
	}

	return out
}

// checkVolumes refuses a change of volumes that Talos would accept, and then do nothing with it, or not open a volume
// at the next boot. What the volumes have, only the node knows: its configuration may have changed since it opened
// them.
func (r *Reconciler) checkVolumes(ctx context.Context, s *scope) error {
	if s.unsourced != nil || !s.diff.ChangesVolumes() {
		return nil
	}

	live, err := s.volumesOf(s.live)
	if err != nil {
		return err
	}

	want, err := s.volumesOf(s.want)
	if err != nil {
		return err
	}

	have, err := r.volumeEvidence(ctx, s)
	if err != nil {
		return err
	}

	var (
		problems []string
		passing  = true
	)

	for _, name := range slices.Sorted(maps.Keys(want)) {
		was, listed := live[name]
		if refusal := volume.Judge(name, was, want[name], have.of(s, name, listed)); refusal != nil {
			problems, passing = append(problems, refusal.Message()), passing && refusal.Passing
		}
	}

	if len(problems) == 0 {
		return nil
	}

	message := fmt.Sprintf("nothing is sent to machine %s: %s", s.machine.Name, strings.Join(problems, "; "))
	if passing {
		return failure.Waiting(v1alpha1.ReasonVolumeChangeRefused, message, retryVolumes)
	}

	return failure.Terminal(v1alpha1.ReasonVolumeChangeRefused, message, nil)
}

// volumeFacts are what is known about the volumes of a machine.
type volumeFacts struct {
	volumes []talos.VolumeStatus
	// partitions are what partitions hold, by their labels.
	partitions map[string]string
	// applied are the volumes as they were configured last; nil if that is what is configured.
	applied map[string]machineconfig.ConfiguredVolume
}

func (r *Reconciler) volumeEvidence(ctx context.Context, s *scope) (out volumeFacts, err error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return out, err
	}

	if out.volumes, err = node.Volumes(ctx); err != nil {
		return out, fmt.Errorf("reading the volumes of %s: %w", s.machine.Name, err)
	}

	if out.partitions, err = node.Partitions(ctx); err != nil {
		return out, fmt.Errorf("reading the volumes of %s: %w", s.machine.Name, err)
	}

	if s.liveHash == s.machine.Status.ConfigHash {
		return out, nil
	}

	if err = r.loadStored(ctx, s); err != nil {
		return out, err
	}

	sent, err := s.lastSent()
	if err == nil && sent != nil {
		out.applied, err = s.volumesOf(sent)
	}

	return out, err
}

// of is what is known about one volume: what the node reports if it has opened it, otherwise what it reported when it
// opened it last, otherwise what is on its disks.
func (e volumeFacts) of(s *scope, name string, listed bool) volume.Have {
	out := volume.Have{
		Booted: s.bootKeys(name), Unlisted: !listed,
		Needed: s.machine.Spec.Role == v1alpha1.RoleControlPlane && len(s.controlPlane.Spec.Machines) < 2,
	}
	if applied, ok := e.applied[name]; ok {
		out.Applied = &applied
	}

	content, onDisk := e.partitions[name]
	at := slices.IndexFunc(e.volumes, func(v talos.VolumeStatus) bool { return v.Name == name && v.Open() })
	last := volumeNamed(s.machine.Status.Volumes, name)

	switch {
	case at >= 0:
		v := e.volumes[at]
		out.Encrypted, out.Slot, out.Keys, out.Unsynced = v.Encryption != "", v.Slot, v.Keys, len(v.Unsynced) > 0
	case last != nil && last.Opened:
		// What opened it at another boot is no evidence for the keys of this one.
		out.Encrypted, out.Booted = last.Encryption != "", nil
	case onDisk:
		out.Encrypted, out.Booted = content == "luks", nil
	default:
		out.Absent = true
	}

	return out
}
