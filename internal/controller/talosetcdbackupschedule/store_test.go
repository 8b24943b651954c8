package talosetcdbackupschedule_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/test/harness"
)

// keep stores a backup of the cluster, encrypted, as old as is said.
func (e *env) keep(age time.Duration, change ...func(*backup.Request)) string {
	e.Helper()

	content := bytes.Repeat([]byte("0123456789abcdef"), 32*4)
	sum := sha256.Sum256(content)
	at := e.Clock.Now().Add(-age)

	key, err := e.state.Bundle.BackupKey()
	if err != nil {
		e.Fatal(err)
	}

	r := backup.Request{
		Sign: key,
		ID:   backup.NewID(at, age.String()), Recipients: []string{e.id.Recipient().String()},
		Cluster: backup.Cluster{
			Name: cluster, Namespace: e.Namespace, ID: e.state.Bundle.ClusterID(), CAFingerprint: e.state.Bundle.CAFingerprint(),
		},
		Snapshot: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(append(slices.Clone(content), sum[:]...))), nil
		},
		State: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c-state", Namespace: e.Namespace}, Data: map[string][]byte{"a": []byte("b")}},
		Now:   func() time.Time { return at },
	}

	for _, c := range change {
		c(&r)
	}

	s, err := store.NewDirectory(e.dir)
	if err != nil {
		e.Fatal(err)
	}

	if _, err := backup.Take(e.Context(), s, r); err != nil {
		e.Fatal(err)
	}

	return r.ID
}

// kept are the IDs of the complete backups in the store.
func (e *env) kept() []string {
	e.Helper()

	out := []string{}

	for _, name := range e.files() {
		if id, ok := strings.CutSuffix(name, ".manifest.json"); ok {
			out = append(out, id)
		}
	}

	return out
}

func last(n int32) func(*spec) {
	return func(s *spec) { s.Retention = &v1alpha1.BackupRetention{Last: &n} }
}

// TestRetention: after a good backup, what need not be kept is deleted from the store, and nothing else.
func TestRetention(t *testing.T) {
	e := newEnv(t)
	oldest, old := e.keep(50*time.Hour), e.keep(40*time.Hour)
	manual := e.keep(30 * time.Hour)
	e.keep(20*time.Hour, func(r *backup.Request) { r.Cluster.ID = "another" })
	newest := e.keep(0)

	b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "by-hand"}}
	o := e.schedule(last(1))
	b.Spec = o.Spec.BackupTemplate.Spec
	e.Create(b)

	b.Status.BackupID = manual
	e.UpdateStatus(b)

	e.finish("by-hand")
	e.pass(o)

	if len(e.kept()) != 5 {
		t.Errorf("deleted before there was a backup: %v", e.kept())
	}

	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })

	if left := e.kept(); len(left) != 3 || slices.Contains(left, oldest) || slices.Contains(left, old) ||
		!slices.Contains(left, manual) || !slices.Contains(left, newest) {
		t.Errorf("left are %v", left)
	}

	if st := o.Status.Stored; st.Count != 2 || st.Size.Value() < 1000 || st.Newest == nil || st.Oldest == nil {
		t.Errorf("stored: %+v", st)
	}

	e.Condition(o, v1alpha1.ConditionRetentionApplied, metav1.ConditionTrue, v1alpha1.ReasonRetentionApplied, "1 of another cluster")

	if !e.told(v1alpha1.ReasonRetentionApplied) {
		t.Error("nobody was told of the deletion")
	}
}

// TestRetentionKeepsCopies: what a restore copied of the data that it replaced stays as long as the restore does.
func TestRetentionKeepsCopies(t *testing.T) {
	e := newEnv(t)
	copied, saving, old := e.keep(50*time.Hour), e.keep(40*time.Hour), e.keep(30*time.Hour)
	newest := e.keep(0)
	o := e.schedule(last(1))

	r := e.restore("r", v1alpha1.RestoreSource{Storage: &o.Spec.BackupTemplate.Spec.Storage})
	r.Status = v1alpha1.TalosEtcdRestoreStatus{
		Step: v1alpha1.RestoreComplete, LastSnapshot: "file://" + e.dir + "/" + backup.Prefix(cluster) + copied,
	}
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRestored,
	})
	e.UpdateStatus(r)

	stopped := e.restore("stopped", v1alpha1.RestoreSource{Storage: &o.Spec.BackupTemplate.Spec.Storage})
	stopped.Status = v1alpha1.TalosEtcdRestoreStatus{
		Step: v1alpha1.RestoreStopped, RestoreRecord: v1alpha1.RestoreRecord{SavingID: saving},
	}
	meta.SetStatusCondition(&stopped.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRestoreFailed,
	})
	e.UpdateStatus(stopped)

	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })

	if left := e.kept(); !slices.Equal(left, []string{copied, saving, newest}) {
		t.Errorf("left are %v; nobody needs %s", left, old)
	}

	for _, r := range []*v1alpha1.TalosEtcdRestore{r, stopped} {
		e.Delete(r)
	}

	e.later(o, 25*time.Hour)
	e.until(o, "it is looked at again", func() bool { return o.Status.Stored.Count == 1 })
}

