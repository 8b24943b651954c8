// Package talosetcdbackup takes the backups that TalosEtcdBackups describe, verifies them, and deletes them if their
// spec demands it.
package talosetcdbackup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
)

const (
	// progressPause is how often the status reports the progress of work.
	progressPause = 10 * time.Second
	// heldPoll is how often a blocked backup checks whether it still is.
	heldPoll = 15 * time.Second
	// staleRetry is how soon a reconciliation that read an old version of its object is repeated.
	staleRetry = 50 * time.Millisecond
	// prepareTimeout limits the preflight, and removeTimeout the deletion of a backup.
	prepareTimeout = 3 * time.Minute
	removeTimeout  = 5 * time.Minute
	// defaultTimeout and defaultRetries apply if the spec sets none.
	defaultTimeout = time.Hour
	defaultRetries = 6
	// firstPause and longestPause limit the backoff between two attempts.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
)

// Reconciler reconciles TalosEtcdBackups.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live: with a stale status, a second backup could be started.
	Reader client.Reader
	// States reads state Secrets.
	States *clusterstate.Store
	// Stores opens stores.
	Stores *storage.Opener
	// Runner runs the work.
	Runner   *Runner
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Failed counts a failure; it may be nil.
	Failed func(namespace, controlPlane, reason string)
	// Scratch is the directory for databases while they are verified; the directory for temporary files if empty.
	Scratch string
	// Exe is the operator's binary, for the verification; that of this process if empty.
	Exe string
	// Tool is the version of this program.
	Tool string
	// Resync is how often a backup is reconciled when no event reports a change.
	Resync time.Duration

	memory frame.Memory
}

// Reconcile reconciles one TalosEtcdBackup. State that it keeps between calls, in the Runner, may be lost.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	b := &v1alpha1.TalosEtcdBackup{}
	if err := r.Client.Get(ctx, req.NamespacedName, b); err != nil {
		if failure.Gone(err) {
			r.Runner.Drop(req.NamespacedName)
			r.memory.Forget(req.NamespacedName)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	if isQuiet(b) && r.Runner.Find(req.NamespacedName, b.UID) == nil {
		return ctrl.Result{RequeueAfter: r.Resync}, nil
	}

	live := &v1alpha1.TalosEtcdBackup{}
	if err := r.Reader.Get(ctx, req.NamespacedName, live); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	// The cache is stale. It will report the change; reconcile again soon in any case.
	if live.ResourceVersion != b.ResourceVersion {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}

	s := newScope(live)
	defer func() { res, err = r.finish(ctx, s, res, err) }()

	return r.drive(ctx, s)
}

// isQuiet reports whether there is nothing to do: the backup is complete and verified, or failed permanently.
func isQuiet(b *v1alpha1.TalosEtcdBackup) bool {
	settled := b.Status.CompletedAt != nil && !needsVerification(b)

	return b.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(b, v1alpha1.Finalizer) &&
		b.Status.ObservedGeneration == b.Generation && (settled || isStalled(b)) &&
		!kube.IsPaused(b) && !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionPaused)
}

// isStalled reports whether the backup failed permanently under the current spec.
func isStalled(b *v1alpha1.TalosEtcdBackup) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled)

	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == b.Generation
}

