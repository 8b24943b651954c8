package talosetcdbackupschedule_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backupstorage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackupschedule"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/plane"
)

const (
	cluster = "c"
	name    = "hourly"
	limit   = 60 * time.Second
)

var planes *plane.Plane

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	plane.Main(m, "127.44.201.1", &planes)
}

// env is one replica of the operator, called by hand under its own roles. The backups are taken by the test.
type env struct {
	*testing.T

	ns     string
	admin  client.Client
	client *apiClient
	r      *talosetcdbackupschedule.Reconciler
	runner *talosetcdbackupschedule.Runner
	events *events.FakeRecorder
	clock  *testclock.FakePassiveClock
	// first is when the first backup is due.
	first time.Time
	state *clusterstate.State
	dir   string
	id    *age.X25519Identity

	mu     sync.Mutex
	failed []string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	// The first backup is due in a second, and every object is some minutes older than that.
	start := time.Now().UTC().Truncate(time.Minute).Add(5*time.Minute - time.Second)
	e := &env{
		T: t, ns: planes.Namespace(t), admin: planes.Admin(t), clock: testclock.NewFakePassiveClock(start),
		first: start.Add(time.Second), events: events.NewFakeRecorder(10000), dir: t.TempDir(), id: id,
	}

	bundle, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}

	e.state = clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: cluster, Endpoint: "https://10.0.0.1:6443", TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2",
		Contract: "v1.13",
	}, "uid")

	e.create(&v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: cluster},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.1:6443",
			Machines: []v1alpha1.MachineEntry{{Name: "cp-0", Address: "10.0.0.1"}},
		},
	})

	states := &statestore.Store{Client: e.admin, Reader: e.admin, Clock: e.clock}
	if _, err := states.Create(t.Context(), types.NamespacedName{Namespace: e.ns, Name: cluster}, e.state); err != nil {
		t.Fatal(err)
	}

	e.restart()

	return e
}

// restart is a crash of the operator: nothing that it kept in memory is left.
func (e *env) restart() {
	e.Helper()

	if e.runner != nil {
		e.runner.Stop()
	}

	e.client = &apiClient{WithWatch: planes.Manager(e.T)}
	e.runner = talosetcdbackupschedule.NewRunner(context.Background(), 4)
	e.Cleanup(e.runner.Stop)

	e.r = &talosetcdbackupschedule.Reconciler{
		Client: e.client, Reader: e.client, States: &statestore.Store{Client: e.client, Reader: e.client, Clock: e.clock},
		Stores: &backupstorage.Opener{Reader: e.client, Root: e.dir}, Runner: e.runner, Recorder: e.events,
		Clock: e.clock, Scratch: e.TempDir(), Resync: 48 * time.Hour,
		Failed: func(_, _, reason string) {
			e.mu.Lock()
			defer e.mu.Unlock()

			e.failed = append(e.failed, reason)
		},
	}
}

func (e *env) create(o client.Object) {
	e.Helper()

	if err := e.admin.Create(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

// cron is every hour, first in a second.
func (e *env) cron() string { return fmt.Sprintf("%d * * * *", e.first.Minute()) }

// schedule makes one that is due every hour.
func (e *env) schedule(change ...func(*v1alpha1.TalosEtcdBackupScheduleSpec)) *v1alpha1.TalosEtcdBackupSchedule {
	e.Helper()

	o := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
			Schedule: e.cron(),
			BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: v1alpha1.TalosEtcdBackupSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
				Storage:         v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
				Recipients:      []string{e.id.Recipient().String()},
			}},
		},
	}

	for _, c := range change {
		c(&o.Spec)
	}

	e.create(o)

	return o
}

// pass reconciles once and reads the object again.
func (e *env) pass(o *v1alpha1.TalosEtcdBackupSchedule) ctrl.Result {
	e.Helper()

	res, err := e.tryPass(o)
	if err != nil {
		e.Fatal(err)
	}

	return res
}

func (e *env) tryPass(o *v1alpha1.TalosEtcdBackupSchedule) (ctrl.Result, error) {
	e.Helper()

	res, err := e.r.Reconcile(e.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})

	if gerr := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(gerr) != nil {
		e.Fatal(gerr)
	}

	return res, err
}

// later passes once after a while.
func (e *env) later(o *v1alpha1.TalosEtcdBackupSchedule, d time.Duration) ctrl.Result {
	e.Helper()
	e.clock.SetTime(e.clock.Now().Add(d))

	return e.pass(o)
}

