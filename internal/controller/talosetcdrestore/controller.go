// Package talosetcdrestore restores the etcd of a cluster from a backup, and its PKI if that is lost too. It makes no
// decisions itself: internal/decide/restore does, from the record and from the current state of the nodes.
package talosetcdrestore

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Intervals. A restore is short, and users watch it.
const (
	pollStep  = 10 * time.Millisecond
	pollFast  = 300 * time.Millisecond
	pollSlow  = 3 * time.Second
	hurry     = 10 * time.Minute
	pollStuck = time.Minute
	// repeatWipe is the time after which a wipe without an effect is requested again.
	repeatWipe = 15 * time.Second
)

// Reconciler reconciles TalosEtcdRestores.
type Reconciler struct {
	Client client.Client
	// Reader reads live. A restore decides by its own record: a stale one would repeat steps.
	Reader client.Reader
	// States reads and writes state Secrets.
	States *clusterstate.Store
	// Nodes opens connections to nodes.
	Nodes *talos.Pool
	// Workloads opens connections to the Kubernetes APIs of the clusters.
	Workloads *workload.Clients
	// Storage opens the stores of backups.
	Storage  *storage.Opener
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Scratch is the directory for temporary plain databases; the directory for temporary files if empty.
	Scratch string
	// Exe is the operator's binary, for child processes; that of this process if empty.
	Exe string
	// Version of the operator.
	Version string

	memory frame.Memory

	mu     sync.Mutex
	called map[string]time.Time
	starts map[string]watched
}

// Reconcile reconciles one TalosEtcdRestore. State that must not be lost between calls is written to the status before
// acting.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	restore := &v1alpha1.TalosEtcdRestore{}
	if err := r.Reader.Get(ctx, req.NamespacedName, restore); err != nil {
		if failure.Gone(err) {
			r.memory.Forget(req.NamespacedName)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	s := newScope(restore)
	defer func() { res, err = r.finish(ctx, s, res, err) }()

	switch {
	case deleting(restore):
		return ctrl.Result{}, r.delete(ctx, s)
	case s.ended():
		return ctrl.Result{}, nil
	}

	if err := r.ensureFinalizer(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.loadControlPlane(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.findPause(ctx, s); err != nil || s.hold.Any() {
		return ctrl.Result{}, err
	}

	res, err = frame.Run(ctx, s, unlessEnded(r.recall), unlessEnded(r.findBackup), unlessEnded(r.openCluster),
		unlessEnded(r.observe), unlessEnded(r.act))
	if err != nil || s.ended() {
		return res, err
	}

	return ctrl.Result{RequeueAfter: pollStep}, nil
}

func unlessEnded(do func(context.Context, *scope) error) frame.Phase[*scope] {
	return frame.Always(func(ctx context.Context, s *scope) error {
		if s.ended() {
			return nil
		}

		return do(ctx, s)
	})
}

// findPause: one paused control-plane machine pauses the whole restore, because it involves all of them.
func (r *Reconciler) findPause(ctx context.Context, s *scope) error {
	machines, err := machineset.List(ctx, r.Reader, s.cp)
	if err != nil {
		return err
	}

	objects := []client.Object{s.restore, s.cp}
	for i := range machines {
		objects = append(objects, &machines[i])
	}

	s.hold, err = pause.Find(ctx, r.Client, objects...)

	return err
}

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (err error) {
	s.base, err = frame.EnsureFinalizer(ctx, r.Client, s.restore, s.base, v1alpha1.Finalizer)

	return err
}

// delete releases the cluster to the other controllers. Data that a restore has wiped does not come back: without etcd
// data and without another restore, the control plane reports that etcd is lost.
//
// While a node reads the snapshot that it received, it looks as empty as before. Only this restore has a record of
// that, so its object is kept for as long as that may take: otherwise another restore, or a user, would send a second
// snapshot.
func (r *Reconciler) delete(ctx context.Context, s *scope) error {
	switch s.step() {
	case v1alpha1.RestorePreparing, v1alpha1.RestoreUploading, v1alpha1.RestoreRecovering:
		if left := s.record(r.Clock.Now()).Reading(); left > 0 {
			return failure.Waiting(v1alpha1.ReasonRestoring, fmt.Sprintf("waiting for %s to start from the snapshot or "+
				"discard it",
				s.restore.Status.Machine), min(left, pollSlow))
		}
	default:
	}

	r.mu.Lock()
	delete(r.starts, string(s.restore.UID))
	delete(r.starts, againKey(s))
	r.mu.Unlock()

	if err := r.release(ctx, s); err != nil {
		return err
	}

	s.released = true

	return frame.RemoveFinalizer(ctx, r.Client, s.restore, s.base, v1alpha1.Finalizer)
}

func (r *Reconciler) event(s *scope, kind, reason, action, format string, args ...any) {
	r.Recorder.Eventf(s.restore, nil, kind, reason, action, format, args...)
}

func (r *Reconciler) tell(s *scope, action, format string, args ...any) {
	r.event(s, corev1.EventTypeNormal, v1alpha1.ReasonRestoring, action, format, args...)
}
