package talosetcdrestore_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestTwoRestores: while one works on the cluster, another one is refused for good, and touches nothing. Once the first
// is gone a third one may.
func TestTwoRestores(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	e.backUp()

	first := e.restore("first", discard)
	held := e.held()
	held.State.Runtime.Restore = &clusterstate.Restore{Name: first.Name, UID: string(first.UID), Since: e.Clock.Now()}

	if err := e.States().Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}

	second := e.restore("second", discard)
	e.refused(second, v1alpha1.ReasonRestoreConflict, "TalosEtcdRestore first")

	if got := e.held().State.Runtime.Restore; second.Status.Step != v1alpha1.RestoreStopped || got == nil || got.Name != "first" ||
		e.fleet.Mutations() != e.fleet.mutations {
		t.Errorf("the cluster is that of %+v; %s", got, harness.Show(second))
	}

	e.gone(second)

	if got := e.held().State.Runtime.Restore; got == nil || got.Name != "first" {
		t.Errorf("the second one gave the cluster back: %+v", got)
	}

	e.Delete(first)

	third := e.restore("third")
	e.refused(third, v1alpha1.ReasonDataWouldBeLost, "")
	e.untouched()
}

// TestKeyForms: the ID of a backup and the keys of all its objects name it; without a key the newest good one is taken,
// or the newest before a time; a TalosEtcdBackup names its own.
func TestKeyForms(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	now := e.Clock.Now()
	day := func(n int) string { return backup.NewID(now.AddDate(0, 0, -n), e.Namespace) }
	old := e.backUp(func(r *backup.Request) { r.ID = day(3) })
	e.backUp(func(r *backup.Request) { r.ID = day(2) })
	broken := e.backUp(func(r *backup.Request) { r.ID = day(1) })

	e.rewrite(broken.ID+".snap.zst.age", flipped)
	e.taken("b", backup.Prefix(cluster)+old.ID+".manifest.json")

	before := metav1.NewTime(now.AddDate(0, 0, -2).Add(-time.Hour))
	cases := map[string]struct {
		edit func(*v1alpha1.TalosEtcdRestoreSpec)
		want string
	}{
		"newest":   {func(*v1alpha1.TalosEtcdRestoreSpec) {}, day(2)},
		"before":   {func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.Before = &before }, old.ID},
		"id":       {byKey(old.ID), old.ID},
		"manifest": {byKey(e.object(old.ID + ".manifest.json")), old.ID},
		"snapshot": {byKey(e.object(old.ID + ".snap.zst.age")), old.ID},
		"state":    {byKey(e.object(old.ID + ".state.json.age")), old.ID},
		"ref":      {byRef("b"), old.ID},
		"drill":    {func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Verification = v1alpha1.VerificationDrill }, day(2)},
		"checksum": {func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Verification = v1alpha1.VerificationChecksum }, day(2)},
	}

	for name, tc := range cases {
		r := e.restore(name, tc.edit)
		e.refused(r, v1alpha1.ReasonDataWouldBeLost, "")

		if b := r.Status.Backup; b == nil || b.ID != tc.want || b.SHA256 == "" || b.Size == 0 || b.Cluster != cluster {
			t.Errorf("%s: the backup is %+v, want %s", name, b, tc.want)
		} else if b.Revision == 0 || b.TotalKeys == 0 || b.StorageVersion == "" {
			t.Errorf("%s: nobody has looked into the database: %+v", name, b)
		}
	}

	e.untouched()
	e.keepsSecrets()
}

// TestSpec: what makes no sense is refused by the API server, and a restore does not change.
func TestSpec(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	now := metav1.NewTime(wait.Now())

	for name, edit := range map[string]func(*v1alpha1.TalosEtcdRestoreSpec){
		"no source":      func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source = v1alpha1.RestoreSource{} },
		"two sources":    func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.BackupRef = &v1alpha1.ObjectReference{Name: "b"} },
		"key and before": func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.Key, s.Source.Before = "k", &now },
		"a bump down":    func(s *v1alpha1.TalosEtcdRestoreSpec) { s.RevisionBump = -1 },
		"no such level":  func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Verification = "Glance" },
		"no such policy": func(s *v1alpha1.TalosEtcdRestoreSpec) { s.LastSnapshot = "Maybe" },
	} {
		r := &v1alpha1.TalosEtcdRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "bad"},
			Spec: v1alpha1.TalosEtcdRestoreSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
				Source:          v1alpha1.RestoreSource{Storage: &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}}},
			},
		}
		edit(&r.Spec)

		if err := e.Admin.Create(t.Context(), r); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}

	r := e.restore("good")
	r.Spec.DiscardNewerData = true

	if err := e.Admin.Update(t.Context(), r); err == nil || !strings.Contains(err.Error(), "create another TalosEtcdRestore") {
		t.Errorf("a restore was changed: %v", err)
	}
}

