package taloscontrolplane_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/harness"
)

func (e *env) restore(r, of string) *v1alpha1.TalosEtcdRestore {
	e.Helper()

	o := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: r},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: of},
			Source:          v1alpha1.RestoreSource{Storage: &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}}},
		},
	}
	e.Create(o)

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

		e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "TalosEtcdRestore rise")
	}

	if !e.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name + "-state"}}) {
		t.Fatal("it has made a PKI")
	}

	// A wrong restore is deleted, and the cluster starts with a new PKI.
	e.Delete(r)
	e.until(cp, "it has a PKI", func() bool {
		return !e.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name + "-state"}})
	})
}

// TestLeftToARestore: while a restore is working on the cluster, nodes that wait for a bootstrap wait for that of the
// restore.
func TestLeftToARestore(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(3)

	e.record(func(s *clusterstate.State) {
		s.Runtime.Restore = &clusterstate.Restore{Name: "meant", UID: "uid", Since: e.Clock.Now()}
	})

	before := harness.Mutations(nodes...)

	for range 5 {
		if _, err := e.pass(cp); err != nil && failure.ClassOf(err) != failure.ClassWaiting {
			t.Errorf("a pass: %v", err)
		}
	}

	e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "TalosEtcdRestore meant")

	if harness.Calls("Bootstrap", nodes...) != 0 || harness.Mutations(nodes...) != before {
		t.Error("a node was touched")
	}

	// A concurrent record is noticed: the bootstrap begins with a write of the state.
	e.record(func(s *clusterstate.State) { s.Runtime.Restore = nil })
	e.until(cp, "etcd is bootstrapped", func() bool { return harness.Calls("Bootstrap", nodes...) == 1 })
}
