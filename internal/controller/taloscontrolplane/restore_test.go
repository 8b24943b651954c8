package taloscontrolplane_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func (e *env) restore(r, of string) *v1alpha1.TalosEtcdRestore {
	e.t.Helper()

	o := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: r},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: of},
			Source:          v1alpha1.RestoreSource{Storage: &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}}},
		},
	}
	if err := e.admin.Create(e.t.Context(), o); err != nil {
		e.t.Fatal(err)
	}

	return o
}

// TestNoPKIBesideARestore: a control plane that a restore names gets its PKI from the backup, and never another one.
func TestNoPKIBesideARestore(t *testing.T) {
	e := newEnv(t)
	e.restore("of-another", "another")

	r := e.restore("rise", name)
	cp := e.create(1)

	for range 3 {
		if _, err := e.pass(cp); err != nil && failure.Reason(err) != v1alpha1.ReasonRestoring {
			t.Errorf("a pass: %v", err)
		}

		e.condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "TalosEtcdRestore rise")
	}

	if !e.gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name + "-state"}}) {
		t.Fatal("it has made a PKI")
	}

	// A restore that was wrong is deleted, and the cluster begins anew.
	e.delete(r)
	e.until(cp, "it has a PKI", func() bool {
		return !e.gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name + "-state"}})
	})
}

// TestLeftToARestore: while a restore works on the cluster, nodes that wait for a bootstrap wait for that of the restore.
func TestLeftToARestore(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(3)

	e.record(func(s *clusterstate.State) {
		s.Runtime.Restore = &clusterstate.Restore{Name: "meant", UID: "uid", Since: e.clock.Now()}
	})

	before := mutating(nodes...)

	for range 5 {
		if _, err := e.pass(cp); err != nil && failure.ClassOf(err) != failure.ClassWaiting {
			t.Errorf("a pass: %v", err)
		}
	}

	e.condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "TalosEtcdRestore meant")

	if calls("Bootstrap", nodes...) != 0 || mutating(nodes...) != before {
		t.Error("a node was touched")
	}

	// What came in between is seen: the bootstrap begins with a write of the state.
	e.record(func(s *clusterstate.State) { s.Runtime.Restore = nil })
	e.until(cp, "etcd is bootstrapped", func() bool { return calls("Bootstrap", nodes...) == 1 })
}
