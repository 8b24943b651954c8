package talosetcdbackup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-logr/logr"
	"github.com/minio/minio-go/v7"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/backup/verify/verifytest"
	"github.com/talos-operator/talos-operator/internal/backupstorage"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackup"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/plane"
)

var (
	// api is the API server of all tests; each has a namespace and a bucket of its own.
	api *plane.Plane
	// tests counts them, for addresses.
	tests atomic.Int32
)

func TestMain(m *testing.M) {
	verifytest.Child()

	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "talosetcdbackup-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	scheme, err := app.Scheme()
	if err != nil {
		panic(err)
	}

	p, err := management.Start(context.Background(), management.Options{Dir: dir, Address: "127.44.101.1"})
	if err != nil {
		panic(err)
	}
	defer p.Kill()

	api, estateDir = &plane.Plane{Plane: p, Scheme: scheme}, dir
	defer closeAll()

	return m.Run()
}

const limit = 60 * time.Second

// server is the S3 server of all tests.
var server = sync.OnceValues(func() (*s3.Server, error) {
	assets, err := process.Assets()
	if err != nil {
		return nil, err
	}

	return s3.Start(context.Background(), s3.Options{
		Binary: filepath.Join(assets, "versitygw"), Dir: filepath.Join(estateDir, "s3"), Address: "127.44.102.1",
	})
})

// env is one replica of the operator, called by hand, under the operator's own roles, that works on an estate.
type env struct {
	*testing.T

	estate *estate
	ns     string
	bucket string
	s3     *s3.Server
	proxy  *s3.Proxy
	admin  client.Client
	client *apiClient
	r      *talosetcdbackup.Reconciler
	runner *talosetcdbackup.Runner
	events *events.FakeRecorder
	clock  *testclock.FakePassiveClock
	log    *lockedBuffer
	failed sync.Map
	id     *age.X25519Identity
}

// newEnv makes a control plane whose machines are those of the estate, and a bucket behind a proxy that makes trouble.
func newEnv(t *testing.T, on *estate) *env {
	t.Helper()

	s, err := server()
	if err != nil {
		t.Fatal(err)
	}

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	n := tests.Add(1)
	e := &env{
		T: t, estate: on, ns: api.Namespace(t), bucket: fmt.Sprintf("backups-%d", n), s3: s, admin: api.Admin(t),
		clock: testclock.NewFakePassiveClock(time.Now()), events: events.NewFakeRecorder(10000), log: &lockedBuffer{}, id: id,
	}

	if e.proxy, err = s3.NewProxy(s, fmt.Sprintf("127.44.103.%d", n)); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(e.proxy.Close)

	if err := s.CreateBucket(t.Context(), e.bucket, false); err != nil {
		t.Fatal(err)
	}

	e.createObjects()
	e.restart()

	return e
}

func (e *env) createObjects() {
	e.Helper()

	cp := e.estate.controlPlane(e.ns)
	e.create(cp)

	yes := true
	for _, n := range e.estate.nodes {
		e.create(&v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.ns, Name: n.Name(),
				Labels: map[string]string{v1alpha1.ControlPlaneLabel: cluster, v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane)},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosControlPlane", Name: cp.Name, UID: cp.UID, Controller: &yes,
				}},
			},
			Spec: v1alpha1.TalosMachineSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, Role: v1alpha1.RoleControlPlane, Address: n.Address(),
			},
		})
	}

	e.createState()
	e.secret("s3", map[string]string{
		backupstorage.AccessKeyID: e.s3.AccessKey, backupstorage.SecretAccessKey: e.s3.SecretKey, "ca.crt": string(e.s3.CA()),
	})
	e.secret("age", map[string]string{"identity": e.id.String(), "recipients": e.id.Recipient().String()})
}

func (e *env) createState() {
	e.Helper()

	states := &statestore.Store{Client: e.admin, Reader: e.admin, Clock: e.clock}
	if _, err := states.Create(e.Context(), e.key(cluster), e.estate.state); err != nil {
		e.Fatal(err)
	}
}

