package kubernetescluster

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// ensureObjects maintains the TalosControlPlane and the TalosWorkers, which remove machines that they no longer list.
func (r *Reconciler) ensureObjects(ctx context.Context, s *scope) error {
	want := s.controlPlane()
	if err := r.ensureObject(ctx, s, want, s.cp != nil && s.cp.Name == want.Name &&
		equality.Semantic.DeepEqual(s.cp.Spec, want.Spec), &v1alpha1.TalosControlPlane{}); err != nil {
		return err
	}

	for _, w := range s.workers() {
		i := slices.IndexFunc(s.groups, func(have v1alpha1.TalosWorker) bool { return have.Name == w.Name })
		same := i >= 0 && equality.Semantic.DeepEqual(s.groups[i].Spec, w.Spec)
		if err := r.ensureObject(ctx, s, w, same, &v1alpha1.TalosWorker{}); err != nil {
			return err
		}
	}

	return r.emptyGroups(ctx, s)
}

func (r *Reconciler) ensureObject(
	ctx context.Context,
	s *scope,
	want client.Object,
	same bool,
	into client.Object,
) error {
	if same {
		return nil
	}

	if err := r.refuseForeign(ctx, s, into, want.GetName()); err != nil {
		return err
	}

	// The finalizer could not be applied any more, and the spec no longer has an effect.
	if !into.GetDeletionTimestamp().IsZero() {
		return failure.Waiting(v1alpha1.ReasonDeleting, "waiting for "+want.GetName()+", which is being deleted", r.Resync)
	}

	if err := controllerutil.SetControllerReference(s.cluster, want, r.Client.Scheme()); err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of "+want.GetName(), err)
	}

	err := kube.Apply(ctx, r.Client, want)
	if apierrors.IsInvalid(err) {
		return failure.Terminal(vitistackv1alpha1.ReasonValidationError, invalidMessage(err), err)
	}

	s.handed = append(s.handed, want.GetName())

	return err
}

// invalidMessage returns the causes of a rejection by the API server.
func invalidMessage(err error) string {
	text := err.Error()
	if i := strings.Index(text, "is invalid: "); i >= 0 {
		text = text[i+len("is invalid: "):]
	}

	return "the API server refuses what the spec expands to: " + text
}
