package app

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdrestore"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// restoreConcurrency is how many clusters are restored concurrently. A restore occupies a worker while it streams a
// snapshot.
const restoreConcurrency = 8

// restorer returns the controller of TalosEtcdRestores. cached is the shared client.
func restorer(mgr manager.Manager, o Options, cached client.Client, states *clusterstate.Store, pool *talos.Pool,
	workloads *workload.Clients,
) *talosetcdrestore.Reconciler {
	return &talosetcdrestore.Reconciler{
		Client: cached, Reader: mgr.GetAPIReader(), States: states, Nodes: pool, Workloads: workloads,
		Storage:  o.Stores(mgr.GetAPIReader()),
		Recorder: kube.Recorder(mgr.GetEventRecorder("talosetcdrestore")), Clock: o.clock(), Version: o.Version,
		Scratch: o.ScratchDirectory,
	}
}
