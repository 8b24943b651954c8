package clusterstate_test

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Making a bundle takes a second, most of it for the RSA key of service accounts. Bundles are immutable.
var (
	sharedBundle = sync.OnceValues(makeBundle)
	otherShared  = sync.OnceValues(makeBundle)
)

func makeBundle() (*clusterstate.Bundle, error) {
	return pki.New(now)
}

func newBundle(tb testing.TB) *clusterstate.Bundle {
	tb.Helper()

	return must(tb, sharedBundle)
}

func otherBundle(tb testing.TB) *clusterstate.Bundle {
	tb.Helper()

	return must(tb, otherShared)
}

func must(tb testing.TB, make func() (*clusterstate.Bundle, error)) *clusterstate.Bundle {
	tb.Helper()

	b, err := make()
	if err != nil {
		tb.Fatal(err)
	}

	return b
}

func marshal(tb testing.TB, b *clusterstate.Bundle) []byte {
	tb.Helper()

	raw, err := b.Marshal()
	if err != nil {
		tb.Fatal(err)
	}

	return raw
}

// secretsOf are texts that no error may hold.
func secretsOf(b *clusterstate.Bundle) []string {
	s := b.Secrets()
	out := []string{
		"PRIVATE KEY", "hunter2", s.Cluster.Secret, s.Secrets.BootstrapToken, s.Secrets.SecretboxEncryptionSecret,
		s.TrustdInfo.Token,
	}

	for _, key := range [][]byte{s.Certs.OS.Key, s.Certs.K8s.Key, s.Certs.Etcd.Key, s.Certs.K8sServiceAccount.Key} {
		out = append(out, base64.StdEncoding.EncodeToString(key)[:64])
	}

	return out
}

func mustNotLeak(t *testing.T, b *clusterstate.Bundle, text string) {
	t.Helper()

	for _, secret := range secretsOf(b) {
		if strings.Contains(text, secret) {
			t.Errorf("%q holds the secret %q", text, secret)
		}
	}
}

func TestBundleRoundTrip(t *testing.T) {
	t.Parallel()

	b := newBundle(t)
	raw := marshal(t, b)

	again, err := clusterstate.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}

	if !b.Equal(again) || !bytes.Equal(raw, marshal(t, again)) || b.Fingerprint() != again.Fingerprint() {
		t.Error("a bundle changed on its way through text")
	}

	// talosctl reads what we write.
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}

	loaded, err := secrets.LoadBundle(path)
	if err != nil {
		t.Fatal(err)
	}

	if err := loaded.Validate(); err != nil {
		t.Errorf("Talos refuses the bundle: %v", err)
	}

	other := otherBundle(t)
	if b.Equal(other) || b.Equal(nil) ||
		b.Fingerprint() == other.Fingerprint() || b.CAFingerprint() == other.CAFingerprint() {
		t.Error("two bundles are one")
	}
}

func TestBundleFromGivenMaterial(t *testing.T) {
	t.Parallel()

	given := newBundle(t).Secrets().Certs.OS
	other := otherBundle(t).Secrets().Certs.OS

	leaf, err := newBundle(t).TalosCredentials(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	b, err := clusterstate.NewBundle(clusterstate.Options{
		TalosVersion: "v1.13.9", Now: now, Token: "abcdef.0123456789abcdef", CACert: given.Crt, CAKey: given.Key,
	})
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(b.Secrets().Certs.OS.Crt, given.Crt) || b.Secrets().TrustdInfo.Token != "abcdef.0123456789abcdef" {
		t.Error("the given material was not used")
	}

	for name, tt := range map[string]struct {
		change func(*clusterstate.Options)
		says   string
	}{
		"certificate alone": {func(o *clusterstate.Options) { o.CACert = given.Crt }, "without its private key"},
		"key alone":         {func(o *clusterstate.Options) { o.CAKey = given.Key }, "without its certificate"},
		"another's key":     {func(o *clusterstate.Options) { o.CACert, o.CAKey = given.Crt, other.Key }, "does not belong"},
		"no CA":             {func(o *clusterstate.Options) { o.CACert, o.CAKey = leaf.Cert, leaf.Key }, "not that of a CA"},
		"no PEM": {
			func(o *clusterstate.Options) { o.CACert, o.CAKey = []byte("hunter2"), given.Key },
			"not a PEM certificate",
		},
		"no key": {
			func(o *clusterstate.Options) { o.CACert, o.CAKey = given.Crt, []byte("hunter2") },
			"not a PEM private key",
		},
		"expired": {func(o *clusterstate.Options) {
			o.CACert, o.CAKey, o.Now = given.Crt, given.Key, now.AddDate(20, 0, 0)
		}, "expired"},
		"token":   {func(o *clusterstate.Options) { o.Token = "hunter2" }, "token"},
		"version": {func(o *clusterstate.Options) { o.TalosVersion = "new" }, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := clusterstate.Options{TalosVersion: "v1.13.9", Now: now}
			tt.change(&o)

			_, err := clusterstate.NewBundle(o)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want an error that says %q", err, tt.says)
			}

			mustNotLeak(t, b, err.Error())
		})
	}
}

