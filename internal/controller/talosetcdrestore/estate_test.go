package talosetcdrestore_test

import (
	"bytes"
	"context"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/pki"
)

const (
	cluster    = "c"
	talosV     = "v1.13.9"
	kubernetes = "v1.36.2"
)

// estateDir is where the nodes live.
var estateDir string

// estate are the nodes of one control plane.
type estate struct {
	subnet string
	state  *clusterstate.State
	nodes  []*node.Node
	kinds  []configmachine.Type
	apis   []*kubeAPI
	// mutations that the nodes had seen when all was made.
	mutations int
}

var (
	estates   []*estate
	estatesMu sync.Mutex
	subnets   atomic.Int32

	// modelled has one node with a modelled etcd, which has quorum. Nobody may touch it: see untouched.
	modelled = sync.OnceValues(func() (*estate, error) { return found(1, false) })
)

func must(t *testing.T, open func() (*estate, error)) *estate {
	t.Helper()

	e, err := open()
	if err != nil {
		t.Fatal(err)
	}

	return e
}

// own is an estate of one test: with real members of etcd, or modelled ones.
func own(t *testing.T, size int, real bool) *estate {
	t.Helper()

	return must(t, func() (*estate, error) { return found(size, real) })
}

func closeAll() {
	estatesMu.Lock()
	defer estatesMu.Unlock()

	for _, e := range estates {
		e.close()
	}
}

func (e *estate) close() {
	for _, a := range e.apis {
		a.close()
	}

	for _, n := range e.nodes {
		n.Kill()
	}
}

// found makes a control plane whose etcd runs.
func found(size int, real bool) (*estate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	e, err := fresh(ctx, size, real)
	if err != nil {
		return nil, err
	}

	if err := e.run(ctx); err != nil {
		return nil, err
	}

	e.mutations = e.mutated()

	return e, nil
}

func (e *estate) mutated() int {
	all := 0
	for _, n := range e.nodes {
		all += n.Faults().MutatingCalls()
	}

	return all
}

// fresh makes machines in maintenance mode, and a state that nobody knows of yet.
func fresh(ctx context.Context, size int, real bool) (*estate, error) {
	e := &estate{subnet: fmt.Sprintf("127.49.%d", 20+subnets.Add(1))}

	estatesMu.Lock()
	estates = append(estates, e)
	estatesMu.Unlock()

	var err error
	if e.state, err = newState(cluster, e.subnet); err != nil {
		return nil, err
	}

	registry := node.NewRegistry()

	for i := range size {
		o := node.Options{
			Name: fmt.Sprintf("cp-%d", i), Address: fmt.Sprintf("%s.%d", e.subnet, i+1),
			Dir: filepath.Join(estateDir, e.subnet, fmt.Sprint(i)), Modelled: !real, Cluster: registry,
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

		e.nodes, e.kinds = append(e.nodes, n), append(e.kinds, configmachine.TypeControlPlane)
	}

	return e, nil
}

// etcdOnly is a folder with the programs of etcd and no API server: tests stand in for that.
var etcdOnly = sync.OnceValues(func() (string, error) {
	assets, err := process.Assets()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(estateDir, "assets")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}

	for _, name := range []string{"etcd", "etcdutl"} {
		if err := os.Symlink(filepath.Join(assets, name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}

	return dir, nil
})

func newState(name, subnet string) (*clusterstate.State, error) {
	bundle, err := pki.New(time.Now())
	if err != nil {
		return nil, err
	}

	return clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: name, Endpoint: "https://" + subnet + ".1:6443", TalosVersion: talosV, KubernetesVersion: kubernetes,
		Contract: "v1.13",
	}, "uid"), nil
}

