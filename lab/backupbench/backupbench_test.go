package backupbench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-operator/talos-operator/lab/backupbench"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/test/loopback"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

var operator string

func TestMain(m *testing.M) {
	// It is also the process of the libraries.
	if len(os.Args) == 2 && os.Args[1] == backupbench.ChildCommand {
		if err := backupbench.RunChild(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	testoperator.Main(m, &operator)
}

// TestThroughput runs the benchmark on a small scale: every value is there and makes sense. TotalLoss walks the same way
// as a test of whole scenarios does, and fails when the old kubeconfig or what was written is lost.
func TestThroughput(t *testing.T) {
	ctx := t.Context()
	values := map[string]float64{}
	emit := func(v bench.Metric) { values[v.Name] = v.Value }

	o := stack.Options{Dir: filepath.Join(t.TempDir(), "large"), Operator: operator, Subnet: loopback.Network(t), Store: true}

	err := stack.Run(ctx, o, func(ctx context.Context, s *stack.Stack) error {
		return backupbench.Throughput(ctx, s, []int{2, 10}, 1, emit)
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{
		"operator_plain_mib_s", "libraries_plain_mib_s", "libraries_with_node_plain_mib_s", "throughput_ratio_plain",
		"operator_zstd_age_mib_s", "throughput_ratio_zstd_age", "throughput_ratio_zstd_age_from_file",
	} {
		if values[name] <= 0 {
			t.Errorf("%s is %v", name, values[name])
		}
	}

	if _, ok := values["rss_growth_mib"]; !ok {
		t.Error("the growth of the memory is not there")
	}
}
