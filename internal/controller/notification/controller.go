// Package notification tells webhooks of the runs of upgrades, which the records of a TalosControlPlane show. What is
// told is decided by internal/decide/notification; what was told is recorded in an annotation of each record, and what
// is known of the webhooks in one of the TalosControlPlane. It writes nothing else.
package notification

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/webhook"
)

// again is how soon the next record follows. One reconciliation sends those of one record, so that it ends in time
// although each receiver is slow.
const again = 100 * time.Millisecond

// sender sends to addresses that are secrets.
type sender interface {
	Check(address string) error
	Send(ctx context.Context, address, id string, body []byte) notification.Outcome
}

var _ sender = (*webhook.Sender)(nil)

// Reconciler reconciles the notifications of TalosControlPlanes. It keeps no state between calls.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads Secrets live.
	Reader   client.Reader
	Sender   sender
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Resync is when to reconcile again if nothing happens.
	Resync time.Duration
}

// scope is one reconciliation of one control plane.
type scope struct {
	cp *v1alpha1.TalosControlPlane
	// book is what is recorded of the webhooks, and problems what was found out about their addresses now, by their keys:
	// empty where the address can be used.
	book     notification.Book
	targets  []notification.Target
	problems map[string]string
	// next is when the first attempt is due; zero if none is left to be made.
	next time.Time
}

// Reconcile sends what is due about the upgrades of one TalosControlPlane.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cp := &v1alpha1.TalosControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, cp); err != nil {
		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	if !cp.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its records are deleted with it
	}

	// While the cluster is paused or in a dry run nothing is written, so nothing can be sent.
	hold, err := pause.Find(ctx, r.Client, cp)
	if err != nil || hold.Any() {
		return failure.Result(ctrl.Result{}, err, r.Resync)
	}

	s := &scope{cp: cp, problems: map[string]string{}}

	res, err := frame.Run(ctx, s, frame.Always(r.follow), r.tell, frame.Always(r.noteProblems))
	if err == nil && res.IsZero() && !s.next.IsZero() {
		res.RequeueAfter = min(max(s.next.Sub(r.Clock.Now()), again), r.Resync)
	}

	return failure.Result(res, err, r.Resync)
}

// notifications are those of the spec.
func notifications(cp *v1alpha1.TalosControlPlane) []v1alpha1.UpgradeNotification {
	if cp.Spec.Upgrade == nil {
		return nil
	}

	return cp.Spec.Upgrade.Notifications
}
