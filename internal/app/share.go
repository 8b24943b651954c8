package app

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// clusterOf returns a function that names the cluster of an object; empty for a deleted one.
func clusterOf[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, name func(P) string) func(reconcile.Request) string {
	return func(req reconcile.Request) string {
		o := P(new(T))
		// Nothing of it is changed or kept.
		if err := c.Get(ctx, req.NamespacedName, o, kube.Shared); err != nil {
			return ""
		}

		return name(o)
	}
}

// inNamespace makes a name unique among all clusters; it stays empty for a deleted object.
func inNamespace(cluster func(reconcile.Request) string) func(reconcile.Request) string {
	return func(req reconcile.Request) string {
		name := cluster(req)
		if name == "" {
			return ""
		}

		return req.Namespace + "/" + name
	}
}

// itself is the cluster of a request that is about a cluster.
func itself(req reconcile.Request) string { return req.Name }

// clusters name the cluster of each kind of object that belongs to one.
type clusters struct {
	machine, talosMachine, worker, backup, schedule, restore func(reconcile.Request) string
}

func newClusters(ctx context.Context, c client.Reader) clusters {
	return clusters{
		machine: clusterOf(ctx, c, func(o *vitistackv1alpha1.Machine) string {
			return o.Labels[vitistackv1alpha1.ClusterNameLabel]
		}),
		talosMachine: clusterOf(ctx, c, func(o *v1alpha1.TalosMachine) string { return o.Spec.ControlPlaneRef.Name }),
		worker:       clusterOf(ctx, c, func(o *v1alpha1.TalosWorker) string { return o.Spec.ControlPlaneRef.Name }),
		backup:       clusterOf(ctx, c, func(o *v1alpha1.TalosEtcdBackup) string { return o.Spec.ControlPlaneRef.Name }),
		schedule: clusterOf(ctx, c, func(o *v1alpha1.TalosEtcdBackupSchedule) string {
			return o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name
		}),
		restore: clusterOf(ctx, c, func(o *v1alpha1.TalosEtcdRestore) string { return o.Spec.ControlPlaneRef.Name }),
	}
}
