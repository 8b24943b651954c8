package app

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackup"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackupschedule"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// scheduleWorks is how many stores are processed concurrently for schedules. A drill needs the memory of an etcd.
const scheduleWorks = 2

// backupPasses is how many backups are reconciled concurrently. A reconciliation is quick, because the work runs
// outside of it.
const backupPasses = 4

// setupBackups adds the controllers for manual and scheduled backups, which count failures in series.
func setupBackups(
	ctx context.Context, mgr manager.Manager, o Options, cached client.Client, states *clusterstate.Store,
	series *metrics.Backups,
) error {
	stores, of := o.Stores(mgr.GetAPIReader()), newClusters(ctx, mgr.GetClient())

	err := (&talosetcdbackup.Reconciler{
		Client: cached, Reader: mgr.GetAPIReader(), States: states,
		Stores: stores,
		Runner: talosetcdbackup.NewRunner(ctx, o.BackupConcurrency), Clock: o.clock(),
		Recorder: kube.Recorder(mgr.GetEventRecorder("talosetcdbackup")),
		Failed:   series.Failed, Tool: o.Version, Resync: machineResync,
		Scratch: o.ScratchDirectory,
	}).SetupWithManager(mgr, options(mgr, "TalosEtcdBackup", backupPasses, of.backup))
	if err != nil {
		return fmt.Errorf("setting up the controller of backups: %w", err)
	}

	err = (&talosetcdbackupschedule.Reconciler{
		Client: cached, Reader: mgr.GetAPIReader(), States: states, Stores: stores,
		Runner: talosetcdbackupschedule.NewRunner(ctx, scheduleWorks), Clock: o.clock(),
		Recorder: kube.Recorder(mgr.GetEventRecorder("talosetcdbackupschedule")),
		Failed:   series.Failed, Resync: machineResync,
		Scratch: o.ScratchDirectory,
	}).SetupWithManager(mgr, options(mgr, "TalosEtcdBackupSchedule", backupPasses, of.schedule))
	if err != nil {
		return fmt.Errorf("setting up the controller of backup schedules: %w", err)
	}

	return nil
}

// Stores opens the stores that objects name; reader reads Secrets live.
func (o *Options) Stores(reader client.Reader) *storage.Opener {
	return &storage.Opener{
		Reader: reader, Root: o.BackupDirectory, Own: o.AllowOwnCredentials,
		Places: o.AllowStores, Allowed: o.AllowRecipients, Endpoints: &o.AllowedEndpoints,
	}
}
