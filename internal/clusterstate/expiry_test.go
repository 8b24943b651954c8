package clusterstate_test

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

func TestAuthorities(t *testing.T) {
	t.Parallel()

	b := newBundle(t)
	certs := b.Secrets().Certs

	var got []clusterstate.Expiry

	for name, pair := range map[string]*x509.PEMEncodedCertificateAndKey{
		"ca-aggregator": certs.K8sAggregator, "ca-etcd": certs.Etcd, "ca-kubernetes": certs.K8s, "ca-talos": certs.OS,
	} {
		got = append(got, clusterstate.Expiry{Certificate: name, NotAfter: parse(t, pair.Crt).NotAfter, Authority: true})
	}

	byName := func(list []clusterstate.Expiry) map[string]clusterstate.Expiry {
		out := map[string]clusterstate.Expiry{}
		for _, e := range list {
			out[e.Certificate] = e
		}

		return out
	}

	if diff := cmp.Diff(byName(got), byName(b.Authorities())); diff != "" {
		t.Error(diff)
	}
}

// TestTalosconfigOfAnotherRole: a certificate that gives other rights, or that its key does not fit, is made anew.
func TestTalosconfigOfAnotherRole(t *testing.T) {
	t.Parallel()

	b := newBundle(t)
	p := clusterstate.TalosconfigParams{ClusterName: "prod", Endpoints: []string{"10.0.0.1"}, Nodes: []string{"10.0.0.1"}}

	raw, err := b.Talosconfig(p, now)
	if err != nil {
		t.Fatal(err)
	}

	with := func(change func(*clientconfig.Context)) []byte {
		cfg, err := clientconfig.FromBytes(raw)
		if err != nil {
			t.Fatal(err)
		}

		change(cfg.Contexts["prod"])

		out, err := cfg.Bytes()
		if err != nil {
			t.Fatal(err)
		}

		return out
	}

	certified := func(roles ...role.Role) func(*clientconfig.Context) {
		pair, err := secrets.NewAdminCertificateAndKey(now, b.Secrets().Certs.OS, role.MakeSet(roles...),
			clusterstate.CredentialTTL)
		if err != nil {
			t.Fatal(err)
		}

		return func(c *clientconfig.Context) {
			c.Crt, c.Key = base64.StdEncoding.EncodeToString(pair.Crt), base64.StdEncoding.EncodeToString(pair.Key)
		}
	}

	foreign, err := otherBundle(t).Talosconfig(p, now)
	if err != nil {
		t.Fatal(err)
	}

	theirs, err := clientconfig.FromBytes(foreign)
	if err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		data []byte
		want bool
	}{
		"same role":   {with(certified(role.Admin)), true},
		"less":        {with(certified(role.Reader)), false},
		"another set": {with(certified(role.Admin, role.Operator)), false},
		"another key": {with(func(c *clientconfig.Context) { c.Key = theirs.Contexts["prod"].Key }), false},
		"another CA":  {with(func(c *clientconfig.Context) { c.Crt = theirs.Contexts["prod"].Crt }), false},
	} {
		if got := b.TalosconfigCurrent(tt.data, p, now); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestKubeconfigOfAnotherRole(t *testing.T) {
	t.Parallel()

	b := newBundle(t)
	p := clusterstate.KubeconfigParams{ClusterName: "prod", Server: "https://10.0.0.10:6443"}

	raw, err := b.Kubeconfig(p, now)
	if err != nil {
		t.Fatal(err)
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(b.Secrets().Certs.K8s)
	if err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		user, group string
		want        bool
	}{
		"same":          {"admin", "system:masters", true},
		"another user":  {"somebody", "system:masters", false},
		"another group": {"admin", "viewers", false},
	} {
		pair, err := x509.NewKeyPair(ca, x509.CommonName(tt.user), x509.Organization(tt.group),
			x509.NotBefore(now.Add(-time.Hour)), x509.NotAfter(now.Add(clusterstate.CredentialTTL)),
			x509.KeyUsage(stdx509.KeyUsageDigitalSignature))
		if err != nil {
			t.Fatal(err)
		}

		cfg, err := clientcmd.Load(bytes.Clone(raw))
		if err != nil {
			t.Fatal(err)
		}

		user := cfg.AuthInfos["admin@prod"]
		made := x509.NewCertificateAndKeyFromKeyPair(pair)
		user.ClientCertificateData, user.ClientKeyData = made.Crt, made.Key

		data, err := clientcmd.Write(*cfg)
		if err != nil {
			t.Fatal(err)
		}

		if got := b.KubeconfigCurrent(data, p, now); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
