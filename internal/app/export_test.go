package app

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/shard"
)

// NewShard returns the manager of one shard, as a replica runs it that holds the shard. Addresses has the machines of all
// shards.
func NewShard(
	ctx context.Context, cfg *rest.Config, o Options, addresses client.Reader, log logr.Logger,
) (manager.Manager, error) {
	leases, err := newLeases(cfg, o)
	if err != nil {
		return nil, err
	}

	const number = 1

	o.shard = &shardOptions{
		held: shard.Held{Shard: number, Lock: leases.Lock(number)}, addresses: addresses, leases: leases,
		series: metrics.NewPart(prometheus.NewRegistry(), "1"),
	}

	return newShard(ctx, cfg, o, log)
}