// restore makes one that no controller works on.
func (e *env) restore(name string, from v1alpha1.RestoreSource) *v1alpha1.TalosEtcdRestore {
	e.Helper()

	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec:       v1alpha1.TalosEtcdRestoreSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, Source: from},
	}
	e.Create(r)

	return r
}

// TestRetentionShared: of two schedules for one store, the one that keeps more decides.
func TestRetentionShared(t *testing.T) {
	e := newEnv(t)
	first, second := e.keep(2*time.Hour), e.keep(time.Hour)
	e.keep(0)

	other := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "other"}}
	o := e.schedule(last(1))
	other.Spec = *o.Spec.DeepCopy()
	last(2)(&other.Spec)
	e.Create(other)

	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })

	if left := e.kept(); len(left) != 2 || slices.Contains(left, first) || !slices.Contains(left, second) {
		t.Errorf("left are %v", left)
	}
}

// lateRestore makes a restore right after it was observed that there is none.
type lateRestore struct {
	client.Reader

	make func()
	once sync.Once
}

func (l *lateRestore) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := l.Reader.List(ctx, list, opts...)
	if _, ok := list.(*v1alpha1.TalosEtcdRestoreList); ok && err == nil {
		l.once.Do(l.make)
	}

	return err
}

// TestRestoreStopsRetention: a restore that is made after retention has begun ends it, before the first deletion.
func TestRestoreStopsRetention(t *testing.T) {
	e := newEnv(t)
	e.keep(2 * time.Hour)
	e.keep(time.Hour)
	e.keep(0)

	o := e.schedule(last(1))
	e.later(o, time.Second)
	e.finish(e.slot(0))

	e.r.Reader = &lateRestore{Reader: e.Client, make: func() {
		e.Create(&v1alpha1.TalosEtcdRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "late"},
			Spec: v1alpha1.TalosEtcdRestoreSpec{
				ControlPlaneRef: o.Spec.BackupTemplate.Spec.ControlPlaneRef,
				Source:          v1alpha1.RestoreSource{Storage: &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}}},
			},
		})
	}}

	e.until(o, "retention is stopped", stoppedBy(o, "late"))

	if len(e.failures()) > 0 {
		t.Errorf("what waits counts as a failure: %v", e.failures())
	}

	if left := e.kept(); len(left) != 3 {
		t.Errorf("left are %v", left)
	}
}

// TestRestoreIntoAnotherCluster: a restore that reads from the folder stops retention too, whatever control plane it is
// of. One that reads from elsewhere does not, nor one that has ended.
func TestRestoreIntoAnotherCluster(t *testing.T) {
	e := newEnv(t)
	e.keep(2 * time.Hour)
	e.keep(time.Hour)
	e.keep(0)

	o := e.schedule(last(1))
	storage := &o.Spec.BackupTemplate.Spec.Storage
	elsewhere := &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{Path: "elsewhere"}}

	restores := map[string]*v1alpha1.TalosEtcdRestore{
		"folder": e.look("folder", v1alpha1.RestoreSource{Storage: storage, Cluster: cluster}),
		"store":  e.look("store", v1alpha1.RestoreSource{Storage: storage}),
		"chosen": e.look("chosen", v1alpha1.RestoreSource{Storage: elsewhere}),
	}
	e.look("another", v1alpha1.RestoreSource{Storage: storage, Cluster: "another"})
	e.look("elsewhere", v1alpha1.RestoreSource{Storage: elsewhere, Cluster: cluster})

	restores["chosen"].Status.Backup = &v1alpha1.RestoredBackup{
		ID: "some", Location: "file://" + e.dir + "/" + backup.Prefix(cluster) + "some.snap.zst.age",
	}
	e.UpdateStatus(restores["chosen"])

	e.later(o, time.Second)
	e.finish(e.slot(0))

	at := func(r *v1alpha1.TalosEtcdRestore, step v1alpha1.RestoreStep) {
		r.Status.Step = step
		e.UpdateStatus(r)
	}

	for name, r := range restores {
		// There is one at every moment.
		at(r, v1alpha1.RestorePreflight)

		for _, other := range restores {
			if other != r {
				at(other, v1alpha1.RestoreComplete)
			}
		}

		// Work that had begun before says who stopped it then, and is done again after a pause.
		e.until(o, "retention is stopped", func() bool {
			e.Clock.Sleep(6 * time.Minute)

			return stoppedBy(o, name)()
		})

		if left := e.kept(); len(left) != 3 {
			t.Errorf("%s: left are %v", name, left)
		}
	}

	for _, r := range restores {
		at(r, v1alpha1.RestoreStopped)
	}

	e.later(o, 10*time.Minute)
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })

	if left := e.kept(); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}

// stoppedBy: retention waits for a restore.
func stoppedBy(o *v1alpha1.TalosEtcdBackupSchedule, restore string) func() bool {
	return func() bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionRetentionApplied)

		return c != nil && c.Reason == v1alpha1.ReasonRestoreInProgress && strings.Contains(c.Message, restore)
	}
}

