// Package scale measures the operator against a fleet of hundreds of clusters: emulated nodes over real TLS, with
// etcd and Kubernetes modelled, a real management plane, and the operator as a process of its own.
package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/bench"
)

// Options describe a run.
type Options struct {
	// Options are those of every benchmark. Nodes are always modelled.
	bench.Options

	// Clusters is how many clusters of three control-plane nodes and two workers there are.
	Clusters int
	// Idle is how long the operator is watched with nothing to do.
	Idle time.Duration
	// Kill is how many nodes lose their power; fewer when there are fewer.
	Kill int
	// Gone is the share of nodes that go off the network without a word, Hostile that of those that hang, answer or
	// change without an end, both from 0 to 1. Nothing is measured with them when both are 0.
	Gone, Hostile float64
	// Replicas share the clusters in so many Shards. Only RunShards heeds both.
	Replicas, Shards int
}

// run is a run.
type run struct {
	*bench.Bench

	opts Options
}

// Run starts a lab, measures, and stops the lab.
func Run(ctx context.Context, o Options) error {
	if o.Clusters < 1 || o.Clusters > maxClusters {
		return fmt.Errorf("the number of clusters must be between 1 and %d", maxClusters)
	}

	if o.Gone < 0 || o.Hostile < 0 || o.Gone+o.Hostile >= 1 {
		return errors.New("the shares of nodes that are gone and of hostile ones must be less than 1 together")
	}

	o.Stack.Modelled = true

	return bench.Run(ctx, o.Options, func(ctx context.Context, b *bench.Bench) error {
		r := &run{Bench: b, opts: o}

		for _, phase := range []func(context.Context) error{r.create, r.idle, r.outage, r.restart, r.besieged} {
			if err := phase(ctx); err != nil {
				return err
			}
		}

		return r.Emit(bench.Metric{
			Name: "manager_rss_peak_mib", Value: bench.MiB(r.Stack.Manager.RSSPeak()), Unit: "MiB",
		})
	})
}

const (
	controlPlanes      = 3
	workers            = 2
	machinesPerCluster = controlPlanes + workers
	// maxClusters is what the addresses of a /16 are enough for, with room.
	maxClusters = 4000
)

// clusters are the manifests of all clusters.
func (r *run) clusters() []*vitistackv1alpha1.KubernetesCluster {
	out := make([]*vitistackv1alpha1.KubernetesCluster, r.opts.Clusters)
	for i := range out {
		out[i] = bench.Cluster(fmt.Sprintf("scale-%04d", i), controlPlanes, workers)
	}

	return out
}

// allReady waits until every cluster and every machine is ready.
func (r *run) allReady(ctx context.Context) error {
	return r.AllReady(ctx, r.opts.Clusters, r.opts.Clusters*machinesPerCluster)
}
