package notification

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// decodeBook returns the book of a control plane. An annotation that a user has edited is none: the webhooks count as
// new, which sends less.
func decodeBook(cp *v1alpha1.TalosControlPlane) notification.Book {
	book := notification.Book{}
	if json.Unmarshal([]byte(cp.Annotations[v1alpha1.NotificationsAnnotation]), &book) != nil {
		return notification.Book{}
	}

	return book
}

// decodeLedger returns the ledger of a record or a control plane; an empty one if it has none, or none that can be
// read.
func decodeLedger(o client.Object) notification.Ledger {
	ledger := notification.Ledger{}
	if json.Unmarshal([]byte(o.GetAnnotations()[annotationOf(o, ledger)]), &ledger) != nil {
		return notification.Ledger{}
	}

	return ledger
}

// writeBook records the book, if it differs.
func (r *Reconciler) writeBook(ctx context.Context, s *scope, before notification.Book) error {
	if equality.Semantic.DeepEqual(s.book, before) {
		return nil
	}

	if len(s.book) == 0 {
		return r.annotate(ctx, s.cp, notification.Book(nil), true)
	}

	return r.annotate(ctx, s.cp, s.book, true)
}

// annotationOf returns the annotation that has a value: on a control plane, its ledger has one beside that of its book.
func annotationOf(o client.Object, value any) string {
	_, isLedger := value.(notification.Ledger)
	if _, ok := o.(*v1alpha1.TalosControlPlane); ok && isLedger {
		return v1alpha1.NotifiedHoldsAnnotation
	}

	return v1alpha1.NotificationsAnnotation
}

// annotate writes the annotation of an object; an empty book removes it. A claim is a conflict where the object was
// written since it was read: what a cache that lags behind shows must not be sent a second time. The result of what was
// sent is not one: the status that another controller writes in between must not lose it.
func (r *Reconciler) annotate(ctx context.Context, o client.Object, value any, claim bool) error {
	base, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s cannot be copied", o.GetName())
	}

	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}

	key := annotationOf(o, value)
	delete(annotations, key)

	if book, ok := value.(notification.Book); !ok || len(book) > 0 {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encoding the notifications of %s: %w", o.GetName(), err)
		}

		annotations[key] = string(text)
	}

	o.SetAnnotations(annotations)

	patch := client.MergeFrom(base)
	if claim {
		patch = client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	}

	if err := r.Client.Patch(ctx, o, patch); err != nil {
		return fmt.Errorf("recording the notifications of %s %s: %w", kube.KindOf(r.Client, o), o.GetName(), err)
	}

	return nil
}

// partsOf returns the spec and the status of a record.
func partsOf(o client.Object) (*v1alpha1.UpgradeRunSpec, *v1alpha1.UpgradeRunStatus) {
	switch o := o.(type) {
	case *v1alpha1.TalosUpgrade:
		return &o.Spec, &o.Status
	case *v1alpha1.KubernetesUpgrade:
		return &o.Spec, &o.Status
	}

	return &v1alpha1.UpgradeRunSpec{}, &v1alpha1.UpgradeRunStatus{}
}
