package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/demo"
)

const (
	// Namespace holds all clusters: one namespace with many objects is harder on an operator than many with few.
	Namespace = "default"
	// appliers is how many manifests are applied at once.
	appliers = 8
)

// Cluster is the manifest of one cluster. Its endpoint is a name: for an address the lab runs a load balancer.
func Cluster(name string, controlPlanes, workers int) *vitistackv1alpha1.KubernetesCluster {
	kc := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	kc.Spec.KubernetesVersion = "v1.36.2"
	kc.Spec.TalosVersion = "v1.13.9"
	kc.Spec.ClusterEndpoint = "https://" + name + ".example.org:6443"
	kc.Spec.ControlPlane.Replicas = int32(controlPlanes)
	kc.Spec.Workers = []vitistackv1alpha1.WorkerGroup{{Name: "workers", Replicas: int32(workers)}}

	return kc
}

// ForAll makes a request for each cluster, several at once, and returns when each request was made. It stops at the
// first error.
func (b *Bench) ForAll(
	ctx context.Context, clusters []*vitistackv1alpha1.KubernetesCluster,
	request func(context.Context, client.Client, *vitistackv1alpha1.KubernetesCluster) error,
) (map[types.NamespacedName]time.Time, error) {
	c, err := demo.NewClient(b.Stack.Plane.Config())
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var (
		mu   sync.Mutex
		work sync.WaitGroup
		made = map[types.NamespacedName]time.Time{}
		next = make(chan *vitistackv1alpha1.KubernetesCluster, len(clusters))
	)

	for _, kc := range clusters {
		next <- kc
	}

	close(next)

	for range appliers {
		work.Go(func() {
			for kc := range next {
				mu.Lock()
				made[client.ObjectKeyFromObject(kc)] = time.Now()
				mu.Unlock()

				if err := request(ctx, c, kc); err != nil {
					cancel(fmt.Errorf("applying the cluster %s: %w", kc.Name, err))

					return
				}
			}
		})
	}

	work.Wait()

	return made, context.Cause(ctx)
}

// Create creates clusters, and returns when each was created.
func (b *Bench) Create(
	ctx context.Context, clusters []*vitistackv1alpha1.KubernetesCluster,
) (map[types.NamespacedName]time.Time, error) {
	return b.ForAll(ctx, clusters,
		func(ctx context.Context, c client.Client, kc *vitistackv1alpha1.KubernetesCluster) error {
			return c.Create(ctx, kc)
		})
}

// AllReady waits until so many clusters and so many machines are ready.
func (b *Bench) AllReady(ctx context.Context, clusters, machines int) error {
	return b.Await(ctx, "all clusters are ready", func() (bool, error) {
		ready, n := b.Watch.ReadyClusters()

		return len(ready) == clusters && n == machines, nil
	}, func() string {
		ready, n := b.Watch.ReadyClusters()
		cpu, _ := b.Stack.Manager.CPU() // while it restarts there is none

		return fmt.Sprintf("%d of %d clusters and %d of %d machines are ready; operator: %.1f s of CPU, %.0f MiB at most",
			len(ready), clusters, n, machines, cpu.Seconds(), MiB(b.Stack.Manager.RSSPeak()))
	})
}

// Key is the object behind the name of a machine in the lab: Machines and TalosMachines share their names.
func Key(name string) types.NamespacedName {
	namespace, name, _ := strings.Cut(name, "/")

	return types.NamespacedName{Namespace: namespace, Name: name}
}