// look makes a restore into another cluster that no controller works on.
func (e *env) look(name string, from v1alpha1.RestoreSource) *v1alpha1.TalosEtcdRestore {
	e.Helper()

	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "look"}, Source: from, Isolate: true,
		},
	}
	e.Create(r)

	return r
}

// TestRetentionFails: what keeps the store from being read is told, and it is tried again after a while, not at
// once.
func TestRetentionFails(t *testing.T) {
	e := newEnv(t)
	o := e.schedule(last(1))
	e.later(o, time.Second)
	e.finish(e.slot(0))

	path := e.r.Stores.Root
	e.r.Stores.Root = path + "/missing"
	e.until(o, "it fails", func() bool { return len(e.failures()) > 0 })
	e.Condition(o, v1alpha1.ConditionRetentionApplied, metav1.ConditionFalse, store.ReasonNotFound, "")

	for range 5 {
		e.pass(o)
	}

	if len(e.failures()) != 1 || o.Status.Stored != nil {
		t.Errorf("failed %v", e.failures())
	}

	e.r.Stores.Root = path
	e.later(o, 10*time.Minute)
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })
	e.Condition(o, v1alpha1.ConditionRetentionApplied, metav1.ConditionTrue, v1alpha1.ReasonRetentionApplied, "")
}

// verification of the newest backup, every hour, of a schedule that makes none.
func (e *env) verification(level v1alpha1.VerificationLevel) func(*spec) {
	return func(s *spec) {
		s.Verification = &v1alpha1.ScheduledVerification{
			Schedule: e.cron(), BackupVerification: v1alpha1.BackupVerification{Level: level},
		}
		s.Suspend = true
		s.MaxAge = duration(5 * time.Hour)
	}
}

// TestVerification: the newest backup is read back when it is due, the result lies beside it, and damage is found.
func TestVerification(t *testing.T) {
	e := newEnv(t)
	e.keep(2 * time.Hour)
	id := e.keep(time.Hour)
	o := e.schedule(e.verification(v1alpha1.VerificationChecksum))
	e.pass(o)
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "")

	if v := o.Status.Verification; v != nil {
		t.Errorf("verified before its time: %+v", v)
	}

	e.later(o, time.Second)
	e.until(o, "it is verified", func() bool { return o.Status.Verification != nil })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonVerified, id)

	if !slices.Contains(e.files(), id+".verified.json") || o.Status.Verification.Level != v1alpha1.VerificationChecksum {
		t.Errorf("files %v, status %+v", e.files(), o.Status.Verification)
	}

	before := e.Client.Writes()
	e.later(o, 30*time.Minute)

	if n := e.Client.Writes() - before; n != 0 || len(e.failures()) > 0 {
		t.Errorf("%d writes, failures %v", n, e.failures())
	}

	// A bit flips.
	name := e.dir + "/" + backup.Prefix(cluster) + id + ".snap.zst.age"

	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	content[len(content)/2] ^= 1
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}

	e.later(o, time.Hour)
	e.until(o, "the damage is found", func() bool { return len(e.failures()) > 0 })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionFalse, backup.ReasonCorrupt, id)

	if slices.Contains(e.files(), id+".verified.json") || !e.told(backup.ReasonCorrupt) {
		t.Error("it still counts as verified, or nobody was told")
	}

	if o.Status.Verification == nil || !slices.Contains(e.kept(), id) {
		t.Errorf("status %+v, kept %v", o.Status.Verification, e.kept())
	}
}

// TestVerificationNothing: a store without a backup is told of, and with one of another cluster too.
func TestVerificationNothing(t *testing.T) {
	e := newEnv(t)
	e.keep(0, func(r *backup.Request) { r.Cluster.ID = "another" })
	o := e.schedule(e.verification(v1alpha1.VerificationChecksum))
	e.later(o, time.Second)
	e.until(o, "it fails", func() bool { return len(e.failures()) > 0 })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionFalse, v1alpha1.ReasonBackupNotFound, "")

	if o.Status.LastVerificationTime == nil {
		t.Error("it would be tried for ever")
	}
}

// TestDamagedRecoveryPoint: a newest backup that turned out to be damaged is no recovery point.
func TestDamagedRecoveryPoint(t *testing.T) {
	e := newEnv(t)
	o := e.schedule(e.verification(v1alpha1.VerificationChecksum), func(s *spec) { s.Suspend = false })
	id := e.keep(0)
	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.until(o, "it is verified", func() bool { return o.Status.Verification != nil && o.Status.Stored != nil })
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionTrue, v1alpha1.ReasonRecoveryPointMet, "")

	name := e.dir + "/" + backup.Prefix(cluster) + id + ".state.json.age"
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}

	harness.Change(e.Env, o, func(o *v1alpha1.TalosEtcdBackupSchedule) { o.Spec.Suspend = true })
	e.later(o, time.Hour)
	e.until(o, "the damage is found", func() bool { return len(e.failures()) > 0 })
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionFalse, v1alpha1.ReasonBackupDamaged, "")
}