func (r *Reconciler) drive(ctx context.Context, s *scope) (ctrl.Result, error) {
	b := s.backup

	cp, err := r.controlPlane(ctx, b)
	if err != nil {
		return ctrl.Result{}, err
	}

	held := []client.Object{b}
	if cp != nil {
		held = append(held, cp)
	}

	hold, err := pause.Find(ctx, r.Client, held...)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.hold = hold

	job := r.Runner.Find(keyOf(b), b.UID)

	switch {
	case s.hold.Disabled() && job == nil:
		return ctrl.Result{RequeueAfter: heldPoll}, nil
	case !b.DeletionTimestamp.IsZero():
		return r.delete(ctx, s, job)
	}

	// A user who paused the backup may have removed the finalizer in order to move the object elsewhere.
	if !s.hold.Any() {
		if err := r.ensureFinalizer(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	renew(s)

	switch {
	case job != nil && !job.Ended():
		s.working(job.About.progress.Show(r.Clock.Now()))

		return ctrl.Result{RequeueAfter: progressPause}, nil
	case job != nil:
		r.Runner.Drop(keyOf(b))

		return r.conclude(ctx, s, job)
	case isStalled(b):
		return ctrl.Result{}, nil
	}

	if wait := b.Status.NextTryAt; wait != nil && r.Clock.Now().Before(wait.Time) {
		return ctrl.Result{RequeueAfter: wait.Sub(r.Clock.Now()) + time.Millisecond}, nil
	}

	return r.begin(ctx, s, cp)
}

// controlPlane returns the control plane of the backup; nil if there is none.
func (r *Reconciler) controlPlane(
	ctx context.Context, b *v1alpha1.TalosEtcdBackup,
) (*v1alpha1.TalosControlPlane, error) {
	cp := &v1alpha1.TalosControlPlane{}
	key := types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.ControlPlaneRef.Name}

	err := r.Client.Get(ctx, key, cp)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading TalosControlPlane %s: %w", key.Name, err)
	}

	if err != nil {
		return nil, nil // it may be gone, and its backups stay
	}

	return cp, nil
}

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (err error) {
	s.base, err = frame.EnsureFinalizer(ctx, r.Client, s.backup, s.base, v1alpha1.Finalizer)

	return err
}

// renew resets the attempts after a change of the spec.
func renew(s *scope) {
	st := &s.backup.Status
	if st.ObservedGeneration == s.backup.Generation {
		return
	}

	st.ObservedGeneration, st.Failures, st.NextTryAt = s.backup.Generation, 0, nil
	kube.RemoveCondition(&st.Conditions, v1alpha1.ConditionStalled)
}

// begin starts the next work. It runs concurrently with the reconciliation, which continues to modify the object, so it
// gets a copy.
func (r *Reconciler) begin(ctx context.Context, s *scope, cp *v1alpha1.TalosControlPlane) (ctrl.Result, error) {
	b := s.backup

	switch {
	case b.Status.CompletedAt != nil && !needsVerification(b):
		s.settle()

		return ctrl.Result{}, nil
	case s.hold.Any():
		return ctrl.Result{RequeueAfter: heldPoll}, nil
	case b.Status.CompletedAt != nil:
		return r.start(s, order{
			kind: verifying, text: "reading the backup back", timeout: timeout(b), do: r.verify(b.DeepCopy()),
		})
	case cp == nil:
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
			fmt.Sprintf("TalosControlPlane %s does not exist", b.Spec.ControlPlaneRef.Name), heldPoll)
	}

	if err := r.restoring(ctx, b); err != nil {
		return ctrl.Result{}, err
	}

	return r.start(s, order{
		kind: preparing, text: "checking whether the backup can be taken", timeout: min(prepareTimeout, timeout(b)),
		do: r.prepare(b.DeepCopy(), cp),
	})
}

func (r *Reconciler) start(s *scope, o order) (ctrl.Result, error) {
	o.backup = s.backup.DeepCopy()

	j, err := r.Runner.start(o)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.working(j.About.progress.Show(r.Clock.Now()))

	return ctrl.Result{RequeueAfter: progressPause}, nil
}

// restoring blocks a backup while a restore of its control plane is in progress.
func (r *Reconciler) restoring(ctx context.Context, b *v1alpha1.TalosEtcdBackup) error {
	return scheduled.Restoring(ctx, r.Reader, b.Namespace, b.Spec.ControlPlaneRef.Name, heldPoll)
}

// works reports whether work is in progress. Work that has ended since this reconciliation began is processed by the
// next one, which follows immediately.
func (r *Reconciler) works(s *scope, err error) bool {
	j := r.Runner.Find(keyOf(s.backup), s.backup.UID)

	return j != nil && (err == nil || !j.Ended())
}

func timeout(b *v1alpha1.TalosEtcdBackup) time.Duration {
	if b.Spec.Timeout == nil {
		return defaultTimeout
	}

	return cmp.Or(b.Spec.Timeout.Duration, defaultTimeout)
}

func stall(b *v1alpha1.TalosEtcdBackup) time.Duration {
	if b.Spec.StallTimeout == nil {
		return 0
	}

	return b.Spec.StallTimeout.Duration
}

func retries(b *v1alpha1.TalosEtcdBackup) int32 {
	if b.Spec.Retries == nil {
		return defaultRetries
	}

	return *b.Spec.Retries
}
