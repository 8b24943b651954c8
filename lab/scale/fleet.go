package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/demo"
)

const (
	controlPlanes      = 3
	workers            = 2
	machinesPerCluster = controlPlanes + workers
	// maxClusters is what the addresses of a /16 are enough for, with room.
	maxClusters = 4000
	// namespace holds all clusters: one namespace with many objects is harder on an operator than many with few.
	namespace = "default"
	// appliers is how many manifests are applied at once.
	appliers = 8
)

// fleet is when each cluster was applied.
type fleet struct {
	mu      sync.Mutex
	applied map[types.NamespacedName]time.Time
}

// apply creates all clusters at once.
func (b *bench) apply(ctx context.Context) (*fleet, error) {
	c, err := demo.NewClient(b.stack.Plane.Config())
	if err != nil {
		return nil, err
	}

	f := &fleet{applied: map[types.NamespacedName]time.Time{}}
	names := make(chan string)
	failed := make(chan error, appliers)

	var work sync.WaitGroup

	for range appliers {
		work.Go(func() {
			for name := range names {
				f.note(name)

				if err := c.Create(ctx, cluster(name)); err != nil {
					failed <- fmt.Errorf("creating the cluster %s: %w", name, err)

					return
				}
			}
		})
	}

	go func() {
		defer close(names)

		for i := range b.opts.Clusters {
			select {
			case names <- fmt.Sprintf("scale-%04d", i):
			case <-ctx.Done():
				return
			}
		}
	}()

	work.Wait()

	select {
	case err := <-failed:
		return nil, err
	default:
		return f, ctx.Err()
	}
}

func (f *fleet) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.applied[types.NamespacedName{Namespace: namespace, Name: name}] = time.Now()
}

// cluster is the manifest of one cluster. Its endpoint is a name: an address would have the lab run a load balancer for
// each cluster, and nobody here uses one.
func cluster(name string) *vitistackv1alpha1.KubernetesCluster {
	kc := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	kc.Spec.KubernetesVersion = "v1.36.2"
	kc.Spec.TalosVersion = "v1.13.9"
	kc.Spec.ClusterEndpoint = "https://" + name + ".example.org:6443"
	kc.Spec.ControlPlane.Replicas = controlPlanes
	kc.Spec.Workers = []vitistackv1alpha1.WorkerGroup{{Name: "workers", Replicas: workers}}

	return kc
}
