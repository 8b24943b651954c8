package kube_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// lagging is a client whose cache shows an object as it was once, until it catches up.
type lagging struct {
	client.Client

	old *vitistackv1alpha1.Machine
}

func (c *lagging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if m, ok := o.(*vitistackv1alpha1.Machine); ok && c.old != nil {
		c.old.DeepCopyInto(m)

		return nil
	}

	return c.Client.Get(ctx, key, o, opts...)
}

// counting counts what is read live.
type counting struct {
	client.Reader

	reads int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.reads++

	return c.Reader.Get(ctx, key, o, opts...)
}

// TestCurrent: a reconciliation that follows its own write at once begins with what it wrote, and not with what the
// cache still shows; its difference to that is written.
func TestCurrent(t *testing.T) {
	admin, ns := api.Admin(t), api.Namespace(t)

	if err := admin.Create(t.Context(), machine(ns, func(m *vitistackv1alpha1.Machine) {
		m.Labels = map[string]string{"shelf": "seven"}
	})); err != nil {
		t.Fatal(err)
	}

	late, live := &lagging{Client: admin, old: get(t, admin, ns)}, &counting{Reader: admin}
	c := kube.Current(late, live)

	pass := func(phase vitistackv1alpha1.MachinePhase) {
		t.Helper()

		m := get(t, c, ns)
		base := m.DeepCopy()
		m.Status.Phase = phase

		if err := kube.PatchStatus(t.Context(), c, m, base); err != nil {
			t.Fatal(err)
		}

		if got := get(t, admin, ns).Status.Phase; got != phase {
			t.Errorf("the status is %q, and %q was found", got, phase)
		}
	}

	pass(vitistackv1alpha1.MachineFailed)
	pass("") // as the cache still has it

	unlabelled := get(t, c, ns)
	base := unlabelled.DeepCopy()
	unlabelled.Labels = nil

	if err := c.Patch(t.Context(), unlabelled, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}

	into := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"left": "over"}}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(unlabelled), into); err != nil || len(into.Labels) > 0 {
		t.Errorf("labels %v, %v", into.Labels, err)
	}

	// The cache catches up: nothing is read live any more, also not when it falls behind others.
	late.old = get(t, admin, ns)
	get(t, c, ns)

	reads := live.reads
	get(t, c, ns)

	if live.reads != reads || reads == 0 {
		t.Errorf("%d live reads, %d before the cache had caught up", live.reads, reads)
	}

	if err := admin.Delete(t.Context(), unlabelled); err != nil {
		t.Fatal(err)
	}

	late.old = nil

	if err := c.Get(t.Context(), client.ObjectKeyFromObject(unlabelled), into); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a machine that is gone: %v", err)
	}
}

// TestCurrentUntyped: one Go type stands for all kinds of unstructured objects, so what was written of one kind tells
// nothing of another one of the same name.
func TestCurrentUntyped(t *testing.T) {
	admin, ns := api.Admin(t), api.Namespace(t)
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: machine(ns, nil).Name}}

	for _, o := range []client.Object{other, machine(ns, nil)} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	live := &counting{Reader: admin}
	c := kube.Current(admin, live)
	key := client.ObjectKeyFromObject(other)

	written, bare := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	written.SetGroupVersionKind(vitistackv1alpha1.GroupVersion.WithKind("Machine"))
	bare.SetGroupVersionKind(vitistackv1alpha1.GroupVersion.WithKind("Machine"))

	for _, o := range []client.Object{written, bare} {
		if err := c.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}

		base, ok := o.DeepCopyObject().(client.Object)
		o.SetLabels(map[string]string{"by": fmt.Sprintf("%T", o)[1:6]})

		if err := c.Patch(t.Context(), o, client.MergeFrom(base)); err != nil || !ok {
			t.Fatal(err)
		}
	}

	read, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	read.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	for _, o := range []client.Object{read, metadata} {
		if err := c.Get(t.Context(), key, o); err != nil || o.GetUID() != other.UID {
			t.Errorf("%T: UID %s, want %s: %v", o, o.GetUID(), other.UID, err)
		}
	}

	if live.reads > 0 {
		t.Errorf("%d live reads", live.reads)
	}
}
