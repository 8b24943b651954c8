package retention_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
)

func signer(t *testing.T, cluster byte) *signature.Key {
	t.Helper()

	key, err := signature.Derive(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{cluster}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}

	return key
}

// take stores a backup that is signed with a key, or with none, and verified by its owner if that is said.
func take(t *testing.T, s store.Store, age time.Duration, key *signature.Key, verifier ...*signature.Key) string {
	t.Helper()

	at := now.Add(-age).Truncate(time.Second)
	content := bytes.Repeat([]byte("0123456789abcdef"), 32)
	sum := sha256.Sum256(content)
	r := backup.Request{
		ID: backup.NewID(at, age.String()), Cluster: cluster, AllowUnencrypted: true, Sign: key,
		State: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c-state"}, Data: map[string][]byte{"a": []byte("b")}},
		Snapshot: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(append(content, sum[:]...))), nil
		},
		Now: func() time.Time { return at },
	}

	m, err := backup.Take(t.Context(), s, r)
	if err != nil {
		t.Fatal(err)
	}

	for _, by := range verifier {
		verifiedBy(t, s, m, by)
	}

	return r.ID
}

// verifiedBy stores what a verification would, signed as it is there: here nothing is decoded.
func verifiedBy(t *testing.T, s store.Store, m *backup.Manifest, key *signature.Key) {
	t.Helper()

	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}

	r := &verify.Report{
		Format: "talos-operator.io/etcd-backup-verification", Version: 2, Backup: m.ID, Level: verify.Checksum,
		Snapshot:  verify.SnapshotFile{Size: m.Snapshot.Size, SHA256: m.Snapshot.SHA256},
		StartedAt: m.StartedAt, FinishedAt: m.StartedAt, ManifestSHA256: digest,
	}

	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}

	r.Signature = key.Sign("etcd-backup-verification v2", content)

	if err := verify.Record(t.Context(), s, backup.Set{ID: m.ID, Cluster: m.Cluster.Name}, r); err != nil {
		t.Fatal(err)
	}
}

// TestPlantedBackups: who can write to the store cannot have retention delete the good backups by planting newer ones.
func TestPlantedBackups(t *testing.T) {
	ours, theirs := signer(t, 1), signer(t, 2)
	s := inMemory()

	for i := range 20 {
		// Newer than all of ours, and of the past.
		take(t, s, time.Duration(i+1)*time.Minute, theirs, theirs)
		take(t, s, time.Duration(i+100)*time.Minute, nil, theirs)
	}

	newest := take(t, s, 5*time.Hour, ours)
	checked := take(t, s, 6*time.Hour, ours, ours)
	// Its verification is forged: it must not count as the last one.
	second := take(t, s, 5*time.Hour+time.Minute, ours, theirs)
	old := take(t, s, 7*time.Hour, ours, ours)

	o := options(retention.Policy{Last: 2})
	o.Keys = []signature.Public{ours.Public()}

	r, err := retention.Run(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range []string{newest, second, checked} {
		if slices.Contains(r.Deleted, id) {
			t.Errorf("%s was deleted", id)
		}
	}

	if !slices.Contains(r.Deleted, old) || r.Forged != 20 || r.Unsigned != 2 || r.Count != 5 {
		t.Errorf("%+v", r)
	}

	if again, err := retention.Run(t.Context(), s, o); err != nil || len(again.Deleted) > 0 {
		t.Errorf("a second run: %+v, %v", again, err)
	}
}

// TestUnsignedBackupsAge: what an older version left goes as it would have gone, once there are others.
func TestUnsignedBackupsAge(t *testing.T) {
	key := signer(t, 1)
	s := inMemory()

	old := take(t, s, 5*time.Hour, nil)
	verified := take(t, s, 4*time.Hour, nil, key)
	second := take(t, s, 3*time.Hour, nil)
	newest := take(t, s, time.Hour, nil)

	run := func() []string {
		o := options(retention.Policy{Last: 2})
		o.Keys = []signature.Public{key.Public()}

		r, err := retention.Run(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}

		return r.Deleted
	}

	// Nothing is signed yet: the counts hold for what there is, and the last one that was verified stays.
	if diff := cmp.Diff([]string{old}, run()); diff != "" {
		t.Error(diff)
	}

	take(t, s, 30*time.Minute, key)

	if diff := cmp.Diff([]string{second}, run()); diff != "" {
		t.Error(diff)
	}

	take(t, s, 20*time.Minute, key, key)

	if diff := cmp.Diff([]string{verified, newest}, run()); diff != "" {
		t.Error(diff)
	}
}
