package harness

import (
	"context"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/pki"
)

// credentialTTL is how long the certificates are valid that tests make for themselves.
const credentialTTL = 24 * time.Hour

// NewState makes the PKI of a cluster, and what an operator knows of it that has just made that. No control plane has
// claimed it yet.
func NewState(name, endpoint string) (*clusterstate.State, error) {
	bundle, err := pki.New(time.Now())
	if err != nil {
		return nil, err
	}

	return clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: name, Endpoint: endpoint, TalosVersion: TalosVersion, KubernetesVersion: KubernetesVersion,
		Contract: "v1.13",
	}, ""), nil
}

// Config is the machine config of a role in a cluster.
func Config(st *clusterstate.State, role configmachine.Type) ([]byte, error) {
	endpoint, err := url.Parse(st.BundleConfig.Endpoint)
	if err != nil {
		return nil, err
	}

	in, err := generate.NewInput(st.BundleConfig.ClusterName, st.BundleConfig.Endpoint,
		strings.TrimPrefix(st.BundleConfig.KubernetesVersion, "v"),
		generate.WithSecretsBundle(st.Bundle.Secrets()), generate.WithVersionContract(machineryconfig.TalosVersion1_13),
		generate.WithInstallDisk("/dev/sda"), generate.WithEndpointList([]string{endpoint.Hostname()}))
	if err != nil {
		return nil, err
	}

	cfg, err := in.Config(role)
	if err != nil {
		return nil, err
	}

	return cfg.Bytes()
}

var errInstalling = errors.New("it is being installed")

// Install gives a machine in maintenance mode a config. It is done when that is installed.
func Install(ctx context.Context, n *node.Node, config []byte) error {
	if n.Status().Installed {
		return nil
	}

	pool := talos.NewPool()
	defer pool.Close()

	m, err := pool.Maintenance(ctx, n.Address(), "")
	if err != nil {
		return err
	}
	defer m.Close()

	// A machine that asks for a certificate has taken it; the answer got lost.
	if _, err := m.Apply(ctx, config); err != nil && failure.Reason(err) != v1alpha1.ReasonAuthFailed {
		return err
	}

	return errInstalling
}

// Credentials are those of an administrator of a cluster.
func Credentials(st *clusterstate.State) (talos.Credentials, error) {
	store := &clusterstate.Store{Clock: clock.RealClock{}}

	access, err := store.Access(types.NamespacedName{Name: st.Bundle.ClusterID()}, st.Bundle)
	if err != nil {
		return talos.Credentials{}, err
	}

	return talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}, nil
}

// Ask asks a machine as an administrator of a cluster, which it has to be a machine of.
func Ask(ctx context.Context, n *node.Node, st *clusterstate.State, do func(*talos.Node) error) error {
	creds, err := Credentials(st)
	if err != nil {
		return err
	}

	pool := talos.NewPool()
	defer pool.Close()

	probe, err := pool.Probe(ctx, n.Address(), &creds)
	if err != nil || probe.State != talos.StateMember {
		return fmt.Errorf("state %v: %w", probe.State, err)
	}

	c, err := pool.Node(ctx, talos.NodeRef{Key: "test", Address: n.Address(), Credentials: creds})
	if err != nil {
		return err
	}

	return do(c)
}

// Prepares tells by nil that a machine is installed and its etcd waits for a bootstrap.
func Prepares(ctx context.Context, n *node.Node, st *clusterstate.State) error {
	if s := n.Status(); !s.Installed {
		return fmt.Errorf("%+v", s)
	}

	return Ask(ctx, n, st, func(c *talos.Node) error { return preparing(ctx, c) })
}

func preparing(ctx context.Context, c *talos.Node) error {
	service, err := c.EtcdService(ctx)
	if err == nil && service != talos.EtcdPreparing {
		err = fmt.Errorf("etcd does not wait for a bootstrap: %v", service)
	}

	return err
}

// EtcdClient opens the client API of the member at an address.
func EtcdClient(st *clusterstate.State, address string) (*clientv3.Client, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(st.Bundle.Secrets().Certs.Etcd)
	if err != nil {
		return nil, err
	}

	pair, err := x509.NewKeyPair(ca, x509.NotAfter(time.Now().Add(credentialTTL)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	if err != nil {
		return nil, err
	}

	creds := talos.Credentials{CA: ca.CrtPEM, Cert: pair.CrtPEM, Key: pair.KeyPEM}

	cfg, err := creds.TLSConfig()
	if err != nil {
		return nil, err
	}

	return clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + address + ":2379"}, TLS: cfg,
		// A member that comes back is found at once.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		})},
	})
}
