package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/wait"
)

// backups is the folder that the manager keeps backups in.
func (w *world) backups() string {
	dir := filepath.Join(w.dir, "backups")
	if err := os.MkdirAll(filepath.Join(dir, w.ns), 0o700); err != nil {
		w.t.Fatal(err)
	}

	return dir
}

// identityFor makes an age identity and puts it into a Secret of the name.
func (w *world) identityFor(name string) *age.X25519Identity {
	w.t.Helper()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		w.t.Fatal(err)
	}

	w.secret(name, map[string]string{"identity": id.String()})

	return id
}

func (w *world) secret(name string, data map[string]string) {
	w.t.Helper()

	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, StringData: data}
	if err := w.client.Create(context.Background(), s); err != nil {
		w.t.Fatal(err)
	}
}

// note writes a Secret and a ConfigMap into the cluster.
func note(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()

	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	ctx := context.Background()

	if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: meta, Data: map[string]string{"text": name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if _, err := c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: meta, StringData: map[string]string{"text": name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// noted: the notes of the first name are there, those of the second are not.
func noted(t *testing.T, c kubernetes.Interface, there, lost string) {
	t.Helper()

	s, err := c.CoreV1().Secrets("default").Get(context.Background(), there, metav1.GetOptions{})
	if err != nil || string(s.Data["text"]) != there {
		t.Errorf("the Secret from before the backup: %q, %v", s.Data["text"], err)
	}

	if _, err := c.CoreV1().ConfigMaps("default").Get(context.Background(), there, metav1.GetOptions{}); err != nil {
		t.Errorf("the ConfigMap from before the backup: %v", err)
	}

	if _, err := c.CoreV1().ConfigMaps("default").Get(context.Background(), lost, metav1.GetOptions{}); lost != "" &&
		!apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap from after the backup: %v", err)
	}
}

// backUp takes a backup of a running cluster, encrypted for an identity, into the folder of the manager.
func (w *world) backUp(cluster, address string, id *age.X25519Identity) *backup.Manifest {
	w.t.Helper()

	dir, err := store.NewDirectory(filepath.Join(w.backups(), w.ns))
	if err != nil {
		w.t.Fatal(err)
	}

	secret := &corev1.Secret{}
	w.get(secret, cluster+"-state")

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		w.t.Fatal(err)
	}

	key, err := state.Bundle.BackupKey()
	if err != nil {
		w.t.Fatal(err)
	}

	c := w.talos(cluster)

	m, err := backup.Take(context.Background(), dir, backup.Request{
		ID: backup.NewID(wait.Now(), cluster),
		Cluster: backup.Cluster{
			Name: cluster, Namespace: w.ns, ID: state.Bundle.ClusterID(), CAFingerprint: state.Bundle.CAFingerprint(),
		},
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Source: backup.Member{Node: address}, State: secret,
		Recipients: []string{id.Recipient().String()}, Sign: key,
		Snapshot: func(ctx context.Context) (io.ReadCloser, error) {
			return c.EtcdSnapshot(talosclient.WithNode(ctx, address), &machineapi.EtcdSnapshotRequest{})
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}

	return m
}

// verificationKey is what a person notes beside the age identity.
func (w *world) verificationKey(cluster string) string {
	w.t.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	w.get(cp, cluster)

	if cp.Status.BackupVerificationKey == "" {
		w.t.Fatal("the control plane does not show the verification key of its backups")
	}

	return cp.Status.BackupVerificationKey
}

func (w *world) restore(name, cluster string, edit ...func(*v1alpha1.TalosEtcdRestoreSpec)) {
	w.t.Helper()

	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Source:          v1alpha1.RestoreSource{Storage: &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}}},
			IdentitiesFrom:  []v1alpha1.SecretKeyReference{{Name: "age", Key: "identity"}},
		},
	}
	for _, e := range edit {
		e(&r.Spec)
	}

	if err := w.client.Create(context.Background(), r); err != nil {
		w.t.Fatal(err)
	}
}

// restored waits for a restore to be complete, and kills the manager once in each of the steps.
func (w *world) restored(name string, killed ...v1alpha1.RestoreStep) *v1alpha1.TalosEtcdRestore {
	w.t.Helper()

	return w.restoredThrough(name, func(v1alpha1.RestoreStep) {
		w.manager.kill()
		w.manager = w.startManager(w.plane)
	}, killed...)
}

