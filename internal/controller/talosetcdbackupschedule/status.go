package talosetcdbackupschedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// badReasons are reasons whose events are warnings.
var badReasons = slices.Concat(condition.BadReasons, verify.DamageReasons, []string{
	v1alpha1.ReasonInvalidSchedule, v1alpha1.ReasonRecoveryPointMissed,
	v1alpha1.ReasonBackupDamaged, v1alpha1.ReasonBackupNotFound, v1alpha1.ReasonBackupTimeout, backup.ReasonIdentity,
	storage.ReasonSecret, storage.ReasonSecretForbidden, storage.ReasonDirectory,
	store.ReasonUnreachable, store.ReasonUnavailable, store.ReasonUntrusted, store.ReasonForbidden,
	store.ReasonEndpoint,
	store.ReasonCredentials, store.ReasonNotFound, store.ReasonRefused, store.ReasonInvalid,
	verify.ReasonScratch, verify.ReasonLimits, verify.ReasonInvalid,
})

// observedConditions describe the current state. Results of work on the store are reported with their time, and are
// kept.
var observedConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionRecoveryPointMet}

// finish writes the status once, if it changed, and returns when to reconcile again.
func (r *Reconciler) finish(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
	if s.hold.Disabled() {
		return ctrl.Result{RequeueAfter: heldPoll},
			s.hold.Settle(ctx, r.Client, s.schedule, s.base, &s.schedule.Status.Conditions)
	}

	s.show(err)

	return r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: s.now, Object: s.schedule, Base: s.base,
		Conditions: &s.schedule.Status.Conditions, Before: &s.base.Status.Conditions,
		Decided: s.conditions, Observed: observedConditions, Bound: condition.Bound,
		Events: kube.Transitions{Bad: badReasons}, Resync: r.Resync,
	}, ctrl.Result{RequeueAfter: s.wake(r.Resync)}, err)
}

// show computes the status at the end of a reconciliation. Without complete evidence, no condition is decided.
func (s *scope) show(err error) {
	st, set := &s.schedule.Status, s.conditions

	if !s.observed {
		set.IfMissing(v1alpha1.ConditionReady)

		return
	}

	st.ObservedGeneration = s.schedule.Generation

	s.showBackups()
	s.showReady(err)
	s.showRecoveryPoint()
	s.showWork(err)

	if s.hold.Any() {
		s.hold.Show(set)
	} else {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionPaused)
	}

	st.NextScheduleTime = nil

	if s.invalid == "" && !s.schedule.Spec.Suspend && !s.timing.next.IsZero() {
		at := metav1.NewTime(s.timing.next)
		st.NextScheduleTime = &at
	}
}

// showBackups reports which backup is running, and which good one is the newest. A backup whose object was deleted is
// kept in the status.
func (s *scope) showBackups() {
	st := &s.schedule.Status
	st.Active = ""

	for i := range s.backups {
		if b := &s.backups[i]; !scheduled.Finished(b) && b.DeletionTimestamp.IsZero() {
			st.Active = b.Name
		}
	}

	known := slices.ContainsFunc(s.backups, func(b v1alpha1.TalosEtcdBackup) bool {
		return b.Name == st.LastSuccessBackup &&
			(b.DeletionTimestamp.IsZero() || b.Spec.DeletionPolicy == v1alpha1.BackupDelete)
	})
	if known || scheduled.InFuture(st.LastSuccessTime, s.now) {
		st.LastSuccessTime, st.LastSuccessBackup = nil, ""
	}

	if b := scheduled.Newest(s.backups, s.now); b != nil && !b.Status.CompletedAt.Before(st.LastSuccessTime) {
		st.LastSuccessTime, st.LastSuccessBackup = b.Status.CompletedAt.DeepCopy(), b.Name
	}
}

// failedSince returns the last backup if it failed permanently.
func (s *scope) failedSince() *v1alpha1.TalosEtcdBackup {
	var last *v1alpha1.TalosEtcdBackup

	for i := range s.backups {
		b := &s.backups[i]
		if scheduled.Finished(b) && !scheduled.Unverified(b) && (last == nil || older(last, b) < 0) {
			last = b
		}
	}

	if last == nil || scheduled.Good(last) {
		return nil
	}

	return last
}

