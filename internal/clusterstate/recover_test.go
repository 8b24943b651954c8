package clusterstate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

var restoring = clusterstate.Restore{Name: "r", UID: "uid-r", Since: now.Add(time.Hour)}

// TestRecovered: PKI and parameters stay. Nothing is known of the nodes, and the cluster is no new one: it founds no
// empty etcd for it.
func TestRecovered(t *testing.T) {
	old := newState(t, newBundle(t))
	old.Runtime.Disruption = &clusterstate.Disruption{Machine: "prod-cp-1"}
	old.Runtime.DecommissionedAt = &restoring.Since
	old.Runtime.Replaced = map[string]string{"prod-cp-0": "spare"}

	got, err := clusterstate.Decode(encode(t, old.Recovered("uid-2", restoring)))
	if err != nil {
		t.Fatal(err)
	}

	if got.Bundle.Fingerprint() != old.Bundle.Fingerprint() || got.ObservedKubeVersion != old.ObservedKubeVersion ||
		!cmp.Equal(got.BundleConfig, old.BundleConfig) {
		t.Errorf("another PKI or other parameters: %+v", got.BundleConfig)
	}

	rt := got.Runtime
	if rt.OwnerUID != "uid-2" || !cmp.Equal(rt.Restore, &restoring) || rt.Machines != nil || rt.Disruption != nil ||
		rt.DecommissionedAt != nil || rt.Replaced != nil || len(rt.Conditions) > 0 {
		t.Errorf("known of the nodes: %+v", rt)
	}

	if b := rt.Bootstrap; b == nil || b.Machine != "prod-cp-0" || b.EstablishedAt == nil || b.MemberID != 0 || b.Address != "" {
		t.Errorf("the bootstrap: %+v", b)
	}

	// A backup from before the first bootstrap was observed is one of an etcd that ran.
	old.Runtime.Bootstrap = nil
	if b := old.Recovered("uid-2", restoring).Runtime.Bootstrap; b == nil || b.EstablishedAt == nil {
		t.Errorf("the bootstrap: %+v", b)
	}
}

// TestIsolated: only the keys that Secrets are encrypted with are those of the other cluster.
func TestIsolated(t *testing.T) {
	old := newState(t, newBundle(t))
	cfg := old.BundleConfig
	cfg.ClusterName, cfg.Endpoint = "look", "https://10.0.0.99:6443"

	made, err := old.Isolated("uid-2", cfg, now, restoring)
	if err != nil {
		t.Fatal(err)
	}

	got, err := clusterstate.Decode(encode(t, made))
	if err != nil {
		t.Fatal(err)
	}

	if err := got.CheckCluster("look"); err != nil {
		t.Error(err)
	}

	was, is := old.Bundle.Secrets(), got.Bundle.Secrets()
	if is.Secrets.SecretboxEncryptionSecret != was.Secrets.SecretboxEncryptionSecret ||
		is.Secrets.AESCBCEncryptionSecret != was.Secrets.AESCBCEncryptionSecret {
		t.Error("its Secrets cannot be read")
	}

	for what, same := range map[string]bool{
		"cluster ID":      is.Cluster.ID == was.Cluster.ID,
		"cluster secret":  is.Cluster.Secret == was.Cluster.Secret,
		"bootstrap token": is.Secrets.BootstrapToken == was.Secrets.BootstrapToken,
		"trustd token":    is.TrustdInfo.Token == was.TrustdInfo.Token,
		"Talos CA":        string(is.Certs.OS.Key) == string(was.Certs.OS.Key),
		"etcd CA":         string(is.Certs.Etcd.Key) == string(was.Certs.Etcd.Key),
		"Kubernetes CA":   string(is.Certs.K8s.Key) == string(was.Certs.K8s.Key),
		"account key":     string(is.Certs.K8sServiceAccount.Key) == string(was.Certs.K8sServiceAccount.Key),
	} {
		if same {
			t.Errorf("the %s is that of the other cluster", what)
		}
	}

	if rt := got.Runtime; rt.OwnerUID != "uid-2" || !cmp.Equal(rt.Restore, &restoring) || rt.Bootstrap.EstablishedAt == nil {
		t.Errorf("the state: %+v", rt)
	}

	if old.Bundle.Secrets().Cluster.ID != was.Cluster.ID || old.Runtime.Restore != nil {
		t.Error("the state of the other cluster was changed")
	}
}
