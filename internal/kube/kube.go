// Package kube holds the few calls to the API server that all controllers make the same way.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/text"
)

// FieldOwner is the one field owner of everything that the operator applies.
const FieldOwner = client.FieldOwner("talos-operator")

// maxMessage is the length of a condition message in bytes.
const maxMessage = 1000

// Apply creates or changes an object by server-side apply. The object has to carry its apiVersion and kind.
func Apply(ctx context.Context, c client.Client, obj client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("converting %s: %w", obj.GetName(), err)
	}

	// Status belongs to one controller only, and an empty creation timestamp to none.
	delete(content, "status")

	u := toUnstructured(content)
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), FieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), u.GetName(), err)
	}

	return nil
}

// PatchStatus writes the difference of the status to base; nothing when there is none.
func PatchStatus(ctx context.Context, c client.Client, obj, base client.Object) error {
	return patchStatus(ctx, c, obj, base, client.MergeFrom(base))
}

// ClaimStatus is PatchStatus for a decision that must not be made twice: it fails with a conflict where the object was
// written since it was read, for example by a reconciliation that a stale cache does not show.
func ClaimStatus(ctx context.Context, c client.Client, obj, base client.Object) error {
	return patchStatus(ctx, c, obj, base, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
}

func patchStatus(ctx context.Context, c client.Client, obj, base client.Object, patch client.Patch) error {
	if equality.Semantic.DeepEqual(obj, base) {
		return nil
	}

	// The patch that is sent may hold a precondition, which is no difference.
	data, err := client.MergeFrom(base).Data(obj)
	if err != nil {
		return fmt.Errorf("computing the status of %s: %w", obj.GetName(), err)
	}

	if string(data) == "{}" {
		return nil
	}

	if err := c.Status().Patch(ctx, obj, patch); err != nil {
		return fmt.Errorf("writing the status of %s: %w", obj.GetName(), err)
	}

	return nil
}

// IsPaused tells whether the paused annotation holds an object. Any value but "false" pauses: who writes
// "yes" means it.
func IsPaused(obj metav1.Object) bool {
	v, ok := obj.GetAnnotations()[v1alpha1.PausedAnnotation]

	return ok && v != "false"
}

// AnnotationTrue tells whether an annotation has the value "true", exactly: it gives a permission.
func AnnotationTrue(obj metav1.Object, annotation string) bool {
	return obj.GetAnnotations()[annotation] == "true"
}

// TakeAnnotation removes an annotation from an object that a reconciliation goes on with, and from the base of its
// status patch. A write in between is a conflict: what the annotation stood for was decided on the version that was
// read.
func TakeAnnotation(ctx context.Context, c client.Client, o, base client.Object, annotation string) error {
	if _, ok := o.GetAnnotations()[annotation]; !ok {
		return nil
	}

	without, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s cannot be copied", o.GetName())
	}

	annotations := without.GetAnnotations()
	delete(annotations, annotation)
	without.SetAnnotations(annotations)

	err := c.Patch(ctx, without, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("removing the annotation %s from %s: %w", annotation, o.GetName(), err)
	}

	for _, kept := range []client.Object{o, base} {
		kept.SetAnnotations(maps.Clone(without.GetAnnotations()))
		kept.SetResourceVersion(without.GetResourceVersion())
	}

	return nil
}

// SetCondition sets a condition; its transition time changes with its status only. Its message may be in the words of
// others: what is not text in it is replaced.
func SetCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	c.Message = Shorten(text.Plain(c.Message), maxMessage)

	meta.SetStatusCondition(conditions, c)
}

// Shorten cuts a text to a number of bytes, between characters: the API server would replace half of one, and the
// status would differ for ever.
func Shorten(message string, longest int) string { return text.Cut(message, longest) }

// RemoveCondition removes a condition that exists only while it is true.
func RemoveCondition(conditions *[]metav1.Condition, kind string) {
	meta.RemoveStatusCondition(conditions, kind)
}

// RelatedMachine names a TalosMachine as what an event is also about. Events about one object with the same reason and
// action are written as one, with the text of the first, unless what they are also about differs.
func RelatedMachine(regarding client.Object, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine", Namespace: regarding.GetNamespace(), Name: name,
	}
}

// EqualLabels tells whether have holds every label of want.
func EqualLabels(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}

	return true
}

// EarlierLife tells whether an object is controlled by an earlier object of the same kind and name as owner: deleted
// and applied again, it has another UID, and the garbage collector may not have come by yet.
func EarlierLife(obj metav1.Object, owner client.Object, kind string) bool {
	ref := metav1.GetControllerOf(obj)

	return ref != nil && ref.Kind == kind && ref.Name == owner.GetName() && ref.UID != owner.GetUID()
}

// Cause is what the API server says to a request that failed, for a condition: a quota, an admission webhook, a field.
// Where it says nothing the error may hold anything, and stays in the log.
func Cause(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}

	return "the API server did not respond; see the operator log"
}
