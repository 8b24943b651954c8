package bench

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

// Scrape reads the metrics of the operator.
func (b *Bench) Scrape(ctx context.Context) (metrics.Samples, error) {
	return metrics.Scrape(ctx, b.Stack.Manager.Metrics())
}

// verbs are what the methods of HTTP mean to an API server. Lists and watches count as get.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete",
}

// Requests are the requests of the operator to the management plane so far, by method.
func (b *Bench) Requests(ctx context.Context) (map[string]float64, error) {
	found, err := b.Scrape(ctx)
	if err != nil {
		return nil, err
	}

	host, err := url.Parse(b.Stack.Plane.Host())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the management plane: %w", err)
	}

	return found.Sum("rest_client_requests_total", "method", map[string]string{"host": host.Host}), nil
}

// APIRequests are the requests of the operator to the management plane so far, by verb.
func (b *Bench) APIRequests(ctx context.Context) ([]Metric, error) {
	counts, err := b.Requests(ctx)
	if err != nil {
		return nil, err
	}

	var out []Metric

	for _, method := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		out = append(out, Metric{Name: "api_requests_" + verbs[method], Value: counts[method], Unit: "requests"})
	}

	return out, nil
}

// Calls are the calls that all nodes have counted, by method.
func (b *Bench) Calls() map[string]int {
	counts := map[string]int{}

	for _, n := range b.Stack.Lab.Nodes() {
		for method, calls := range n.Faults().Methods() {
			counts[callName(method)] += calls
		}
	}

	return counts
}

// NodeCalls are the values of Calls.
func (b *Bench) NodeCalls() []Metric {
	counts := b.Calls()

	out := make([]Metric, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, Metric{Name: "node_calls_" + name, Value: float64(counts[name]), Unit: "calls"})
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

// MutatingCalls are the calls that asked any node for a change, as the nodes count them.
func (b *Bench) MutatingCalls() int {
	total := 0
	for _, n := range b.Stack.Lab.Nodes() {
		total += n.Faults().MutatingCalls()
	}

	return total
}

// Percentile is the smallest value that so many percent of all values do not exceed.
func Percentile(values []time.Duration, percent int) float64 {
	if len(values) == 0 {
		return 0
	}

	sorted := slices.Sorted(slices.Values(values))
	rank := (len(sorted)*percent + 99) / 100

	return sorted[max(rank, 1)-1].Seconds()
}
