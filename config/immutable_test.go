package config_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

type backupEdit = func(*v1alpha1.TalosEtcdBackupSpec)

// backupField is a field of the spec of a backup: its value, another one, and no value.
type backupField struct {
	value, other, none backupEdit
	mutable            bool
}

const (
	anAgeKey      = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	anotherAgeKey = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"
)

// backupFields are the fields of the spec of a backup. A required one has no edit that removes it.
func backupFields() map[string]backupField {
	keys := func(name string) []v1alpha1.SecretKeyReference {
		return []v1alpha1.SecretKeyReference{{Name: name, Key: "k"}}
	}
	duration := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	verify := func(l v1alpha1.VerificationLevel) *v1alpha1.BackupVerification {
		return &v1alpha1.BackupVerification{Level: l}
	}

	return map[string]backupField{
		"controlPlaneRef": {
			value: func(s *v1alpha1.TalosEtcdBackupSpec) { s.ControlPlaneRef.Name = "cp" },
			other: func(s *v1alpha1.TalosEtcdBackupSpec) { s.ControlPlaneRef.Name = "other" },
		},
		"storage": {
			value: func(s *v1alpha1.TalosEtcdBackupSpec) {
				s.Storage.S3 = &v1alpha1.S3Storage{Bucket: "backups", Prefix: "a"}
			},
			other: func(s *v1alpha1.TalosEtcdBackupSpec) { s.Storage.S3 = &v1alpha1.S3Storage{Bucket: "backups"} },
		},
		"recipients": {
			value: func(s *v1alpha1.TalosEtcdBackupSpec) { s.Recipients = []string{anAgeKey} },
			other: func(s *v1alpha1.TalosEtcdBackupSpec) { s.Recipients = []string{anAgeKey, anotherAgeKey} },
			none:  func(s *v1alpha1.TalosEtcdBackupSpec) { s.Recipients = nil },
		},
		"recipientsFrom": {
			value: func(s *v1alpha1.TalosEtcdBackupSpec) { s.RecipientsFrom = keys("a") },
			other: func(s *v1alpha1.TalosEtcdBackupSpec) { s.RecipientsFrom = keys("b") },
			none:  func(s *v1alpha1.TalosEtcdBackupSpec) { s.RecipientsFrom = nil },
		},
		"compression": {
			value: func(s *v1alpha1.TalosEtcdBackupSpec) { s.Compression = v1alpha1.CompressionNone },
			other: func(s *v1alpha1.TalosEtcdBackupSpec) { s.Compression = v1alpha1.CompressionZstd },
			none:  func(s *v1alpha1.TalosEtcdBackupSpec) { s.Compression = "" },
		},
		"timeout": {
			value:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.Timeout = duration(time.Minute) },
			other:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.Timeout = duration(time.Hour) },
			none:    func(s *v1alpha1.TalosEtcdBackupSpec) { s.Timeout = nil },
			mutable: true,
		},
		"stallTimeout": {
			value:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.StallTimeout = duration(time.Minute) },
			other:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.StallTimeout = duration(time.Hour) },
			none:    func(s *v1alpha1.TalosEtcdBackupSpec) { s.StallTimeout = nil },
			mutable: true,
		},
		"retries": {
			value:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.Retries = new(int32(1)) },
			other:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.Retries = new(int32(2)) },
			none:    func(s *v1alpha1.TalosEtcdBackupSpec) { s.Retries = nil },
			mutable: true,
		},
		"verification": {
			value:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.Verification = verify(v1alpha1.VerificationNone) },
			other:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.Verification = verify(v1alpha1.VerificationChecksum) },
			none:    func(s *v1alpha1.TalosEtcdBackupSpec) { s.Verification = nil },
			mutable: true,
		},
		"deletionPolicy": {
			value:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.DeletionPolicy = v1alpha1.BackupDelete },
			other:   func(s *v1alpha1.TalosEtcdBackupSpec) { s.DeletionPolicy = v1alpha1.BackupRetain },
			none:    func(s *v1alpha1.TalosEtcdBackupSpec) { s.DeletionPolicy = "" },
			mutable: true,
		},
	}
}

// TestBackupSpecIsImmutable: what is stored, where, and for whom does not change once the backup exists, whether a field
// is changed, added or removed: the stored data would not be what the spec says. How it is done may change.
func TestBackupSpecIsImmutable(t *testing.T) {
	namespace, c := api.Namespace(t), api.Admin(t)
	fields := backupFields()
	create := func(name string, edits ...backupEdit) *v1alpha1.TalosEtcdBackup {
		b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		for _, edit := range edits {
			edit(&b.Spec)
		}

		if err := c.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}

		return b
	}
	check := func(what string, b *v1alpha1.TalosEtcdBackup, mutable bool, edits ...backupEdit) {
		after := b.DeepCopy()
		for _, edit := range edits {
			edit(&after.Spec)
		}

		err := c.Update(t.Context(), after, client.DryRunAll)
		if mutable && err != nil || !mutable && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "are immutable")) {
			t.Errorf("%s: %v", what, err)
		}
	}

	checkFieldNames(t, fields)

	required := []backupEdit{fields["controlPlaneRef"].value, fields["storage"].value}
	full := slices.Clone(required)

	for _, name := range slices.Sorted(maps.Keys(fields)) {
		full = append(full, fields[name].value)
	}

	all := create("all", full...)
	keyed := create("keyed", append(required, fields["recipients"].value)...)
	referring := create("referring", append(required, fields["recipientsFrom"].value)...)

	for name, f := range fields {
		check(name+" changed", all, f.mutable, f.other)

		if f.none == nil {
			continue
		}

		check(name+" removed", all, f.mutable, f.none)

		without := keyed
		if name == "recipients" {
			without = referring
		}

		check(name+" added", without, f.mutable, f.value)
	}

	// What decides whether anyone can read the backup is changed together with what excludes it.
	unencrypted := func(s *v1alpha1.TalosEtcdBackupSpec) { s.AllowUnencrypted = true }
	plain := create("plain", append(required, unencrypted)...)

	check("allowUnencrypted added", keyed, false, fields["recipients"].none, unencrypted)
	check("allowUnencrypted removed", plain, false, fields["recipients"].value,
		func(s *v1alpha1.TalosEtcdBackupSpec) { s.AllowUnencrypted = false })
	check("the default compression written down", keyed, true, fields["compression"].other)
}

// checkFieldNames: a field that will be added to the spec is mutable or not by decision.
func checkFieldNames(t *testing.T, fields map[string]backupField) {
	t.Helper()

	for _, crd := range ours(t) {
		if crd.Spec.Names.Kind != "TalosEtcdBackup" {
			continue
		}

		for name := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties {
			if _, ok := fields[name]; !ok && name != "allowUnencrypted" {
				t.Errorf("say whether spec.%s of a backup is mutable", name)
			}
		}
	}
}
