package talosetcdbackupschedule_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackupschedule"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/plane"
)

const (
	cluster = harness.Cluster
	name    = "hourly"
)

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// env is an operator with a folder of backups. The backups are taken by the test.
type env struct {
	*harness.Env

	r      *talosetcdbackupschedule.Reconciler
	runner *talosetcdbackupschedule.Runner
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

	e := &env{Env: harness.New(t, api), id: id}
	e.dir = filepath.Join(t.TempDir(), e.Namespace)

	if err := os.Mkdir(e.dir, 0o700); err != nil {
		t.Fatal(err)
	}

	// The first backup is due in a second, and every object is half an hour older than that, however slow the test.
	start := e.Clock.Now().UTC().Truncate(time.Minute).Add(30*time.Minute - time.Second)
	e.Clock.SetTime(start)
	e.first = start.Add(time.Second)

	if e.state, err = harness.NewState(cluster, endpoint); err != nil {
		t.Fatal(err)
	}

	e.Create(e.controlPlane())
	e.CreateState(cluster, e.state)
	e.restart()

	return e
}

// endpoint of the cluster. Nothing connects to it.
const endpoint = "https://10.0.0.1:6443"

func (e *env) controlPlane() *v1alpha1.TalosControlPlane {
	return &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: cluster},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: harness.TalosVersion, KubernetesVersion: harness.KubernetesVersion, Endpoint: endpoint,
			Machines: []v1alpha1.MachineEntry{{Name: "cp-0", Address: "10.0.0.1"}},
		},
	}
}

// restart is a crash of the operator: nothing that it kept in memory is left.
func (e *env) restart() {
	e.Helper()

	if e.runner != nil {
		e.runner.Stop()
	}

	e.Restart()
	e.runner = talosetcdbackupschedule.NewRunner(context.Background(), 4)
	e.Cleanup(e.runner.Stop)

	e.r = &talosetcdbackupschedule.Reconciler{
		Client: e.Client, Reader: e.Client, States: &clusterstate.Store{Client: e.Client, Reader: e.Client, Clock: e.Clock},
		Stores: &storage.Opener{Reader: e.Client, Root: filepath.Dir(e.dir)}, Runner: e.runner, Recorder: e.Events,
		Clock: e.Clock, Scratch: e.TempDir(), Resync: 48 * time.Hour,
		Failed: func(_, _, reason string) {
			e.mu.Lock()
			defer e.mu.Unlock()

			e.failed = append(e.failed, reason)
		},
	}
}

// failures are the reasons of those so far.
func (e *env) failures() []string {
	e.mu.Lock()
	defer e.mu.Unlock()

	return slices.Clone(e.failed)
}

// cron is every hour, first in a second.
func (e *env) cron() string { return fmt.Sprintf("%d * * * *", e.first.Minute()) }

// schedule makes one that is due every hour.
func (e *env) schedule(change ...func(*v1alpha1.TalosEtcdBackupScheduleSpec)) *v1alpha1.TalosEtcdBackupSchedule {
	e.Helper()

	o := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
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

	e.Create(o)

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

	return e.Pass(e.r, o)
}

// later passes once after a while.
func (e *env) later(o *v1alpha1.TalosEtcdBackupSchedule, d time.Duration) ctrl.Result {
	e.Helper()
	e.Clock.Sleep(d)

	return e.pass(o)
}

// until passes until the check is content, for work that is done beside the passes.
func (e *env) until(o *v1alpha1.TalosEtcdBackupSchedule, what string, check func() bool) {
	e.Helper()
	e.Until(o, what, nil, func() error { e.pass(o); return nil }, check)
}

// backups are the names of all TalosEtcdBackups that are not being deleted.
func (e *env) backups() []string {
	e.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
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

// only fails the test unless these backups exist, and no other.
func (e *env) only(when string, want ...string) {
	e.Helper()

	if got := e.backups(); !slices.Equal(got, append([]string{}, want...)) {
		e.Errorf("%s: backups %v, want %v", when, got, want)
	}
}

func (e *env) backup(name string) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	b := &v1alpha1.TalosEtcdBackup{}
	e.Get(b, name)

	return b
}

// finish does what the controller of backups does when one is complete and verified.
func (e *env) finish(name string) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	b := e.backup(name)
	now := metav1.NewTime(e.Clock.Now())
	b.Status.CompletedAt = &now
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupComplete, Message: "done",
	})

	e.UpdateStatus(b)

	return b
}

// fail does what it does when one failed for good.
func (e *env) fail(name string) {
	e.Helper()

	b := e.backup(name)
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "StoreForbidden", Message: "the store says no",
	})

	e.UpdateStatus(b)
}

func (e *env) absent(o *v1alpha1.TalosEtcdBackupSchedule, kind string) {
	e.Helper()

	if c := harness.Find(o, kind); c != nil {
		e.Errorf("condition %s is there: %+v", kind, c)
	}
}

// told says whether an event of a reason was among those since this was asked last.
func (e *env) told(reason string) bool {
	return slices.ContainsFunc(e.Told(), func(event string) bool { return strings.Contains(event, " "+reason+" ") })
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
