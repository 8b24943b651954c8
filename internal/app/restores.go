package app

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdrestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// restoreConcurrency is how many clusters are restored concurrently. A restore occupies a worker while it streams a
// snapshot.
const restoreConcurrency = 8

// setupRestores adds the controller of TalosEtcdRestores. cached is the shared client.
func setupRestores(ctx context.Context, mgr manager.Manager, o Options, cached client.Client,
	states *clusterstate.Store, workloads *workload.Clients, pool *talos.Pool,
) error {
	err := (&talosetcdrestore.Reconciler{
		Client: cached, Reader: mgr.GetAPIReader(), States: states, Nodes: pool, Workloads: workloads,
		Storage:  o.Stores(mgr.GetAPIReader()),
		Recorder: mgr.GetEventRecorder("talosetcdrestore"), Clock: o.clock(), Version: o.Version,
		Scratch: o.ScratchDirectory,
	}).SetupWithManager(mgr, options(mgr, "TalosEtcdRestore", restoreConcurrency, newClusters(ctx, mgr.GetClient()).restore))
	if err != nil {
		return fmt.Errorf("setting up the controller of restores: %w", err)
	}

	return nil
}
