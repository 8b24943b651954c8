// Package talosetcdbackupschedule creates TalosEtcdBackups at the times that TalosEtcdBackupSchedules define, applies
// their retention to the store, periodically verifies the newest backup, and monitors that it is recent enough.
package talosetcdbackupschedule

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// heldPoll is how often a schedule that is paused or waits for a restore checks whether it still is.
	heldPoll = 30 * time.Second
	// staleRetry is how soon a reconciliation that read an old version of its object is repeated.
	staleRetry = 50 * time.Millisecond
)

// Reconciler reconciles TalosEtcdBackupSchedules.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live: with a stale list, a second concurrent backup could be started.
	Reader client.Reader
	// States reads state Secrets.
	States *clusterstate.Store
	// Stores opens stores.
	Stores *storage.Opener
	// Runner runs the work on stores.
	Runner   *Runner
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Failed counts a failure; it may be nil.
	Failed func(namespace, controlPlane, reason string)
	// Scratch is the directory for databases while they are verified; the directory for temporary files if empty.
	Scratch string
	// Exe is the operator's binary, for the verification; that of this process if empty.
	Exe string
	// Resync is the maximum time between reconciliations of a schedule: the clock may be set, and timers do not follow it.
	Resync time.Duration

	memory frame.Memory
}

// Reconcile reconciles one TalosEtcdBackupSchedule. State that it keeps between calls, in the Runner, may be lost.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	cached := &v1alpha1.TalosEtcdBackupSchedule{}
	if err := r.Client.Get(ctx, req.NamespacedName, cached); err != nil {
		if failure.Gone(err) {
			r.Runner.forget(req.NamespacedName)
			r.memory.Forget(req.NamespacedName)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	live := &v1alpha1.TalosEtcdBackupSchedule{}
	if err := r.Reader.Get(ctx, req.NamespacedName, live); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	switch {
	case live.ResourceVersion != cached.ResourceVersion:
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case !live.DeletionTimestamp.IsZero():
		r.Runner.forget(req.NamespacedName)

		return ctrl.Result{}, nil
	}

	s := newScope(live, r.Clock.Now())
	defer func() { res, err = r.finish(ctx, s, err) }()

	return ctrl.Result{}, r.drive(ctx, s)
}

func (r *Reconciler) drive(ctx context.Context, s *scope) error {
	if err := r.observe(ctx, s); err != nil {
		return err
	}

	if s.hold.Disabled() {
		r.Runner.Drop(client.ObjectKeyFromObject(s.schedule))

		return nil
	}

	_, err := frame.Run(ctx, s, frame.Always(r.conclude), frame.Always(r.ensureBackup), frame.Always(r.prune),
		frame.Always(r.ensureWork))

	return err
}
