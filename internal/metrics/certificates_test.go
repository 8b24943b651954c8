package metrics_test

import (
	"testing"
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/internal/metrics"
)

// TestLeaveControlPlane: the shard that a cluster has left drops what it told of its certificates, and not what another
// shard of the same process has told since.
func TestLeaveControlPlane(t *testing.T) {
	const name = "talos_operator_certificate_expiry_timestamp_seconds"

	told := func() bool {
		t.Helper()

		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families {
			if f.GetName() != name {
				continue
			}

			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "cluster" && l.GetValue() == "leaves" {
						return true
					}
				}
			}
		}

		return false
	}

	before, after := new(string), new(string)

	metrics.Certificate(before, "ns", "leaves", "ca-etcd", time.Unix(1, 0))
	metrics.Certificate(after, "ns", "leaves", "ca-etcd", time.Unix(1, 0))
	metrics.LeaveControlPlane(before, "ns", "leaves")

	if !told() {
		t.Error("what the new shard has told is gone")
	}

	metrics.LeaveControlPlane(after, "ns", "leaves")

	if told() {
		t.Error("the shard that the cluster has left still tells of its certificates")
	}
}
