package kubernetescluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

func (r *Reconciler) writeFiles(_ context.Context, s *scope) error {
	machines := s.machines()
	for _, m := range machines {
		if err := controllerutil.SetControllerReference(s.cluster, m, r.Client.Scheme()); err != nil {
			return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of Machine "+m.Name, err)
		}
	}

	s.wrote = true

	// The files are for users only: a full disk does not prevent a cluster from being built.
	if err := r.Manifests.Sync(s.name, s.owner(), machines); err != nil {
		s.files = failure.Transient(vitistackv1alpha1.ReasonFileSystemError,
			filesMessage(r.Manifests.Folder(s.name), err), err)
		metrics.CountError("kubernetescluster", s.files)
	}

	return nil
}