// run configures the nodes, bootstraps the first one, and waits until all are voting members.
func (e *estate) run(ctx context.Context) error {
	for i := range e.nodes {
		if err := wait(ctx, "the nodes take their config", func() error { return e.configure(ctx, i, e.state) }); err != nil {
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

// configure gives a node in maintenance mode its config. It is done when that is installed.
func (e *estate) configure(ctx context.Context, i int, st *clusterstate.State) error {
	n := e.nodes[i]
	if n.Status().Installed {
		return nil
	}

	in, err := generate.NewInput(st.BundleConfig.ClusterName, st.BundleConfig.Endpoint, strings.TrimPrefix(kubernetes, "v"),
		generate.WithSecretsBundle(st.Bundle.Secrets()), generate.WithVersionContract(machineryconfig.TalosVersion1_13),
		generate.WithInstallDisk("/dev/sda"), generate.WithEndpointList([]string{e.subnet + ".1"}))
	if err != nil {
		return err
	}

	cfg, err := in.Config(e.kinds[i])
	if err != nil {
		return err
	}

	data, err := cfg.Bytes()
	if err != nil {
		return err
	}

	pool := talos.NewPool()
	defer pool.Close()

	m, err := pool.Maintenance(ctx, n.Address())
	if err != nil {
		return err
	}
	defer m.Close()

	if _, err := m.Apply(ctx, data); err != nil && failure.Reason(err) != v1alpha1.ReasonAuthFailed {
		return err
	}

	return errors.New("it is being installed")
}

// whole waits until all nodes are voting members of one etcd.
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

func credentials(st *clusterstate.State) (talos.Credentials, error) {
	access, err := (&statestore.Store{Clock: clock.RealClock{}}).Access(types.NamespacedName{Name: "x"}, st.Bundle)
	if err != nil {
		return talos.Credentials{}, err
	}

	return talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}, nil
}

// ask asks a node.
func (e *estate) ask(ctx context.Context, i int, do func(*talos.Node) error) error {
	creds, err := credentials(e.state)
	if err != nil {
		return err
	}

	pool := talos.NewPool()
	defer pool.Close()

	probe, err := pool.Probe(ctx, e.nodes[i].Address(), &creds)
	if err != nil || probe.State != talos.StateMember {
		return fmt.Errorf("state %v: %w", probe.State, err)
	}

	c, err := pool.Node(ctx, talos.NodeRef{Key: "test", Address: e.nodes[i].Address(), Credentials: creds})
	if err != nil {
		return err
	}

	return do(c)
}

// etcdClient opens the client API of the member at an address.
func etcdClient(st *clusterstate.State, address string) (*clientv3.Client, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(st.Bundle.Secrets().Certs.Etcd)
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
		Endpoints: []string{"https://" + address + ":2379"}, TLS: cfg, DialTimeout: 5 * time.Second,
		// A member that comes back is found at once.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: time.Second,
		})},
	})
}

// put writes keys as an API server would.
func put(ctx context.Context, st *clusterstate.State, address string, keys ...string) error {
	c, err := etcdClient(st, address)
	if err != nil {
		return err
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	for _, key := range keys {
		if _, err := c.Put(ctx, key, "{}"); err != nil {
			return err
		}
	}

	return nil
}

var content = []string{
	"/registry/namespaces/default", "/registry/namespaces/kube-system", "/registry/secrets/default/one",
	"/registry/configmaps/default/marker",
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

// calls of a method that the nodes have seen.
func (e *estate) calls(method string) int {
	all := 0
	for _, n := range e.nodes {
		all += n.Faults().Calls(method)
	}

	return all
}

// snapshot is one that a real etcd took: its revision is above 4.
var snapshot = sync.OnceValues(func() ([]byte, error) {
	assets, err := process.Assets()
	if err != nil {
		return nil, err
	}

	st, err := newState("canned", "127.49.1")
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	m, err := etcd.Bootstrap(ctx, etcd.Options{
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"), Dir: filepath.Join(estateDir, "canned"),
		Name: "n", Address: "127.49.1.1", CA: st.Bundle.Secrets().Certs.Etcd,
	})
	if err != nil {
		return nil, err
	}
	defer m.Kill()

	if err := wait(ctx, "etcd serves", func() error { return m.Health(ctx) }); err != nil {
		return nil, err
	}

	if err := put(ctx, st, "127.49.1.1", content...); err != nil {
		return nil, err
	}

	r, err := m.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	return io.ReadAll(r)
})

// canned is a snapshot as a stream.
func (e *env) canned() []byte {
	e.Helper()

	b, err := snapshot()
	if err != nil {
		e.Fatal(err)
	}

	return b
}

// request is a backup of the estate's cluster, encrypted for the identity of the test, made from the canned snapshot.
func (e *env) request() backup.Request {
	e.Helper()

	data := e.canned()
	b := e.estate.state.Bundle

	encoded, err := e.estate.state.Encode()
	if err != nil {
		e.Fatal(err)
	}

	return backup.Request{
		ID: backup.NewID(time.Now().Add(-time.Hour), e.ns),
		Cluster: backup.Cluster{
			Name: cluster, Namespace: e.ns, ID: b.ClusterID(), CAFingerprint: b.CAFingerprint(),
		},
		TalosVersion: talosV, KubernetesVersion: kubernetes, Source: backup.Member{Node: "cp-0"},
		State: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: clusterstate.SecretName(cluster)}, Data: encoded,
		},
		Recipients: []string{e.id.Recipient().String()},
		Snapshot: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(data)), nil
		},
	}
}

// backUp takes a backup.
func (e *env) backUp(edit ...func(*backup.Request)) *backup.Manifest {
	e.Helper()

	r := e.request()
	for _, f := range edit {
		f(&r)
	}

	m, err := backup.Take(e.Context(), e.store, r)
	if err != nil {
		e.Fatal(err)
	}

	return m
}

// real takes the snapshot from the first node.
func (e *env) real(r *backup.Request) {
	r.Snapshot = func(ctx context.Context) (out io.ReadCloser, err error) {
		var all bytes.Buffer

		err = e.estate.ask(ctx, 0, func(n *talos.Node) error {
			s, err := n.EtcdSnapshot(ctx, nil)
			if err != nil {
				return err
			}
			defer s.Close()

			_, err = all.ReadFrom(s)

			return err
		})

		return io.NopCloser(&all), err
	}
}
