package talosetcdbackup_test

import (
	"context"
	"crypto/rand"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/pki"
)

const (
	cluster    = "c"
	talosV     = "v1.13.9"
	kubernetes = "v1.36.2"
	// marker is a key in the etcd of real estates.
	marker = "/registry/configmaps/default/marker"
)

// estateDir is where the nodes live.
var estateDir string

// estate is a running control plane. Tests that only read it share one.
type estate struct {
	state *clusterstate.State
	nodes []*node.Node
	creds talos.Credentials
	// database is how many random bytes are in its etcd.
	database int
}

var (
	estates   []*estate
	estatesMu sync.Mutex

	// modelled has one node with a modelled etcd; nobody breaks it.
	modelled = sync.OnceValues(func() (*estate, error) { return found("127.44.104", 1, false) })
	// threesome has three nodes with real members and 20 MiB in them. Tests that break it run one after the other, and
	// mend it.
	threesome = sync.OnceValues(func() (*estate, error) { return found("127.44.105", 3, true) })
)

func must(t *testing.T, open func() (*estate, error)) *estate {
	t.Helper()

	e, err := open()
	if err != nil {
		t.Fatal(err)
	}

	return e
}

func closeAll() {
	estatesMu.Lock()
	defer estatesMu.Unlock()

	for _, e := range estates {
		for _, n := range e.nodes {
			n.Kill()
		}
	}

	if s, err := server(); err == nil {
		s.Kill()
	}

}

// found makes a control plane whose etcd runs.
func found(subnet string, size int, real bool) (*estate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	e, err := newEstate(subnet)
	if err != nil {
		return nil, err
	}

	estatesMu.Lock()
	estates = append(estates, e)
	estatesMu.Unlock()

	registry := node.NewRegistry()

	for i := range size {
		o := node.Options{
			Name: fmt.Sprintf("cp-%d", i), Address: fmt.Sprintf("%s.%d", subnet, i+1),
			Dir: filepath.Join(estateDir, subnet, fmt.Sprint(i)), Modelled: !real, Cluster: registry,
		}

		if real {
			if o.Assets, err = etcdOnly(); err != nil {
				return nil, err
			}
		}

		n, err := node.New(o)
		if err != nil {
			return nil, err
		}

		if err := n.PowerOn(ctx); err != nil {
			return nil, err
		}

		e.nodes = append(e.nodes, n)
	}

	if err := e.run(ctx, subnet); err != nil || !real {
		return e, err
	}

	return e, e.fill(ctx)
}

// etcdOnly is a folder with the programs of etcd and no API server, which nobody needs here.
func etcdOnly() (string, error) {
	assets, err := process.Assets()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(estateDir, "assets")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}

	for _, name := range []string{"etcd", "etcdutl"} {
		if err := os.Symlink(filepath.Join(assets, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}

	return dir, nil
}

func newEstate(subnet string) (*estate, error) {
	bundle, err := pki.New(time.Now())
	if err != nil {
		return nil, err
	}

	state := clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: cluster, Endpoint: "https://" + subnet + ".1:6443", TalosVersion: talosV, KubernetesVersion: kubernetes,
		Contract: "v1.13",
	}, "uid")
	state.Runtime.Machines = map[string]clusterstate.Machine{}

	access, err := (&statestore.Store{Clock: clock.RealClock{}}).Access(types.NamespacedName{Name: subnet}, bundle)
	if err != nil {
		return nil, err
	}

	return &estate{
		state: state, creds: talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key},
	}, nil
}

// run configures the nodes, bootstraps the first one, and waits until all are voting members.
func (e *estate) run(ctx context.Context, subnet string) error {
	in, err := generate.NewInput(cluster, e.state.BundleConfig.Endpoint, strings.TrimPrefix(kubernetes, "v"),
		generate.WithSecretsBundle(e.state.Bundle.Secrets()), generate.WithVersionContract(machineryconfig.TalosVersion1_13),
		generate.WithInstallDisk("/dev/sda"), generate.WithEndpointList([]string{subnet + ".1"}))
	if err != nil {
		return err
	}

	cfg, err := in.Config(configmachine.TypeControlPlane)
	if err != nil {
		return err
	}

	data, err := cfg.Bytes()
	if err != nil {
		return err
	}

	for _, n := range e.nodes {
		e.state.Runtime.Machines[n.Name()] = clusterstate.Machine{Address: n.Address()}

		if err := wait(ctx, n.Name()+" takes its config", func() error { return configure(ctx, n, data) }); err != nil {
			return err
		}
	}

	if err := wait(ctx, "etcd is bootstrapped", func() error {
		return e.ask(ctx, 0, func(c *talos.Node) error {
			if service, err := c.EtcdService(ctx); err != nil || service != talos.EtcdPreparing {
				return errors.Join(errors.New("etcd does not wait"), err)
			}

			return c.Bootstrap(ctx)
		})
	}); err != nil {
		return err
	}

	return e.whole(ctx)
}

