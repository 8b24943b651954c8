package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// observe queries every control-plane node.
func (r *Reconciler) observe(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.nodes = r.source(s).Collect(ctx, s.machines)
	s.observed = true
	metrics.ObserveEtcd(s.cp.Namespace, s.cp.Name, s.nodes)
	s.noteDeparting()

	s.etcd, s.quorum = safety.AssessEtcd(s.nodes), safety.AssessQuorum(s.nodes)
	r.observePulls(ctx, s)

	return ctrl.Result{}, ctx.Err()
}
