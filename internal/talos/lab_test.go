package talos_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/metal"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// cluster is the PKI and the config of one cluster.
type cluster struct {
	t     *testing.T
	input *generate.Input
}

// newCluster makes a cluster whose endpoint is at the address.
func newCluster(t *testing.T, address string) *cluster {
	t.Helper()

	return newClusterOf(t, address, "1.36.2")
}

// newClusterOf has another version of Kubernetes, for nodes whose Talos does not support that of newCluster.
func newClusterOf(t *testing.T, address, kubernetes string) *cluster {
	t.Helper()

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("c", "https://"+address+":6443", kubernetes, generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(machineryconfig.TalosVersion1_13), generate.WithInstallDisk("/dev/sda"),
		generate.WithEndpointList([]string{address}))
	if err != nil {
		t.Fatal(err)
	}

	return &cluster{t: t, input: in}
}

func (c *cluster) config(typ configmachine.Type) []byte {
	c.t.Helper()

	cfg, err := c.input.Config(typ)
	if err != nil {
		c.t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		c.t.Fatal(err)
	}

	return data
}

func (c *cluster) creds() talos.Credentials {
	return c.credsFor(wait.Now(), time.Hour, role.Admin)
}

func (c *cluster) credsFor(from time.Time, ttl time.Duration, r role.Role) talos.Credentials {
	c.t.Helper()

	ca := c.input.Options.SecretsBundle.Certs.OS

	pair, err := secrets.NewAdminCertificateAndKey(from, ca, role.MakeSet(r), ttl)
	if err != nil {
		c.t.Fatal(err)
	}

	return talos.Credentials{CA: ca.Crt, Cert: pair.Crt, Key: pair.Key}
}

// secretTexts are the values of the PKI that may appear nowhere, base64 as a config holds them.
func (c *cluster) secretTexts() []string {
	b := c.input.Options.SecretsBundle
	out := []string{
		b.Secrets.BootstrapToken, b.Secrets.SecretboxEncryptionSecret, b.TrustdInfo.Token, b.Cluster.Secret, b.Cluster.ID,
	}

	for _, key := range [][]byte{b.Certs.OS.Key, b.Certs.K8s.Key, b.Certs.Etcd.Key, b.Certs.K8sServiceAccount.Key} {
		out = append(out, base64.StdEncoding.EncodeToString(key), string(key))
	}

	return out
}

// boot powers a machine on and waits for maintenance mode. Etcd and Kubernetes are modelled unless changed.
func boot(t *testing.T, address string, change ...func(*node.Options)) *node.Node {
	t.Helper()

	o := node.Options{Name: "n" + address[len(address)-1:], Address: address, Dir: t.TempDir(), Modelled: true}
	for _, c := range change {
		c(&o)
	}

	n, err := node.New(o)
	if err != nil {
		t.Fatal(err)
	}

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Kill)
	awaitState(t, n, nil, talos.StateMaintenance)

	return n
}

// assets has a machine run real etcd and Kubernetes.
func assets(t *testing.T) func(*node.Options) {
	t.Helper()

	dir, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	return func(o *node.Options) { o.Modelled, o.Assets = false, dir }
}

// configure gives a machine its first config and waits until it responds as a member.
func (c *cluster) configure(n *node.Node) {
	c.t.Helper()
	c.configureWith(n, c.config(configmachine.TypeControlPlane))
}

func (c *cluster) configureWith(n *node.Node, config []byte) {
	c.t.Helper()

	pool := talos.NewPool()
	defer pool.Close()

	m, err := pool.Maintenance(c.t.Context(), n.Address(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	defer m.Close()

	first := n.Status().BootID

	if _, err := m.Apply(c.t.Context(), config); err != nil {
		c.t.Fatal(err)
	}

	metal.Installed(c.t, n, first)

	creds := c.creds()
	awaitState(c.t, n, &creds, talos.StateMember)
}

// open returns a pool's connection to a machine.
func (c *cluster) open(n *node.Node, creds talos.Credentials) *talos.Node {
	c.t.Helper()

	pool := talos.NewPool()
	c.t.Cleanup(pool.Close)

	conn, err := pool.Node(c.t.Context(), talos.NodeRef{Key: "ns/" + n.Name(), Address: n.Address(), Credentials: creds})
	if err != nil {
		c.t.Fatal(err)
	}

	return conn
}

func awaitState(t *testing.T, n *node.Node, creds *talos.Credentials, want talos.State) {
	t.Helper()

	pool := talos.NewPool()

	wait.For(t, n.Name()+" is what it should be", func(ctx context.Context) error {
		if p, err := pool.Probe(ctx, n.Address(), creds); err != nil || p.State != want {
			return fmt.Errorf("state %d, want %d: %w", p.State, want, err)
		}

		return nil
	})
}

// caPool reads the CA of credentials.
func caPool(t *testing.T, creds talos.Credentials) *x509.CertPool {
	t.Helper()

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(creds.CA) {
		t.Fatal("no CA certificate")
	}

	return pool
}
