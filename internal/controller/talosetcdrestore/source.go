package talosetcdrestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
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
