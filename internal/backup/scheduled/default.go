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

// Default returns what a control plane waits for before an upgrade although its spec demands no backup: one of the only
// schedule of it that is neither suspended nor paused. Without such a one, missing says why there is no backup. It is
// pure.
func Default(
	cp *v1alpha1.TalosControlPlane, all []v1alpha1.TalosEtcdBackupSchedule,
) (demand *v1alpha1.BackupBeforeDisruption, missing string) {
	var enabled, disabled []string

	for i := range all {
		switch s := &all[i]; {
		case s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name != cp.Name || !s.DeletionTimestamp.IsZero():
		case s.Spec.Suspend:
			disabled = append(disabled, s.Name+" is suspended")
		case pause.Of(s).Any():
			disabled = append(disabled, s.Name+" is paused")
		default:
			enabled = append(enabled, s.Name)
		}
	}

	slices.Sort(enabled)
	slices.Sort(disabled)

	switch {
	case len(enabled) == 1:
		return &v1alpha1.BackupBeforeDisruption{ScheduleRef: v1alpha1.ObjectReference{Name: enabled[0]}}, ""
	case len(enabled) > 1:
		return nil, fmt.Sprintf("%d TalosEtcdBackupSchedules could take it (%s): name one in backupBeforeDisruption",
			len(enabled), few(enabled))
	case len(disabled) > 0:
		return nil, "TalosEtcdBackupSchedule " + few(disabled)
	}

	return nil, "no TalosEtcdBackupSchedule is known for the cluster"
}

func few(names []string) string {
	if left := len(names) - namedSchedules; left > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedSchedules], ", "), left)
	}

	return strings.Join(names, ", ")
}
