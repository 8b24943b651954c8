package talosetcdrestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// location is where the backup is stored.
type location struct {
	storage *v1alpha1.BackupStorage
	// cluster is the directory in the store; key names one backup, empty for the newest good one.
	cluster, key string
	// controlPlane of the TalosEtcdBackup, and the key that it recorded; empty if the source names no TalosEtcdBackup.
	controlPlane, verificationKey string
}

// locate determines the location of the source of the restore.
func (r *Reconciler) locate(ctx context.Context, s *scope) (location, error) {
	src := &s.restore.Spec.Source
	if src.BackupRef == nil {
		return location{storage: src.Storage, cluster: cmp.Or(src.Cluster, s.clusterName()), key: src.Key}, nil
	}

	b := &v1alpha1.TalosEtcdBackup{}

	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: src.BackupRef.Name}, b)
	if apierrors.IsNotFound(err) {
		return location{}, failure.Waiting(v1alpha1.ReasonBackupNotFound,
			fmt.Sprintf("waiting for TalosEtcdBackup %s, which does not exist", src.BackupRef.Name), pollStuck)
	}

	if err != nil {
		return location{}, fmt.Errorf("reading TalosEtcdBackup %s: %w", src.BackupRef.Name, err)
	}

	if b.Status.CompletedAt == nil || b.Status.Key == "" {
		return location{}, failure.Waiting(v1alpha1.ReasonBackupNotFound,
			fmt.Sprintf("waiting for TalosEtcdBackup %s to be complete", b.Name), pollSlow)
	}

	return location{
		storage: &b.Spec.Storage, cluster: path.Base(path.Dir(b.Status.Key)), key: b.Status.Key,
		controlPlane: b.Spec.ControlPlaneRef.Name, verificationKey: b.Status.VerificationKey,
	}, nil
}

// open opens the store of the source, and reads the identities.
func (r *Reconciler) open(ctx context.Context, s *scope) (store.Store, location, error) {
	at, err := r.locate(ctx, s)
	if err != nil {
		return nil, at, err
	}

	if s.identities == nil {
		s.identities, err = r.Storage.Identities(ctx, s.restore.Namespace, s.restore.Spec.IdentitiesFrom)
		if err != nil {
			return nil, at, err
		}
	}

	st, err := r.Storage.Open(ctx, s.restore.Namespace, at.storage)

	return st, at, err
}

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

// candidates returns the backups to check, in order.
func candidates(ctx context.Context, st store.Store, at location, before *metav1.Time) ([]backup.Set, error) {
	sets, err := backup.List(ctx, st, backup.Prefix(at.cluster))
	if err != nil {
		return nil, err
	}

	if at.key == "" {
		sets = slices.DeleteFunc(sets, func(set backup.Set) bool {
			return set.Foreign || !set.Complete() || before != nil && !set.Time.Before(before.Time)
		})
		slices.Reverse(sets)

		return sets, nil
	}

	if set := backup.Find(sets, at.key); set != nil {
		return []backup.Set{*set}, nil
	}

	// It may be the file of another tool, at any place in the store.
	if sets, err = backup.List(ctx, st, at.key); err != nil {
		return nil, err
	}

	if set := backup.Find(sets, at.key); set != nil {
		return []backup.Set{*set}, nil
	}

	return nil, nil
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

// openChosen opens the store again and finds the chosen backup. The manifest is nil for a file that another tool wrote.
func (r *Reconciler) openChosen(ctx context.Context, s *scope) (store.Store, backup.Set, *backup.Manifest, error) {
	st, at, err := r.open(ctx, s)
	if err != nil {
		return nil, backup.Set{}, nil, err
	}

	set, m, err := chosen(ctx, st, at, s.restore.Status.Backup)
	if err != nil {
		st.Close()

		return nil, backup.Set{}, nil, err
	}

	return st, set, m, nil
}

func chosen(ctx context.Context, st store.Store, at location, b *v1alpha1.RestoredBackup) (
	backup.Set, *backup.Manifest, error,
) {
	at.key = b.ID

	sets, err := candidates(ctx, st, at, nil)
	if err != nil {
		return backup.Set{}, nil, err
	}

	if len(sets) == 0 {
		return backup.Set{}, nil, failure.Waiting(v1alpha1.ReasonBackupNotFound,
			fmt.Sprintf("backup %s, which is being restored, is gone from %s", b.ID, st.Location()), pollStuck)
	}

	if sets[0].Foreign {
		return sets[0], nil, nil
	}

	m, err := backup.ReadManifest(ctx, st, sets[0])
	if err != nil {
		return backup.Set{}, nil, err
	}

	if m.Snapshot.PlainSHA256 != b.SHA256 {
		return backup.Set{}, nil, failure.Terminal(backup.ReasonCorrupt,
			fmt.Sprintf("backup %s is another one than was verified", b.ID), errors.New("the checksum differs"))
	}

	return sets[0], m, nil
}
