package scheduled

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// defaultMaxAge is the maximum age of a backup before a disruption if the spec sets none.
const defaultMaxAge = time.Hour

// Before returns the state of the backup that a control plane demands before a disruption, and the backup to create if
// there is none and nothing prevents it, otherwise nil. The reader should be a live one.
//
// The name of that backup is derived from the last good backup and from the schedule. A crash therefore does not result
// in a second backup, and a failed one blocks the disruption until the schedule is fixed, the failed backup is deleted,
// or another backup succeeds.
func Before(
	ctx context.Context, c client.Reader, cp *v1alpha1.TalosControlPlane, now time.Time,
) (known safety.Backup, wanted *v1alpha1.TalosEtcdBackup, err error) {
	demand := cp.Spec.BackupBeforeDisruption
	if demand == nil {
		return safety.Backup{}, nil, nil
	}

	known.Demanded = true
	s := &v1alpha1.TalosEtcdBackupSchedule{}

	err = c.Get(ctx, client.ObjectKey{Namespace: cp.Namespace, Name: demand.ScheduleRef.Name}, s)

	switch {
	case apierrors.IsNotFound(err):
		known.Message = fmt.Sprintf("TalosEtcdBackupSchedule %s does not exist", demand.ScheduleRef.Name)

		return known, nil, nil
	case err != nil:
		return known, nil, fmt.Errorf("reading TalosEtcdBackupSchedule %s: %w", demand.ScheduleRef.Name, err)
	case s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name != cp.Name:
		known.Message = fmt.Sprintf("TalosEtcdBackupSchedule %s backs up another control plane", s.Name)

		return known, nil, nil
	}

	backups, err := List(ctx, c, s)
	if err != nil {
		return known, nil, err
	}

	// A control plane may have been made anew under its name, with another PKI.
	backups = slices.DeleteFunc(backups, func(b v1alpha1.TalosEtcdBackup) bool {
		return b.Status.VerificationKey != "" && b.Status.VerificationKey != cp.Status.BackupVerificationKey
	})

	known, wanted = judge(cp, s, backups, now)
	if wanted != nil && pause.Of(s).Any() {
		known.Message, wanted = fmt.Sprintf("TalosEtcdBackupSchedule %s is paused", s.Name), nil
	}

	return known, wanted, nil
}

// Permit evaluates a disruption with the state of the backup that the control plane demands before it. If only a
// missing backup blocks it, the backup is created and returned, and the disruption is evaluated again. The reader
// should be a live one.
func Permit(
	ctx context.Context, c client.Client, live client.Reader, cp *v1alpha1.TalosControlPlane, now time.Time,
	ask func(safety.Backup) safety.Verdict,
) (safety.Verdict, *v1alpha1.TalosEtcdBackup, error) {
	known, wanted, err := Before(ctx, live, cp, now)
	if err != nil {
		return safety.Verdict{}, nil, err
	}

	verdict := ask(known)
	if verdict.Reason != v1alpha1.ReasonWaitingForBackup || wanted == nil {
		return verdict, nil, nil
	}

	demanded := wanted.DeepCopy()

	if err := Make(ctx, c, wanted); err != nil {
		return safety.Verdict{}, nil, err
	}

	if err := live.Get(ctx, client.ObjectKeyFromObject(wanted), wanted); err != nil {
		return safety.Verdict{}, nil, fmt.Errorf("reading TalosEtcdBackup %s: %w", wanted.Name, err)
	}

	if wanted.Labels[v1alpha1.ScheduleLabel] != demanded.Labels[v1alpha1.ScheduleLabel] ||
		wanted.Spec.ControlPlaneRef != demanded.Spec.ControlPlaneRef {
		known.Message = fmt.Sprintf("TalosEtcdBackup %s exists and is not one of the schedule: delete or rename it",
			wanted.Name)

		return ask(known), nil, nil
	}

	known.State, known.Name, known.Message = safety.BackupRunning, wanted.Name, ""

	return ask(known), wanted, nil
}