// restoredThrough waits for a restore to be complete, and interrupts it once in each of the steps.
func (w *world) restoredThrough(
	name string, interrupt func(v1alpha1.RestoreStep), steps ...v1alpha1.RestoreStep,
) *v1alpha1.TalosEtcdRestore {
	w.t.Helper()

	r := &v1alpha1.TalosEtcdRestore{}
	steps = slices.Clone(steps)

	w.eventually("restore "+name+" is complete", func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, r); err != nil {
			return err
		}

		if i := slices.Index(steps, r.Status.Step); i >= 0 {
			steps = slices.Delete(steps, i, i+1)

			interrupt(r.Status.Step)
		}

		if r.Status.Step == v1alpha1.RestoreStopped {
			w.t.Fatalf("the restore was stopped: %+v", r.Status)
		}

		return w.condition(r, name, v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonRestored)(ctx)
	})

	if len(steps) > 0 {
		w.t.Logf("these steps were too short to be interrupted: %v", steps)
	}

	for _, s := range r.Status.Steps {
		if s.CompletedAt != nil {
			w.t.Logf("%-18s %6.2f s  %s", s.Step, s.CompletedAt.Sub(s.StartedAt.Time).Seconds(), s.Message)
		}
	}

	return r
}

// TestRestore: an etcd is restored from a backup, with the manager killed on the way. What was written after it is
// lost, and kept as a copy; the PKI stays, the workers run on, and no other controller touches a node meanwhile.
func TestRestore(t *testing.T) {
	w := newRealWorld(t)
	for i := range 4 {
		w.boot(i + 1)
	}

	controlPlanes := []string{w.address(1), w.address(2), w.address(3)}
	w.apply(clusterManifest("back", w.address(1), controlPlanes, []string{w.address(4)}))
	w.running("back")
	w.nodesReady("back", 4)
	w.reboot(1, 4)
	w.sendAgain("back", 2)
	w.fromDisk("back", 1, 3, 4)

	before := w.identity("back")
	c := w.kubernetes("back")

	note(t, c, "early")

	id := w.identityFor("age")
	m := w.backUp("back", w.address(2), id)

	note(t, c, "late")

	// Without leave to lose what is newer, nothing happens.
	w.restore("careful", "back")
	w.eventually("the careful restore is refused", w.condition(&v1alpha1.TalosEtcdRestore{}, "careful",
		v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDataWouldBeLost))
	w.sameIdentity("back", before)

	w.restore("meant", "back", func(s *v1alpha1.TalosEtcdRestoreSpec) { s.DiscardNewerData = true })
	r := w.restored("meant", v1alpha1.RestoreSaving, v1alpha1.RestoreWiping, v1alpha1.RestorePreparing,
		v1alpha1.RestoreUploading, v1alpha1.RestoreRecovering, v1alpha1.RestoreJoining)

	if r.Status.Backup.ID != m.ID || r.Status.Revision < r.Status.Backup.Revision || r.Status.Backup.Revision == 0 {
		t.Errorf("the status is %+v", r.Status)
	}

	noted(t, c, "early", "late")
	w.running("back")
	w.nodesReady("back", 4)
	w.oneEtcd("back", 3)

	after := w.identity("back")
	if after.fingerprint != before.fingerprint || after.boots[w.address(4)] != before.boots[w.address(4)] {
		t.Errorf("the PKI or the worker is another one: %+v, %+v", before, after)
	}

	w.lastSnapshot(r, id)
	w.idle(3 * time.Second)
	w.searchSecrets("back")
}

// lastSnapshot: what was lost can be read in the copy.
func (w *world) lastSnapshot(r *v1alpha1.TalosEtcdRestore, id *age.X25519Identity) {
	w.t.Helper()

	dir, err := store.NewDirectory(filepath.Join(w.backups(), w.ns))
	if err != nil {
		w.t.Fatal(err)
	}

	sets, err := backup.List(context.Background(), dir, backup.Prefix(r.Spec.ControlPlaneRef.Name))
	if err != nil || len(sets) != 2 || !strings.HasSuffix(r.Status.LastSnapshot, sets[1].ID) {
		w.t.Fatalf("%d backups, the last snapshot is at %q, %v", len(sets), r.Status.LastSnapshot, err)
	}

	m, err := backup.ReadManifest(context.Background(), dir, sets[1])
	if err != nil {
		w.t.Fatal(err)
	}

	sum := sha256.New()

	got, err := backup.ReadSnapshot(context.Background(), dir, backup.SnapshotOf(sets[1], m, []age.Identity{id}), sum)
	if err != nil || hex.EncodeToString(sum.Sum(nil)) != got.PlainSHA256 {
		w.t.Errorf("the last snapshot: %+v, %v", got, err)
	}
}

