package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// ShardHeld tells which shards this replica holds, and which others there are: a shard that is 0 on every replica is
// held by none, and its clusters are not worked on.
var ShardHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "talos_operator_shard_held", Help: "1 for a shard whose clusters this replica works on, 0 for another one.",
}, []string{"shard"})

// shards are those that ShardHeld tells of.
var shards = struct {
	sync.Mutex

	held, known map[string]bool
}{held: map[string]bool{}, known: map[string]bool{}}

// KnowShards tells of all shards that there are, by their numbers. One that is in no later call is not told of any
// more, unless this replica holds it.
func KnowShards(numbers []int) {
	shards.Lock()
	defer shards.Unlock()

	known := map[string]bool{}
	for _, n := range numbers {
		known[strconv.Itoa(n)] = true
	}

	for shard := range shards.known {
		if !known[shard] && !shards.held[shard] {
			ShardHeld.DeleteLabelValues(shard)
		}
	}

	shards.known = known

	for shard := range known {
		if !shards.held[shard] {
			ShardHeld.WithLabelValues(shard).Set(0)
		}
	}
}

// holdShard tells that this replica holds a shard, or that it does not any more.
func holdShard(shard string, held bool) {
	shards.Lock()
	defer shards.Unlock()

	switch {
	case held:
		shards.held[shard] = true

		ShardHeld.WithLabelValues(shard).Set(1)
	case shards.known[shard]:
		delete(shards.held, shard)
		ShardHeld.WithLabelValues(shard).Set(0)
	default:
		delete(shards.held, shard)
		ShardHeld.DeleteLabelValues(shard)
	}
}

func init() { ctrlmetrics.Registry.MustRegister(ShardHeld) }

// Part are the metrics of the fleet of one shard: each has the label shard, and goes when the shard is released.
type Part struct {
	prometheus.Registerer

	shard string
	cache client.Reader

	mu    sync.Mutex
	held  []prometheus.Collector
	ended bool
}

// NewPart returns the metrics of a shard.
func NewPart(r prometheus.Registerer, shard string) *Part {
	return &Part{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shard": shard}, r), shard: shard}
}

// Register implements prometheus.Registerer.
func (p *Part) Register(c prometheus.Collector) error {
	if err := p.Registerer.Register(c); err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.held = append(p.held, c)

	return nil
}

// Count tells of the shard once it is elected, unless the context ends before. The cache is asked for its clusters when
// it is released.
func (p *Part) Count(ctx context.Context, cache client.Reader, elected <-chan struct{}) {
	p.cache = cache

	go func() {
		select {
		case <-elected:
		case <-ctx.Done():
			return
		}

		p.mu.Lock()
		defer p.mu.Unlock()

		if !p.ended {
			holdShard(p.shard, true)
		}
	}()
}

// End drops what was told of the shard: the replica that takes it tells of it.
func (p *Part) End() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.ended = true

	for _, c := range p.held {
		p.Unregister(c)
	}

	holdShard(p.shard, false)

	// A cache that was never filled does not respond.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	planes := &v1alpha1.TalosControlPlaneList{}
	if p.cache == nil || p.cache.List(ctx, planes, kube.Shared) != nil {
		return
	}

	for i := range planes.Items {
		ForgetControlPlane(planes.Items[i].Namespace, planes.Items[i].Name)
	}
}
