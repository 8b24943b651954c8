package relocate

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// deleteSource deletes the objects from the source while they are paused, so that no controller acts on them: without
// the operator's finalizers, child objects first. The state Secret is kept, as always, and the credentials are deleted
// with their owner.
func (t *transfer) deleteSource(ctx context.Context) error {
	// The operator, which has to remove its finalizers otherwise, no longer acts on these objects.
	state, err := get(ctx, t.from, t.items[0])
	if err != nil {
		return err
	}

	if err := t.harmless(ctx, state); err != nil {
		return err
	}

	for _, r := range slices.Backward(t.items) {
		if r.isData() || r == t.top() {
			continue
		}

		if err := t.deleteObject(ctx, r); err != nil {
			return err
		}
	}

	// The top-level object pauses the others, and they are found through it after a crash.
	return t.deleteObject(ctx, t.top())
}

// resumeDelete completes a deletion that was interrupted just before its last step: only the top-level object is left.
func (t *transfer) resumeDelete(ctx context.Context) (bool, error) {
	r := reference{session.KindCluster, t.name}

	o, err := get(ctx, t.from, r)
	if apierrors.IsNotFound(err) {
		return false, nil
	}

	if err != nil {
		return false, err
	}

	planes := &v1alpha1.TalosControlPlaneList{}
	if err := t.from.List(ctx, planes, client.InNamespace(t.from.Namespace)); err != nil {
		return false, session.Explain("listing TalosControlPlanes", err)
	}

	left := slices.ContainsFunc(planes.Items, func(cp v1alpha1.TalosControlPlane) bool {
		return metav1.IsControlledBy(&cp, o)
	})
	if left || o.GetAnnotations()[v1alpha1.MovedToAnnotation] == "" {
		return false, nil
	}

	return true, t.deleteObject(ctx, r)
}

func (t *transfer) deleteObject(ctx context.Context, r reference) error {
	o, err := get(ctx, t.from, r)
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		return err
	}

	if err := t.harmless(ctx, o); err != nil {
		return err
	}

	uid := o.GetUID()

	err = t.from.Delete(ctx, o, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s at %s: %w", r, t.from.Config.Host, err)
	}

	return nil
}

// harmless removes the effects of deleting an object: the operator's finalizers with their work, and the request to the
// provider to reclaim the machine. The finalizer of a provider is kept, because it has to release its part.
func (t *transfer) harmless(ctx context.Context, o *unstructured.Unstructured) error {
	base, changed := o.DeepCopy(), false

	kept := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return slices.Contains(finalizers, f) })
	if len(kept) != len(base.GetFinalizers()) {
		o.SetFinalizers(kept)

		changed = true
	}

	if o.GroupVersionKind() == session.KindMachine {
		const retain = string(vitistackv1alpha1.ReclaimRetain)

		if v, _, _ := unstructured.NestedString(o.Object, "spec", "reclaimPolicy"); v != retain {
			if err := unstructured.SetNestedField(o.Object, retain, "spec", "reclaimPolicy"); err != nil {
				return fmt.Errorf("keeping Machine %s: %w", o.GetName(), err)
			}

			changed = true
		}
	}

	// The deletion policy of a backup concerns the data in the store, and the operator may add its finalizer again in the
	// meantime.
	keep := string(v1alpha1.DeletionPreserve)
	if o.GroupVersionKind() == kindBackup {
		keep = string(v1alpha1.BackupRetain)
	}

	if v, ok, _ := unstructured.NestedString(o.Object, "spec", "deletionPolicy"); ok && v != keep {
		err := unstructured.SetNestedField(o.Object, keep, "spec", "deletionPolicy")
		if err != nil {
			return fmt.Errorf("keeping what belongs to %s: %w", o.GetName(), err)
		}

		changed = true
	}

	if !changed {
		return nil
	}

	if err := t.from.Patch(ctx, o, client.MergeFrom(base), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("releasing %s/%s at %s: %w", o.GetKind(), o.GetName(), t.from.Config.Host, err)
	}

	return nil
}
