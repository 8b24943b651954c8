package scale_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/scale"
	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/test/loopback"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

var operator string

func TestMain(m *testing.M) { testoperator.Main(m, &operator) }

// TestBenchmark runs the whole benchmark with two clusters: every value is printed once, and an operator that has nothing
// to do, or begins anew, changes nothing.
func TestBenchmark(t *testing.T) {
	progress := &strings.Builder{}
	got := map[string]bench.Metric{}

	err := scale.Run(t.Context(), scale.Options{
		Options: bench.Options{
			Stack:    stack.Options{Dir: t.TempDir(), Operator: operator, Subnet: loopback.Network(t)},
			Progress: progress,
			Metrics: func(m bench.Metric) error {
				if _, twice := got[m.Name]; twice {
					t.Errorf("%s is told twice", m.Name)
				}

				got[m.Name] = m

				return nil
			},
		},
		Clusters: 2, Idle: 3 * time.Second, Kill: 3, Gone: 0.3, Hostile: 0.2,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}

	for name, unit := range map[string]string{
		"all_ready_s": "s", "apply_to_ready_p50_s": "s", "apply_to_ready_p99_s": "s", "manager_cpu_s": "s",
		"manager_rss_peak_mib": "MiB", "goroutines": "goroutines", "goroutines_per_node": "goroutines",
		"idle_rss_mib": "MiB", "idle_heap_mib": "MiB", "idle_stacks_mib": "MiB", "idle_allocated_mib_s": "MiB/s",
		"idle_allocations_s": "objects/s",
		"api_requests_get":   "requests", "api_requests_create": "requests", "api_requests_patch": "requests",
		"node_calls_ApplyConfiguration": "calls", "node_calls_Bootstrap": "calls", "node_calls_ResourceWatch": "calls",
		"node_down_detect_p50_s": "s", "node_down_detect_p99_s": "s", "restart_catchup_s": "s",
		"hostile_gone_noticed_s": "s", "hostile_node_down_detect_p50_s": "s", "hostile_node_down_detect_p99_s": "s",
		"hostile_recovered_s": "s",
	} {
		if m := got[name]; m.Value <= 0 || m.Unit != unit {
			t.Errorf("%s: %+v, want a value in %s", name, m, unit)
		}
	}

	for _, name := range []string{"idle_api_writes", "idle_mutating_calls", "restart_mutating_calls"} {
		if m, told := got[name]; !told || m.Value != 0 {
			t.Errorf("%s: %v, told %t; want 0", name, m.Value, told)
		}
	}

	// A few idle seconds may cost less than what the kernel counts.
	if m, told := got["idle_cpu_share"]; !told || m.Value < 0 || m.Value > 1 || m.Unit != "cores" {
		t.Errorf("idle_cpu_share: %+v, told %t", m, told)
	}

	// Ten machines get a config each, two clusters a bootstrap each.
	if a, b := got["node_calls_ApplyConfiguration"].Value, got["node_calls_Bootstrap"].Value; a != 10 || b != 2 {
		t.Errorf("%v configs, %v bootstraps", a, b)
	}

	if t.Failed() {
		t.Log(progress)
	}
}

// TestShards: of two replicas that share two clusters one is killed as soon as one cluster is ready. The other one takes
// its shard over, does nothing twice, and works on both clusters.
func TestShards(t *testing.T) {
	progress := &strings.Builder{}
	got := map[string]bench.Metric{}

	err := scale.RunShards(t.Context(), scale.Options{
		Options: bench.Options{
			Stack:    stack.Options{Dir: t.TempDir(), Operator: operator, Subnet: loopback.Network(t)},
			Progress: progress,
			Metrics: func(m bench.Metric) error {
				got[m.Name] = m

				return nil
			},
		},
		Clusters: 2, Replicas: 2, Shards: 2,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}

	for _, name := range []string{"all_ready_s", "takeover_s", "replica_1_rss_mib"} {
		if got[name].Value <= 0 {
			t.Errorf("%s: %+v", name, got[name])
		}
	}

	for _, name := range []string{"double_actions", "forgotten"} {
		if m, told := got[name]; !told || m.Value != 0 {
			t.Errorf("%s: %v, told %t; want 0\n%s", name, m.Value, told, progress)
		}
	}
}
