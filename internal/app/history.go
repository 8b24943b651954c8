package app

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/upgradehistory"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// historyPasses is how many clusters have their records of upgrades brought up to date concurrently. That is quick,
// because no node is asked.
const historyPasses = 4

// setupHistory adds the controller of the records of upgrades. cached is the shared client.
func setupHistory(ctx context.Context, mgr manager.Manager, o Options, cached client.Client) error {
	err := errors.Join(
		kube.Index(ctx, mgr.GetFieldIndexer(), &v1alpha1.TalosUpgrade{}, &v1alpha1.KubernetesUpgrade{}),
		(&upgradehistory.Reconciler{
			Client: cached, Reader: mgr.GetAPIReader(), Clock: o.clock(), Resync: machineResync,
			Recorder: mgr.GetEventRecorder("upgradehistory"),
		}).SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: historyPasses, RateLimiter: backoff()}),
	)
	if err != nil {
		return fmt.Errorf("setting up the controller of upgrade records: %w", err)
	}

	return nil
}
