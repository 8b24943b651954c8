package talosetcdbackupschedule

import (
	"context"
	"fmt"
	"path"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
)

// copied returns the copies of lost data that the restores of a namespace name. These copies have no TalosEtcdBackup,
// and they are all that is left of that data.
func (r *Reconciler) copied(ctx context.Context, namespace string) (map[string]bool, error) {
	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the TalosEtcdRestores whose copies are to be kept: %w", err)
	}

	out := map[string]bool{}

	for i := range list.Items {
		st := &list.Items[i].Status

		// A stopped restore may have made a copy and ended before it recorded the location.
		for _, id := range []string{path.Base(st.LastSnapshot), st.SavingID} {
			out[id] = true
		}
	}

	return out, nil
}

// unused says why nothing may be deleted: a restore of the control plane is in progress, or a restore reads from the
// store.
func (r *Reconciler) unused(ctx context.Context, o *v1alpha1.TalosEtcdBackupSchedule, at *shelf) error {
	template := &o.Spec.BackupTemplate.Spec

	err := scheduled.Restoring(ctx, r.Reader, o.Namespace, template.ControlPlaneRef.Name, heldPoll)
	if err != nil {
		return err
	}

	return scheduled.ReadFrom(ctx, r.Reader, scheduled.Place{
		Namespace: o.Namespace, Storage: &template.Storage, Location: at.store.Location(), Cluster: at.cluster.Name,
	}, heldPoll)
}
