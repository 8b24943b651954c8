package talosetcdrestore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// findBackup chooses the backup once: the named one, or the newest good one. It is verified before anything is changed.
func (r *Reconciler) findBackup(ctx context.Context, s *scope) error {
	if s.restore.Status.Backup != nil {
		return nil
	}

	if s.restore.Status.Step == "" {
		if err := r.enter(ctx, s, v1alpha1.RestorePreflight, ""); err != nil {
			return err
		}
	}

	st, at, err := r.open(ctx, s)
	if err != nil {
		return err
	}
	defer st.Close()

	if s.keys, err = r.verificationKeys(ctx, s, at); err != nil {
		return err
	}

	sets, err := candidates(ctx, st, at, s.restore.Spec.Source.Before)
	if err != nil {
		return err
	}

	var first error

	for i := range sets {
		found, err := r.verify(ctx, s, st, sets[i])
		if err == nil {
			return r.chose(ctx, s, found)
		}

		first = cmp.Or(first, err)

		if at.key != "" || !passedOver(err) {
			return first
		}

		r.event(s, corev1.EventTypeWarning, failure.Reason(err), "Skip", "Backup %s is not good: %s", sets[i].ID,
			failure.Message(err))
	}

	if first != nil {
		return first
	}

	return failure.Waiting(v1alpha1.ReasonBackupNotFound,
		fmt.Sprintf("%s has no complete backup of %s as the source asks for", st.Location(), at.cluster), pollStuck)
}

// chose records the backup, and emits a warning if it is not authenticated.
func (r *Reconciler) chose(ctx context.Context, s *scope, found *v1alpha1.RestoredBackup) error {
	s.restore.Status.Backup = found

	if err := r.save(ctx, s); err != nil {
		return err
	}

	if why := backup.Authenticity(found.Authenticity).Warning(); why != "" {
		r.event(s, corev1.EventTypeWarning, backup.ReasonUnauthenticated, "Choose", "Backup %s was accepted although %s",
			found.ID, why)
	}

	return nil
}

// verify reads the whole backup and checks its database.
func (r *Reconciler) verify(ctx context.Context, s *scope, st store.Store, set backup.Set) (
	*v1alpha1.RestoredBackup, error,
) {
	if set.Foreign && !s.restore.Spec.AllowForeign {
		return nil, failure.Terminal(backup.ReasonForeign, fmt.Sprintf("%s was written by another tool: the cluster it "+
			"belongs to is unknown; create a restore with allowForeign if it is the right one", set.ID), nil)
	}

	// A lower level shows neither the revision, which proves the restore, nor the version of the etcd that wrote the
	// snapshot.
	level := verify.Level(s.restore.Spec.Verification)
	if !level.AtLeast(verify.Database) {
		level = verify.Database
	}

	var origin backup.Authenticity

	report, err := verify.Run(ctx, st, set, verify.Options{
		Level: level, Identities: s.identities, Dir: r.Scratch, Exe: r.Exe, Now: r.Clock.Now, Keys: s.keys,
		Accept: func(_ *backup.Manifest, a backup.Authenticity) error {
			origin = a

			return s.accepts(set.ID, a)
		},
	})
	if err != nil {
		return nil, err
	}

	if !report.Snapshot.Checksummed && !s.restore.Spec.AllowMissingChecksum {
		return nil, failure.Terminal(backup.ReasonTruncated, fmt.Sprintf("%s has no checksum at its end: it is the copy "+
			"of a database; create a restore with allowMissingChecksum if it is", set.ID), nil)
	}

	at, d := metav1.NewTime(set.Time), report.Database

	return &v1alpha1.RestoredBackup{
		ID: set.ID, Cluster: set.Cluster, Time: &at,
		Location: strings.TrimSuffix(st.Location(), "/") + "/" + set.Snapshot.Key,
		Size:     report.Snapshot.PlainSize, SHA256: report.Snapshot.PlainSHA256, Copied: !report.Snapshot.Checksummed,
		Revision: d.Revision, TotalKeys: d.TotalKeys, StorageVersion: d.StorageVersion, Authenticity: string(origin),
	}, nil
}
