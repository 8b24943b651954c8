package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/minio/minio-go/v7"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// real is a snapshot of a real etcd, taken once.
var real = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "backup-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	ca, err := secrets.NewEtcdCA(wait.Now(), config.TalosVersionCurrent)
	if err != nil {
		return nil, err
	}

	assets, err := process.Assets()
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
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"), Dir: filepath.Join(dir, "etcd"),
		Name: "n1", Address: subnet + ".1", CA: x509.NewCertificateAndKeyFromCertificateAuthority(ca),
	})
	if err != nil {
		return nil, err
	}
	defer m.Kill()

	for i := range 300 {
		if _, err := m.Client().Put(ctx, fmt.Sprintf("/registry/configmaps/default/c%d", i%200), fmt.Sprintf("value %d", i)); err != nil {
			return nil, err
		}
	}

	r, err := m.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	return io.ReadAll(r)
})

func realSnapshot(t *testing.T) []byte {
	t.Helper()

	b, err := real()
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// madeSnapshot has the form of a snapshot, and any size.
func madeSnapshot(sectors int) []byte {
	b := bytes.Repeat([]byte("0123456789abcdef"), sectors*512/16)
	for i := 0; i < len(b); i += 512 {
		copy(b[i:], fmt.Sprintf("%016d", i))
	}

	sum := sha256.Sum256(b)

	return append(b, sum[:]...)
}

func opener(content []byte) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
}

var at = time.Date(2026, 11, 21, 6, 50, 7, 0, time.UTC)

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	return id
}

func request(snapshot []byte, recipients ...string) backup.Request {
	return backup.Request{
		ID:           backup.NewID(at, "uid/1"),
		Cluster:      backup.Cluster{Name: "c1", Namespace: "ns", ID: "cluster-id", CAFingerprint: "aa:bb"},
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.4",
		Source:   backup.Member{Node: "n1", ID: "abc", Version: "3.6.12", Revision: 301},
		Snapshot: opener(snapshot),
		State: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "c1-state", Namespace: "ns", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
			Data:       map[string][]byte{"secretBundle": []byte("the private key")},
		},
		Recipients: recipients, Tool: "v1.0.0", Stall: patience,
		Now: func() time.Time { return at },
	}
}

const bucket = "backups"

// goldenManifest was signed once.
const goldenManifest = `{
  "format": "talos-operator.io/etcd-backup",
  "version": 2,
  "id": "20261121T065007Z-df59627b",
  "cluster": {
    "name": "c1",
    "namespace": "ns",
    "id": "5754202b7ee5f35b31df48f3244f532a",
    "caFingerprint": "aa:bb"
  },
  "talosVersion": "v1.13.9",
  "kubernetesVersion": "v1.36.4",
  "etcd": {
    "node": "n1",
    "memberID": "abc",
    "version": "3.6.12",
    "revision": 301
  },
  "snapshot": {
    "name": "20261121T065007Z-df59627b.snap.zst",
    "size": 85,
    "sha256": "e9b3d8031af355aa45cfd0b8c5661cc9912b2af3419c84251beb52b5c4e8d208",
    "plainSize": 1056,
    "plainSHA256": "593cc73ac0da4ceabedb337c08d6e78b8aaca0d005b727700d134fa386607a60",
    "databaseSHA256": "d499feb290bad6abe6b890e9a049d855c6b007f182885e98aeeaad52f783b7bf",
    "compression": "zstd"
  },
  "state": {
    "name": "20261121T065007Z-df59627b.state.json",
    "size": 210,
    "sha256": "83b5953af2db0dd77567f045280ea3fa73726290b6b40fb941f28831d3dc6391",
    "plainSize": 210,
    "plainSHA256": "83b5953af2db0dd77567f045280ea3fa73726290b6b40fb941f28831d3dc6391",
    "compression": "none"
  },
  "tool": "v1.0.0",
  "startedAt": "2026-11-21T06:50:07Z",
  "finishedAt": "2026-11-21T06:50:07Z",
  "signature": {
    "type": "ed25519",
    "key": "ed25519:xtZLptwwL8kilH8QypHnoExP/trL9+FiMvoMdEh4usI=",
    "value": "ysBZ4L14DE06CKiCSWYgndhhvH8GGVtsuIu/wAiAQq/b0mHrElMLAsegH7w3AGSDnD9w+i43JXu5RVPncdxRAA=="
  }
}
`

// patience is how long streams may stall where that is not what a test is about.
const patience = 10 * time.Minute

// bucketStore is a store in a real S3 server, and a client of that for what no store shows.
func bucketStore(t *testing.T) (store.Store, *s3.Server) {
	t.Helper()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	server, err := s3.Start(t.Context(), s3.Options{
		Binary: filepath.Join(assets, "versitygw"), Dir: t.TempDir(), Address: loopback.Address(t),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Kill)

	if err := server.CreateBucket(t.Context(), bucket, false); err != nil {
		t.Fatal(err)
	}

	return s3Store(t, server, server.Endpoint()), server
}

func s3Store(t *testing.T, server *s3.Server, endpoint string) store.Store {
	t.Helper()

	s, err := store.NewS3(store.S3Settings{
		Endpoint: endpoint, Bucket: bucket, CA: server.CA(), Stall: patience,
		Credentials: func(context.Context) (store.Credentials, error) {
			return store.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.Close)

	return s
}

func directory(t testing.TB) store.Store {
	t.Helper()

	s, err := store.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// inBucket lists objects and unfinished uploads.
func inBucket(t *testing.T, server *s3.Server) []string {
	t.Helper()

	c, err := server.Client()
	if err != nil {
		t.Fatal(err)
	}

	var found []string

	for o := range c.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		found = append(found, o.Key)
	}

	for u := range c.ListIncompleteUploads(t.Context(), bucket, "", true) {
		found = append(found, "upload of "+u.Key)
	}

	return found
}

func get(t *testing.T, s store.Store, key string) []byte {
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

// overwrite replaces an object behind our back.
func overwrite(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()

	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}

	write(t, s, key, content)
}

// write stores an object behind our back.
func write(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()

	if _, err := s.Put(t.Context(), key, func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	}); err != nil {
		t.Fatal(err)
	}
}
