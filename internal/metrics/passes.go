package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/internal/liveness"
)

// pass is a reconciliation: by which controller, and of which object.
type pass struct {
	controller string
	key        types.NamespacedName
}

// passes remembers when the last reconciliation of each object ended.
type passes struct {
	mu    sync.Mutex
	ended map[pass]time.Time
}

// ended are those of this process.
var ended = &passes{ended: map[pass]time.Time{}}

// told are the controllers of whose objects it is told when they were reconciled last.
var told = []string{"kubernetescluster", "taloscontrolplane", "talosworker", "talosmachine"}

// mostPasses are remembered. Only a request for metrics forgets those of objects that are gone, and there may never be
// one.
const mostPasses = 50_000

// begin notes a reconciliation of an object that none ended of before: one that never ends must show, too.
func (p *passes) begin(of pass, at time.Time) {
	p.mu.Lock()
	_, known := p.ended[of]
	p.mu.Unlock()

	if !known {
		p.end(of, at)
	}
}

func (p *passes) end(of pass, at time.Time) {
	if !slices.Contains(told, of.controller) {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	// The resync brings back those of objects that are alive.
	if len(p.ended) >= mostPasses {
		clear(p.ended)
	}

	p.ended[of] = at
}

// collect tells of objects that are alive, and forgets all others. Of a part of the fleet, the others may be alive in
// another part.
func (p *passes) collect(ch chan<- prometheus.Metric, alive map[pass]bool, part bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for of, at := range p.ended {
		if !alive[of] {
			if !part {
				delete(p.ended, of)
			}

			continue
		}

		gauge(ch, lastReconcile, float64(at.Unix()), of.key.Namespace, of.key.Name, of.controller)
	}
}

// Observe measures the reconciliations of a controller, and has their progress watched.
func Observe(name string, next reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		started := time.Now()

		stop := liveness.Process.Begin(ctx, name, req.NamespacedName, started)
		defer func() { stop(time.Now()) }() // also after a panic

		ended.begin(pass{name, req.NamespacedName}, started)

		res, err := next.Reconcile(ctx, req)
		now := time.Now()

		Duration.WithLabelValues(name).Observe(now.Sub(started).Seconds())
		ended.end(pass{name, req.NamespacedName}, now)

		if err != nil {
			CountError(name, err)
		}

		return res, err
	})
}
