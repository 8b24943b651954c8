package talosmachine

import (
	"crypto/sha256"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/volume"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestShowVolumes: the status shows what was read, keeps it while nothing is read, and drops it with the installation. A
// volume that failed is reported, and keys that could not be written, until neither is the case.
func TestShowVolumes(t *testing.T) {
	slot := 3
	s := &scope{machine: &v1alpha1.TalosMachine{}}
	s.machine.Name = "w-0"

	var conditions []metav1.Condition

	shown := func(volumes ...talos.VolumeStatus) string {
		s.volumes, s.sawVolumes = volumes, volumes != nil
		s.showVolumes()
		setVolumes(s, condition.Begin(&conditions, 1))

		if len(conditions) == 0 {
			return ""
		}

		return conditions[0].Reason + ": " + conditions[0].Message
	}

	ready := talos.VolumeStatus{Name: "EPHEMERAL", Phase: "ready", Size: 1 << 30, Encryption: "luks2", Slot: &slot, Keys: []string{"tpm"}}
	ready.LockedToState, ready.PCRs, ready.SignedPCRs = true, []int{7}, []int{11}
	failed, unsynced := ready, ready
	failed.Phase, failed.Problem = "failed", "no handlers available"
	unsynced.Unsynced = []string{"error adding key slot 1"}

	if got := shown(unsynced); !strings.Contains(got, "VolumeKeysNotWritten: ") || !strings.Contains(got, "w-0") ||
		!strings.Contains(got, "EPHEMERAL: error adding key slot 1") {
		t.Errorf("keys that were not written: %q", got)
	}

	if got := shown(failed, unsynced); !strings.Contains(got, "VolumeFailed: ") || !strings.Contains(got, "EPHEMERAL: no handlers") {
		t.Errorf("a volume that failed: %q", got)
	}

	if s.lookAgain() != pollReported {
		t.Errorf("it is looked at again in %s", s.lookAgain())
	}

	if got := shown(); got == "" || len(s.machine.Status.Volumes) != 2 {
		t.Errorf("nothing was read, and it shows %q, %+v", got, s.machine.Status.Volumes)
	}

	// Volumes of users show only if they failed.
	if got := shown(ready, talos.VolumeStatus{Name: "u-data", Phase: "waiting"}); got != "" || s.lookAgain() != pollReported {
		t.Errorf("a volume of a user waits for its disk: %q, %s", got, s.lookAgain())
	}

	if got := shown(ready, talos.VolumeStatus{Name: "u-data", Phase: "ready"}); got != "" || s.lookAgain() != 0 {
		t.Errorf("all is well: %q", got)
	}

	three := int32(3)
	want := []v1alpha1.MachineVolume{{
		Name: "EPHEMERAL", Opened: true, Phase: "ready", SizeMiB: 1024, Encryption: "luks2", KeySlot: &three, Keys: []string{"tpm"},
		LockedToState: new(true), TPM: &v1alpha1.MachineVolumeTPM{PCRs: []int32{7}, PubKeyPCRs: []int32{11}},
	}}
	if diff := cmp.Diff(want, s.machine.Status.Volumes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	failed.Encryption, failed.Slot, failed.Keys, failed.LockedToState, failed.PCRs = "", nil, nil, false, nil
	failed.SignedPCRs = nil
	shown(failed)

	if v := s.machine.Status.Volumes[0]; !v.Opened || v.Encryption != "luks2" || v.KeySlot == nil || v.Phase != "failed" ||
		v.LockedToState == nil || !*v.LockedToState || v.TPM == nil || len(v.TPM.PCRs) != 1 {
		t.Errorf("it fails after it was opened: %+v", v)
	}

	// What a version of the operator has read that did not know it was not observed, and neither false nor true.
	s.machine.Status.Volumes[0].LockedToState, s.machine.Status.Volumes[0].TPM = nil, nil
	shown(failed)

	if v := s.machine.Status.Volumes[0]; v.LockedToState != nil || v.TPM != nil || v.Encryption != "luks2" {
		t.Errorf("it was read before: %+v", v)
	}

	ready.LockedToState = false
	shown(ready)

	if v := s.machine.Status.Volumes[0]; v.LockedToState == nil || *v.LockedToState {
		t.Errorf("it is not locked: %+v", v)
	}

	ready.Encryption = ""
	shown(ready)

	if v := s.machine.Status.Volumes[0]; v.LockedToState != nil {
		t.Errorf("it is not encrypted: %+v", v)
	}

	s.answer = talos.StateMaintenance
	if got := shown(); got != "" || s.machine.Status.Volumes != nil {
		t.Errorf("in maintenance mode: %q, %+v", got, s.machine.Status.Volumes)
	}
}

// TestWhatIsKnownOfVolumes: a volume that is not open is what it was when it was opened last, or what its partition holds.
// Only one that never existed can be changed in each way.
func TestWhatIsKnownOfVolumes(t *testing.T) {
	t.Parallel()

	opened := &v1alpha1.MachineVolume{Name: "EPHEMERAL", Opened: true, Encryption: "luks2"}

	for name, c := range map[string]struct {
		phase             string
		last              *v1alpha1.MachineVolume
		content           string
		absent, encrypted bool
	}{
		"open, plain":            {"ready", opened, "luks", false, false},
		"failed":                 {"failed", opened, "", false, true},
		"waiting":                {"waiting", opened, "", false, true},
		"located":                {"located", opened, "", false, true},
		"provisioned":            {"provisioned", opened, "", false, true},
		"missing":                {"missing", opened, "", false, true},
		"not reported":           {"", opened, "", false, true},
		"failed, on disk":        {"failed", nil, "luks", false, true},
		"failed, on disk, plain": {"failed", &v1alpha1.MachineVolume{Name: "EPHEMERAL"}, "xfs", false, false},
		"failed, never existed":  {"failed", nil, "", true, false},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}, facts: &talos.Facts{BootID: "b"}, controlPlane: &v1alpha1.TalosControlPlane{}}
		s.machine.Spec.Role = v1alpha1.RoleControlPlane
		s.machine.Status.BootVolumes = &v1alpha1.BootVolumes{BootID: "b", Keys: map[string]string{"EPHEMERAL/2": "kms x"}}

		known := volumeFacts{partitions: map[string]string{"META": "talosmeta"}}
		if c.phase != "" {
			known.volumes = []talos.VolumeStatus{{Name: "EPHEMERAL", Phase: c.phase}}
		}

		if c.content != "" {
			known.partitions["EPHEMERAL"] = c.content
		}

		if c.last != nil {
			s.machine.Status.Volumes = []v1alpha1.MachineVolume{*c.last}
		}

		got := known.of(s, "EPHEMERAL", true)
		if got.Absent != c.absent || got.Encrypted != c.encrypted || got.Unlisted || !got.Needed ||
			(len(got.Booted) == 1 && got.Booted[2].Type == "kms") != (c.phase == "ready") && !c.absent {
			t.Errorf("%s: %+v", name, got)
		}

		s.facts.BootID = "another"
		if got := known.of(s, "EPHEMERAL", false); len(got.Booted) > 0 || !got.Unlisted {
			t.Errorf("%s, in another boot: %+v", name, got)
		}
	}
}