// showReady reports whether backups are being created.
func (s *scope) showReady(err error) {
	set, failed := s.conditions, s.failedSince()

	switch {
	case s.invalid != "":
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonInvalidSchedule, s.invalid)
	case s.hold.Any():
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonPaused,
			"no backups are made while the schedule or its control plane is paused or in a dry run")
	case s.orphaned():
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForControlPlane, failure.Message(s.missing()))
	case failure.Reason(err) != "":
		set.False(v1alpha1.ConditionReady, failure.Reason(err), failure.Message(err))
	case failed != nil:
		why := ""
		if c := meta.FindStatusCondition(failed.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
			why = ": " + c.Message
		}

		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonBackupFailed, "TalosEtcdBackup "+failed.Name+" failed"+why)
	case err != nil:
	case s.schedule.Spec.Suspend:
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonSuspended, "no new backups are made")
	default:
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonScheduled, "backups are made as scheduled")
	}

	set.While(s.invalid != "", v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSchedule, s.invalid)
}

// showWork reports which work is in progress, and which work is waiting.
func (s *scope) showWork(err error) {
	set, st := s.conditions, &s.schedule.Status

	if s.schedule.Spec.Verification == nil {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionVerified)

		st.Verification, st.LastVerificationTime = nil, nil
	} else {
		set.IfMissing(v1alpha1.ConditionVerified)
	}

	if s.schedule.Spec.Retention == nil {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionRetentionApplied)
	} else {
		set.IfMissing(v1alpha1.ConditionRetentionApplied)
	}

	waiting := s.waiting
	if err != nil {
		waiting = err
	}

	switch {
	case waiting != nil && failure.ClassOf(waiting) == failure.ClassWaiting:
		set.True(v1alpha1.ConditionReconciling, failure.Reason(waiting), failure.Message(waiting))
	case st.Active != "":
		set.True(v1alpha1.ConditionReconciling, v1alpha1.ReasonBackingUp, "TalosEtcdBackup "+st.Active+" runs")
	default:
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionReconciling)
	}
}

// showRecoveryPoint reports whether the last good backup is recent enough, and schedules a reconciliation for when it
// no longer is.
func (s *scope) showRecoveryPoint() {
	set := s.conditions
	if s.schedule.Spec.MaxAge == nil {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionRecoveryPointMet)

		return
	}

	status, reason, message, until := recoveryPoint(s.schedule, s.now)
	set.Put(v1alpha1.ConditionRecoveryPointMet, status, reason, message)

	if !until.IsZero() {
		s.wakeAt(until.Add(time.Second))
	}
}

// recoveryPoint evaluates the newest good backup. until is when to evaluate it again; zero if the result does not
// depend on time.
func recoveryPoint(o *v1alpha1.TalosEtcdBackupSchedule, now time.Time) (
	status metav1.ConditionStatus, reason, message string, until time.Time,
) {
	st, maxAge := &o.Status, o.Spec.MaxAge.Duration

	if last := st.LastSuccessTime; last != nil {
		until = last.Add(maxAge)

		switch {
		case damaged(st):
			return metav1.ConditionFalse, v1alpha1.ReasonBackupDamaged,
				"the newest backup was found damaged when it was verified, and no other one was made since", time.Time{}
		case now.After(until):
			return metav1.ConditionFalse, v1alpha1.ReasonRecoveryPointMissed,
				fmt.Sprintf("the last good backup is older than %s", maxAge), time.Time{}
		}

		return metav1.ConditionTrue, v1alpha1.ReasonRecoveryPointMet,
			fmt.Sprintf("the last good backup is not older than %s", maxAge), until
	}

	if until = o.CreationTimestamp.Add(maxAge); now.After(until) {
		return metav1.ConditionFalse, v1alpha1.ReasonRecoveryPointMissed,
			fmt.Sprintf("there is no good backup, and the schedule is older than %s", maxAge), time.Time{}
	}

	return metav1.ConditionUnknown, v1alpha1.ReasonNoBackupYet, "no backup has been complete yet", until
}

// damaged reports whether the last verification found the newest backup damaged, and none was taken since then.
func damaged(st *v1alpha1.TalosEtcdBackupScheduleStatus) bool {
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionVerified)

	return c != nil && c.Status == metav1.ConditionFalse && slices.Contains(verify.DamageReasons, c.Reason) &&
		st.LastVerificationTime != nil && !st.LastVerificationTime.Before(st.LastSuccessTime)
}