func TestParseBundleIsStrict(t *testing.T) {
	t.Parallel()

	b, other := newBundle(t), otherBundle(t)
	good := string(marshal(t, b))

	cut := func(from, to string) string {
		i := strings.Index(good, from)
		j := strings.Index(good, to)

		return good[:i] + good[j:]
	}

	key := func(pair *x509.PEMEncodedCertificateAndKey) string {
		return base64.StdEncoding.EncodeToString(pair.Key)
	}

	for name, tt := range map[string]struct{ text, says string }{
		"empty":       {" \n", "empty"},
		"no YAML":     {"hunter2: [", "not YAML"},
		"a list":      {"- hunter2\n", "not YAML"},
		"extra field": {good + "hunter2: 1\n", "unknown"},
		"two of them": {good + "---\n" + good, "more than one"},
		"repeated":    {good + good, "repeated"},
		"no cluster":  {cut("cluster:", "secrets:"), "cluster is required"},
		"no secrets":  {cut("secrets:", "trustdinfo:"), "secrets is required"},
		"no certs":    {good[:strings.Index(good, "certs:")], "certs is required"},
		"cut off":     {good[:len(good)/2], "secrets bundle"},
		"another key": {
			strings.Replace(good, key(b.Secrets().Certs.K8s), key(other.Secrets().Certs.K8s), 1),
			"certs.k8s: the CA private key does not belong",
		},
		"no key":       {strings.Replace(good, key(b.Secrets().Certs.OS), `""`, 1), "certs.os"},
		"broken token": {strings.Replace(good, b.Secrets().Secrets.BootstrapToken, "hunter2", 1), "bootstraptoken"},
		"short secret": {strings.Replace(good, b.Secrets().Cluster.Secret, "aHVudGVyMg==", 1), "cluster.secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := clusterstate.ParseBundle([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want an error that says %q", err, tt.says)
			}

			mustNotLeak(t, b, err.Error())
		})
	}
}

func TestTalosCredentialsOpenAServerOfTheCluster(t *testing.T) {
	t.Parallel()

	b := newBundle(t)

	creds, err := b.TalosCredentials(now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	if !creds.NotAfter.Equal(now.Add(24 * time.Hour)) {
		t.Errorf("ends %v", creds.NotAfter)
	}

	cert := parse(t, creds.Cert)
	if diff := cmp.Diff([]string{"os:admin"}, cert.Subject.Organization); diff != "" {
		t.Error(diff)
	}

	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(creds.CA)

	for at, want := range map[time.Time]bool{
		now: true, now.Add(-30 * time.Minute): true, now.Add(23 * time.Hour): true,
		now.Add(-2 * time.Hour): false, now.Add(25 * time.Hour): false,
	} {
		_, err := cert.Verify(stdx509.VerifyOptions{
			Roots: roots, CurrentTime: at, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
		})
		if (err == nil) != want {
			t.Errorf("at %v: %v", at, err)
		}
	}

	if _, err := tls.X509KeyPair(creds.Cert, creds.Key); err != nil {
		t.Errorf("certificate and key do not fit: %v", err)
	}
}

func parse(tb testing.TB, cert []byte) *stdx509.Certificate {
	tb.Helper()

	block, _ := pem.Decode(cert)
	if block == nil {
		tb.Fatal("no PEM")
	}

	parsed, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		tb.Fatal(err)
	}

	return parsed
}

