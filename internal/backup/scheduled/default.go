package scheduled

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// namedSchedules is how many schedules a message names.
const namedSchedules = 3

// Default returns what a control plane waits for before an upgrade although its spec demands no backup: one of its
// schedule that is neither suspended nor paused; of several, that with the newest good backup, or else the first one by
// name. Without such a one, missing says why there is no backup. It is pure.
func Default(
	cp *v1alpha1.TalosControlPlane, all []v1alpha1.TalosEtcdBackupSchedule,
) (demand *v1alpha1.BackupBeforeDisruption, missing string) {
	var (
		chosen   *v1alpha1.TalosEtcdBackupSchedule
		disabled []string
	)

	for i := range all {
		switch s := &all[i]; {
		case s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name != cp.Name || !s.DeletionTimestamp.IsZero():
		case s.Spec.Suspend:
			disabled = append(disabled, s.Name+" is suspended")
		case pause.Of(s).Any():
			disabled = append(disabled, s.Name+" is paused")
		case chosen == nil || preferred(s, chosen):
			chosen = s
		}
	}

	slices.Sort(disabled)

	switch {
	case chosen != nil:
		return &v1alpha1.BackupBeforeDisruption{ScheduleRef: v1alpha1.ObjectReference{Name: chosen.Name}}, ""
	case len(disabled) > 0:
		return nil, "TalosEtcdBackupSchedule " + few(disabled)
	}

	return nil, "no TalosEtcdBackupSchedule is known for the cluster"
}

// preferred reports whether a schedule is more likely to take a good backup than another one: it did so last.
func preferred(s, than *v1alpha1.TalosEtcdBackupSchedule) bool {
	a, b := s.Status.LastSuccessTime, than.Status.LastSuccessTime
	if a.Equal(b) {
		return s.Name < than.Name
	}

	return a != nil && (b == nil || b.Before(a))
}

func few(names []string) string {
	if left := len(names) - namedSchedules; left > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedSchedules], ", "), left)
	}

	return strings.Join(names, ", ")
}