// whole waits until all nodes are voting members.
func (e *estate) whole(ctx context.Context) error {
	return wait(ctx, "all members vote", func() error {
		for i := range e.nodes {
			if err := e.ask(ctx, i, func(c *talos.Node) error {
				st, err := c.EtcdStatus(ctx)
				if err != nil || st.Learner || st.Leader == 0 {
					return fmt.Errorf("%+v: %w", st, err)
				}

				members, err := c.EtcdMembers(ctx)
				if err != nil || len(members) != len(e.nodes) {
					return fmt.Errorf("%d members: %w", len(members), err)
				}

				return nil
			}); err != nil {
				return err
			}
		}

		return nil
	})
}

// ask asks a node.
func (e *estate) ask(ctx context.Context, i int, do func(*talos.Node) error) error {
	pool := talos.NewPool()
	defer pool.Close()

	probe, err := pool.Probe(ctx, e.nodes[i].Address(), &e.creds)
	if err != nil || probe.State != talos.StateMember {
		return fmt.Errorf("state %v: %w", probe.State, err)
	}

	c, err := pool.Node(ctx, talos.NodeRef{Key: "test", Address: e.nodes[i].Address(), Credentials: e.creds})
	if err != nil {
		return err
	}

	return do(c)
}

// leader is the index of the node that leads.
func (e *estate) leader(t *testing.T) int {
	t.Helper()

	for i := range e.nodes {
		leads := false

		if err := e.ask(t.Context(), i, func(c *talos.Node) error {
			st, err := c.EtcdStatus(t.Context())
			leads = st.Leader == st.MemberID && st.Leader != 0

			return err
		}); err == nil && leads {
			return i
		}
	}

	t.Fatal("nobody leads")

	return 0
}

func configure(ctx context.Context, n *node.Node, config []byte) error {
	if n.Status().Installed {
		return nil
	}

	pool := talos.NewPool()
	defer pool.Close()

	m, err := pool.Maintenance(ctx, n.Address())
	if err != nil {
		return err
	}
	defer m.Close()

	if _, err := m.Apply(ctx, config); err != nil && failure.Reason(err) != v1alpha1.ReasonAuthFailed {
		return err
	}

	return errors.New("it is being installed")
}

// fill puts a marker and much that does not compress into etcd.
func (e *estate) fill(ctx context.Context) error {
	c, err := e.etcd(0)
	if err != nil {
		return err
	}
	defer c.Close()

	if _, err := c.Put(ctx, marker, "it is there"); err != nil {
		return err
	}

	value := make([]byte, 1<<20)
	for i := range 20 {
		if _, err := rand.Read(value); err != nil {
			return err
		}

		if _, err := c.Put(ctx, fmt.Sprintf("/registry/noise/%d", i), string(value)); err != nil {
			return err
		}

		e.database += len(value)
	}

	return nil
}

// etcd opens the client API of a member.
func (e *estate) etcd(i int) (*clientv3.Client, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(e.state.Bundle.Secrets().Certs.Etcd)
	if err != nil {
		return nil, err
	}

	pair, err := x509.NewKeyPair(ca, x509.NotAfter(time.Now().Add(time.Hour)),
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
		Endpoints: []string{"https://" + e.nodes[i].Address() + ":2379"}, TLS: cfg, DialTimeout: 5 * time.Second,
	})
}

func wait(ctx context.Context, what string, check func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not in time: %w", what, err)
		case <-tick.C:
		}
	}
}

func (e *estate) controlPlane(ns string) *v1alpha1.TalosControlPlane {
	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: e.state.BundleConfig.Endpoint,
		},
	}

	for _, n := range e.nodes {
		cp.Spec.Machines = append(cp.Spec.Machines, v1alpha1.MachineEntry{Name: n.Name(), Address: n.Address()})
	}

	return cp
}