func (e *env) create(o client.Object) {
	e.Helper()

	if err := e.admin.Create(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

func (e *env) secret(name string, data map[string]string) {
	e.Helper()
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, StringData: data})
}

// restart is a crash of the operator: nothing that it kept in memory is left.
func (e *env) restart() {
	e.Helper()

	if e.runner != nil {
		e.runner.Stop()
	}

	e.client = &apiClient{WithWatch: api.Manager(e.T)}
	e.runner = talosetcdbackup.NewRunner(context.Background(), 4)
	e.Cleanup(e.runner.Stop)

	exe, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}

	e.r = &talosetcdbackup.Reconciler{
		Client: e.client, Reader: e.client, States: &statestore.Store{Client: e.client, Reader: e.client, Clock: e.clock},
		Stores: &backupstorage.Opener{Reader: e.client, Root: e.TempDir()}, Runner: e.runner, Recorder: e.events,
		Clock: e.clock, Scratch: e.TempDir(), Exe: exe, Tool: "test", Resync: time.Hour,
		Failed: func(_, _, reason string) {
			n, _ := e.failed.LoadOrStore(reason, new(atomic.Int32))
			n.(*atomic.Int32).Add(1)
		},
	}
}

func (e *env) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.ns, Name: name}
}

// backup asks for a backup to the bucket, encrypted for the identity of the test.
func (e *env) backup(name string, change ...func(*v1alpha1.TalosEtcdBackup)) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	b := e.object(name, change...)
	e.create(b)

	return b
}

func (e *env) object(name string, change ...func(*v1alpha1.TalosEtcdBackup)) *v1alpha1.TalosEtcdBackup {
	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: v1alpha1.TalosEtcdBackupSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Storage: v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
				Endpoint: e.proxy.Endpoint(), Bucket: e.bucket, Prefix: "lab",
				CAFrom:         &v1alpha1.SecretKeyReference{Name: "s3", Key: "ca.crt"},
				CredentialsRef: &v1alpha1.ObjectReference{Name: "s3"},
			}},
			RecipientsFrom: []v1alpha1.SecretKeyReference{{Name: "age", Key: "recipients"}},
			StallTimeout:   &metav1.Duration{Duration: 2 * time.Second},
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

	logger, err := app.NewLogger(e.log, "debug")
	if err != nil {
		e.Fatal(err)
	}

	res, err := e.r.Reconcile(ctrl.LoggerInto(e.Context(), logger), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	if err != nil {
		logger.Error(err, "Reconciler error")
	}

	if gerr := e.admin.Get(e.Context(), client.ObjectKeyFromObject(b), b); client.IgnoreNotFound(gerr) != nil {
		e.Fatal(gerr)
	}

	return res, err
}

// until reconciles until the check is content; every pass is a second for the operator.
func (e *env) until(b *v1alpha1.TalosEtcdBackup, what string, check func() bool) {
	e.Helper()

	var last error

	e.eventually(what, func() error {
		e.sleep(time.Second)

		if _, last = e.pass(b); check() {
			return nil
		}

		return fmt.Errorf("last pass: %w; status %s", last, show(b))
	})
}

func show(b *v1alpha1.TalosEtcdBackup) string {
	raw, _ := json.Marshal(b.Status)

	return string(raw)
}

func (e *env) eventually(what string, check func() error) {
	e.Helper()

	end := time.NewTimer(limit)
	defer end.Stop()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check()
		if err == nil {
			return
		}

		select {
		case <-end.C:
			e.Fatalf("%s: not in time: %v", what, err)
		case <-tick.C:
		}
	}
}

func (e *env) sleep(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

// done drives a backup to its end.
func (e *env) done(b *v1alpha1.TalosEtcdBackup) *v1alpha1.TalosEtcdBackup {
	e.Helper()
	e.until(b, b.Name+" is done", func() bool { return isDone(b) })

	return b
}

func isDone(b *v1alpha1.TalosEtcdBackup) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady) &&
		meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReconciling) == nil
}

