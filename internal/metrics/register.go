package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// Sources are what the metrics of the fleet are read from when they are scraped.
type Sources struct {
	// Client reads from the cache.
	Client client.Reader
	Clock  clock.PassiveClock
	// Elected is closed once this replica leads.
	Elected <-chan struct{}
	// Part: this process has more than one of these fleets, each with a part of the objects.
	Part bool
	// Streams returns the state of the event streams of nodes.
	Streams func() map[nodewatch.Mode]nodewatch.Streams
	// Latency returns how long a node takes to respond, by the namespace and name of its TalosMachine, NAMESPACE/NAME;
	// false if that is not known now.
	Latency func(machine string) (time.Duration, bool)
}

// Register registers the metrics of the fleet, and returns the one that counts failed backups. Counters and histograms
// of the process register themselves.
func Register(r prometheus.Registerer, s Sources) (*Backups, error) {
	backups := &Backups{Client: s.Client, Clock: s.Clock}

	for _, c := range []prometheus.Collector{
		Clusters{Client: s.Client},
		Fleet{Client: s.Client, passes: ended, part: s.Part, latency: s.Latency},
		Etcd{Client: s.Client, seen: observed, part: s.Part},
		Streams{Read: s.Streams},
		Upgrades{Client: s.Client},
		backups,
		Schedules{Client: s.Client, Clock: s.Clock},
	} {
		if err := r.Register(leading{Collector: c, elected: s.Elected}); err != nil {
			return nil, fmt.Errorf("registering the metrics of the fleet: %w", err)
		}
	}

	return backups, nil
}

// leading tells of the fleet only while this replica leads: the caches of a standby hold the same fleet, and sums would
// count it twice. A replica that no longer leads ends.
type leading struct {
	prometheus.Collector

	elected <-chan struct{}
}

// Collect implements prometheus.Collector.
func (l leading) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-l.elected:
		l.Collector.Collect(ch)
	default:
	}
}
