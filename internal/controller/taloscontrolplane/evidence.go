package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/controller/evidence"
	"github.com/talos-operator/talos-operator/internal/plan"
)

func (r *Reconciler) source(s *scope) evidence.Source {
	return evidence.Source{Nodes: r.Nodes, Credentials: s.creds, State: s.held.State}
}

// observe asks every control-plane node.
func (r *Reconciler) observe(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.nodes = r.source(s).Collect(ctx, s.machines)
	s.observed = true
	s.etcd = plan.AssessEtcd(s.nodes)

	return ctrl.Result{}, ctx.Err()
}
