package kubernetescluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// refuseForeign refuses to adopt an object with a required name that is controlled by another owner.
func (r *Reconciler) refuseForeign(ctx context.Context, s *scope, into client.Object, name string) error {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, into)

	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for %s: %w", name, err)
	case metav1.IsControlledBy(into, s.cluster):
		return nil
	}

	return failure.Terminal(
		vitistackv1alpha1.ReasonOwnerReferenceError,
		fmt.Sprintf("%s %s exists and is controlled by another owner; it was not changed: remove it, or choose another "+
			"cluster or group name", kube.KindOf(r.Client, into), name),
		nil,
	)
}
