package talosetcdbackupschedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// conclude records the result of completed work.
func (r *Reconciler) conclude(ctx context.Context, s *scope) error {
	key := client.ObjectKeyFromObject(s.schedule)

	j := r.Runner.Find(key, s.schedule.UID)
	if j == nil {
		return nil
	}

	if !j.Ended() {
		// The work is based on the spec at its start: a user who sees it delete too much can stop it.
		if s.hold.Any() || j.About.generation != s.schedule.Generation {
			j.Cancel()
		}

		return nil
	}

	r.Runner.Drop(key)

	out, err := j.Result()

	// Work that was cancelled, or that ran under another spec, says nothing.
	ended := errors.Is(err, context.Canceled) && failure.Reason(err) != v1alpha1.ReasonBackupTimeout
	if ended || j.About.generation != s.schedule.Generation {
		return nil
	}

	if err != nil {
		r.failed(ctx, s, j.About, err)

		return nil
	}

	switch j.About.kind {
	case retaining:
		r.retained(s, j.About.slot, out.retained)
	case verifying:
		s.verified(j.About.slot, out.report)
	}

	return nil
}

// failed records that work failed. The cause goes to the log.
func (r *Reconciler) failed(ctx context.Context, s *scope, work about, err error) {
	reason, message := failure.Reason(err), failure.Message(err)
	if reason == "" {
		reason = v1alpha1.ReasonUnknown
	}

	ctrl.LoggerFrom(ctx).Error(err, "Work on the store of backups failed", "reason", reason)

	// Waiting is not a failure, for example retention that is blocked by a restore.
	if r.Failed != nil && failure.ClassOf(err) != failure.ClassWaiting {
		r.Failed(s.schedule.Namespace, s.schedule.Spec.BackupTemplate.Spec.ControlPlaneRef.Name, reason)
	}

	switch final := failure.ClassOf(err) == failure.ClassTerminal; {
	case work.kind == retaining:
		if s.schedule.Spec.Retention != nil {
			s.conditions.False(v1alpha1.ConditionRetentionApplied, reason, message)
		}
	case final:
		// A repetition before the next scheduled time would have the same result.
		s.conditions.False(v1alpha1.ConditionVerified, reason, message)
		s.verificationHandled(work.slot)

		return
	default:
		s.conditions.False(v1alpha1.ConditionVerified, reason, message)
	}

	r.Runner.rest(client.ObjectKeyFromObject(s.schedule), work.kind, s.now.Add(workPause))
}

// retained records which backups were in the store at a time.
func (r *Reconciler) retained(s *scope, at time.Time, found *retention.Result) {
	stored := &v1alpha1.StoredBackups{
		Count: int32(min(found.Count, 1<<30)),
		Size:  resource.NewQuantity(found.Size, resource.BinarySI), Time: metav1.NewTime(at),
	}

	if found.Count > 0 {
		oldest, newest := metav1.NewTime(found.Oldest), metav1.NewTime(found.Newest)
		stored.Oldest, stored.Newest = &oldest, &newest
	}

	s.schedule.Status.Stored = stored

	if n := len(found.Deleted); n > 0 {
		r.Recorder.Eventf(s.schedule, nil, corev1.EventTypeNormal, v1alpha1.ReasonRetentionApplied, "Retention",
			"Deleted %d backups that need not be kept; %d are left", n, found.Count)
	}

	r.warnOfForged(s, found)

	if s.schedule.Spec.Retention != nil {
		s.conditions.True(v1alpha1.ConditionRetentionApplied, v1alpha1.ReasonRetentionApplied, leftAlone(found))
	}
}

// warnOfForged reports once that the store contains backups that the cluster did not sign: someone else writes to the
// store.
func (r *Reconciler) warnOfForged(s *scope, found *retention.Result) {
	told := meta.FindStatusCondition(s.schedule.Status.Conditions, v1alpha1.ConditionRetentionApplied)

	if found.Forged == 0 || told != nil && told.Message == leftAlone(found) {
		return
	}

	r.Recorder.Eventf(s.schedule, nil, corev1.EventTypeWarning, backup.ReasonNotAuthentic, "Retention",
		"%d backups in the store are not authentic: they were changed, or signed with another key than that of the cluster",
		found.Forged)
}

// leftAlone describes what retention does not delete.
func leftAlone(found *retention.Result) string {
	var parts []string

	for _, part := range []struct {
		count int
		what  string
	}{
		{found.Locked, "locked"},
		{found.Foreign, "of other tools"},
		{found.Others, "of another cluster"},
		{found.Unreadable, "with an unreadable manifest"},
		{found.Forged, "not authentic"},
		{found.Unsigned, "without a signature"},
		{found.Future, "from the future"},
		{found.Incomplete, "incomplete"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.what))
		}
	}

	if len(parts) == 0 {
		return "retention is up to date"
	}

	return "retention is up to date; not touched: " + strings.Join(parts, ", ")
}

// verified records a verification.
func (s *scope) verified(slot time.Time, report *verify.Report) {
	v := &v1alpha1.VerificationStatus{
		Level: v1alpha1.VerificationLevel(report.Level), Time: metav1.NewTime(report.FinishedAt),
	}
	message := fmt.Sprintf("backup %s: level %s", report.Backup, report.Level)

	if d := report.Database; d != nil {
		v.Revision, v.TotalKeys, v.TotalSize, v.Hash = d.Revision, d.TotalKeys, d.TotalSize, d.Hash
		message += fmt.Sprintf(", revision %d, %d keys", d.Revision, d.TotalKeys)
	}

	s.schedule.Status.Verification = v
	s.conditions.True(v1alpha1.ConditionVerified, v1alpha1.ReasonVerified, message)
	s.verificationHandled(slot)
}
