package taloscontrolplane

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestUpgradedWorker: the end of an upgrade of a worker wakes its control plane, and nothing on the way does.
func TestUpgradedWorker(t *testing.T) {
	talos, kubernetes := v1alpha1.ChangeTalos, v1alpha1.ChangeKubernetes
	upgrading := func(st *v1alpha1.TalosMachineStatus) { st.Change = &v1alpha1.MachineChange{Kind: talos} }

	pulling := func(failures int32, message string) func(*v1alpha1.TalosMachineStatus) {
		at := metav1.NewTime(time.Unix(int64(failures), 0))

		return func(st *v1alpha1.TalosMachineStatus) {
			st.Images = &v1alpha1.MachineImages{RequestedFor: "x", Message: message, LastAttemptTime: &at, Failures: failures}
		}
	}

	for name, c := range map[string]struct {
		before, after func(*v1alpha1.TalosMachineStatus)
		wakes         bool
	}{
		"nothing":          {before: upgrading, after: func(*v1alpha1.TalosMachineStatus) {}},
		"Talos is done":    {before: upgrading, after: func(st *v1alpha1.TalosMachineStatus) { st.Change = nil }, wakes: true},
		"a boot, not done": {before: upgrading, after: func(st *v1alpha1.TalosMachineStatus) { st.TalosVersion = "v1.13.9" }},
		"a kubelet is done": {
			before: func(st *v1alpha1.TalosMachineStatus) { st.Change = &v1alpha1.MachineChange{Kind: kubernetes} },
			after:  func(st *v1alpha1.TalosMachineStatus) { st.Change = nil }, wakes: true,
		},
		"a configuration follows": {
			before: upgrading, wakes: true,
			after: func(st *v1alpha1.TalosMachineStatus) { st.Change = &v1alpha1.MachineChange{ID: "2"} },
		},
		"a configuration is done": {
			before: func(st *v1alpha1.TalosMachineStatus) { st.Change = &v1alpha1.MachineChange{} },
			after:  func(st *v1alpha1.TalosMachineStatus) { st.Change = nil },
		},
		"a version late": {
			before: func(*v1alpha1.TalosMachineStatus) {},
			after:  func(st *v1alpha1.TalosMachineStatus) { st.TalosVersion = "v1.13.9" }, wakes: true,
		},
		"its images": {
			before: pulling(0, ""), after: pulling(1, "no such image"), wakes: true,
		},
		"its images, again": {
			before: pulling(1, "no such image"), after: pulling(2, "no such image"),
		},
		"a kubelet late": {
			before: func(*v1alpha1.TalosMachineStatus) {},
			after:  func(st *v1alpha1.TalosMachineStatus) { st.KubeletVersion = "v1.36.2" }, wakes: true,
		},
	} {
		was := &v1alpha1.TalosMachine{}
		was.Namespace, was.Spec.ControlPlaneRef.Name = "clusters", "prod"
		c.before(&was.Status)

		is := was.DeepCopy()
		c.after(&is.Status)

		if got := upgraded(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.wakes {
			t.Errorf("%s: %v", name, got)
		}
	}

	// Machines of the control plane itself wake it anyway.
	m := &v1alpha1.TalosMachine{}
	m.Namespace, m.Spec.ControlPlaneRef.Name = "clusters", "prod"

	if got := byUpgradedWorker(t.Context(), m); len(got) > 0 {
		t.Errorf("of the control plane: %v", got)
	}

	m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "workers"}

	if got := byUpgradedWorker(t.Context(), m); len(got) != 1 || got[0].String() != "clusters/prod" {
		t.Errorf("of a worker: %v", got)
	}
}

// TestBackupEnded: the end of a backup wakes the control plane that may wait for it, and its progress does not.
func TestBackupEnded(t *testing.T) {
	completed := metav1.NewTime(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
	condition := func(kind string, status metav1.ConditionStatus) func(*v1alpha1.TalosEtcdBackup) {
		return func(b *v1alpha1.TalosEtcdBackup) {
			meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test"})
		}
	}

	for name, c := range map[string]struct {
		before, after func(*v1alpha1.TalosEtcdBackup)
		wakes         bool
	}{
		"progress": {after: condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue)},
		"complete": {after: func(b *v1alpha1.TalosEtcdBackup) { b.Status.CompletedAt = &completed }, wakes: true},
		"failed":   {after: condition(v1alpha1.ConditionStalled, metav1.ConditionTrue), wakes: true},
		"good, late": {
			before: func(b *v1alpha1.TalosEtcdBackup) { b.Status.CompletedAt = &completed },
			after:  condition(v1alpha1.ConditionReady, metav1.ConditionTrue), wakes: true,
		},
	} {
		was := &v1alpha1.TalosEtcdBackup{}
		was.Namespace, was.Spec.ControlPlaneRef.Name = "clusters", "prod"

		if c.before != nil {
			c.before(was)
		}

		is := was.DeepCopy()
		c.after(is)

		if got := backupEnded(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.wakes {
			t.Errorf("%s: %v", name, got)
		}

		if got := byBackup(t.Context(), is); len(got) != 1 || got[0].String() != "clusters/prod" {
			t.Errorf("%s: wakes %v", name, got)
		}
	}
}
