package app

import (
	"testing"

	"k8s.io/client-go/rest"
)

// TestLeasesAccess: the short timeout of requests about Leases is not that of everything else, which would end each watch.
func TestLeasesAccess(t *testing.T) {
	cfg := &rest.Config{Host: "https://10.0.0.1:6443"}

	l, err := newLeases(cfg, Options{LeaderElectionNamespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}

	if cfg.Timeout != 0 || cfg.UserAgent != "" || l.Namespace != "ns" || l.Name != LeaseName {
		t.Errorf("access has become %+v, the Leases %+v", cfg, l)
	}
}
