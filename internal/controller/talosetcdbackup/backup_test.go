package talosetcdbackup_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"github.com/minio/minio-go/v7"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestBackup: what is in the bucket opens with the plain libraries of age and zstd and with etcdutl, the status tells
// what it is, and there is never a second one.
func TestBackup(t *testing.T) {
	on := must(t, threesome)
	e := newEnv(t, on)
	led := on.Leader(t)
	b := e.done(e.backup("b", verified(v1alpha1.VerificationDatabase)))
	st := &b.Status

	folder := "talos-operator-etcd-backups/" + cluster + "/"
	if st.Key != folder+st.BackupID+".manifest.json" || st.Location != "s3://"+e.bucket+"/lab/"+st.Key || st.Tries != 1 {
		t.Errorf("key %s, location %s, tries %d", st.Key, st.Location, st.Tries)
	}

	// Another one may be elected meanwhile.
	leads := on.Leader(t)
	if st.Source == nil || leads == led && st.Source.Machine == on.Nodes[leads].Name() || st.Source.Leader || st.Source.MemberID == "" ||
		st.Source.WithoutQuorum {
		t.Errorf("source %+v, while %s leads", st.Source, on.Nodes[leads].Name())
	}

	if st.Size.Value() < int64(on.database) || st.StoredSize.Value() < int64(on.database) || st.CompletedAt == nil || st.SnapshotSHA256 == "" ||
		st.TalosVersion != harness.TalosVersion || st.KubernetesVersion != harness.KubernetesVersion || st.Failures != 0 {
		t.Errorf("status %s", harness.Show(b))
	}

	if v := st.Verification; v == nil || v.Level != v1alpha1.VerificationDatabase || v.TotalKeys < 20 || v.Revision != st.Revision || v.Hash == "" {
		t.Errorf("verification %+v", v)
	}

	e.Condition(b, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonBackupComplete, "complete")
	e.Condition(b, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonVerified, "level Database: revision")

	want := []string{
		folder + st.BackupID + ".manifest.json", folder + st.BackupID + ".snap.zst.age",
		folder + st.BackupID + ".state.json.age", folder + st.BackupID + ".verified.json",
	}
	if got := e.inBucket(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("in the bucket: %v", got)
	}

	e.opens(b, want[1])

	secret := &corev1.Secret{}
	if err := json.Unmarshal(e.decrypted(want[2]), secret); err != nil || len(secret.Data["secretBundle"]) == 0 || secret.Name != cluster+"-state" {
		t.Errorf("the state in the backup: %v", err)
	}

	m, err := backup.ParseManifest(e.object3(want[0]))
	if err != nil || m.Cluster.Namespace != e.Namespace || m.Etcd.Node != st.Source.Machine || m.Etcd.Version == "" || m.Tool != "test" {
		t.Errorf("manifest %+v, %v", m, err)
	}

	if m.Signature == nil || m.Signature.Key.String() != st.VerificationKey || !m.SignedBy(m.Signature.Key) {
		t.Errorf("it is not signed: %+v, status %q", m.Signature, st.VerificationKey)
	}

	api.NoWrites(t, e.Namespace, func() {
		e.restart()

		for range 3 {
			if _, err := e.pass(b); err != nil {
				t.Error(err)
			}
		}
	})

	if got := e.inBucket(); len(got) != 4 {
		t.Errorf("after a restart: %v", got)
	}

	e.keepsSecrets()
}

// object3 reads an object as it is stored.
func (e *env) object3(key string) []byte {
	e.Helper()

	c, err := e.s3.Client()
	if err != nil {
		e.Fatal(err)
	}

	o, err := c.GetObject(e.Context(), e.bucket, "lab/"+key, minio.GetObjectOptions{})
	if err != nil {
		e.Fatal(err)
	}
	defer o.Close()

	b, err := io.ReadAll(o)
	if err != nil {
		e.Fatal(err)
	}

	return b
}

func (e *env) decrypted(key string) []byte {
	e.Helper()

	r, err := age.Decrypt(bytes.NewReader(e.object3(key)), e.id)
	if err != nil {
		e.Fatal(err)
	}

	b, err := io.ReadAll(r)
	if err != nil {
		e.Fatal(err)
	}

	return b
}

// opens has etcdutl read a snapshot, and compares what it says with the status.
func (e *env) opens(b *v1alpha1.TalosEtcdBackup, key string) {
	e.Helper()

	d, err := zstd.NewReader(nil)
	if err != nil {
		e.Fatal(err)
	}
	defer d.Close()

	plain, err := d.DecodeAll(e.decrypted(key), nil)
	if err != nil {
		e.Fatal(err)
	}

	file := filepath.Join(e.TempDir(), "snap.db")
	if err := os.WriteFile(file, plain, 0o600); err != nil {
		e.Fatal(err)
	}

	assets, err := process.Assets()
	if err != nil {
		e.Fatal(err)
	}

	out, err := exec.CommandContext(e.Context(), filepath.Join(assets, "etcdutl"), "snapshot", "status", file, "-w", "json").Output()
	if err != nil {
		e.Fatal(err)
	}

	var told struct{ Revision, TotalKey, TotalSize int64 }
	if err := json.Unmarshal(out, &told); err != nil {
		e.Fatal(err)
	}

	v := b.Status.Verification
	if told.Revision != v.Revision || told.TotalKey != v.TotalKeys || told.TotalSize != v.TotalSize || b.Status.Size.Value() != int64(len(plain)) {
		e.Errorf("etcdutl says %+v of %d bytes, the status %+v and %v", told, len(plain), v, b.Status.Size)
	}

	if !bytes.Contains(plain, []byte(marker)) {
		e.Error("what was written before the backup is not in it")
	}
}

