package talosmachine_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestVolumeChanges: a machine shows its volumes, and what their change would do at its next boot is not sent to it: the
// encryption of a volume that has data, and another size. Once the spec is restored it goes on.
func TestVolumeChanges(t *testing.T) {
	e := found(t, 1, 0)
	set := func(ephemeral *v1alpha1.VolumeOptions) {
		change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
			m.Spec.Volumes = nil
			if ephemeral != nil {
				m.Spec.Volumes = &v1alpha1.Volumes{Ephemeral: ephemeral}
			}
		})
	}

	m := e.until("cp-0", "its volumes are shown", func(m *v1alpha1.TalosMachine) bool { return len(m.Status.Volumes) > 1 })
	if v := m.Status.Volumes; v[0].Name != "STATE" || v[1].Name != "EPHEMERAL" || v[1].Phase != "ready" || v[1].SizeMiB == 0 {
		t.Errorf("it has the volumes %+v", v)
	}

	applied := e.nodes["cp-0"].Faults().Calls("ApplyConfiguration")

	for part, volume := range map[string]*v1alpha1.VolumeOptions{
		"volume EPHEMERAL: it holds data that is not encrypted": {Encryption: &v1alpha1.VolumeEncryption{
			Keys: []v1alpha1.VolumeKey{{Slot: new(int32), Type: v1alpha1.VolumeKeyNodeID}},
		}},
		"volume EPHEMERAL: its size was determined": {MaxSize: "10GiB"},
	} {
		set(volume)
		e.pass("cp-0")
		e.condition("cp-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVolumeChangeRefused, part)
	}

	if e.nodes["cp-0"].Faults().Calls("ApplyConfiguration") != applied {
		t.Error("a configuration was sent")
	}

	// Whether it grows may change.
	grow := true
	set(&v1alpha1.VolumeOptions{Grow: &grow})
	e.planned("cp-0")

	set(nil)
	e.until("cp-0", "it goes on", done)
}

// TestEncryptedVolume: a machine is installed with an encrypted volume and shows the key that opened it. That key is
// replaced by adding the new one, a reboot, and removing the old one; nothing else is sent.
func TestEncryptedVolume(t *testing.T) {
	e := found(t, 1, 0)
	node := func(slot int32) v1alpha1.VolumeKey {
		return v1alpha1.VolumeKey{Slot: &slot, Type: v1alpha1.VolumeKeyNodeID}
	}
	kms := func(slot int32) v1alpha1.VolumeKey {
		return v1alpha1.VolumeKey{
			Slot: &slot, Type: v1alpha1.VolumeKeyKMS, KMS: &v1alpha1.VolumeKeyKMSOptions{Endpoint: "https://kms.example.org:4443"},
		}
	}
	set := func(keys ...v1alpha1.VolumeKey) {
		change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
			w.Spec.Volumes = &v1alpha1.Volumes{Ephemeral: &v1alpha1.VolumeOptions{
				Encryption: &v1alpha1.VolumeEncryption{Keys: keys},
			}}
		})
	}
	opened := func(slot int32, keys ...string) func(*v1alpha1.TalosMachine) bool {
		return func(m *v1alpha1.TalosMachine) bool {
			return slices.ContainsFunc(m.Status.Volumes, func(v v1alpha1.MachineVolume) bool {
				return v.Name == "EPHEMERAL" && v.Encryption == "luks2" && v.KeySlot != nil && *v.KeySlot == slot &&
					slices.Equal(v.Keys, keys)
			}) && done(m)
		}
	}
	refuses := func(part string) {
		e.pass("w-0")
		e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVolumeChangeRefused, part)
	}
	reboots := func() {
		if err := e.nodes["w-0"].PowerOff(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	set(node(0))
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group})
	e.until("w-0", "it is installed", opened(0, "nodeID"))

	set(kms(1))
	refuses("none of the keys")

	set(node(0), kms(1))

	if c := e.planned("w-0"); c.Reboot {
		t.Error("a new key needs a reboot, says the plan")
	}

	e.grant("w-0", false)
	e.until("w-0", "the key is added", done)

	set(kms(1))
	refuses("not yet confirmed")
	set(node(0), kms(1))
	reboots()
	e.until("w-0", "the key is written", opened(0, "kms", "nodeID"))

	set(kms(1))
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "the old key is taken away", done)
	reboots()
	e.until("w-0", "the new key opens the volume", opened(1, "kms"))
}

// TestPassphraseReplaced: another passphrase in the Secret is not sent, and neither of the two is in a status, an event or a
// log. With the former one, the machine goes on.
func TestPassphraseReplaced(t *testing.T) {
	const former, later = "former-passphrase-4711", "later-passphrase-0815"

	e := found(t, 1, 0)
	e.CreateSecret("disks", map[string]string{"ephemeral": former})
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
		w.Spec.Volumes = &v1alpha1.Volumes{Ephemeral: &v1alpha1.VolumeOptions{Encryption: &v1alpha1.VolumeEncryption{
			Keys: []v1alpha1.VolumeKey{{Slot: new(int32), Type: v1alpha1.VolumeKeyStatic, Static: &v1alpha1.VolumeKeyStaticOptions{
				PassphraseFrom: v1alpha1.SecretKeyReference{Name: "disks", Key: "ephemeral"},
			}}},
		}}}
	})
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group})
	e.until("w-0", "it is installed", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.BootVolumes != nil && strings.HasPrefix(m.Status.BootVolumes.Keys["EPHEMERAL/0"], "static ") && done(m)
	})

	if !e.runs("w-0", former) {
		t.Fatal("the machine does not have the passphrase")
	}

	applied := e.nodes["w-0"].Faults().Calls("ApplyConfiguration")

	change(e, &corev1.Secret{}, "disks", func(s *corev1.Secret) { s.Data["ephemeral"] = []byte(later) })
	e.pass("w-0")
	e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVolumeChangeRefused, "EPHEMERAL")
	e.keepsSecrets(former, later)

	if e.nodes["w-0"].Faults().Calls("ApplyConfiguration") != applied || e.runs("w-0", later) {
		t.Error("a configuration was sent")
	}

	change(e, &corev1.Secret{}, "disks", func(s *corev1.Secret) { s.Data["ephemeral"] = []byte(former) })
	e.until("w-0", "it goes on", done)
}
