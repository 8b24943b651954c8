package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// maxVolumes is how many volumes a status has.
const maxVolumes = 16

// retryVolumes is how soon a machine is queried again whose volumes may get their keys at a reboot.
const retryVolumes = time.Minute

// readVolumes asks a node for its volumes once in a boot, after it runs, once after each change of its configuration,
// after a restart of the operator, and as long as one of them is reported to have failed, or settles. Nothing
// depends on the answer but what is shown.
func (r *Reconciler) readVolumes(ctx context.Context, s *scope, node *talos.Node) {
	key := s.key().String()
	if seen, _ := r.volumes.Load(key); s.knowsVolumes(seen) {
		return
	}

	volumes, err := node.Volumes(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("The volumes of the machine are unknown", "error", err.Error())

		return
	}

	s.volumes, s.sawVolumes = volumes, true

	if slices.ContainsFunc(volumes, talos.VolumeStatus.Settles) {
		r.volumes.Store(key, "")
	} else {
		r.volumes.Store(key, s.volumesMark())
	}
}

// volumesMark is what the volumes of a machine depend on.
func (s *scope) volumesMark() string { return s.facts.BootID + " " + s.machine.Status.ConfigHash }

// knowsVolumes reports whether the status has the volumes of the machine. seen is the mark with which they were read
// last; nil after a restart of the operator.
func (s *scope) knowsVolumes(seen any) bool {
	st := &s.machine.Status

	return st.BootID == s.facts.BootID && st.Stage == change.StageRunning &&
		seen == s.volumesMark() && meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionVolumesFailed) == nil
}

// showVolumes copies what the node reports about its volumes to the status.
func (s *scope) showVolumes() {
	st := &s.machine.Status

	if s.answer == talos.StateMaintenance {
		st.BootVolumes = nil
		st.Volumes, st.StaticPods = nil, nil // they belong to another installation, or do not exist yet
	}

	if !s.sawVolumes {
		return
	}

	last := st.Volumes
	st.Volumes = nil

	for _, v := range s.volumes {
		if !v.System() && !v.Failed() || len(st.Volumes) == maxVolumes {
			continue
		}

		out := v1alpha1.MachineVolume{
			Name: v.Name, Phase: v.Phase, SizeMiB: int64(v.Size >> 20), Encryption: v.Encryption, Keys: v.Keys,
			FailedKeys: v.Unsynced, Message: v.Problem, Opened: v.Open(), TPM: sealedBy(v),
		}

		if out.Opened && v.Encryption != "" {
			locked := v.LockedToState
			out.LockedToState = &locked
		}

		if v.Slot != nil {
			slot := int32(*v.Slot)
			out.KeySlot = &slot
		}

		if was := volumeNamed(last, v.Name); was != nil && was.Opened && !out.Opened {
			out.Opened, out.Encryption, out.KeySlot = true, was.Encryption, was.KeySlot
			out.Keys, out.FailedKeys, out.LockedToState, out.TPM = was.Keys, was.FailedKeys, was.LockedToState, was.TPM
		}

		st.Volumes = append(st.Volumes, out)
	}
}

// sealedBy returns what the key of a volume is bound to that the TPM seals; nil for none.
func sealedBy(v talos.VolumeStatus) *v1alpha1.MachineVolumeTPM {
	if len(v.PCRs)+len(v.SignedPCRs) == 0 {
		return nil
	}

	out := &v1alpha1.MachineVolumeTPM{}
	for _, pcr := range v.PCRs {
		out.PCRs = append(out.PCRs, int32(pcr))
	}

	for _, pcr := range v.SignedPCRs {
		out.PubKeyPCRs = append(out.PubKeyPCRs, int32(pcr))
	}

	return out
}

// setVolumes reports volumes that failed, or whose keys could not be written.
func setVolumes(s *scope, set condition.Set) {
	if s.answer == talos.StateMaintenance {
		set.While(false, v1alpha1.ConditionVolumesFailed, "", "")
	}

	if s.sawVolumes {
		reason, message := judgeVolumes(s.machine.Name, s.volumes)
		set.While(message != "", v1alpha1.ConditionVolumesFailed, reason, message)
	}
}

func judgeVolumes(machine string, volumes []talos.VolumeStatus) (reason, message string) {
	var failed, unsynced []string

	for _, v := range volumes {
		if v.Failed() {
			failed = append(failed, v.Name+": "+v.Problem)
		}

		for _, why := range v.Unsynced {
			unsynced = append(unsynced, v.Name+": "+why)
		}
	}

	switch {
	case len(failed) > 0:
		return v1alpha1.ReasonVolumeFailed, cut(fmt.Sprintf("volumes of machine %s failed: %s", machine,
			strings.Join(failed, "; ")), longestFault)
	case len(unsynced) > 0:
		return v1alpha1.ReasonVolumeKeysNotWritten, cut(fmt.Sprintf("not all keys of the volumes of machine %s could be "+
			"written at its last boot: %s", machine, strings.Join(unsynced, "; ")), longestFault)
	}

	return "", ""
}

func volumeNamed(volumes []v1alpha1.MachineVolume, name string) *v1alpha1.MachineVolume {
	at := slices.IndexFunc(volumes, func(v v1alpha1.MachineVolume) bool { return v.Name == name })
	if at < 0 {
		return nil
	}

	return &volumes[at]
}
