package kubernetescluster

import (
	"context"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
)

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (err error) {
	s.base, err = frame.EnsureFinalizer(ctx, r.Client, s.cluster, s.base, vitistackv1alpha1.ClusterFinalizer)

	return err
}
