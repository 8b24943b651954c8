package clusterstate_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestBackupKey: the key follows from the PKI alone, so that another management plane, and a person with the state
// Secret, have the same one.
func TestBackupKey(t *testing.T) {
	t.Parallel()

	bundle := func() *clusterstate.Bundle {
		b, err := clusterstate.NewBundle(clusterstate.Options{
			TalosVersion: "v1.13.9", Now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC),
		})
		if err != nil {
			t.Fatal(err)
		}

		return b
	}

	b := bundle()

	raw, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}

	again, err := clusterstate.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}

	key, err := b.BackupKey()
	if err != nil {
		t.Fatal(err)
	}

	for name, of := range map[string]*clusterstate.Bundle{"itself": b, "its copy": again, "its copy once more": again} {
		if p, err := of.BackupVerificationKey(); err != nil || p != key.Public() {
			t.Errorf("%s: %s, %v; want %s", name, p, err, key.Public())
		}
	}

	if p, err := bundle().BackupVerificationKey(); err != nil || p == key.Public() {
		t.Errorf("two clusters have one key: %s, %v", p, err)
	}
}
