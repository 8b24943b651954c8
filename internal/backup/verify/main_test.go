package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/backup/verify/verifytest"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

func TestMain(m *testing.M) {
	verifytest.Child()
	eatMemory()
	os.Exit(m.Run())
}

var at = time.Date(2026, 11, 21, 6, 50, 7, 0, time.UTC)

// plainText is in Secrets and must never appear anywhere.
const plainText = "the-plain-text-of-a-secret"

// real is a snapshot of a real etcd that looks like that of a cluster, taken once.
var real = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "verify-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	ca, err := secrets.NewEtcdCA(wait.Now(), config.TalosVersionCurrent)
	if err != nil {
		return nil, err
	}

	subnet, release, err := loopback.ReserveSubnet()
	if err != nil {
		return nil, err
	}
	defer release()

	ctx := context.Background()

	m, err := etcd.Bootstrap(ctx, etcd.Options{
		Binary: asset("etcd"), Utl: asset("etcdutl"), Dir: filepath.Join(dir, "etcd"),
		Name: "n1", Address: subnet + ".1", CA: x509.NewCertificateAndKeyFromCertificateAuthority(ca),
	})
	if err != nil {
		return nil, err
	}
	defer m.Kill()

	if err := fill(ctx, m.Client()); err != nil {
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

// fill writes what a Kubernetes would: objects that change, that go away and come back, Secrets that get encrypted.
func fill(ctx context.Context, c *clientv3.Client) error {
	put := func(key, value string, opts ...clientv3.OpOption) error {
		_, err := c.Put(ctx, "/registry/"+key, value, opts...)

		return err
	}

	values := [][2]string{
		{"secrets/default/old", "k8s\x00" + plainText},
		{"secrets/default/plain", "k8s\x00" + plainText},
		{"secrets/kube-system/gone", "k8s:enc:secretbox:v1:key2:gone"},
		{"minions/worker-1", "node"},
		{"apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", "crd"},
		{"example.com/widgets/default/w", "{}"},
		{"services/specs/default/kubernetes", "service"},
		{"services/endpoints/default/kubernetes", "endpoints"},
		{"leases/kube-node-lease/worker-1", "lease"},
	}

	for _, name := range []string{"default", "kube-system", "demo"} {
		values = append(values, [2]string{"namespaces/" + name, "namespace " + name})
	}

	for i := range 300 {
		values = append(values, [2]string{
			fmt.Sprintf("configmaps/default/c%d", i%200), fmt.Sprintf("value %d %0200d", i, i),
		})
	}

	// Encrypted anew, as kubectl replace does after the encryption was switched on.
	for i := range 150 {
		values = append(values, [2]string{fmt.Sprintf("secrets/demo/s%d", i), fmt.Sprintf("k8s:enc:secretbox:v1:key2:%d", i)})
	}

	values = append(values, [2]string{"secrets/default/old", "k8s:enc:secretbox:v1:key2:x"})

	for _, v := range values {
		if err := put(v[0], v[1]); err != nil {
			return err
		}
	}

	for _, key := range []string{"secrets/kube-system/gone", "namespaces/demo"} {
		if _, err := c.Delete(ctx, "/registry/"+key); err != nil {
			return err
		}
	}

	if _, err := c.Put(ctx, "compact_rev_key", "1"); err != nil {
		return err
	}

	if _, err := c.Compact(ctx, 100); err != nil {
		return err
	}

	// Not kept alive: etcd takes it away while a drill goes on.
	lease, err := c.Grant(ctx, 15)
	if err != nil {
		return err
	}

	return put("masterleases/10.0.0.1", "lease", clientv3.WithLease(lease.ID))
}

func asset(name string) string {
	dir, err := process.Assets()
	if err != nil {
		panic(err)
	}

	return filepath.Join(dir, name)
}

func realSnapshot(t testing.TB) []byte {
	t.Helper()

	b, err := real()
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Clone(b)
}

// status is what etcdutl says of a snapshot.
func status(t *testing.T, snapshot []byte) verify.DatabaseReport {
	t.Helper()

	file := filepath.Join(t.TempDir(), "snap")
	if err := os.WriteFile(file, snapshot, 0o600); err != nil {
		t.Fatal(err)
	}

	out, err := exec.CommandContext(t.Context(), asset("etcdutl"), "snapshot", "status", file, "-w", "json").Output()
	if err != nil {
		t.Fatal(err)
	}

	var s struct {
		Hash      uint32 `json:"hash"`
		Revision  int64  `json:"revision"`
		TotalKey  int64  `json:"totalKey"`
		TotalSize int64  `json:"totalSize"`
		Version   string `json:"version"`
	}

	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatal(err)
	}

	return verify.DatabaseReport{
		Hash: fmt.Sprintf("%08x", s.Hash), Revision: s.Revision, TotalKeys: s.TotalKey, TotalSize: s.TotalSize,
		StorageVersion: s.Version,
	}
}

