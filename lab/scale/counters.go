package scale

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/lab/metrics"
)

// scrape reads the metrics of the operator.
func (b *bench) scrape(ctx context.Context) (metrics.Samples, error) {
	return metrics.Scrape(ctx, b.stack.Manager.Metrics())
}

// verbs are what the methods of HTTP mean to an API server. Lists and watches count as get.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete",
}

// apiRequests are the requests of the operator to the management plane so far, by verb.
func (b *bench) apiRequests(ctx context.Context) ([]Metric, error) {
	found, err := b.scrape(ctx)
	if err != nil {
		return nil, err
	}

	host, err := url.Parse(b.stack.Plane.Host())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the management plane: %w", err)
	}

	counts := found.Sum("rest_client_requests_total", "method", map[string]string{"host": host.Host})

	var out []Metric

	for _, method := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		out = append(out, Metric{"api_requests_" + verbs[method], counts[method], "requests"})
	}

	return out, nil
}

// nodeCalls are the calls that all nodes have counted, by method.
func (b *bench) nodeCalls() []Metric {
	counts := map[string]int{}

	for _, n := range b.stack.Lab.Nodes() {
		for method, calls := range n.Faults().Methods() {
			counts[callName(method)] += calls
		}
	}

	out := make([]Metric, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, Metric{"node_calls_" + name, float64(counts[name]), "calls"})
	}

	return out
}

// callName is the short name of a method. Those of the resource API say of what they are.
func callName(method string) string {
	if strings.HasPrefix(method, "/cosi.") {
		return "Resource" + path.Base(method)
	}

	return path.Base(method)
}

// mutatingCalls are the calls that asked any node for a change, as the nodes count them.
func (b *bench) mutatingCalls() int {
	total := 0
	for _, n := range b.stack.Lab.Nodes() {
		total += n.Faults().MutatingCalls()
	}

	return total
}

// percentile is the smallest value that so many percent of all values do not exceed.
func percentile(values []time.Duration, percent int) float64 {
	if len(values) == 0 {
		return 0
	}

	sorted := slices.Sorted(slices.Values(values))
	rank := (len(sorted)*percent + 99) / 100

	return sorted[max(rank, 1)-1].Seconds()
}
