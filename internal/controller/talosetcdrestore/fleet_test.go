package talosetcdrestore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

const (
	cluster    = harness.Cluster
	talosV     = harness.TalosVersion
	kubernetes = harness.KubernetesVersion
)

// fleet are the nodes of one control plane.
type fleet struct {
	*harness.Fleet

	apis []*kubeAPI
	// mutations that the nodes had received when all was made.
	mutations int
}

var (
	shared   []*fleet
	sharedMu sync.Mutex

	// modelled has one node with a modelled etcd, which has quorum. No test may touch it: see untouched.
	modelled = sync.OnceValues(func() (*fleet, error) {
		on, err := harness.Reserve(api.Dir)
		if err != nil {
			return nil, err
		}

		e := &fleet{Fleet: on}

		sharedMu.Lock()
		shared = append(shared, e)
		sharedMu.Unlock()

		if err := e.boot(context.Background(), 1); err != nil {
			return nil, err
		}

		return e, e.found(context.Background())
	})
)

func must(t *testing.T, open func() (*fleet, error)) *fleet {
	t.Helper()

	e, err := open()
	if err != nil {
		t.Fatal(err)
	}

	return e
}

func closeAll() {
	sharedMu.Lock()
	defer sharedMu.Unlock()

	for _, e := range shared {
		e.Close()
	}
}

// fresh are machines of one test in maintenance mode, and a state that no object names yet.
func fresh(t *testing.T, size int, change ...func(*node.Options)) *fleet {
	t.Helper()

	e := &fleet{Fleet: harness.NewFleet(t)}
	t.Cleanup(e.stopKubernetes)

	if err := e.boot(t.Context(), size, change...); err != nil {
		t.Fatal(err)
	}

	return e
}

// own are the machines of one test, whose etcd is real and runs.
func own(t *testing.T, size int) *fleet {
	t.Helper()

	e := fresh(t, size, harness.RealEtcd)
	if err := e.found(t.Context()); err != nil {
		t.Fatal(err)
	}

	return e
}

func (e *fleet) boot(ctx context.Context, size int, change ...func(*node.Options)) (err error) {
	if e.State, err = harness.NewState(cluster, e.Endpoint()); err != nil {
		return err
	}

	for i := range size {
		if _, err := e.Boot(ctx, i, change...); err != nil {
			return err
		}
	}

	return nil
}

func (e *fleet) found(ctx context.Context) error {
	err := e.Found(ctx)
	e.mutations = e.Mutations()

	return err
}

// put writes keys as an API server would.
func put(ctx context.Context, st *clusterstate.State, address string, keys ...string) error {
	c, err := harness.EtcdClient(st, address)
	if err != nil {
		return err
	}
	defer c.Close()

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

// snapshot is one that a real etcd took: its revision is above 4.
var snapshot = sync.OnceValues(func() ([]byte, error) {
	assets, err := process.Assets()
	if err != nil {
		return nil, err
	}

	subnet, release, err := loopback.ReserveSubnet()
	if err != nil {
		return nil, err
	}
	defer release()

	ctx, address := context.Background(), subnet+".1"

	st, err := harness.NewState("canned", "https://"+address+":6443")
	if err != nil {
		return nil, err
	}

	m, err := etcd.Bootstrap(ctx, etcd.Options{
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"), Dir: filepath.Join(api.Dir, "canned"),
		Name: "n", Address: address, CA: st.Bundle.Secrets().Certs.Etcd,
	})
	if err != nil {
		return nil, err
	}
	defer m.Kill()

	if err := wait.Until(ctx, "etcd serves", m.Health); err != nil {
		return nil, err
	}

	if err := put(ctx, st, address, content...); err != nil {
		return nil, err
	}

	// etcd notes the version of its storage a while after it has begun to serve.
	if err := wait.Until(ctx, "etcd notes the version of its storage", func(ctx context.Context) error {
		s, err := m.Status(ctx)
		// Until then it takes its database for one of 3.5, which had none.
		if err == nil && (s.StorageVersion == "" || strings.HasPrefix(s.StorageVersion, "3.5.")) {
			err = errors.New("there is none")
		}

		return err
	}); err != nil {
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

// request is a backup of the fleet's cluster, encrypted for the identity of the test, made from the canned snapshot.
func (e *env) request() backup.Request {
	e.Helper()

	data := e.canned()
	b := e.fleet.State.Bundle

	encoded, err := e.fleet.State.Encode()
	if err != nil {
		e.Fatal(err)
	}

	return backup.Request{
		ID: backup.NewID(e.Clock.Now().Add(-time.Hour), e.Namespace),
		Cluster: backup.Cluster{
			Name: cluster, Namespace: e.Namespace, ID: b.ClusterID(), CAFingerprint: b.CAFingerprint(),
		},
		TalosVersion: talosV, KubernetesVersion: kubernetes, Source: backup.Member{Node: "cp-0"},
		State: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: clusterstate.SecretName(cluster)}, Data: encoded,
		},
		Recipients: []string{e.id.Recipient().String()}, Sign: e.signer(),
		Snapshot: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(data)), nil
		},
	}
}

// signer is the key of the fleet's cluster.
func (e *env) signer() *signature.Key {
	e.Helper()

	key, err := e.fleet.State.Bundle.BackupKey()
	if err != nil {
		e.Fatal(err)
	}

	return key
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

		err = e.fleet.Ask(ctx, 0, func(n *talos.Node) error {
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
