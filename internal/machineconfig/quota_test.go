package machineconfig_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestEtcdQuota: the quota is that of the configuration, else that of etcd.
func TestEtcdQuota(t *testing.T) {
	const head = "version: v1alpha1\nmachine: {type: controlplane}\ncluster:\n  etcd:\n    extraArgs: "

	for _, tc := range []struct {
		name, config string
		want         int64
		fails        bool
	}{
		{"none", "version: v1alpha1\nmachine: {type: controlplane}\ncluster: {etcd: {}}\n", 2 << 30, false},
		{"other arguments", head + "{election-timeout: \"5000\"}\n", 2 << 30, false},
		{"text", head + "{quota-backend-bytes: \"8589934592\"}\n", 8 << 30, false},
		{"number", head + "{quota-backend-bytes: 4294967296}\n", 4 << 30, false},
		{"list", head + "{quota-backend-bytes: [\"8589934592\"]}\n", 8 << 30, false},
		{"zero is the default", head + "{quota-backend-bytes: \"0\"}\n", 2 << 30, false},
		{"off", head + "{quota-backend-bytes: \"-1\"}\n", 0, false},
		{"no number", head + "{quota-backend-bytes: 8Gi}\n", 0, true},
		{"no document", "", 2 << 30, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := machineconfig.EtcdQuota([]byte(tc.config))
			if (err != nil) != tc.fails || got != tc.want {
				t.Errorf("%d, %v, want %d", got, err, tc.want)
			}
		})
	}
}