// TestKeysStayHidden: without the secret of the cluster, which hides them, no identities of keys get into the status.
func TestKeysStayHidden(t *testing.T) {
	s := &scope{machine: &v1alpha1.TalosMachine{}, facts: &talos.Facts{BootID: "b"}}
	s.live = []byte("apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys:\n" +
		"    - {slot: 0, static: {passphrase: hunter2}}\n")

	if err := s.noteBoot(); err != nil || s.machine.Status.BootVolumes != nil {
		t.Errorf("the status has %+v (%v)", s.machine.Status.BootVolumes, err)
	}
}

// TestEqualPassphrases: the same passphrase of two machines, volumes or slots has different hashes in the status, and the
// hash of the same place stays the same. Those of other keys are as they were before passphrases had theirs.
func TestEqualPassphrases(t *testing.T) {
	bundle, err := clusterstate.NewBundle(clusterstate.Options{TalosVersion: "v1.13.9", Now: wait.Now()})
	if err != nil {
		t.Fatal(err)
	}

	noted := func(machine string) map[string]string {
		s := &scope{
			machine: &v1alpha1.TalosMachine{}, facts: &talos.Facts{BootID: "b"},
			held: &clusterstate.Held{State: &clusterstate.State{Bundle: bundle}},
		}
		s.machine.Name = machine

		for _, name := range []string{"EPHEMERAL", "STATE"} {
			s.live = append(s.live, "---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: "+name+"\nencryption:\n  provider: luks2\n"+
				"  keys:\n    - {slot: 0, static: {passphrase: hunter2hunter2hunter2}}\n"+
				"    - {slot: 1, static: {passphrase: hunter2hunter2hunter2}}\n    - {slot: 2, nodeID: {}}\n"...)
		}

		if err := s.noteBoot(); err != nil {
			t.Fatal(err)
		}

		return s.machine.Status.BootVolumes.Keys
	}

	seen := map[string]string{}
	one, other := noted("a"), noted("b")

	for machine, keys := range map[string]map[string]string{"a": one, "b": other} {
		for place, key := range keys {
			if !strings.HasPrefix(key, "static ") {
				continue
			}

			if twin, twice := seen[key]; twice {
				t.Errorf("%s of %s shows as equal to %s", place, machine, twin)
			}

			seen[key] = place + " of " + machine
		}
	}

	sum := sha256.Sum256([]byte("nodeID false "))
	if len(seen) != 8 || one["STATE/2"] != "nodeID "+bundle.Mark(string(sum[:])) || other["EPHEMERAL/2"] != one["STATE/2"] {
		t.Errorf("%d passphrases; the status has %v and %v", len(seen), one, other)
	}

	if again := noted("a"); !maps.Equal(again, one) {
		t.Errorf("the status has %v, and then %v", one, again)
	}
}

