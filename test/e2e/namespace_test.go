package e2e

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// emptyNamespace does what the namespace controller of Kubernetes does: the namespace is marked, which refuses new
// objects, and everything in it is deleted, the Secrets first.
func (w *world) emptyNamespace() {
	w.t.Helper()

	ctx := w.t.Context()

	admin, err := client.New(w.plane.Config(), client.Options{Scheme: shared.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}

	if err := admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		w.t.Fatal(err)
	}

	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Secret"),
		v1alpha1.GroupVersion.WithKind("TalosControlPlane"),
		v1alpha1.GroupVersion.WithKind("TalosWorker"),
		v1alpha1.GroupVersion.WithKind("TalosMachine"),
	} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)

		if err := admin.DeleteAllOf(ctx, o, client.InNamespace(w.ns)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// emptied: nothing of the cluster is left that would hold the namespace.
func (w *world) emptied(cluster string) {
	w.t.Helper()

	for _, o := range []client.Object{
		&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		&v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Name: cluster + "-workers"}},
		&v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: cluster + "-state"}},
	} {
		w.eventually(o.GetName()+" is gone", w.gone(o, o.GetName()))
	}
}

// TestNamespaceDeletionPreserves: with a namespace the PKI of nodes that run on does not go unnoticed, and with the word
// of a person nothing holds the namespace.
func TestNamespaceDeletionPreserves(t *testing.T) {
	w := newWorld(t)
	w.modelledCluster("lost", []int{1}, nil, 2)

	boots := []string{w.nodes[w.address(1)].Status().BootID, w.nodes[w.address(2)].Status().BootID}

	w.emptyNamespace()

	cp := &v1alpha1.TalosControlPlane{}
	w.eventually("the deletion waits for a person", w.condition(cp, "lost", v1alpha1.ConditionDeleting,
		metav1.ConditionTrue, v1alpha1.ReasonStateSecretDeleting))

	if state := w.state("lost"); state.Bundle == nil {
		t.Error("the PKI is gone")
	}

	change(w, cp, "lost", func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.ReleaseStateAnnotation, "true")
	})
	w.emptied("lost")

	now := []string{w.nodes[w.address(1)].Status().BootID, w.nodes[w.address(2)].Status().BootID}
	if !slices.Equal(boots, now) {
		t.Error("a node was touched")
	}
}

// TestNamespaceDeletionResets: the operator goes on to work while a namespace ends, and the PKI stays until the last
// machine is wiped.
func TestNamespaceDeletionResets(t *testing.T) {
	w := newWorld(t)
	w.modelledCluster("wiped", []int{1}, nil, 2)

	change(w, &v1alpha1.TalosControlPlane{}, "wiped", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.DeletionPolicy = v1alpha1.DeletionReset
	})
	change(w, &v1alpha1.TalosWorker{}, "wiped-workers", func(g *v1alpha1.TalosWorker) {
		g.Spec.DeletionPolicy = v1alpha1.DeletionReset
	})

	for _, name := range []string{"cp-1", "w-2"} {
		w.eventually(name+" is to be wiped", func(context.Context) error {
			if m := w.machine(name); m.Spec.DeletionPolicy != v1alpha1.DeletionReset {
				return errors.New("it is not")
			}

			return nil
		})
	}

	w.emptyNamespace()
	w.emptied("wiped")

	for _, name := range []string{w.address(1), w.address(2)} {
		if s := w.nodes[name].Status(); s.Stage != "maintenance" {
			t.Errorf("%s was not wiped: %+v", name, s)
		}
	}
}

// TestRightsEndAtTheNamespace: the operator of a namespace, whose rights are those of config/namespaced, runs a cluster
// there, and reads and writes nothing of another one.
func TestRightsEndAtTheNamespace(t *testing.T) {
	w := newWorld(t)
	w.modelledCluster("own", []int{1}, nil)

	other := "other-" + w.ns
	admin, err := client.New(w.plane.Config(), client.Options{Scheme: shared.Scheme})

	if err == nil {
		err = errors.Join(
			admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}),
			admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "own-state"}}),
		)
	}

	if err != nil {
		t.Fatal(err)
	}

	cfg, err := w.plane.ConfigIn(w.ns)
	if err != nil {
		t.Fatal(err)
	}

	c, err := client.New(cfg, client.Options{Scheme: shared.Scheme})
	if err != nil {
		t.Fatal(err)
	}

	secret := func(ns string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own-state"}}
	}
	get := func(ns string, o client.Object) error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: o.GetName()}, o)
	}

	if err := get(w.ns, secret(w.ns)); err != nil {
		t.Errorf("its own state: %v", err)
	}

	for what, err := range map[string]error{
		"reading a Secret of another namespace":  get(other, secret(other)),
		"writing a Secret of another namespace":  c.Update(t.Context(), secret(other)),
		"making a Secret in another namespace":   c.Create(t.Context(), secret("default")),
		"deleting a Secret of another namespace": c.Delete(t.Context(), secret(other)),
		"deleting a Secret of its own":           c.Delete(t.Context(), secret(w.ns)),
		"listing Secrets of its own":             c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(w.ns)),
		"listing all Secrets":                    c.List(t.Context(), &corev1.SecretList{}),
		"listing control planes everywhere":      c.List(t.Context(), &v1alpha1.TalosControlPlaneList{}),
		"reading another namespace":              get("", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}),
		"making a control plane elsewhere": c.Create(t.Context(), &v1alpha1.TalosControlPlane{
			ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "own"},
		}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}

	if err := get("", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		t.Errorf("whether its own namespace ends: %v", err)
	}
}