// TestPaused: a restore does nothing while its control plane is paused, or one of the machines.
func TestPaused(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	e.backUp()

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: cluster}}
	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		cp.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	})

	r := e.restore("r")
	held := func() {
		t.Helper()

		for range 3 {
			if _, err := e.pass(r); err != nil {
				t.Error(err)
			}
		}

		if r.Status.Backup != nil || meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionPaused) == nil {
			t.Errorf("the status is %s", harness.Show(r))
		}
	}

	held()

	machines := &v1alpha1.TalosMachineList{}
	if err := e.Admin.List(t.Context(), machines, client.InNamespace(e.Namespace)); err != nil || len(machines.Items) == 0 {
		t.Fatalf("%d machines: %v", len(machines.Items), err)
	}

	harness.Change(e.Env, &machines.Items[0], func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	})
	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) { cp.Annotations = nil })
	held()

	harness.Change(e.Env, &machines.Items[0], func(m *v1alpha1.TalosMachine) { m.Annotations = nil })
	e.refused(r, v1alpha1.ReasonDataWouldBeLost, "")
	e.untouched()
}

// TestInitNode: a node of the old type never recovers an etcd.
func TestInitNode(t *testing.T) {
	t.Parallel()

	on := fresh(t, 1)
	on.Roles[0] = configmachine.TypeInit
	e := newEnv(t, on)
	e.backUp()
	e.Eventually("the node takes its config", func(ctx context.Context) error { return on.Configure(ctx, 0, on.State) })

	on.mutations = on.Mutations()
	r := e.restore("r", discard)
	e.refused(r, v1alpha1.ReasonRestoreRefused, "machine type init")
	e.untouched()
}

// bucket starts a store with the backup of a request in it, and a proxy that makes trouble.
func (e *env) bucket(r backup.Request) (*s3.Server, *s3.Proxy, *v1alpha1.S3Storage) {
	e.Helper()

	assets, err := process.Assets()
	if err != nil {
		e.Fatal(err)
	}

	server, err := s3.Start(e.Context(), s3.Options{
		Binary: filepath.Join(assets, "versitygw"), Dir: e.TempDir(), Address: loopback.Address(e),
	})
	if err != nil {
		e.Fatal(err)
	}

	e.Cleanup(server.Kill)

	proxy, err := s3.NewProxy(server, loopback.Address(e))
	if err != nil {
		e.Fatal(err)
	}

	e.Cleanup(proxy.Close)

	if err := server.CreateBucket(e.Context(), "backups", false); err != nil {
		e.Fatal(err)
	}

	e.CreateSecret("s3", map[string]string{
		storage.AccessKeyID: server.AccessKey, storage.SecretAccessKey: server.SecretKey, "ca.crt": string(server.CA()),
	})

	bucket := &v1alpha1.S3Storage{
		Endpoint: proxy.Endpoint(), Bucket: "backups", CAFrom: &v1alpha1.SecretKeyReference{Name: "s3", Key: "ca.crt"},
		CredentialsRef: &v1alpha1.ObjectReference{Name: "s3"},
	}

	st, err := e.r.Storage.Open(e.Context(), e.Namespace, &v1alpha1.BackupStorage{S3: bucket})
	if err != nil {
		e.Fatal(err)
	}
	defer st.Close()

	if _, err := backup.Take(e.Context(), st, r); err != nil {
		e.Fatal(err)
	}

	return server, proxy, bucket
}

