package upgradebench_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/lab/upgradebench"
	"github.com/talos-operator/talos-operator/test/loopback"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

var operator string

func TestMain(m *testing.M) { testoperator.Main(m, &operator) }

// TestBenchmark runs the benchmark with the smallest fleet: every value is printed once, nodes need the times that they
// are given, and the probes go through the load balancer.
func TestBenchmark(t *testing.T) {
	progress := &strings.Builder{}
	got := map[string]bench.Metric{}

	err := upgradebench.Run(t.Context(), upgradebench.Options{
		Options: bench.Options{
			Stack: stack.Options{
				Dir: t.TempDir(), Operator: operator, Subnet: loopback.Network(t), Scale: node.DefaultScale,
				Times: pace.Times{Install: 100 * time.Second},
			},
			Calm: 500 * time.Millisecond, Progress: progress,
			Metrics: func(m bench.Metric) error {
				if _, twice := got[m.Name]; twice {
					t.Errorf("%s is told twice", m.Name)
				}

				got[m.Name] = m

				return nil
			},
		},
		ControlPlanes: 1, MaxUnavailable: 2, Clusters: 1,
		Talos:      upgradebench.Versions{From: "v1.12.12", To: "v1.13.10"},
		Kubernetes: upgradebench.Versions{From: "v1.35.1"},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}

	for name, unit := range map[string]string{
		"took_s": "s", "cluster_fastest_s": "s", "cluster_slowest_s": "s", "node_time_s": "s",
		"operator_overhead_ratio": "ratio", "operator_overhead_ratio_unscaled": "ratio", "idle_ratio": "ratio",
		"api_requests_per_machine": "requests", "api_writes_per_machine": "requests", "node_calls_per_machine": "calls",
		"manager_cpu_s": "s", "manager_rss_peak_mib": "MiB", "api_gap_s": "s", "api_slowest_answer_s": "s",
		"api_probes": "requests", "api_probes_failed": "requests",
	} {
		if m := got["fleet_os_"+name]; m.Value <= 0 || m.Unit != unit {
			t.Errorf("%s: %+v, want a value in %s", name, m, unit)
		}
	}

	// Two rounds of a second each, of the fastest machines.
	if s := got["fleet_os_node_time_s"].Value; s < 1.2 || s >= got["fleet_os_took_s"].Value {
		t.Errorf("the nodes needed %v s", s)
	}

	if t.Failed() {
		t.Log(progress)
	}
}
