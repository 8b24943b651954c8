// Package upgradebench measures how clusters of modelled nodes are upgraded: to another Talos, then to another
// Kubernetes. The nodes take realistic times, scaled down, so that what the operator adds to them can be told apart.
package upgradebench

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
)

const (
	// fleetWorkers is the number of workers in each cluster of a fleet.
	fleetWorkers = 2
	// firstEndpoint is the last number of the address of the first endpoint, MaxClusters what is left of those.
	firstEndpoint = 100
	// MaxClusters is how many clusters of a fleet there may be: each has a load balancer at a reserved address.
	MaxClusters = 150
)

// Versions are from where to where a component is upgraded.
type Versions struct{ From, To string }

// Options describe a run.
type Options struct {
	// Options are those of every benchmark. Nodes are always modelled.
	bench.Options

	// ControlPlanes is the number of control-plane machines of each cluster.
	ControlPlanes int
	// Workers of the large cluster; there is no such cluster without any.
	Workers int
	// MaxUnavailable is how many workers of a cluster may be upgraded at a time.
	MaxUnavailable int
	// Clusters of the fleet, which are upgraded together; there is no fleet without any.
	Clusters int
	// Talos and Kubernetes are the versions. One without a target is not upgraded.
	Talos, Kubernetes Versions
}

// world is a lab whose clusters are upgraded together.
type world struct {
	*bench.Bench

	opts     Options
	prefix   string // of the names of values
	clusters []*vitistackv1alpha1.KubernetesCluster
	machines int // in each cluster
}

// Run measures the large cluster, then the fleet, each in a lab of its own.
func Run(ctx context.Context, o Options) error {
	if o.Clusters < 0 || o.Clusters > MaxClusters || o.Workers < 0 || o.MaxUnavailable < 1 {
		return fmt.Errorf("the fleet must have 0 to %d clusters, and at least one worker must be upgraded at a time",
			MaxClusters)
	}

	o.Stack.Modelled = true

	if o.Workers > 0 {
		if err := o.measure(ctx, "large", "", 1, o.Workers); err != nil {
			return err
		}
	}

	if o.Clusters == 0 {
		return nil
	}

	return o.measure(ctx, "fleet", "fleet_", o.Clusters, fleetWorkers)
}

// measure measures clusters in a lab.
func (o Options) measure(ctx context.Context, name, prefix string, clusters, workers int) error {
	if o.Stack.Dir != "" {
		o.Stack.Dir = filepath.Join(o.Stack.Dir, name)
	}

	return bench.Run(ctx, o.Options, func(ctx context.Context, b *bench.Bench) error {
		w := &world{Bench: b, opts: o, prefix: prefix, machines: o.ControlPlanes + workers}

		for i := range clusters {
			w.clusters = append(w.clusters, o.cluster(fmt.Sprintf("%s-%03d", name, i), b.Stack.Lab.Subnet(), i, workers))
		}

		if err := w.create(ctx); err != nil {
			return err
		}

		for _, u := range []upgrade{talos(o.Talos), kubernetes(o.Kubernetes)} {
			if u.to == "" {
				continue
			}

			if err := w.measure(ctx, u); err != nil {
				return fmt.Errorf("upgrading %s: %w", u.name, err)
			}
		}

		return nil
	})
}

// cluster is the manifest of a cluster. The load balancer of the lab serves its endpoint.
func (o Options) cluster(name string, subnet netip.Prefix, i, workers int) *vitistackv1alpha1.KubernetesCluster {
	kc := bench.Cluster(name, o.ControlPlanes, workers)
	kc.Spec.ClusterEndpoint = fmt.Sprintf("https://%s:6443", lab.Reserved(subnet, byte(firstEndpoint+i)))
	kc.Spec.TalosVersion, kc.Spec.KubernetesVersion = o.Talos.From, o.Kubernetes.From
	kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{
		Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic,
	}

	budget := intstr.FromInt(o.MaxUnavailable)
	kc.Spec.Workers[0].Rollout = &v1alpha1.RolloutOptions{MaxUnavailable: &budget}

	return kc
}

// create waits until all clusters are ready and the operator has nothing to do.
func (w *world) create(ctx context.Context) error {
	w.Logf("creating %d clusters of %d machines", len(w.clusters), w.machines)

	if _, err := w.Create(ctx, w.clusters); err != nil {
		return err
	}

	_, err := w.settled(ctx)

	return err
}

// settled waits until no machine has anything left to do, and the operator neither. It returns when the former was so.
func (w *world) settled(ctx context.Context) (time.Time, error) {
	if err := w.AllReady(ctx, len(w.clusters), len(w.clusters)*w.machines); err != nil {
		return time.Time{}, err
	}

	c, err := demo.NewClient(w.Stack.Plane.Config())
	if err != nil {
		return time.Time{}, err
	}

	list := &v1alpha1.TalosMachineList{}
	rests := func(m v1alpha1.TalosMachine) bool {
		return m.Status.Change == nil && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionUpToDate)
	}

	err = w.Await(ctx, "no machine has anything left to do", func() (bool, error) {
		if err := c.List(ctx, list, client.InNamespace(bench.Namespace)); err != nil {
			return false, fmt.Errorf("listing the machines: %w", err)
		}

		return !slices.ContainsFunc(list.Items, func(m v1alpha1.TalosMachine) bool { return !rests(m) }), nil
	}, nil)
	if err != nil {
		return time.Time{}, err
	}

	return time.Now(), w.Settle(ctx)
}