// TestStoreInTrouble: a bucket that refuses, is gone or does not respond is told as what it is, and the restore goes on
// when it is back.
func TestStoreInTrouble(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	server, proxy, bucket := e.bucket(e.request())

	gone := *bucket
	gone.Bucket = "gone"

	r := e.restore("gone", in(&gone))
	e.until(r, "the bucket is not there", func() bool {
		return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, store.ReasonNotFound, "")
	})
	e.gone(r)

	r = e.restore("r", in(bucket))

	for _, tc := range []struct {
		fault  s3.Fault
		reason string
	}{
		{s3.Fault{Status: http.StatusForbidden, Code: "AccessDenied"}, store.ReasonForbidden},
		{s3.Fault{Status: http.StatusNotFound, Code: "NoSuchBucket"}, store.ReasonNotFound},
		{s3.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, store.ReasonUnavailable},
	} {
		proxy.Set(func(*http.Request) s3.Fault { return tc.fault })
		e.until(r, "trouble is told", func() bool {
			return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, tc.reason, "")
		})
	}

	// The listing works, and the data breaks off.
	proxy.Set(func(r *http.Request) s3.Fault {
		if strings.HasSuffix(r.URL.Path, ".snap.zst.age") {
			return s3.Fault{Status: http.StatusForbidden, Code: "AccessDenied"}
		}

		return s3.Fault{}
	})
	e.until(r, "the object may not be read", func() bool {
		return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, store.ReasonForbidden, ".snap.zst.age") ||
			harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, store.ReasonForbidden, "")
	})

	if r.Status.Backup != nil {
		t.Errorf("it was chosen: %s", harness.Show(r))
	}

	proxy.Set(nil)
	e.refused(r, v1alpha1.ReasonDataWouldBeLost, "")
	e.untouched()
	e.keepsSecrets(server.SecretKey)
}

func in(b *v1alpha1.S3Storage) func(*v1alpha1.TalosEtcdRestoreSpec) {
	return func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.Storage = &v1alpha1.BackupStorage{S3: b} }
}

// TestStoreInTroubleWhileUploading: a store that fails while the snapshot goes to the node is told of, and no etcd
// starts from what has arrived until then; one that is slow is waited for.
func TestStoreInTroubleWhileUploading(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	_, proxy, bucket := e.bucket(e.request())
	r := e.restore("r", in(bucket))
	e.at(r, v1alpha1.RestoreUploading)

	snapshot := func(f s3.Fault) {
		proxy.Set(func(r *http.Request) s3.Fault {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".snap.zst.age") {
				return f
			}

			return s3.Fault{}
		})
	}

	for _, tc := range []struct {
		fault  s3.Fault
		reason string
	}{
		{s3.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, store.ReasonUnavailable},
		{s3.Fault{CutAfter: 1000}, store.ReasonUnreachable},
	} {
		snapshot(tc.fault)
		e.until(r, "trouble is told", func() bool {
			return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, tc.reason, "")
		})
	}

	if r.Status.Step != v1alpha1.RestoreUploading || r.Status.SentAt != nil || e.fleet.Calls("Bootstrap") != 0 {
		t.Errorf("%d bootstraps; the status is %s", e.fleet.Calls("Bootstrap"), harness.Show(r))
	}

	snapshot(s3.Fault{Pause: 300 * time.Millisecond})
	e.complete(r)
	e.holds(e.held().State, 0, content[0], early)

	if r.Status.Tries != 1 || e.fleet.Calls("Bootstrap") != 1 {
		t.Errorf("%d bootstraps; the status is %s", e.fleet.Calls("Bootstrap"), harness.Show(r))
	}
}

// TestFullDisk: a node without room for the snapshot refuses it; once there is room it gets it again, whole.
func TestFullDisk(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.backUp()

	faults := e.fleet.Nodes[0].Faults()
	faults.Add(apid.Rule{
		Method: "EtcdRecover", Code: codes.Unknown, Message: "write /var/lib/etcd.snapshot: no space left on device", Count: 3,
	})

	r := e.restore("r")
	e.until(r, "the upload fails", func() bool {
		return r.Status.Step == v1alpha1.RestoreUploading && e.fleet.Calls("EtcdRecover") == 3
	})

	e.Condition(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonNodeDiskFull, "its disk is full")

	if n := e.fleet.Calls("Bootstrap"); n != 0 {
		t.Errorf("%d bootstraps; the status is %s", n, harness.Show(r))
	}

	e.complete(r)
	e.holds(e.held().State, 0, content[0], early)

	if r.Status.Tries != 1 {
		t.Errorf("the status is %s", harness.Show(r))
	}
}

