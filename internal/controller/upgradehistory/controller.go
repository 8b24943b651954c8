// Package upgradehistory writes the records of upgrades: a TalosUpgrade or a KubernetesUpgrade for each version that
// the machines of a cluster are brought to. It reads control planes and machines, and changes nothing but its
// records.
package upgradehistory

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// Reconciler reconciles the records of TalosControlPlanes. It keeps no state between calls.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live: with a cache that lags behind, a run would end that goes on.
	Reader   client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Resync is when to reconcile again if nothing happens.
	Resync time.Duration
}

// scope is one reconciliation of one control plane.
type scope struct {
	cp   *v1alpha1.TalosControlPlane
	hold pause.Hold
}

// Reconcile brings the records of one TalosControlPlane up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cp := &v1alpha1.TalosControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, cp); err != nil {
		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	if !cp.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its records are deleted with it
	}

	res, err := frame.Run(ctx, &scope{cp: cp}, frame.Always(r.observeHold), frame.Always(r.record(upgrade.Talos)),
		frame.Always(r.record(upgrade.Kubernetes)))

	return failure.Result(res, err, r.Resync)
}