// Since returns a control plane that demands a backup not older than a moment, nor than its spec allows. A moment that
// is still to come, as recorded by a clock that was ahead, is now: no backup could be newer.
func Since(cp *v1alpha1.TalosControlPlane, moment, now time.Time) *v1alpha1.TalosControlPlane {
	out := cp.DeepCopy()

	if d := out.Spec.BackupBeforeDisruption; d != nil {
		age := defaultMaxAge
		if d.MaxAge != nil {
			age = d.MaxAge.Duration
		}

		d.MaxAge = &metav1.Duration{Duration: min(age, max(0, now.Sub(moment)))}
	}

	return out
}

// judge derives the state of the demanded backup. It is pure.
func judge(
	cp *v1alpha1.TalosControlPlane, s *v1alpha1.TalosEtcdBackupSchedule, backups []v1alpha1.TalosEtcdBackup, now time.Time,
) (safety.Backup, *v1alpha1.TalosEtcdBackup) {
	known, maxAge := safety.Backup{Demanded: true}, defaultMaxAge
	if d := cp.Spec.BackupBeforeDisruption.MaxAge; d != nil {
		maxAge = d.Duration
	}

	// One without quorum may lack what unreachable members had.
	newest := Newest(slices.DeleteFunc(slices.Clone(backups), withoutQuorum), now)
	if newest != nil && !now.After(newest.Status.CompletedAt.Add(maxAge)) {
		known.State, known.Name = safety.BackupFresh, newest.Name

		return known, nil
	}

	name := beforeName(cp, s, newest, backups)

	for i := range backups {
		b := &backups[i]

		switch {
		case !b.DeletionTimestamp.IsZero():
			known.State, known.Name, known.Message = safety.BackupRunning, b.Name, "it is being deleted"

			return known, nil
		case !Finished(b):
			known.State, known.Name, known.Message = safety.BackupRunning, b.Name, told(b, v1alpha1.ConditionReconciling)

			return known, nil
		case b.Name == name && Unverified(b):
			known.State, known.Name, known.Message = safety.BackupRunning, b.Name, "it is paused"

			return known, nil
		case b.Name == name && !Good(b):
			known.State, known.Name, known.Message = safety.BackupFailed, name, told(b, v1alpha1.ConditionStalled)
		}
	}

	if known.State == safety.BackupFailed {
		return known, nil
	}

	wanted := New(s, name)
	wanted.Annotations = map[string]string{v1alpha1.BeforeDisruptionAnnotation: cp.Name}

	return known, wanted
}

func withoutQuorum(b v1alpha1.TalosEtcdBackup) bool {
	return b.Status.Source != nil && b.Status.Source.WithoutQuorum
}

// told returns the message of a backup's condition.
func told(b *v1alpha1.TalosEtcdBackup, kind string) string {
	if c := meta.FindStatusCondition(b.Status.Conditions, kind); c != nil && c.Reason != v1alpha1.ReasonBackingUp {
		return c.Message
	}

	return ""
}

// beforeName skips the names of good backups: if a clock was set, a good backup may exist and not be the newest.
func beforeName(
	cp *v1alpha1.TalosControlPlane, s *v1alpha1.TalosEtcdBackupSchedule, newest *v1alpha1.TalosEtcdBackup,
	backups []v1alpha1.TalosEtcdBackup,
) string {
	last := ""
	if newest != nil {
		last = string(newest.UID)
	}

	for {
		sum := sha256.Sum256([]byte(fmt.Sprintf("%s/%s/%d/%s", cp.UID, s.UID, s.Generation, last)))
		name := stem(cp.Name) + "-before-" + hex.EncodeToString(sum[:5])

		if !slices.ContainsFunc(backups, func(b v1alpha1.TalosEtcdBackup) bool { return b.Name == name && Good(&b) }) {
			return name
		}

		last += "+"
	}
}

// Make creates a backup. An existing one is no error.
func Make(ctx context.Context, c client.Client, b *v1alpha1.TalosEtcdBackup) error {
	if err := c.Create(ctx, b, kube.FieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating TalosEtcdBackup %s: %w", b.Name, err)
	}

	return nil
}

// Holds reports whether a disruption is blocked by a failed backup: its object has to be kept until there is a good
// one.
func Holds(b, newest *v1alpha1.TalosEtcdBackup) bool {
	return b.Annotations[v1alpha1.BeforeDisruptionAnnotation] != "" && Finished(b) && !Good(b) &&
		(newest == nil || newest.CreationTimestamp.Before(&b.CreationTimestamp))
}