// TestEarlierHashes: a passphrase that an earlier version of the operator has recorded is the same one, or not known: no
// other one. What the volume would be left with is refused as long as it is not known.
func TestEarlierHashes(t *testing.T) {
	bundle, err := clusterstate.NewBundle(clusterstate.Options{TalosVersion: "v1.13.9", Now: wait.Now()})
	if err != nil {
		t.Fatal(err)
	}

	config := func(keys string) []byte {
		return []byte("apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption: {provider: luks2, keys: [" + keys + "]}\n")
	}

	const (
		first  = "{slot: 0, static: {passphrase: hunter2hunter2hunter2}}"
		second = "{slot: 0, static: {passphrase: hunter3hunter3hunter3}}"
		added  = "{slot: 1, nodeID: {}}"
	)

	sum := sha256.Sum256([]byte("static false hunter2hunter2hunter2"))
	hashes := map[string]string{
		"without its place": bundle.Mark(string(sum[:])), "with its place": bundle.Mark("w-0/EPHEMERAL/0 " + string(sum[:])),
	}

	for name, hash := range hashes {
		for what, c := range map[string]struct {
			live, want string
			known      bool
			refusal    string
		}{
			"another key is added":       {first, first + ", " + added, true, ""},
			"it was changed by hand":     {second, first, false, "none of the keys"},
			"one of two is removed":      {first + ", " + added, first, true, ""},
			"another passphrase":         {first, second, true, "slot 0 has another key"},
			"another, and it is unknown": {second, "{slot: 0, static: {passphrase: hunter4hunter4hunter4}}", false, "none of the keys"},
		} {
			s := &scope{
				machine: &v1alpha1.TalosMachine{}, facts: &talos.Facts{BootID: "b"}, controlPlane: &v1alpha1.TalosControlPlane{},
				held: &clusterstate.Held{State: &clusterstate.State{Bundle: bundle}},
			}
			s.machine.Name, s.live = "w-0", config(c.live)
			noted := &v1alpha1.BootVolumes{BootID: "b", Keys: map[string]string{"EPHEMERAL/0": "static " + hash}}
			s.machine.Status.BootVolumes = noted

			if err := s.noteBoot(); err != nil {
				t.Fatal(err)
			}

			slot := 0
			have := volumeFacts{volumes: []talos.VolumeStatus{{
				Name: "EPHEMERAL", Phase: "ready", Encryption: "luks2", Slot: &slot, Keys: []string{"static"},
			}}}.of(s, "EPHEMERAL", true)

			if _, known := have.Booted[0]; known != c.known || noted.Keys["EPHEMERAL/0"] != "static "+hash {
				t.Errorf("%s, %s: the keys of the boot are %v", name, what, have.Booted)
			}

			live, err := s.volumesOf(s.live)
			if err != nil {
				t.Fatal(err)
			}

			want, err := s.volumesOf(config(c.want))
			if err != nil {
				t.Fatal(err)
			}

			refusal := volume.Judge("EPHEMERAL", live["EPHEMERAL"], want["EPHEMERAL"], have)
			if (refusal == nil) != (c.refusal == "") || refusal != nil && !strings.Contains(refusal.Problem, c.refusal) {
				t.Errorf("%s, %s: %+v", name, what, refusal)
			}
		}
	}
}

