package taloscontrolplane

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// askAPI queries the API servers of the cluster.
func (r *Reconciler) askAPI(ctx context.Context, s *scope) (ctrl.Result, error) {
	version, err := r.Workloads.Version(ctx, s.held.State.Bundle, s.addresses())
	s.asked, s.version = true, version

	if err != nil {
		r.APIs.Await(s.key(), s.held.State.Bundle, s.addresses())

		after := pollAPI
		if !s.etcd.Healthy {
			after = r.pollEtcd(s)
		}

		return ctrl.Result{}, failure.Waiting(failure.Reason(err), failure.Message(err), after)
	}

	r.APIs.Forget(s.key())

	if !s.etcd.Healthy {
		return ctrl.Result{}, failure.Waiting(s.etcd.Reason, s.etcd.Message, r.pollEtcd(s))
	}

	return ctrl.Result{}, nil
}

// pollEtcd returns a short interval while members join.
func (r *Reconciler) pollEtcd(s *scope) time.Duration {
	if b := s.held.State.Runtime.Bootstrap; b == nil || b.EstablishedAt == nil {
		return r.poll(s)
	}

	return pollEvidence
}