// TestNodeFrozenMidStream: the stream ends, nothing of it stays, and the next try asks another node.
func TestNodeFrozenMidStream(t *testing.T) {
	on := must(t, threesome)
	e := newEnv(t, on)
	b := e.backup("b", func(b *v1alpha1.TalosEtcdBackup) { b.Spec.StallTimeout.Duration = 5 * time.Second })
	frozen := e.atFirstPart(b, func(source string) {
		for _, n := range on.Nodes {
			if n.Name() == source {
				n.Freeze(true)
				t.Cleanup(func() { n.Freeze(false) })
			}
		}
	})

	e.fails(b, v1alpha1.ConditionReady, backup.ReasonStalled)
	e.empty("after the stream stalled")

	if b.Status.Failures != 1 || b.Status.NextTryAt == nil {
		t.Errorf("status %s", harness.Show(b))
	}

	// The other nodes are only slow, on a busy computer.
	harness.Change(e.Env, b, func(b *v1alpha1.TalosEtcdBackup) { b.Spec.StallTimeout.Duration = 10 * time.Minute })
	e.Clock.Sleep(time.Minute)
	e.done(b)

	if b.Status.Source.Machine == *frozen || b.Status.Tries != 2 {
		t.Errorf("frozen was %s; status %s", *frozen, harness.Show(b))
	}

	for _, n := range on.Nodes {
		n.Freeze(false)
	}

	if err := on.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLeaderChangeMidStream: a snapshot is that of one member; who leads does not matter to it.
func TestLeaderChangeMidStream(t *testing.T) {
	on := must(t, threesome)
	e := newEnv(t, on)
	b := e.backup("b", verified(v1alpha1.VerificationDatabase))
	before := on.Leader(t)

	e.atFirstPart(b, func(string) {
		c, err := harness.EtcdClient(on.State, on.Nodes[before].Address())
		if err != nil {
			t.Error(err)

			return
		}
		defer c.Close()

		var follower uint64

		members, err := c.MemberList(t.Context())
		if err == nil {
			for _, m := range members.Members {
				if m.Name != on.Nodes[before].Name() {
					follower = m.ID
				}
			}

			_, err = c.MoveLeader(t.Context(), follower)
		}

		if err != nil {
			t.Errorf("moving the leader: %v", err)
		}
	})

	e.done(b)

	if on.Leader(t) == before || b.Status.Tries != 1 {
		t.Errorf("leader %d before, %d after; status %s", before, on.Leader(t), harness.Show(b))
	}
}

// atFirstPart does something once the first part of a snapshot reaches the store, which then takes its time.
func (e *env) atFirstPart(b *v1alpha1.TalosEtcdBackup, do func(source string)) *string {
	source, key := new(string), e.Key(b.Name)
	once := make(chan struct{}, 1)

	e.proxy.Set(func(r *http.Request) s3.Fault {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.RequestURI(), "partNumber=1") {
			return s3.Fault{}
		}

		select {
		case once <- struct{}{}:
			now := &v1alpha1.TalosEtcdBackup{}
			if err := e.Admin.Get(r.Context(), key, now); err == nil && now.Status.Source != nil {
				*source = now.Status.Source.Machine
			}

			do(*source)
		default:
		}

		return s3.Fault{}
	})

	return source
}

// TestSnapshotCutShort: a node that ends the stream early ends it as if it were complete. That is no backup.
func TestSnapshotCutShort(t *testing.T) {
	on := must(t, threesome)
	e := newEnv(t, on)

	for _, n := range on.Nodes {
		n.CutSnapshots(9 << 20)
		defer n.CutSnapshots(0)
	}

	b := e.backup("b", func(b *v1alpha1.TalosEtcdBackup) { one := int32(1); b.Spec.Retries = &one })
	e.fails(b, v1alpha1.ConditionReady, backup.ReasonTruncated)
	e.empty("after a stream that was cut short")
	e.Clock.Sleep(time.Minute)
	e.stalls(b, backup.ReasonTruncated, "stopped after 2 failures")
	e.empty("in the end")
	e.keepsSecrets()
}

// TestFoundDamaged: a backup that was verified, and is not what it was when it is read again, is not offered as a
// verified one any more.
func TestFoundDamaged(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	b := e.done(e.backup("b", verified(v1alpha1.VerificationChecksum)))
	proof := func(key string) bool { return strings.HasSuffix(key, ".verified.json") }

	if !slices.ContainsFunc(e.inBucket(), proof) {
		t.Fatalf("in the bucket: %v", e.inBucket())
	}

	c, err := e.s3.Client()
	if err != nil {
		t.Fatal(err)
	}

	key := "lab/" + strings.TrimSuffix(b.Status.Key, ".manifest.json") + ".snap.zst.age"
	if _, err := c.PutObject(t.Context(), e.bucket, key, strings.NewReader("other"), 5, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}

	harness.Change(e.Env, b, verified(v1alpha1.VerificationDatabase))
	e.until(b, "the damage is found", func() bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionStalled)
	})

	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); !slices.Contains(verify.DamageReasons, c.Reason) {
		t.Errorf("the status is %s", harness.Show(b))
	}

	if slices.ContainsFunc(e.inBucket(), proof) {
		t.Errorf("in the bucket: %v", e.inBucket())
	}
}
