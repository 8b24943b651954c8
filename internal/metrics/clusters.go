package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

const scrapeTimeout = 5 * time.Second

var clustersDesc = prometheus.NewDesc(
	"talos_operator_clusters_total",
	"Total clusters by phase.",
	[]string{"phase"},
	nil,
)

// Clusters counts KubernetesClusters by phase when it is scraped, from the cache.
type Clusters struct {
	// Client reads from the cache.
	Client client.Reader
}

// Describe implements prometheus.Collector.
func (c Clusters) Describe(ch chan<- *prometheus.Desc) { ch <- clustersDesc }

// Collect implements prometheus.Collector.
func (c Clusters) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	counts := map[vitistackv1alpha1.ClusterPhase]int{
		vitistackv1alpha1.PhasePending: 0, vitistackv1alpha1.PhaseProvisioning: 0,
		vitistackv1alpha1.PhaseRunning: 0, vitistackv1alpha1.PhaseFailed: 0,
	}

	list := &vitistackv1alpha1.KubernetesClusterList{}
	if err := c.Client.List(ctx, list, kube.Shared); err != nil {
		ch <- prometheus.NewInvalidMetric(clustersDesc, err)

		return
	}

	for _, k := range list.Items {
		counts[k.Status.Phase]++
	}

	for phase, n := range counts {
		if phase != "" {
			ch <- prometheus.MustNewConstMetric(clustersDesc, prometheus.GaugeValue, float64(n), string(phase))
		}
	}
}
