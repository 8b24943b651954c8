package app

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/fair"
	"github.com/talos-operator/talos-operator/internal/controller/notification"
	"github.com/talos-operator/talos-operator/internal/controller/upgradehistory"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/webhook"
)

// historyPasses is how many clusters have their records of upgrades brought up to date concurrently. That is quick,
// because no node is asked.
const historyPasses = 4

// notificationPasses is how many clusters have notifications sent concurrently. A receiver that does not respond
// occupies one for some seconds, and those that do not a quarter of them at most.
const notificationPasses = 8

// setupHistory adds the controller of the records of upgrades. cached is the shared client.
func setupHistory(ctx context.Context, mgr manager.Manager, o Options, cached client.Client) error {
	err := errors.Join(
		kube.Index(ctx, mgr.GetFieldIndexer(), &v1alpha1.TalosUpgrade{}, &v1alpha1.KubernetesUpgrade{}),
		(&upgradehistory.Reconciler{
			Client: cached, Reader: mgr.GetAPIReader(), Clock: o.clock(), Resync: machineResync,
			Recorder: kube.Recorder(mgr.GetEventRecorder("upgradehistory")),
		}).SetupWithManager(mgr, options(mgr, "UpgradeHistory", historyPasses, itself)),
	)
	if err != nil {
		return fmt.Errorf("setting up the controller of upgrade records: %w", err)
	}

	return nil
}

// setupNotifications adds the controller that tells webhooks of upgrades.
func setupNotifications(mgr manager.Manager, o Options, cached client.Client) error {
	opts := options(mgr, "Notification", notificationPasses, itself)
	opts.NewQueue = fair.Share{Workers: notificationPasses, Cluster: reconcile.Request.String, Clock: o.clock()}.Queue

	err := (&notification.Reconciler{
		Client: cached, Reader: mgr.GetAPIReader(), Clock: o.clock(),
		Sender: &webhook.Sender{Hosts: o.AllowedWebhooks, Endpoints: &o.AllowedEndpoints},
		Resync: machineResync, Recorder: kube.Recorder(mgr.GetEventRecorder("notification")),
	}).SetupWithManager(mgr, opts)
	if err != nil {
		return fmt.Errorf("setting up the controller of notifications: %w", err)
	}

	return nil
}
