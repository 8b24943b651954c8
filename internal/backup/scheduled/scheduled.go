// Package scheduled handles the TalosEtcdBackups that are created from a TalosEtcdBackupSchedule: their names, their
// label, and their results.
//
// They have no owner, so that a schedule can be deleted and recreated without deleting its backups.
package scheduled

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

const (
	// maxLabel is the maximum length of a label value.
	maxLabel = 63
	// maxStem leaves room for the suffix of an object's name.
	maxStem = 200
)

// skew is the maximum clock skew; a time further ahead counts as one in the future.
const skew = 5 * time.Minute

// Label returns the value of the label that names a schedule; long names are shortened.
func Label(schedule string) string {
	short, hash := shorten(schedule, maxLabel)

	return short + hash
}

// stem returns what the name of an object begins with. Each part of such a name begins with a letter or a digit, so
// that none is cut right after its dot.
func stem(name string) string {
	short, hash := shorten(name, maxStem)
	if hash != "" {
		short = strings.TrimRight(short, ".")
	}

	return short + hash
}

// shorten cuts a name that is too long, and returns what is to follow it so that it still differs from others.
func shorten(name string, longest int) (short, hash string) {
	if len(name) <= longest {
		return name, ""
	}

	sum := sha256.Sum256([]byte(name))

	return name[:longest-9], "-" + hex.EncodeToString(sum[:4])
}

// Name returns the name of the backup for one time of a schedule. It is deterministic, so a crash never results in two
// backups.
func Name(schedule string, slot time.Time) string {
	return stem(schedule) + "-" + slot.UTC().Format("20060102-150405")
}

// New returns a backup that is created from the template of a schedule.
func New(s *v1alpha1.TalosEtcdBackupSchedule, name string) *v1alpha1.TalosEtcdBackup {
	return &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name, Labels: map[string]string{v1alpha1.ScheduleLabel: Label(s.Name)},
		},
		Spec: *s.Spec.BackupTemplate.Spec.DeepCopy(),
	}
}

// IsOf reports whether a backup was created from a schedule. Backups outlive schedules: one of the same name may have
// backed up another control plane before.
func IsOf(b *v1alpha1.TalosEtcdBackup, s *v1alpha1.TalosEtcdBackupSchedule) bool {
	return b.Labels[v1alpha1.ScheduleLabel] == Label(s.Name) &&
		b.Spec.ControlPlaneRef == s.Spec.BackupTemplate.Spec.ControlPlaneRef
}

// List returns the backups of a schedule.
func List(
	ctx context.Context, c client.Reader, s *v1alpha1.TalosEtcdBackupSchedule,
) ([]v1alpha1.TalosEtcdBackup, error) {
	list := &v1alpha1.TalosEtcdBackupList{}

	err := c.List(ctx, list, client.InNamespace(s.Namespace),
		client.MatchingLabels{v1alpha1.ScheduleLabel: Label(s.Name)})
	if err != nil {
		return nil, fmt.Errorf("listing the TalosEtcdBackups of the schedule %s: %w", s.Name, err)
	}

	return slices.DeleteFunc(list.Items, func(b v1alpha1.TalosEtcdBackup) bool { return !IsOf(&b, s) }), nil
}

// Finished reports whether a backup no longer works: it is complete, or it failed permanently.
func Finished(b *v1alpha1.TalosEtcdBackup) bool {
	st := &b.Status

	return stalled(b) ||
		st.CompletedAt != nil && meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReconciling) == nil
}

// Unverified reports whether a backup is stored and does not work on its verification, because it is paused.
func Unverified(b *v1alpha1.TalosEtcdBackup) bool {
	return Finished(b) && !stalled(b) && meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionComplete)
}

func stalled(b *v1alpha1.TalosEtcdBackup) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionStalled)
}

// Good reports whether a backup is finished, complete, and verified as its spec demands.
func Good(b *v1alpha1.TalosEtcdBackup) bool {
	return Finished(b) && !stalled(b) && !Unverified(b) &&
		meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady)
}

// Newest returns the good backup that completed last; nil if there is none. A backup with a time in the future does not
// count: it would hide that no newer one follows. One that is being deleted may have lost its data.
func Newest(backups []v1alpha1.TalosEtcdBackup, now time.Time) *v1alpha1.TalosEtcdBackup {
	var newest *v1alpha1.TalosEtcdBackup

	for i := range backups {
		b := &backups[i]
		if !Good(b) || InFuture(b.Status.CompletedAt, now) || !b.DeletionTimestamp.IsZero() {
			continue
		}

		if newest == nil || newest.Status.CompletedAt.Before(b.Status.CompletedAt) {
			newest = b
		}
	}

	return newest
}

// InFuture reports whether a time is further ahead than the maximum clock skew.
func InFuture(t *metav1.Time, now time.Time) bool { return t != nil && t.After(now.Add(skew)) }