// TestFrozenInTheUpload: a node that stops in the middle is not bootstrapped from half a snapshot, and goes on when it
// is back.
func TestFrozenInTheUpload(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.backUp()

	n := e.fleet.Nodes[0]
	ctx, cancel := context.WithCancel(t.Context())

	defer cancel()

	at(t, n, "EtcdRecover", func() {
		n.Freeze(true)
		cancel()
	})

	r := e.restore("r")
	e.at(r, v1alpha1.RestoreUploading)

	logged := make(chan error, 1)

	go func() {
		_, err := e.r.Reconcile(ctx, request(r))
		logged <- err
	}()

	if err := wait.Done(t, "the operator ends", logged); !errors.Is(err, context.Canceled) {
		t.Errorf("the operator ended in the middle: %v", err)
	}

	n.Freeze(false)
	e.restart()
	e.complete(r)
	e.holds(e.held().State, 0, content[0], early)

	if e.fleet.Calls("Bootstrap") != 1 {
		t.Errorf("%d bootstraps", e.fleet.Calls("Bootstrap"))
	}
}

// TestOldDataComesBack: a node that was said to be lost and comes back with the old etcd holds everything up, before
// anything more is touched: also while the snapshot is sent, which takes minutes.
func TestOldDataComesBack(t *testing.T) {
	t.Parallel()

	for during, sent := range map[string]int{"Reset": 0, "EtcdRecover": 1} {
		t.Run(during, func(t *testing.T) {
			t.Parallel()

			e := backedUp(t, 3)
			back := e.fleet.Nodes[1]

			for _, n := range e.fleet.Nodes[1:] {
				if err := n.PowerOff(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			at(t, e.fleet.Nodes[0], during, func() {
				if err := back.PowerOn(t.Context()); err != nil {
					t.Error(err)
				}

				// The node asks for this, in a goroutine of its own.
				if err := wait.Until(t.Context(), "it is back", func(ctx context.Context) error {
					return e.fleet.Ask(ctx, 1, func(*talos.Node) error { return nil })
				}); err != nil {
					t.Error(err)
				}
			})

			bootstraps := e.fleet.Calls("Bootstrap")
			r := e.restore("r", discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.LostMachines = []string{"cp-1", "cp-2"} })
			e.waits(r, v1alpha1.ReasonWaitingForEvidence, "cp-1 is listed in lostMachines, but it responds")

			if got := e.fleet.Calls("EtcdRecover"); got != sent || e.fleet.Calls("Bootstrap") != bootstraps {
				t.Errorf("%d snapshots were sent, and %d bootstraps, beside the old etcd", got,
					e.fleet.Calls("Bootstrap")-bootstraps)
			}

			if err := back.PowerOff(t.Context()); err != nil {
				t.Fatal(err)
			}

			e.complete(r)
			e.once(sent + 1)
			e.holds(e.fleet.State, 0, early, late)
		})
	}
}

// TestBackupGoesBeforeTheWipe: the preflight may be long ago when the nodes are wiped. Without anything to restore from
// they keep what they have.
func TestBackupGoesBeforeTheWipe(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	r := e.restore("r", discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.LastSnapshot = v1alpha1.LastSnapshotSkip })
	e.at(r, v1alpha1.RestoreWiping)

	root := e.r.Storage.Root
	if err := os.Rename(root, root+".away"); err != nil {
		t.Fatal(err)
	}

	e.waits(r, v1alpha1.ReasonRestoring, "nothing is wiped while the backup cannot be read")

	recorded := slices.ContainsFunc(r.Status.Nodes, func(n v1alpha1.RestoreNodeStatus) bool { return n.Wipes > 0 })
	if calls := e.fleet.Calls("Reset"); calls > 0 || recorded {
		t.Errorf("%d resets; the status is %s", calls, harness.Show(r))
	}

	if err := os.Rename(root+".away", root); err != nil {
		t.Fatal(err)
	}

	e.complete(r)
	e.holds(e.fleet.State, 0, early, late)
}
