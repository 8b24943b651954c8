package talosetcdrestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/raise"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// finish writes the conditions of this reconciliation, and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.released {
		return res, err
	}

	if s.hold.Disabled() {
		return ctrl.Result{}, s.hold.Settle(ctx, r.Client, s.restore, s.base, &s.restore.Status.Conditions)
	}

	err = s.explained(r.Clock.Now(), err)

	if !s.concluded() {
		setConditions(s, err)
	}

	resync := pollStuck
	if s.ended() {
		res, err, resync = ctrl.Result{}, nil, 0 // the status says how it ended
	}

	res, err = r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: r.Clock.Now(), Object: s.restore, Base: s.base,
		Conditions: &s.restore.Status.Conditions, Before: &s.before,
		Events: kube.Transitions{Bad: badReasons}, Resync: resync,
	}, res, err)

	// Fixing a Secret or a bucket causes no event, so the object is reconciled again. Nothing was changed yet, so this is
	// neither urgent nor dangerous.
	if failure.ClassOf(err) == failure.ClassTerminal {
		return ctrl.Result{RequeueAfter: pollStuck}, nil
	}

	return res, err
}

// lingers is the time in one step after which a restore reports the observed state of each node.
const lingers = 2 * time.Minute

// explained adds the observed state of the nodes to what a restore waits for, once it has waited for long.
func (s *scope) explained(now time.Time, err error) error {
	var waiting *failure.Error

	if len(s.nodes) == 0 || !errors.As(err, &waiting) || waiting.Class != failure.ClassWaiting ||
		now.Sub(s.began(s.step())) < lingers {
		return err
	}

	return failure.Waiting(waiting.Reason, waiting.Message+"; observed: "+restore.Seen(s.nodes), waiting.After)
}

// badReasons are reasons whose events are warnings.
var badReasons = slices.Concat(condition.BadReasons, []string{
	v1alpha1.ReasonRestoreRefused, v1alpha1.ReasonRestoreConflict, v1alpha1.ReasonRestoreFailed,
	v1alpha1.ReasonRestoreAlreadyRan, v1alpha1.ReasonEtcdRunsAgain,
	v1alpha1.ReasonDataWouldBeLost, v1alpha1.ReasonBackupMismatch, v1alpha1.ReasonBackupNotFound,
	v1alpha1.ReasonNodeDiskFull,
	backup.ReasonIdentity, backup.ReasonCorrupt, backup.ReasonIncomplete, backup.ReasonManifest, backup.ReasonTruncated,
	backup.ReasonForeign, backup.ReasonNotAuthentic, backup.ReasonUnauthenticated,
	verify.ReasonDatabase, verify.ReasonDrill, verify.ReasonState, raise.Reason,
})

// concluded reports whether the final conditions are written, which then do not change. Those of a stopped restore are
// written together with it.
func (s *scope) concluded() bool {
	return s.restore.Status.Step == v1alpha1.RestoreStopped || s.restore.Status.Step == v1alpha1.RestoreComplete &&
		meta.IsStatusConditionTrue(s.restore.Status.Conditions, v1alpha1.ConditionComplete)
}

func setConditions(s *scope, err error) {
	st := &s.restore.Status
	st.ObservedGeneration = s.restore.Generation
	set := condition.Set{Conditions: &st.Conditions, Generation: s.restore.Generation}

	switch {
	case st.Step == v1alpha1.RestoreComplete:
		set.True(v1alpha1.ConditionComplete, v1alpha1.ReasonRestored, s.outcome())
	case err != nil:
		set.False(v1alpha1.ConditionComplete, cmp.Or(failure.Reason(err), v1alpha1.ReasonUnknown), failure.Message(err))
	case s.hold.Any():
		set.False(v1alpha1.ConditionComplete, v1alpha1.ReasonPaused, "the restore is paused in step "+string(s.step()))
	default:
		set.False(v1alpha1.ConditionComplete, v1alpha1.ReasonRestoring, cmp.Or(s.message, doing(s.step())))
	}

	showAuthenticity(set, st.Backup)
	set.Transient(s.hold.Any(), deleting(s.restore), err)
	s.hold.Show(set)

	if err == nil && !s.ended() && !s.hold.Any() {
		set.True(v1alpha1.ConditionReconciling, v1alpha1.ReasonRestoring, cmp.Or(s.message, doing(s.step())))
	}
}

// doing says what a restore does in a step, for passes that have nothing more precise to report.
func doing(step v1alpha1.RestoreStep) string {
	switch step {
	case v1alpha1.RestorePreflight:
		return "checking the backup and the machines"
	case v1alpha1.RestoreSaving:
		return "copying the current data of etcd"
	case v1alpha1.RestoreWiping:
		return "wiping the etcd data of the control-plane machines"
	case v1alpha1.RestorePreparing:
		return "preparing the control-plane machines"
	case v1alpha1.RestoreUploading:
		return "uploading the snapshot"
	case v1alpha1.RestoreRecovering:
		return "starting etcd from the snapshot"
	case v1alpha1.RestoreProving:
		return "verifying the restored data"
	case v1alpha1.RestoreJoining:
		return "adding the other control-plane machines to etcd"
	default:
		return "step " + string(step)
	}
}

// showAuthenticity reports the authenticity of the chosen backup. A backup that an earlier version chose has no record
// of it.
func showAuthenticity(set condition.Set, b *v1alpha1.RestoredBackup) {
	if b == nil || b.Authenticity == "" {
		return
	}

	why := backup.Authenticity(b.Authenticity).Warning()
	if why == "" {
		set.True(v1alpha1.ConditionBackupAuthenticated, v1alpha1.ReasonBackupAuthentic,
			"backup "+b.ID+" is signed with the key of the cluster")

		return
	}

	set.False(v1alpha1.ConditionBackupAuthenticated, backup.ReasonUnauthenticated,
		"backup "+b.ID+" was accepted although "+why)
}

// outcome describes the result of a complete restore.
func (s *scope) outcome() string {
	steps := s.restore.Status.Steps
	if len(steps) == 0 {
		return "etcd runs from the backup"
	}

	return cmp.Or(steps[len(steps)-1].Message, "etcd runs from the backup")
}

// save writes the status immediately, before an action that must not be repeated without a record. It fails if the
// object was written since it was read.
func (r *Reconciler) save(ctx context.Context, s *scope) error {
	next := s.restore.DeepCopy()
	patch := client.MergeFromWithOptions(s.base, client.MergeFromWithOptimisticLock{})

	if err := r.Client.Status().Patch(ctx, next, patch); err != nil {
		return fmt.Errorf("recording the step of TalosEtcdRestore %s: %w", s.restore.Name, err)
	}

	s.restore, s.base = next, next.DeepCopy()

	return nil
}