// TestWhenVolumesAreRead: once in a boot that has come to its end and for each configuration, after a restart of the
// operator, and as long as something of them may change by itself, or is unknown.
func TestWhenVolumesAreRead(t *testing.T) {
	known := []v1alpha1.MachineVolume{{Name: "STATE"}}
	failed := []metav1.Condition{{Type: v1alpha1.ConditionVolumesFailed, Status: metav1.ConditionTrue}}
	unknown := []metav1.Condition{{Type: v1alpha1.ConditionVolumesFailed, Status: metav1.ConditionUnknown}}

	for name, c := range map[string]struct {
		status v1alpha1.TalosMachineStatus
		seen   any
		knows  bool
	}{
		"idle":                {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c", Volumes: known}, "b c", true},
		"no volumes":          {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c"}, "b c", true},
		"after a restart":     {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c", Volumes: known}, nil, false},
		"never read":          {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c"}, nil, false},
		"another boot":        {v1alpha1.TalosMachineStatus{BootID: "a", Stage: "running", ConfigHash: "c", Volumes: known}, "a c", false},
		"it boots":            {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "booting", ConfigHash: "c", Volumes: known}, "b c", false},
		"other configuration": {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "d", Volumes: known}, "b c", false},
		"one settles":         {v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c", Volumes: known}, "", false},
		"one failed": {
			v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c", Volumes: known, Conditions: failed}, "b c", false,
		},
		"one is unknown": {
			v1alpha1.TalosMachineStatus{BootID: "b", Stage: "running", ConfigHash: "c", Volumes: known, Conditions: unknown}, "b c", false,
		},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{Status: c.status}, facts: &talos.Facts{BootID: "b"}}
		if s.knowsVolumes(c.seen) != c.knows {
			t.Errorf("%s: %t", name, !c.knows)
		}
	}
}

// TestSealedVolumesNeedSecureBoot: a machine that is to have keys in its TPM gets no installer that is not signed: such a
// system cannot seal any, and the machine would not boot.
func TestSealedVolumesNeedSecureBoot(t *testing.T) {
	for installer, held := range map[string]bool{
		stockImage: true, plainFactory + iscsi + ":v1.13.9": true, signedImages + iscsi + ":v1.13.9": false, "mine/installer:v1.13.9": false,
	} {
		s := imageScope(v1alpha1.InstallOptions{}, talos.Image{Told: true})
		s.machine.Spec.Volumes = &v1alpha1.Volumes{State: &v1alpha1.StateVolume{Encryption: &v1alpha1.VolumeEncryption{
			Keys: []v1alpha1.VolumeKey{{Slot: new(int32), Type: v1alpha1.VolumeKeyTPM}},
		}}}

		err := s.checkImage([]byte("machine: {install: {image: \""+installer+"\"}}\n"), time.Minute)
		if (failure.Reason(err) == v1alpha1.ReasonSecureBootMismatch) != held || held && !strings.Contains(err.Error(), "TPM") {
			t.Errorf("%s: %v", installer, err)
		}
	}
}
