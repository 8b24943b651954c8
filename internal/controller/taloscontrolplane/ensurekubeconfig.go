package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// ensureKubeconfig maintains the Secret {cluster}-kubeconfig, in the format that Cluster API, Flux and Argo CD expect.
func (r *Reconciler) ensureKubeconfig(ctx context.Context, s *scope) (ctrl.Result, error) {
	p := clusterstate.KubeconfigParams{ClusterName: s.clusterName(), Server: s.cp.Spec.Endpoint}
	b := s.held.State.Bundle

	return ctrl.Result{}, r.ensureCredentials(ctx, s, credentials{
		kind: certificateKubeconfig, key: kubeconfigKey, end: clusterstate.KubeconfigExpiry,
		current: func(have []byte) bool { return b.KubeconfigCurrent(have, p, r.Clock.Now()) },
		render:  func() ([]byte, error) { return b.Kubeconfig(p, r.Clock.Now()) },
	})
}