// stalls drives a backup until it has failed for good.
func (e *env) stalls(b *v1alpha1.TalosEtcdBackup, reason, part string) {
	e.Helper()
	e.until(b, b.Name+" stalls", func() bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionStalled)
	})
	e.condition(b, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, part)
}

// fails drives a backup until a condition has a reason.
func (e *env) fails(b *v1alpha1.TalosEtcdBackup, kind, reason string) {
	e.Helper()
	e.until(b, b.Name+" fails with "+reason, func() bool {
		c := meta.FindStatusCondition(b.Status.Conditions, kind)

		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
	})
}

func (e *env) condition(b *v1alpha1.TalosEtcdBackup, kind string, status metav1.ConditionStatus, reason, part string) {
	e.Helper()

	c := meta.FindStatusCondition(b.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		e.Errorf("condition %s is %+v; want %s, %s, %q", kind, c, status, reason, part)
	}
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

// change edits an object of the management plane.
func change[T client.Object](e *env, o T, edit func(T)) {
	e.Helper()

	e.eventually("an edit", func() error {
		if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}

		edit(o)

		return e.admin.Update(e.Context(), o)
	})
}

// keepsSecrets searches the status of every backup, the events and the log for secrets.
func (e *env) keepsSecrets(more ...string) {
	e.Helper()

	s := e.estate.state.Bundle.Secrets()
	secrets := append(more, s.TrustdInfo.Token, s.Cluster.Secret, s.Secrets.BootstrapToken, s.Secrets.SecretboxEncryptionSecret,
		s.Cluster.ID, "PRIVATE KEY", "AGE-SECRET-KEY", e.s3.SecretKey, e.s3.AccessKey)
	texts := []string{e.log.String()}

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := e.admin.List(e.Context(), list, client.InNamespace(e.ns)); err != nil {
		e.Fatal(err)
	}

	for _, b := range list.Items {
		texts = append(texts, show(&b))
	}

	for range len(e.events.Events) {
		texts = append(texts, <-e.events.Events)
	}

	for _, text := range texts {
		for _, secret := range secrets {
			if secret != "" && strings.Contains(text, secret) {
				e.Errorf("a secret is told: %s", text)
			}
		}
	}
}

// puts has the proxy make trouble for each request of a method whose path holds a text.
func on(method, part string, f s3.Fault) func(*http.Request) s3.Fault {
	return func(r *http.Request) s3.Fault {
		if r.Method == method && strings.Contains(r.URL.RequestURI(), part) {
			return f
		}

		return s3.Fault{}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.String()
}

var errDead = errors.New("the operator is dead")

// apiClient counts writes, and dies after the one that a test says, without telling its answer.
type apiClient struct {
	client.WithWatch

	mu    sync.Mutex
	tap   func() (dead bool)
	gone  bool
	count int
}

// alive says whether a request may be made.
func (c *apiClient) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.gone {
		return errDead
	}

	return nil
}

func (c *apiClient) die() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.gone = true
}

// wrote is called after a write.
func (c *apiClient) wrote(err error) error {
	c.mu.Lock()
	c.count++
	tap := c.tap
	c.mu.Unlock()

	if tap != nil && tap() {
		return errDead
	}

	return err
}

func (c *apiClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.alive(); err != nil {
		return err
	}

	return c.WithWatch.Get(ctx, key, o, opts...)
}

func (c *apiClient) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := c.alive(); err != nil {
		return err
	}

	return c.WithWatch.List(ctx, l, opts...)
}

func (c *apiClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := c.alive(); err != nil {
		return err
	}

	return c.wrote(c.WithWatch.Patch(ctx, o, p, opts...))
}

func (c *apiClient) Status() client.SubResourceWriter {
	return statusWriter{c.WithWatch.Status(), c}
}

type statusWriter struct {
	client.SubResourceWriter

	c *apiClient
}

func (w statusWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := w.c.alive(); err != nil {
		return err
	}

	return w.c.wrote(w.SubResourceWriter.Patch(ctx, o, p, opts...))
}
