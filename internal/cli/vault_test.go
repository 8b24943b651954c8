package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

const (
	bucket = "backups"
	// plainText is in a Secret of the database, and must never appear.
	plainText = "the-plain-text-of-a-secret"
)

func asset(name string) string {
	dir, err := process.Assets()
	if err != nil {
		panic(err)
	}

	return filepath.Join(dir, name)
}

// snapshot is one of a real etcd that looks like that of a cluster, taken once.
var snapshot = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "cli-test-")
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

	for _, key := range []string{
		"namespaces/default", "namespaces/shop", "minions/cp-1", "secrets/shop/card", "configmaps/shop/one",
		"configmaps/shop/two",
	} {
		value := "k8s\x00" + key
		if strings.HasPrefix(key, "secrets/") {
			value = "k8s\x00" + plainText
		}

		if _, err := m.Client().Put(ctx, "/registry/"+key, value); err != nil {
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

	b, err := snapshot()
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Clone(b)
}

// bundle is the PKI of the clusters in the tests; making one takes a while.
var bundle = sync.OnceValues(func() (*clusterstate.Bundle, error) {
	return pki.New(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
})

func stateSecret(t *testing.T, cluster string) (*corev1.Secret, *clusterstate.State) {
	t.Helper()

	b, err := bundle()
	if err != nil {
		t.Fatal(err)
	}

	state := clusterstate.NewState(b, clusterstate.BundleConfig{
		ClusterName: cluster, Endpoint: "https://10.0.0.1:6443", TalosVersion: talosV, KubernetesVersion: kubernetes,
		Contract: "v1.13",
	}, "uid")

	data, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}

	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: cluster + "-state", Namespace: "ns"}, Data: data}, state
}

// keyFile is an age identity, and the file that holds it.
func keyFile(t *testing.T) (*age.X25519Identity, string) {
	t.Helper()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "key.txt")

	content := fmt.Sprintf("# created: 2026-11-22\n# public key: %s\n%s\n", id.Recipient(), id)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return id, path
}

// begun is what the times of backups are counted from: at another second they would be others.
var begun = wait.Now()

// took is when the backups of the tests were taken, an hour apart.
func took(i int) time.Time {
	return begun.Add(time.Duration(i-10) * time.Hour).UTC().Truncate(time.Second)
}

// signer is the key of the clusters in the tests.
func signer(t *testing.T) *signature.Key {
	t.Helper()

	b, err := bundle()
	if err != nil {
		t.Fatal(err)
	}

	key, err := b.BackupKey()
	if err != nil {
		t.Fatal(err)
	}

	return key
}

// take takes the i-th backup of a cluster.
func take(t *testing.T, s store.Store, cluster string, i int, recipients ...string) *backup.Manifest {
	t.Helper()

	return takeSigned(t, s, cluster, i, signer(t), recipients...)
}

// takeSigned signs with any key, or with none.
func takeSigned(
	t *testing.T, s store.Store, cluster string, i int, key *signature.Key, recipients ...string,
) *backup.Manifest {
	t.Helper()

	content, at := realSnapshot(t), took(i)
	secret, state := stateSecret(t, cluster)

	m, err := backup.Take(t.Context(), s, backup.Request{
		ID: backup.NewID(at, cluster),
		Cluster: backup.Cluster{
			Name: cluster, Namespace: "ns", ID: state.Bundle.ClusterID(), CAFingerprint: state.Bundle.CAFingerprint(),
		},
		TalosVersion: talosV, KubernetesVersion: kubernetes, Source: backup.Member{Node: "cp-1", ID: "abc", Version: "3.6.12"},
		Snapshot: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		State:    secret, Recipients: recipients, AllowUnencrypted: len(recipients) == 0, Tool: "v1.0.0", Sign: key,
		Now: func() time.Time { return at },
	})
	if err != nil {
		t.Fatal(err)
	}

	return m
}

func put(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()

	_, err := s.Put(t.Context(), key, func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// overwrite replaces an object behind our back.
func overwrite(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()

	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}

	put(t, s, key, content)
}

// folder is a store in a folder.
func folder(t *testing.T) (store.Store, string) {
	t.Helper()

	dir := t.TempDir()

	s, err := store.NewDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}

	return s, dir
}

// vault is a store in a real S3 server, and the flags that name it. Its credentials are in the environment.
type vault struct {
	store.Store

	t      *testing.T
	server *s3.Server
	// locking is the same store, and locks what it writes.
	locking store.Store
	flags   []string
}

func newVault(t *testing.T, lock bool) *vault {
	t.Helper()

	server, err := s3.Start(t.Context(), s3.Options{
		Binary: asset("versitygw"), Dir: t.TempDir(), Address: loopback.Address(t),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Kill)

	if err := server.CreateBucket(t.Context(), bucket, lock); err != nil {
		t.Fatal(err)
	}

	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, server.CA(), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)

	settings := store.S3Settings{Endpoint: server.Endpoint(), Bucket: bucket, Prefix: "deep/down", CA: server.CA()}

	s, err := store.NewS3(settings)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.Close)

	settings.Lock = store.Lock{Mode: store.LockGovernance, For: time.Hour}

	locking, err := store.NewS3(settings)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(locking.Close)

	return &vault{Store: s, t: t, server: server, locking: locking, flags: []string{
		"--storage", "s3://" + bucket + "/deep/down", "--s3-endpoint", server.Endpoint(), "--s3-ca-file", ca,
	}}
}

// upload puts an object of a name that we would not use.
func (v *vault) upload(name, content string) {
	v.t.Helper()

	c, err := v.server.Client()
	if err != nil {
		v.t.Fatal(err)
	}

	if _, err := c.PutObject(v.t.Context(), bucket, "deep/down/"+name, strings.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

// backupCommand runs a command about backups.
func (s *shell) backupCommand(flags []string, args ...string) (out, errOut, failed string) {
	s.t.Helper()

	return s.run(append(append([]string{"backup"}, args...), flags...)...)
}

func readObject(t *testing.T, s store.Store, key string) []byte {
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