// TestTotalLoss: a schedule backs a cluster up to a bucket, then the management plane, all nodes and all their disks
// are gone. From the bucket, an identity, two manifests and fresh machines the cluster comes back, and old kubeconfigs
// work.
func TestTotalLoss(t *testing.T) {
	w := newLonelyWorld(t)
	for i := range 4 {
		w.boot(i + 1)
	}

	w.apply(planeManifest(w, "phoenix"))
	w.whole("phoenix")

	c := w.kubernetes("phoenix") // keeps the old kubeconfig
	note(t, c, "early")

	id := w.identityFor("age")
	fingerprint := w.identity("phoenix").fingerprint
	s3 := w.bucket()
	w.credentials(s3)
	w.schedule("phoenix", bucketOf(s3), id)
	w.backedUp("phoenix")
	key := w.verificationKey("phoenix")

	// Everything burns.
	w.manager.kill()
	w.plane.Kill()

	for _, n := range maps.Clone(w.nodes) {
		if err := n.WipeDisk(); err != nil {
			t.Fatal(err)
		}

		if err := n.PowerOn(context.Background()); err != nil {
			t.Fatal(err)
		}
	}

	w.plane = w.startPlane()
	w.client = w.clientTo(w.plane)
	w.manager = w.startManager(w.plane)

	w.secret("age", map[string]string{"identity": id.String()})
	w.credentials(s3)
	w.restore("rise", "phoenix", func(r *v1alpha1.TalosEtcdRestoreSpec) {
		r.Source.Storage, r.Source.VerificationKeys = new(bucketOf(s3)), []string{key}
	})
	w.apply(planeManifest(w, "phoenix"))

	w.restored("rise", v1alpha1.RestorePreflight, v1alpha1.RestorePreparing, v1alpha1.RestoreRecovering,
		v1alpha1.RestoreProving)
	w.whole("phoenix")
	noted(t, c, "early", "")

	if got := w.identity("phoenix").fingerprint; got != fingerprint {
		t.Errorf("the PKI is another one: %s, was %s", got, fingerprint)
	}

	w.nodesReady("phoenix", 4)
	w.oneEtcd("phoenix", 3)
	w.fromDisk("phoenix", 1, 2, 3, 4)
	w.idle(3 * time.Second)
	w.searchSecrets("phoenix")
}

// TestLostEphemeral: the control plane loses what is not its config, long after its first boot. Nothing is left to be
// discarded, so the backup comes back without leave for that.
func TestLostEphemeral(t *testing.T) {
	w := newRealWorld(t)
	w.boot(1)
	w.boot(2)
	w.apply(singleManifest(w, "flood"))
	w.whole("flood")
	w.reboot(1)

	c := w.kubernetes("flood")
	note(t, c, "early")

	m := w.backUp("flood", w.address(1), w.identityFor("age"))

	note(t, c, "late")
	w.losesEphemeral("flood", 1)
	w.eventually("the loss is told", w.condition(&v1alpha1.TalosControlPlane{}, "flood", v1alpha1.ConditionReady,
		metav1.ConditionFalse))
	w.fromDisk("flood", 1, 2)

	w.elect()

	resets, acts := w.nodes[w.address(1)].Faults().Calls("Reset"), w.countChanges(1, 2)

	w.restore("dry", "flood")
	r := w.restoredThrough("dry", func(step v1alpha1.RestoreStep) {
		if step == v1alpha1.RestoreRecovering {
			w.recreate()
		} else {
			w.roll()
		}
	}, v1alpha1.RestorePreparing, v1alpha1.RestoreUploading, v1alpha1.RestoreRecovering, v1alpha1.RestoreProving)

	if n := acts.of("Bootstrap"); n != 1 {
		t.Errorf("%d calls for a bootstrap from the snapshot", n)
	}

	if n := w.nodes[w.address(1)].Faults().Calls("Reset"); r.Status.Backup.ID != m.ID || r.Status.LastSnapshot != "" || n != resets {
		t.Errorf("%d resets; the status is %+v", n-resets, r.Status)
	}

	w.whole("flood")
	noted(t, c, "early", "late")
	w.nodesReady("flood", 2)
	w.oneEtcd("flood", 1)
	w.idle(3 * time.Second)
}

// losesEphemeral wipes the EPHEMERAL partition of a machine, which boots anew and keeps its config.
func (w *world) losesEphemeral(cluster string, machine int) {
	w.t.Helper()

	n := w.nodes[w.address(machine)]
	before := n.Status().BootID

	w.eventually("the wipe of "+n.Name(), func(ctx context.Context) error {
		return w.talos(cluster).ResetGeneric(talosclient.WithNode(ctx, n.Address()), &machineapi.ResetRequest{
			Reboot: true, Mode: machineapi.ResetRequest_SYSTEM_DISK,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}},
		})
	})
	w.eventually(n.Name()+" has booted anew", func(context.Context) error {
		if st := n.Status(); st.BootID == before || st.Stage != "booting" {
			return fmt.Errorf("%+v", st)
		}

		return nil
	})
}

// planeManifest is a control plane of three and a worker, without a KubernetesCluster.
func planeManifest(w *world, name string) string {
	return fmt.Sprintf(`
apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: %[1]s}
spec:
  talosVersion: v1.13.9
  kubernetesVersion: v1.36.2
  endpoint: https://%[2]s:6443
  machines:
    - {name: cp-1, address: %[2]s}
    - {name: cp-2, address: %[3]s}
    - {name: cp-3, address: %[4]s}
---
apiVersion: talos-operator.io/v1alpha1
kind: TalosWorker
metadata: {name: %[1]s-workers}
spec:
  controlPlaneRef: {name: %[1]s}
  machines:
    - {name: w-4, address: %[5]s}
`, name, w.address(1), w.address(2), w.address(3), w.address(4))
}