func TestTalosconfig(t *testing.T) {
	t.Parallel()

	b := newBundle(t)
	p := clusterstate.TalosconfigParams{
		ClusterName: "prod", Endpoints: []string{"10.0.0.1", "10.0.0.2"}, Nodes: []string{"10.0.0.1"},
	}

	raw, err := b.Talosconfig(p, now)
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := clientconfig.FromBytes(raw)
	if err != nil {
		t.Fatal(err)
	}

	ctx := cfg.Contexts["prod"]
	if cfg.Context != "prod" || ctx == nil ||
		!slices.Equal(ctx.Endpoints, p.Endpoints) || !slices.Equal(ctx.Nodes, p.Nodes) {
		t.Fatalf("got context %q, %v", cfg.Context, slices.Collect(func(yield func(string) bool) {
			for name := range cfg.Contexts {
				yield(name)
			}
		}))
	}

	end, err := clusterstate.TalosconfigExpiry(raw)
	if err != nil || !end.Equal(now.Add(clusterstate.CredentialTTL)) {
		t.Errorf("ends %v %v", end, err)
	}

	moved := p
	moved.Endpoints = []string{"10.0.0.3"}

	for name, tt := range map[string]struct {
		bundle *clusterstate.Bundle
		data   []byte
		p      clusterstate.TalosconfigParams
		at     time.Time
		want   bool
	}{
		"fresh":           {b, raw, p, now, true},
		"half way":        {b, raw, p, now.AddDate(0, 6, 0), true},
		"near its end":    {b, raw, p, now.AddDate(0, 9, 0), false},
		"other endpoints": {b, raw, moved, now, false},
		"other cluster":   {otherBundle(t), raw, p, now, false},
		"nothing":         {b, nil, p, now, false},
		"broken":          {b, []byte("context: prod\n"), p, now, false},
	} {
		if got := tt.bundle.TalosconfigCurrent(tt.data, tt.p, tt.at); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()

	b := newBundle(t)
	p := clusterstate.KubeconfigParams{ClusterName: "prod", Server: "https://10.0.0.10:6443"}

	raw, err := b.Kubeconfig(p, now)
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}

	subject := parse(t, cfg.CertData).Subject
	if cfg.Host != p.Server || subject.CommonName != "admin" ||
		!slices.Equal(subject.Organization, []string{"system:masters"}) {
		t.Errorf("got %s %s", cfg.Host, subject)
	}

	end, err := clusterstate.KubeconfigExpiry(raw)
	if err != nil || !end.Equal(now.Add(clusterstate.CredentialTTL)) {
		t.Errorf("ends %v %v", end, err)
	}

	moved := p
	moved.Server = "https://10.0.0.11:6443"

	for name, tt := range map[string]struct {
		bundle *clusterstate.Bundle
		data   []byte
		p      clusterstate.KubeconfigParams
		at     time.Time
		want   bool
	}{
		"fresh":         {b, raw, p, now, true},
		"half way":      {b, raw, p, now.AddDate(0, 6, 0), true},
		"near its end":  {b, raw, p, now.AddDate(0, 9, 0), false},
		"other server":  {b, raw, moved, now, false},
		"other cluster": {otherBundle(t), raw, p, now, false},
		"nothing":       {b, nil, p, now, false},
	} {
		if got := tt.bundle.KubeconfigCurrent(tt.data, tt.p, tt.at); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}

	for _, bad := range []string{"", "hunter2", "apiVersion: v1\nkind: Config\n"} {
		if _, err := clusterstate.KubeconfigExpiry([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}

		if _, err := clusterstate.TalosconfigExpiry([]byte(bad)); err == nil {
			t.Errorf("%q was accepted as talosconfig", bad)
		}
	}
}

// TestRESTConfig talks to a TLS server that trusts only the cluster's CA, as an API server does.
func TestRESTConfig(t *testing.T) {
	t.Parallel()

	at := wait.Now()

	b, err := pki.New(at)
	if err != nil {
		t.Fatal(err)
	}

	server := apiServer(t, b)

	cfg, err := b.RESTConfig(server.URL, at, time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := client.Get(cfg.Host + "/version")
	if err != nil {
		t.Fatal(err)
	}

	defer resp.Body.Close()

	if who := resp.Header.Get("Who"); who != "admin [system:masters]" {
		t.Errorf("the server saw %q", who)
	}

	stranger, err := otherBundle(t).RESTConfig(server.URL, at, time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	client, err = rest.HTTPClientFor(stranger)
	if err != nil {
		t.Fatal(err)
	}

	if resp, err := client.Get(stranger.Host); err == nil {
		resp.Body.Close()
		t.Error("a client of another cluster got in")
	}
}

func apiServer(t *testing.T, b *clusterstate.Bundle) *httptest.Server {
	t.Helper()

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		w.Header().Set("Who", fmt.Sprint(subject.CommonName, " ", subject.Organization))
	}))

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(b.Secrets().Certs.K8s)
	if err != nil {
		t.Fatal(err)
	}

	host := server.Listener.Addr().String()

	pair, err := x509.NewKeyPair(ca, x509.CommonName("kube-apiserver"), x509.DNSNames([]string{"localhost"}),
		x509.IPAddresses(ipsOf(t, host)), x509.NotAfter(wait.Now().Add(time.Hour)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		t.Fatal(err)
	}

	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(b.Secrets().Certs.K8s.Crt)

	cert, err := tls.X509KeyPair(pair.CrtPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}

	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	server.StartTLS()
	t.Cleanup(server.Close)

	return server
}

func ipsOf(t *testing.T, hostport string) []net.IP {
	t.Helper()

	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		t.Fatal(err)
	}

	return []net.IP{net.ParseIP(host)}
}