// until passes until the check is content, for work that is done beside the passes.
func (e *env) until(o *v1alpha1.TalosEtcdBackupSchedule, what string, check func() bool) {
	e.Helper()

	end := time.NewTimer(limit)
	defer end.Stop()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for {
		if e.pass(o); check() {
			return
		}

		select {
		case <-end.C:
			raw, _ := json.Marshal(o.Status)
			e.Fatalf("%s: not in time: %s", what, raw)
		case <-tick.C:
		}
	}
}

// backups are the names of all TalosEtcdBackups that are not being deleted.
func (e *env) backups() []string {
	e.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := e.admin.List(e.Context(), list, client.InNamespace(e.ns)); err != nil {
		e.Fatal(err)
	}

	out := []string{}
	for _, b := range list.Items {
		out = append(out, b.Name)
	}

	slices.Sort(out)

	return out
}

// slot is the name of the backup that is due so many hours after the first one.
func (e *env) slot(n int) string {
	return name + "-" + e.first.Add(time.Duration(n)*time.Hour).Format("20060102-150405")
}

func (e *env) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.ns, Name: name}
}

// only fails the test unless these backups exist, and no other.
func (e *env) only(when string, want ...string) {
	e.Helper()

	if got := e.backups(); !slices.Equal(got, append([]string{}, want...)) {
		e.Errorf("%s: backups %v, want %v", when, got, want)
	}
}

func (e *env) get(name string) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	b := &v1alpha1.TalosEtcdBackup{}
	if err := e.admin.Get(e.Context(), e.key(name), b); err != nil {
		e.Fatal(err)
	}

	return b
}

// finish does what the controller of backups does when one is complete and verified.
func (e *env) finish(name string) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	b := e.get(name)
	now := metav1.NewTime(e.clock.Now())
	b.Status.CompletedAt = &now
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupComplete, Message: "done",
	})

	if err := e.admin.Status().Update(e.Context(), b); err != nil {
		e.Fatal(err)
	}

	return b
}

// fail does what it does when one failed for good.
func (e *env) fail(name string) {
	e.Helper()

	b := e.get(name)
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "StoreForbidden", Message: "the store says no",
	})

	if err := e.admin.Status().Update(e.Context(), b); err != nil {
		e.Fatal(err)
	}
}

func (e *env) condition(
	o *v1alpha1.TalosEtcdBackupSchedule, kind string, status metav1.ConditionStatus, reason, part string,
) {
	e.Helper()

	c := meta.FindStatusCondition(o.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		e.Errorf("condition %s is %+v; want %s, %s, %q", kind, c, status, reason, part)
	}
}

func (e *env) absent(o *v1alpha1.TalosEtcdBackupSchedule, kind string) {
	e.Helper()

	if c := meta.FindStatusCondition(o.Status.Conditions, kind); c != nil {
		e.Errorf("condition %s is there: %+v", kind, c)
	}
}

// told drains the events and says whether one of a reason was among them.
func (e *env) told(reason string) bool {
	found := false

	for range len(e.events.Events) {
		found = strings.Contains(<-e.events.Events, " "+reason+" ") || found
	}

	return found
}

// change edits an object of the management plane.
func change[T client.Object](e *env, o T, edit func(T)) {
	e.Helper()

	if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		e.Fatal(err)
	}

	edit(o)

	if err := e.admin.Update(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

var errDead = errors.New("the operator is dead")

// apiClient counts writes, and dies after the one that a test says, without telling its answer.
type apiClient struct {
	client.WithWatch

	mu    sync.Mutex
	count int
	// dieAfter so many writes; never when zero.
	dieAfter int
}

func (c *apiClient) writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.count
}

func (c *apiClient) wrote(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.count++; c.dieAfter > 0 && c.count >= c.dieAfter {
		return fmt.Errorf("after write %d: %w", c.count, errDead)
	}

	return err
}

func (c *apiClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.wrote(c.WithWatch.Create(ctx, o, opts...))
}

func (c *apiClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.wrote(c.WithWatch.Delete(ctx, o, opts...))
}

func (c *apiClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.wrote(c.WithWatch.Patch(ctx, o, p, opts...))
}

func (c *apiClient) Status() client.SubResourceWriter { return statusWriter{c.WithWatch.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter

	c *apiClient
}

func (w statusWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.c.wrote(w.SubResourceWriter.Patch(ctx, o, p, opts...))
}

// files are the names of everything in the store.
func (e *env) files() []string {
	e.Helper()

	var out []string

	entries, err := os.ReadDir(e.dir + "/talos-operator-etcd-backups/" + cluster)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.Fatal(err)
	}

	for _, entry := range entries {
		out = append(out, entry.Name())
	}

	return out
}
