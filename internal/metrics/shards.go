package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// ShardHeld tells which shards this replica holds.
var ShardHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "talos_operator_shard_held", Help: "1 for a shard whose clusters this replica works on.",
}, []string{"shard"})

func init() { ctrlmetrics.Registry.MustRegister(ShardHeld) }

// Part are the metrics of the fleet of one shard: each has the label shard, and goes when the shard is given up.
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
// it is given up.
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
			ShardHeld.WithLabelValues(p.shard).Set(1)
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

	ShardHeld.DeleteLabelValues(p.shard)

	// A cache that was never filled does not answer.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	planes := &v1alpha1.TalosControlPlaneList{}
	if p.cache == nil || p.cache.List(ctx, planes, kube.Shared) != nil {
		return
	}

	for i := range planes.Items {
		ForgetCertificates(planes.Items[i].Namespace, planes.Items[i].Name)
	}
}
