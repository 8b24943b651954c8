package talosetcdbackup

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/backupstorage"
	"github.com/talos-operator/talos-operator/internal/controller/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// badReasons are told as warnings.
var badReasons = slices.Concat(condition.BadReasons, verify.DamageReasons, []string{
	backup.ReasonInvalid, backup.ReasonRecipients, backup.ReasonUnencrypted, backup.ReasonSource, backup.ReasonStalled,
	backup.ReasonTruncated, backup.ReasonIdentity, backup.ReasonLocked, backup.ReasonForeign,
	backupstorage.ReasonSecret, backupstorage.ReasonSecretForbidden, backupstorage.ReasonDirectory,
	store.ReasonUnreachable, store.ReasonUnavailable, store.ReasonUntrusted, store.ReasonForbidden,
	store.ReasonCredentials, store.ReasonNotFound, store.ReasonFull, store.ReasonRefused, store.ReasonInvalid,
	store.ReasonObjectExists, verify.ReasonScratch, verify.ReasonLimits, verify.ReasonInvalid,
	v1alpha1.ReasonBackupTimeout, v1alpha1.ReasonNoSnapshotSource,
})

var levels = []v1alpha1.VerificationLevel{
	v1alpha1.VerificationNone, v1alpha1.VerificationChecksum, v1alpha1.VerificationDatabase, v1alpha1.VerificationDrill,
}

// wanted is the level that the spec asks for.
func wanted(b *v1alpha1.TalosEtcdBackup) v1alpha1.VerificationLevel {
	if b.Spec.Verification == nil {
		return v1alpha1.VerificationChecksum
	}

	return cmp.Or(b.Spec.Verification.Level, v1alpha1.VerificationChecksum)
}

// needsVerification says whether a complete backup was not yet verified as its spec says.
func needsVerification(b *v1alpha1.TalosEtcdBackup) bool {
	reached := v1alpha1.VerificationNone
	if v := b.Status.Verification; v != nil {
		reached = v.Level
	}

	return slices.Index(levels, wanted(b)) > slices.Index(levels, reached)
}

// show completes the conditions at the end of a pass.
func (s *scope) show(err error) {
	set, deleting := s.set(), !s.backup.DeletionTimestamp.IsZero()

	set.IfMissing(v1alpha1.ConditionReady, v1alpha1.ConditionVerified)

	if failure.ClassOf(err) == failure.ClassWaiting && err != nil && !deleting {
		s.waiting(failure.Reason(err), failure.Message(err))
	}

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

// working shows what is being done.
func (s *scope) working(message string) {
	reason := v1alpha1.ReasonBackingUp
	if s.backup.Status.CompletedAt != nil {
		reason = v1alpha1.ReasonVerifying
	}

	s.waiting(reason, message)
}

// waiting shows what it waits for.
func (s *scope) waiting(reason, message string) {
	set := s.set()
	set.True(v1alpha1.ConditionReconciling, reason, message)
	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionStalled)

	// What failed stays to be seen until it is better.
	if s.backup.Status.CompletedAt == nil && s.backup.Status.Failures == 0 {
		set.False(v1alpha1.ConditionReady, reason, message)
	}
}

// failed counts a failure, and decides whether and when it is tried again.
func (s *scope) failed(err error, kinds []string, now time.Time) {
	set, st := s.set(), &s.backup.Status
	reason := cmp.Or(failure.Reason(err), v1alpha1.ReasonUnknown)
	message := failure.Message(err)
	st.Failures++

	final := failure.ClassOf(err) == failure.ClassTerminal || st.Failures > retries(s.backup)
	if final {
		st.NextTryAt = nil

		if failure.ClassOf(err) != failure.ClassTerminal {
			message = fmt.Sprintf("given up after %d failures: %s", st.Failures, message)
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

// pauseAfter is the backoff after so many failures.
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

// settle shows a backup for which there is nothing to do.
func (s *scope) settle() {
	set, st := s.set(), &s.backup.Status

	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionReconciling)
	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionStalled)

	st.NextTryAt = nil

	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c == nil || !lost(c) {
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonBackupComplete, completeMessage(st))
	}

	if v := st.Verification; v != nil {
		set.True(v1alpha1.ConditionVerified, v1alpha1.ReasonVerified, verifiedMessage(v))
	} else {
		set.False(v1alpha1.ConditionVerified, v1alpha1.ReasonNotVerified, "the spec asks for no verification")
	}
}

func completeMessage(st *v1alpha1.TalosEtcdBackupStatus) string {
	if st.Source != nil && st.Source.WithoutQuorum {
		return "the backup is complete; etcd had no quorum then, and members that were silent may have known more"
	}

	return "the backup is complete"
}

// lost says whether a condition tells of a backup that is bad.
func lost(c *metav1.Condition) bool {
	return c.Status == metav1.ConditionFalse && slices.Contains(verify.DamageReasons, c.Reason)
}

func verifiedMessage(v *v1alpha1.VerificationStatus) string {
	if v.Revision == 0 {
		return fmt.Sprintf("level %s", v.Level)
	}

	return fmt.Sprintf("level %s: revision %d, %d keys", v.Level, v.Revision, v.TotalKeys)
}
