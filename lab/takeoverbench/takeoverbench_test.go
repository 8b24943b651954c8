package takeoverbench_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/lab/takeoverbench"
	"github.com/talos-operator/talos-operator/test/loopback"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

var operator string

func TestMain(m *testing.M) { testoperator.Main(m, &operator) }

// TestBenchmark kills the leader once and tells it to end once: every value is printed once, and no machine is changed
// for either.
func TestBenchmark(t *testing.T) {
	got := map[string]float64{}

	err := takeoverbench.Run(t.Context(), takeoverbench.Options{
		Options: bench.Options{
			Stack: stack.Options{
				Dir: t.TempDir(), Operator: operator, Subnet: loopback.Network(t), Scale: node.DefaultScale,
			},
			Calm: 500 * time.Millisecond,
			Metrics: func(m bench.Metric) error {
				if _, twice := got[m.Name]; twice {
					t.Errorf("%s is told twice", m.Name)
				}

				got[m.Name] = m.Value

				return nil
			},
		},
		Kills: 1, Stops: 1,
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, of := range []string{"takeover", "handover"} {
		for _, name := range []string{"_s", "_fastest_s", "_slowest_s", "_lease_s", "_lease_slowest_s"} {
			if got[of+name] <= 0 {
				t.Errorf("%s is %v", of+name, got[of+name])
			}
		}
	}

	if n, ok := got["node_changes"]; !ok || n != 0 {
		t.Errorf("%v changes of machines", n)
	}
}