// trailed puts the checksum at the end of a database.
func trailed(database []byte) []byte {
	sum := sha256.Sum256(database)

	return append(bytes.Clone(database), sum[:]...)
}

func database(snapshot []byte) []byte { return snapshot[:len(snapshot)-sha256.Size] }

func directory(t testing.TB) store.Store {
	t.Helper()

	s, err := store.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	return id
}

var bundle = sync.OnceValues(func() (*clusterstate.Bundle, error) {
	return pki.New(at)
})

func stateOf(t testing.TB) *clusterstate.State {
	t.Helper()

	b, err := bundle()
	if err != nil {
		t.Fatal(err)
	}

	return clusterstate.NewState(b, clusterstate.BundleConfig{
		ClusterName: "c1", Endpoint: "https://10.0.0.1:6443", TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2",
		Contract: "v1.13",
	}, "uid")
}

// request is a backup of that snapshot.
func request(t testing.TB, snapshot []byte, recipients ...string) backup.Request {
	t.Helper()

	state := stateOf(t)

	data, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}

	return backup.Request{
		ID: backup.NewID(at, "uid/1"),
		Cluster: backup.Cluster{
			Name: "c1", Namespace: "ns", ID: state.Bundle.ClusterID(), CAFingerprint: state.Bundle.CAFingerprint(),
		},
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.4",
		Source: backup.Member{Node: "n1", ID: "abc", Version: "3.6.12", Revision: 100},
		Snapshot: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(snapshot)), nil
		},
		State:      &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c1-state", Namespace: "ns"}, Data: data},
		Recipients: recipients, AllowUnencrypted: len(recipients) == 0, Tool: "v1.0.0", Now: func() time.Time { return at },
	}
}

func take(t testing.TB, s store.Store, r backup.Request) backup.Set {
	t.Helper()

	if _, err := backup.Take(t.Context(), s, r); err != nil {
		t.Fatal(err)
	}

	return only(t, s)
}

func only(t testing.TB, s store.Store) backup.Set {
	t.Helper()

	sets, err := backup.List(t.Context(), s, "")
	if err != nil || len(sets) != 1 {
		t.Fatalf("listed %v, %v", sets, err)
	}

	return sets[0]
}

// foreign is a file of another tool.
func foreign(t testing.TB, key string, content []byte) (store.Store, backup.Set) {
	t.Helper()

	s := directory(t)
	write(t, s, key, content)

	return s, only(t, s)
}

// write replaces an object behind our back.
func write(t testing.TB, s store.Store, key string, content []byte) {
	t.Helper()

	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Put(t.Context(), key, func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, s store.Store, key string) []byte {
	t.Helper()

	r, _, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

func compressed(t testing.TB, content []byte) []byte {
	t.Helper()

	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()

	return z.EncodeAll(content, nil)
}

func encrypted(t testing.TB, content []byte, to age.Recipient) []byte {
	t.Helper()

	var b bytes.Buffer

	w, err := age.Encrypt(&b, to)
	if err != nil {
		t.Fatal(err)
	}

	w.Write(content)

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

// isEmpty fails when something plain was left.
func isEmpty(t testing.TB, dir string) {
	t.Helper()

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in the scratch folder: %v, %v", entries, err)
	}
}
