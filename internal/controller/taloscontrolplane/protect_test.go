package taloscontrolplane_test

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/harness"
)

// dropState deletes the state Secret, ignoring its finalizer.
func (e *env) dropState() {
	e.Helper()

	harness.Change(e.Env, e.secret("c-state"), func(s *corev1.Secret) {
		controllerutil.RemoveFinalizer(s, v1alpha1.StateFinalizer)
	})
	e.Delete(e.secret("c-state"))
}

// terminate deletes the namespace as an API server does: everything in it is deleted by other controllers.
func (e *env) terminate() {
	e.Helper()
	e.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace}})
}

// TestStateSecretDeleted: the Secret of an existing control plane is kept when it is deleted, remains in use, and the
// condition says what to do. A copy that is applied in its place is as good as the original.
func TestStateSecretDeleted(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(1)
	made := e.secret("c-state")

	e.Delete(made)

	for range 2 {
		if _, err := e.pass(cp); err != nil {
			t.Fatal(err)
		}
	}

	e.Condition(cp, v1alpha1.ConditionStateAtRisk, metav1.ConditionTrue, v1alpha1.ReasonStateSecretDeleting, "remove its finalizer")
	e.record(func(s *clusterstate.State) { s.ObservedKubeVersion = kubernetes }) // it can still be written

	made = e.secret("c-state")
	e.dropStateDeleted()

	made.ResourceVersion, made.UID, made.DeletionTimestamp, made.DeletionGracePeriodSeconds = "", "", nil, nil
	e.Create(made)

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	if c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionStateAtRisk); c != nil {
		t.Errorf("after the copy was applied: %+v", c)
	}
}

// dropStateDeleted releases a Secret that is being deleted.
func (e *env) dropStateDeleted() {
	e.Helper()

	s := e.secret("c-state")
	s.Finalizers = nil
	e.Update(s)

	if !e.Gone(s) {
		e.Fatal("the Secret is still there")
	}
}

// TestPreserveKeepsThePKI: nodes that continue to run after their control plane keep their PKI. If the Secret is
// deleted, alone or with its namespace, in any order, the deletion waits for a user, and says so.
func TestPreserveKeepsThePKI(t *testing.T) {
	for what, doom := range map[string]func(*env, *v1alpha1.TalosControlPlane){
		"the Secret first": func(e *env, cp *v1alpha1.TalosControlPlane) { e.Delete(e.secret("c-state")); e.Delete(cp) },
		"the control plane first": func(e *env, cp *v1alpha1.TalosControlPlane) {
			e.Delete(cp)
			e.Delete(e.secret("c-state"))
		},
		"the namespace, before it comes to the Secret": func(e *env, cp *v1alpha1.TalosControlPlane) {
			e.terminate()
			e.Delete(cp)
		},
		"a Secret that cannot be read": func(e *env, cp *v1alpha1.TalosControlPlane) {
			harness.Change(e.Env, e.secret("c-state"), func(s *corev1.Secret) { s.Data["state"] = []byte("{") })
			e.Delete(e.secret("c-state"))
			e.Delete(cp)
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := newEnv(t)
			cp, _ := e.found(1)

			if _, err := e.pass(cp); err != nil {
				t.Fatal(err)
			}

			pki := e.secret("c-state").Data["secretBundle"]

			doom(e, cp)

			for range 3 {
				if _, err := e.pass(cp); err != nil {
					t.Fatal(err)
				}
			}

			if e.Gone(cp) || !slices.Equal(e.secret("c-state").Data["secretBundle"], pki) {
				t.Fatal("the PKI of nodes that run went with the objects")
			}

			e.Condition(cp, v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonStateSecretDeleting,
				v1alpha1.ReleaseStateAnnotation+"=true")

			list := &v1alpha1.TalosMachineList{}
			if err := e.Admin.List(t.Context(), list); err != nil || len(list.Items) == 0 {
				t.Errorf("the machines were let go before (%v)", err)
			}

			e.annotate(cp, v1alpha1.ReleaseStateAnnotation, "true")
			e.until(cp, "it is gone", func() bool { return e.Gone(cp) })

			if _, err := e.States().Load(t.Context(), e.Key(name)); what != "the namespace, before it comes to the Secret" &&
				!errors.Is(err, clusterstate.ErrNotFound) {
				t.Errorf("the Secret is held by nothing, and still there: %v", err)
			}
		})
	}
}

// TestEmptyNamespaceGoes: if no machine was ever configured, nothing blocks the deletion of a namespace.
func TestEmptyNamespaceGoes(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1)

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	e.terminate()
	e.Delete(e.secret("c-state"))
	e.Delete(cp)
	e.until(cp, "it is gone", func() bool { return e.Gone(cp) })

	if _, err := e.States().Load(t.Context(), e.Key(name)); !errors.Is(err, clusterstate.ErrNotFound) {
		t.Errorf("the Secret: %v", err)
	}
}
