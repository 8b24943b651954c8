package taloscontrolplane

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// planUpgrade decides which version of Talos or Kubernetes the machines of the cluster are upgraded to now. They follow
// the status, never the spec, so that no machine gets ahead of a path that others have not gone.
func (r *Reconciler) planUpgrade(ctx context.Context, s *scope) (ctrl.Result, error) {
	was := s.held.State.Runtime.Upgrade
	owes := was != nil && was.Phase != clusterstate.UpgradeFinished

	if targetOf(s.cp) == (upgrade.Target{}) && !owes {
		s.cp.Status.Upgrade, s.cp.Status.Manifests = nil, nil
		r.preflights.forget(s.key())
		r.compared.forget(s.key())

		return ctrl.Result{}, kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.RetryAnnotation)
	}

	// The path goes on once each machine has taken a step of it, so they are read live.
	list := &v1alpha1.TalosMachineList{}

	err := r.Reader.List(ctx, list, client.InNamespace(s.cp.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.cp.Name})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the machines of %s: %w", s.cp.Name, err)
	}

	next := r.nextUpgrade(ctx, s, list.Items)

	next, err = r.guardUpgrade(ctx, s, next, list.Items)
	if err == nil {
		s.cp.Status.Upgrade, s.planned = next, true
	}

	return ctrl.Result{}, err
}

// nextUpgrade returns the upgrade that comes next, or the one that waits for its manifests.
func (r *Reconciler) nextUpgrade(
	ctx context.Context, s *scope, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	if targetOf(s.cp) == (upgrade.Target{}) {
		s.cp.Status.Manifests = nil

		return nil
	}

	next := upgradeOf(s.cp, r.group(s).Entries(), machines)
	if held := r.settleManifests(ctx, s, next, machines); held != nil {
		return held
	}

	return r.preflight(ctx, s, next, machines)
}
