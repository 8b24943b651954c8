package scheduled

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Restoring says why a control plane must not be backed up: a restore of it is in progress. It returns nil if there is
// none. The reader should be a live one: data that a restore is about to wipe must not look like a backup of the
// cluster.
func Restoring(ctx context.Context, c client.Reader, namespace, controlPlane string, after time.Duration) error {
	o, err := find(ctx, c, namespace, func(o *v1alpha1.TalosEtcdRestore) (bool, error) {
		return underWay(o) && o.Spec.ControlPlaneRef.Name == controlPlane, nil
	})
	if o == nil {
		return err
	}

	return failure.Waiting(v1alpha1.ReasonRestoreInProgress, "waiting for TalosEtcdRestore "+o.Name, after)
}

// WorksFrom says why a backup must not be deleted: a restore, possibly one of another control plane, names it or uses
// data that would be deleted with it.
func WorksFrom(ctx context.Context, c client.Reader, b *v1alpha1.TalosEtcdBackup, after time.Duration) error {
	o, err := find(ctx, c, "", func(o *v1alpha1.TalosEtcdRestore) (bool, error) {
		ref, chosen := o.Spec.Source.BackupRef, o.Status.Backup

		return ref != nil && ref.Name == b.Name && o.Namespace == b.Namespace ||
			b.Spec.DeletionPolicy == v1alpha1.BackupDelete && chosen != nil && chosen.ID == b.Status.BackupID, nil
	})
	if o == nil {
		return err
	}

	return failure.Waiting(v1alpha1.ReasonRestoreInProgress,
		fmt.Sprintf("waiting for TalosEtcdRestore %s/%s, which works from this backup", o.Namespace, o.Name), after)
}

// Place is where the backups of one cluster are stored.
type Place struct {
	// Namespace of the objects that name it.
	Namespace string
	Storage   *v1alpha1.BackupStorage
	// Location of the store, as a URL.
	Location string
	// Cluster is the directory in the store.
	Cluster string
}

// ReadFrom says why nothing may be deleted from a place: a restore, possibly one into another cluster, reads from it.
func ReadFrom(ctx context.Context, c client.Reader, at Place, after time.Duration) error {
	folder := strings.TrimSuffix(at.Location, "/") + "/" + backup.Prefix(at.Cluster)

	o, err := find(ctx, c, "", func(o *v1alpha1.TalosEtcdRestore) (bool, error) {
		// A restore chooses its backup once, so it needs it, whatever it waits for.
		if b := o.Status.Backup; b != nil {
			return strings.HasPrefix(b.Location, folder), nil
		}

		// A restore that has not chosen yet has changed nothing. In the same namespace its possible choices are kept, which
		// may be any backup in the store if it names no directory.
		if o.Namespace != at.Namespace || !underWay(o) {
			return false, nil
		}

		storage, cluster, err := sourceOf(ctx, c, o)

		return Same(storage, at.Storage) && (cluster == "" || cluster == at.Cluster), err
	})
	if o == nil {
		return err
	}

	return failure.Waiting(v1alpha1.ReasonRestoreInProgress,
		fmt.Sprintf("waiting for TalosEtcdRestore %s/%s, which reads from the store", o.Namespace, o.Name), after)
}

// sourceOf returns where a restore searches for its backup, with the directory if the restore names it.
func sourceOf(
	ctx context.Context, c client.Reader, o *v1alpha1.TalosEtcdRestore,
) (*v1alpha1.BackupStorage, string, error) {
	from := &o.Spec.Source
	if from.BackupRef == nil {
		return from.Storage, from.Cluster, nil
	}

	b := &v1alpha1.TalosEtcdBackup{}

	err := c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: from.BackupRef.Name}, b)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}

	if err != nil {
		return nil, "", fmt.Errorf("reading TalosEtcdBackup %s: %w", from.BackupRef.Name, err)
	}

	return &b.Spec.Storage, path.Base(path.Dir(b.Status.Key)), nil
}

// Same reports whether two storages may be the same place. Endpoints are not compared, because one store may have
// several names.
func Same(a, b *v1alpha1.BackupStorage) bool {
	if a == nil || b == nil {
		return false
	}

	if s, t := a.S3, b.S3; s != nil && t != nil {
		return s.Bucket == t.Bucket && strings.Trim(s.Prefix, "/") == strings.Trim(t.Prefix, "/")
	}

	d, e := a.Directory, b.Directory

	return d != nil && e != nil && d.Path == e.Path
}

// find returns the first unfinished restore of a namespace, or of all namespaces, that matches.
func find(
	ctx context.Context, c client.Reader, namespace string, match func(*v1alpha1.TalosEtcdRestore) (bool, error),
) (*v1alpha1.TalosEtcdRestore, error) {
	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing TalosEtcdRestores: %w", err)
	}

	for i := range list.Items {
		o := &list.Items[i]
		if ended(o) {
			continue
		}

		found, err := match(o)

		switch {
		case err != nil:
			return nil, err
		case found:
			return o, nil
		}
	}

	return nil, nil // there is none, and that is no error
}

// ended reports whether the restore takes no further steps.
func ended(o *v1alpha1.TalosEtcdRestore) bool {
	return o.Status.Step == v1alpha1.RestoreComplete || o.Status.Step == v1alpha1.RestoreStopped
}

// underWay reports whether an unfinished restore has changed something, or is about to. A restore that waits for a user
// before that must not prevent the backups of its cluster for weeks, and one that waits for a backup must not block
// that backup.
func underWay(o *v1alpha1.TalosEtcdRestore) bool {
	complete := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionComplete)

	switch o.Status.Step {
	case "", v1alpha1.RestorePreflight:
		return !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled) &&
			!meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionPaused) &&
			(complete == nil || complete.Reason == v1alpha1.ReasonRestoring)
	default:
		// A restore whose object was recreated with an old status, and which was refused, does nothing.
		return complete == nil || complete.Reason != v1alpha1.ReasonRestoreAlreadyRan
	}
}
