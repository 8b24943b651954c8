package talosetcdbackup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
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
	backup.ReasonInvalid, backup.ReasonRecipients, backup.ReasonUnencrypted, backup.ReasonSource, backup.ReasonStalled,
	backup.ReasonTruncated, backup.ReasonIdentity, backup.ReasonLocked, backup.ReasonForeign,
	storage.ReasonSecret, storage.ReasonSecretForbidden, storage.ReasonDirectory,
	store.ReasonUnreachable, store.ReasonUnavailable, store.ReasonUntrusted, store.ReasonForbidden,
	store.ReasonEndpoint,
	store.ReasonCredentials, store.ReasonNotFound, store.ReasonFull, store.ReasonRefused, store.ReasonInvalid,
	store.ReasonObjectExists, verify.ReasonScratch, verify.ReasonLimits, verify.ReasonInvalid,
	v1alpha1.ReasonBackupTimeout, v1alpha1.ReasonNoSnapshotSource,
})

var levels = []v1alpha1.VerificationLevel{
	v1alpha1.VerificationNone, v1alpha1.VerificationChecksum, v1alpha1.VerificationDatabase, v1alpha1.VerificationDrill,
}

// wanted returns the level that the spec demands.
func wanted(b *v1alpha1.TalosEtcdBackup) v1alpha1.VerificationLevel {
	if b.Spec.Verification == nil {
		return v1alpha1.VerificationChecksum
	}

	return cmp.Or(b.Spec.Verification.Level, v1alpha1.VerificationChecksum)
}

// needsVerification reports whether a complete backup has not been verified at the demanded level yet.
func needsVerification(b *v1alpha1.TalosEtcdBackup) bool {
	reached := v1alpha1.VerificationNone
	if v := b.Status.Verification; v != nil {
		reached = v.Level
	}

	return slices.Index(levels, wanted(b)) > slices.Index(levels, reached)
}

// finish writes the conditions of this reconciliation, and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.gone {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	if s.hold.Disabled() && s.backup.DeletionTimestamp.IsZero() {
		if perr := s.hold.Settle(ctx, r.Client, s.backup, s.base, &s.backup.Status.Conditions); perr != nil {
			return ctrl.Result{}, perr
		}

		return failure.Result(res, err, r.Resync)
	}

	s.show(err, r.works(s, err))

	return r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: r.Clock.Now(), Object: s.backup, Base: s.base,
		Conditions: &s.backup.Status.Conditions, Before: &s.base.Status.Conditions,
		Events: kube.Transitions{Bad: badReasons}, Resync: r.Resync,
	}, res, err)
}

// show completes the conditions at the end of a reconciliation; working tells whether work is in progress.
func (s *scope) show(err error, working bool) {
	set, deleting := s.set(), !s.backup.DeletionTimestamp.IsZero()

	set.IfMissing(v1alpha1.ConditionReady, v1alpha1.ConditionVerified)

	if failure.ClassOf(err) == failure.ClassWaiting && err != nil && !deleting {
		s.waiting(failure.Reason(err), failure.Message(err))
	}

	// The work of a deletion is not a backup.
	if working = working && !deleting; !working {
		s.idle(err)
	}

	s.unverified(working)
	s.complete()

	if !s.hold.Any() {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionPaused)
	} else {
		s.hold.Show(set)
	}

	if deleting {
		set.True(v1alpha1.ConditionDeleting, cmp.Or(failure.Reason(err), v1alpha1.ReasonDeleting),
			cmp.Or(failure.Message(err), "the object is being deleted"))
	}
}

// idle resets conditions that report work which is not in progress any more: the operator may have been restarted, or
// the backup paused.
func (s *scope) idle(err error) {
	set, st := s.set(), &s.backup.Status
	settled := st.CompletedAt != nil && !needsVerification(s.backup)
	deleting := !s.backup.DeletionTimestamp.IsZero()

	if deleting || s.hold.Any() {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionReconciling)

		reason, message := v1alpha1.ReasonPaused, "the backup is paused before it is complete"
		if deleting {
			reason, message = v1alpha1.ReasonDeleting, "the backup is deleted before it is complete"
		}

		if st.CompletedAt == nil && st.Failures == 0 && !isStalled(s.backup) {
			set.False(v1alpha1.ConditionReady, reason, message)
		}

		return
	}

	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReconciling)
	claimed := c != nil && (c.Reason == v1alpha1.ReasonBackingUp || c.Reason == v1alpha1.ReasonVerifying)

	switch {
	case settled || isStalled(s.backup) || apierrors.IsConflict(err):
	case err != nil:
		s.waiting(cmp.Or(failure.Reason(err), v1alpha1.ReasonReconciling), failure.Message(err))
	case claimed:
		s.waiting(v1alpha1.ReasonReconciling, "waiting to be started")
	}
}

