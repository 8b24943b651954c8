package talosetcdbackup_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/minio/minio-go/v7"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/verify/verifytest"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackup"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/plane"
)

// api is the API server of all tests; each has a namespace and a bucket of its own.
var api *plane.Plane

func TestMain(m *testing.M) {
	verifytest.Child()
	plane.Main(m, &api, closeAll)
}

// server is the S3 server of all tests.
var server = sync.OnceValues(func() (*s3.Server, error) {
	assets, err := process.Assets()
	if err != nil {
		return nil, err
	}

	// The reservation lasts as long as the process.
	subnet, _, err := loopback.ReserveSubnet()
	if err != nil {
		return nil, err
	}

	return s3.Start(context.Background(), s3.Options{
		Binary: filepath.Join(assets, "versitygw"), Dir: filepath.Join(api.Dir, "s3"), Address: subnet + ".1",
	})
})

// env is one replica of the operator, called by hand, under the operator's own roles, that works on a fleet.
type env struct {
	*harness.Env

	fleet  *fleet
	bucket string
	s3     *s3.Server
	proxy  *s3.Proxy
	r      *talosetcdbackup.Reconciler
	runner *talosetcdbackup.Runner
	failed sync.Map
	id     *age.X25519Identity
}

// newEnv makes a control plane whose machines are those of the fleet, and a bucket behind a proxy that makes trouble.
func newEnv(t *testing.T, on *fleet) *env {
	t.Helper()

	s, err := server()
	if err != nil {
		t.Fatal(err)
	}

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	e := &env{Env: harness.New(t, api), fleet: on, s3: s, id: id}
	e.bucket = "backups-" + e.Namespace

	if e.proxy, err = s3.NewProxy(s, loopback.Address(t)); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(e.proxy.Close)

	if err := s.CreateBucket(t.Context(), e.bucket, false); err != nil {
		t.Fatal(err)
	}

	e.List(on.Fleet)
	e.CreateState(cluster, on.State)
	e.CreateSecret("s3", map[string]string{
		storage.AccessKeyID: s.AccessKey, storage.SecretAccessKey: s.SecretKey, "ca.crt": string(s.CA()),
	})
	e.CreateSecret("age", map[string]string{"identity": id.String(), "recipients": id.Recipient().String()})
	e.restart()

	return e
}

// restart is a crash of the operator: nothing that it kept in memory is left.
func (e *env) restart() {
	e.Helper()

	if e.runner != nil {
		e.runner.Stop()
	}

	e.Restart()
	e.runner = talosetcdbackup.NewRunner(context.Background(), 4)
	e.Cleanup(e.runner.Stop)

	exe, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}

	e.r = &talosetcdbackup.Reconciler{
		Client: e.Client, Reader: e.Client, States: &clusterstate.Store{Client: e.Client, Reader: e.Client, Clock: e.Clock},
		Stores: &storage.Opener{Reader: e.Client, Root: e.TempDir()}, Runner: e.runner, Recorder: e.Events,
		Clock: e.Clock, Scratch: e.TempDir(), Exe: exe, Tool: "test", Resync: time.Hour,
		Failed: func(_, _, reason string) {
			n, _ := e.failed.LoadOrStore(reason, new(atomic.Int32))
			n.(*atomic.Int32).Add(1)
		},
	}
}

// backup asks for a backup to the bucket, encrypted for the identity of the test.
func (e *env) backup(name string, change ...func(*v1alpha1.TalosEtcdBackup)) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	b := e.object(name, change...)
	e.Create(b)

	return b
}

func (e *env) object(name string, change ...func(*v1alpha1.TalosEtcdBackup)) *v1alpha1.TalosEtcdBackup {
	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdBackupSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Storage: v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
				Endpoint: e.proxy.Endpoint(), Bucket: e.bucket, Prefix: "lab",
				CAFrom:         &v1alpha1.SecretKeyReference{Name: "s3", Key: "ca.crt"},
				CredentialsRef: &v1alpha1.ObjectReference{Name: "s3"},
			}},
			RecipientsFrom: []v1alpha1.SecretKeyReference{{Name: "age", Key: "recipients"}},
			// It runs on the real clock.
			StallTimeout: &metav1.Duration{Duration: 10 * time.Minute},
		},
	}

	for _, c := range change {
		c(b)
	}

	return b
}

func verified(level v1alpha1.VerificationLevel) func(*v1alpha1.TalosEtcdBackup) {
	return func(b *v1alpha1.TalosEtcdBackup) {
		b.Spec.Verification = &v1alpha1.BackupVerification{
			Level: level, IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: "age", Key: "identity"}},
		}
	}
}

// pass reconciles once and reads the object again.
func (e *env) pass(b *v1alpha1.TalosEtcdBackup) (ctrl.Result, error) {
	e.Helper()

	return e.Pass(e.r, b)
}

// until reconciles until the check is content; time passes for the operator while it waits.
func (e *env) until(b *v1alpha1.TalosEtcdBackup, what string, check func() bool) {
	e.Helper()
	e.Until(b, what, func() { e.Clock.Sleep(time.Second) }, func() error { _, err := e.pass(b); return err }, check)
}

// done drives a backup to its end.
func (e *env) done(b *v1alpha1.TalosEtcdBackup) *v1alpha1.TalosEtcdBackup {
	e.Helper()
	e.until(b, "it is done", func() bool { return isDone(b) })

	return b
}

func isDone(b *v1alpha1.TalosEtcdBackup) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady) &&
		meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReconciling) == nil
}

// stalls drives a backup until it has failed for good.
func (e *env) stalls(b *v1alpha1.TalosEtcdBackup, reason, part string) {
	e.Helper()
	e.until(b, "it stalls", func() bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionStalled)
	})
	e.Condition(b, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, part)
}

// fails drives a backup until a condition has a reason.
func (e *env) fails(b *v1alpha1.TalosEtcdBackup, kind, reason string) {
	e.Helper()
	e.until(b, "it fails with "+reason, func() bool {
		c := meta.FindStatusCondition(b.Status.Conditions, kind)

		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
	})
}

// inBucket lists objects and unfinished uploads, without the prefix.
func (e *env) inBucket() []string {
	e.Helper()

	c, err := e.s3.Client()
	if err != nil {
		e.Fatal(err)
	}

	var found []string

	for o := range c.ListObjects(e.Context(), e.bucket, minio.ListObjectsOptions{Recursive: true}) {
		found = append(found, strings.TrimPrefix(o.Key, "lab/"))
	}

	for u := range c.ListIncompleteUploads(e.Context(), e.bucket, "", true) {
		found = append(found, "upload of "+u.Key)
	}

	return found
}

// empty fails the test if the bucket holds anything.
func (e *env) empty(when string) {
	e.Helper()

	if left := e.inBucket(); len(left) > 0 {
		e.Errorf("%s: left in the bucket: %v", when, left)
	}
}

// keepsSecrets searches for the secrets of the cluster, of the store and of the test.
func (e *env) keepsSecrets(more ...string) {
	e.Helper()
	e.KeepsSecrets(e.fleet.State.Bundle,
		append(more, e.fleet.State.Bundle.ClusterID(), "AGE-SECRET-KEY", e.s3.SecretKey, e.s3.AccessKey)...)
}

// on has the proxy make trouble for each request of a method whose path holds a text.
func on(method, part string, f s3.Fault) func(*http.Request) s3.Fault {
	return func(r *http.Request) s3.Fault {
		if r.Method == method && strings.Contains(r.URL.RequestURI(), part) {
			return f
		}

		return s3.Fault{}
	}
}
