package app

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// machineCluster returns a function that names the cluster of a TalosMachine; empty for a deleted one.
func machineCluster(ctx context.Context, c client.Reader) func(reconcile.Request) string {
	return func(req reconcile.Request) string {
		m := &v1alpha1.TalosMachine{}
		if err := c.Get(ctx, req.NamespacedName, m); err != nil {
			return ""
		}

		return m.Namespace + "/" + m.Spec.ControlPlaneRef.Name
	}
}

// workerCluster returns a function that names the cluster of a TalosWorker; empty for a deleted one.
func workerCluster(ctx context.Context, c client.Reader) func(reconcile.Request) string {
	return func(req reconcile.Request) string {
		w := &v1alpha1.TalosWorker{}
		if err := c.Get(ctx, req.NamespacedName, w); err != nil {
			return ""
		}

		return w.Namespace + "/" + w.Spec.ControlPlaneRef.Name
	}
}