// unverified resets the condition Verified if the spec demands more since then, or if it reports a verification that is
// not in progress.
func (s *scope) unverified(working bool) {
	c := meta.FindStatusCondition(s.backup.Status.Conditions, v1alpha1.ConditionVerified)
	if s.backup.Status.CompletedAt == nil || !needsVerification(s.backup) {
		return
	}

	switch {
	case c.Status != metav1.ConditionTrue && c.Reason != v1alpha1.ReasonVerifying &&
		c.Reason != v1alpha1.ReasonNotVerified:
		// The condition reports a failure, or nothing yet.
	case working:
		s.set().False(v1alpha1.ConditionVerified, v1alpha1.ReasonVerifying, "the backup is being read back")
	default:
		s.set().False(v1alpha1.ConditionVerified, v1alpha1.ReasonNotVerified,
			"the backup has not yet been verified at level "+string(wanted(s.backup)))
	}
}

// complete reports whether the run has ended with success: the backup is stored, and verified as the spec demands.
// Until then it says what Ready, and then Verified, says. Damage that is found later does not change it: Ready reports
// that.
func (s *scope) complete() {
	set, st := s.set(), &s.backup.Status
	kind := v1alpha1.ConditionReady

	switch {
	case st.CompletedAt == nil:
	case needsVerification(s.backup):
		kind = v1alpha1.ConditionVerified
	default:
		set.True(v1alpha1.ConditionComplete, v1alpha1.ReasonBackupComplete, completeMessage(st))

		return
	}

	if c := meta.FindStatusCondition(st.Conditions, kind); c != nil {
		set.False(v1alpha1.ConditionComplete, c.Reason, c.Message)
	}
}

// working reports what is being done.
func (s *scope) working(message string) {
	reason := v1alpha1.ReasonBackingUp
	if s.backup.Status.CompletedAt != nil {
		reason = v1alpha1.ReasonVerifying
	}

	s.waiting(reason, message)
}

// waiting reports what the backup waits for.
func (s *scope) waiting(reason, message string) {
	set := s.set()
	set.True(v1alpha1.ConditionReconciling, reason, message)
	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionStalled)

	// A failure stays visible until the next success.
	if s.backup.Status.CompletedAt == nil && s.backup.Status.Failures == 0 {
		set.False(v1alpha1.ConditionReady, reason, message)
	}
}

// failed counts a failure, and decides whether and when the attempt is repeated.
func (s *scope) failed(err error, kinds []string, now time.Time) {
	set, st := s.set(), &s.backup.Status
	reason := cmp.Or(failure.Reason(err), v1alpha1.ReasonUnknown)
	message := failure.Message(err)
	st.Failures++

	final := failure.ClassOf(err) == failure.ClassTerminal || st.Failures > retries(s.backup)
	if final {
		st.NextTryAt = nil

		if failure.ClassOf(err) != failure.ClassTerminal {
			message = fmt.Sprintf("stopped after %d failures: %s", st.Failures, message)
		}
	} else {
		next := metav1.NewTime(now.Add(pauseAfter(st.Failures, err)))
		st.NextTryAt = &next
	}

	for _, kind := range kinds {
		set.False(kind, reason, message)
	}

	set.While(final, v1alpha1.ConditionStalled, reason, message)
	set.While(!final, v1alpha1.ConditionReconciling, reason, message)
}

// pauseAfter returns the backoff after the given number of failures.
func pauseAfter(failures int32, err error) time.Duration {
	wait := longestPause
	if failures < 16 {
		wait = min(longestPause, firstPause<<(failures-1))
	}

	if failure.ClassOf(err) == failure.ClassAuth {
		wait = max(wait, 30*time.Second)
	}

	return wait
}

// settle sets the conditions of a backup with nothing left to do.
func (s *scope) settle() {
	set, st := s.set(), &s.backup.Status

	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionReconciling)
	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionStalled)

	st.NextTryAt = nil

	// An earlier or less thorough verification does not make a damaged backup good.
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c != nil && lost(c) {
		set.False(v1alpha1.ConditionVerified, c.Reason, c.Message)

		return
	}

	set.True(v1alpha1.ConditionReady, v1alpha1.ReasonBackupComplete, completeMessage(st))

	if v := st.Verification; v != nil {
		set.True(v1alpha1.ConditionVerified, v1alpha1.ReasonVerified, verifiedMessage(v))
	} else {
		set.False(v1alpha1.ConditionVerified, v1alpha1.ReasonNotVerified, "the spec asks for no verification")
	}
}

func completeMessage(st *v1alpha1.TalosEtcdBackupStatus) string {
	if st.Source != nil && st.Source.WithoutQuorum {
		return "the backup is complete; etcd had no quorum then, and members that did not respond may have had newer data"
	}

	return "the backup is complete"
}

// lost reports whether a condition describes a damaged backup.
func lost(c *metav1.Condition) bool {
	return c.Status == metav1.ConditionFalse && slices.Contains(verify.DamageReasons, c.Reason)
}

func verifiedMessage(v *v1alpha1.VerificationStatus) string {
	if v.Revision == 0 {
		return fmt.Sprintf("level %s", v.Level)
	}

	return fmt.Sprintf("level %s: revision %d, %d keys", v.Level, v.Revision, v.TotalKeys)
}
