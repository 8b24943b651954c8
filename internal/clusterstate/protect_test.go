package clusterstate_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestProtection: a deleted Secret stays, and can be read and written, until its control plane lets go of it.
func TestProtection(t *testing.T) {
	b, admin := newBench(t), planes.Admin(t)
	b.create(t, "kept")

	secret := &corev1.Secret{}
	if err := admin.Get(t.Context(), b.key("kept-state"), secret); err != nil {
		t.Fatal(err)
	}

	if err := admin.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	held, err := b.store.Load(t.Context(), b.key("kept"))
	if err != nil || !held.Deleting() {
		t.Fatalf("after its deletion: %v", err)
	}

	held.State.ObservedKubeVersion = "v1.36.3"

	if err := errors.Join(b.store.Update(t.Context(), held), b.store.Protect(t.Context(), held)); err != nil {
		t.Errorf("writing it: %v", err)
	}

	if err := b.store.Release(t.Context(), b.key("kept"), "uid"); err != nil {
		t.Fatal(err)
	}

	if _, err := b.store.Load(t.Context(), b.key("kept")); !errors.Is(err, clusterstate.ErrNotFound) {
		t.Errorf("after the control plane let go: %v", err)
	}

	if err := b.store.Release(t.Context(), b.key("kept"), "uid"); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// TestRelease: what ends takes the cluster from itself, and from no other owner.
func TestRelease(t *testing.T) {
	b := newBench(t)
	held := b.create(t, "given")

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "given", UID: "another"}}
	if err := held.CheckOwner(cp); failure.Reason(err) != v1alpha1.ReasonOwnedElsewhere {
		t.Errorf("to another control plane: %v", err)
	}

	for _, step := range []struct{ by, owner, former string }{{"another", "uid", ""}, {"uid", "", "uid"}} {
		if err := b.store.Release(t.Context(), b.key("given"), step.by); err != nil {
			t.Fatal(err)
		}

		held, err := b.store.Load(t.Context(), b.key("given"))
		if err != nil {
			t.Fatal(err)
		}

		if rt := held.State.Runtime; rt.OwnerUID != step.owner || rt.FormerOwnerUID != step.former || len(held.Secret().Finalizers) != 0 {
			t.Errorf("released by %s: owner %q, former owner %q, finalizers %v", step.by, rt.OwnerUID, rt.FormerOwnerUID,
				held.Secret().Finalizers)
		}

		if err := b.store.Protect(t.Context(), held); err != nil || len(held.Secret().Finalizers) != 1 {
			t.Errorf("protected again: %v, %v", held.Secret().Finalizers, err)
		}
	}
}
