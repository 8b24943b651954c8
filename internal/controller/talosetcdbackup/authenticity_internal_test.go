package talosetcdbackup

import (
	stdbytes "bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func signer(t *testing.T, cluster byte) *signature.Key {
	t.Helper()

	key, err := signature.Derive(ed25519.NewKeyFromSeed(stdbytes.Repeat([]byte{cluster}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}

	return key
}

// TestResolveTakesOursOnly: a stranger who knows the name that a try has recorded can put a backup there. It is not
// taken for ours, and not deleted either.
func TestResolveTakesOursOnly(t *testing.T) {
	t.Parallel()

	ours := signer(t, 1)
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

	for name, tt := range map[string]struct {
		sign *signature.Key
		want bool
	}{"ours": {ours, true}, "of somebody else": {signer(t, 2), false}, "not signed": {nil, false}} {
		s, err := store.NewDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}

		b := &v1alpha1.TalosEtcdBackup{}
		b.Status.BackupID = backup.NewID(at, "x")
		b.Status.Key = backup.Prefix("c") + b.Status.BackupID + manifestSuffix
		content := stdbytes.Repeat([]byte("0123456789abcdef"), 32)
		sum := sha256.Sum256(content)

		if _, err := backup.Take(t.Context(), s, backup.Request{
			ID: b.Status.BackupID, Cluster: backup.Cluster{Name: "c", Namespace: "ns"}, AllowUnencrypted: true, Sign: tt.sign,
			State: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c-state"}, Data: map[string][]byte{"a": []byte("b")}},
			Snapshot: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(stdbytes.NewReader(append(content, sum[:]...))), nil
			},
			Now: func() time.Time { return at },
		}); err != nil {
			t.Fatal(err)
		}

		found, err := resolve(t.Context(), s, b, ours, at)
		if err != nil || (found != nil) != tt.want {
			t.Errorf("%s: %+v, %v", name, found, err)
		}

		if sets, err := backup.List(t.Context(), s, ""); err != nil || len(sets) != 1 || !sets[0].Complete() {
			t.Errorf("%s: left are %+v, %v", name, sets, err)
		}
	}
}

// TestStillSigned: a backup that was signed when it was taken is no good without its signature.
func TestStillSigned(t *testing.T) {
	t.Parallel()

	m := &backup.Manifest{Snapshot: backup.File{PlainSHA256: "sum"}}

	for name, tt := range map[string]struct {
		key, sum string
		origin   backup.Authenticity
		good     bool
	}{
		"signed":                            {"ed25519:x", "sum", backup.Authentic, true},
		"the signature was removed":         {"ed25519:x", "sum", backup.Unsigned, false},
		"of an older version":               {"", "sum", backup.Unsigned, true},
		"of an older version, and replaced": {"", "other", backup.Unsigned, false},
		"of an older version, signed since": {"", "other", backup.Authentic, true},
	} {
		b := &v1alpha1.TalosEtcdBackup{}
		b.Status.VerificationKey, b.Status.SnapshotSHA256 = tt.key, tt.sum

		err := stillSigned(b, m, tt.origin)
		if (err == nil) != tt.good || err != nil && failure.Reason(err) != backup.ReasonNotAuthentic {
			t.Errorf("%s: %v", name, err)
		}
	}
}
