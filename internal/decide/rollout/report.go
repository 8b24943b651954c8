package rollout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// reasons are the reasons of the condition UpToDate, by the phase of the plan.
var reasons = map[v1alpha1.PlanPhase]string{
	v1alpha1.PlanAwaitingApproval: v1alpha1.ReasonAwaitingApproval, v1alpha1.PlanWaiting: v1alpha1.ReasonRolloutWaiting,
	v1alpha1.PlanRollingOut: v1alpha1.ReasonRollingOut, v1alpha1.PlanStopped: v1alpha1.ReasonRolloutStopped,
}

// Report returns the condition UpToDate of a group with the given number of machines. It is True only if every machine
// exists and reports itself as up to date with the current specs of its control plane and of its worker group (nil for
// a control plane): a machine that was never observed, or is not configured yet, is not up to date, and neither is one
// that was last compared to the spec before an edit.
func Report(
	cp *v1alpha1.TalosControlPlane, w *v1alpha1.TalosWorker, plan *v1alpha1.PlanStatus, size int,
	machines []v1alpha1.TalosMachine,
) (status metav1.ConditionStatus, reason, message string) {
	if plan != nil {
		return metav1.ConditionFalse, reasons[plan.Phase],
			fmt.Sprintf("plan %s (%s)", plan.ID, progress(plan)) + change.After(": ", plan.Message)
	}

	var differ, unknown, before []string

	for i := range machines {
		c := meta.FindStatusCondition(machines[i].Status.Conditions, v1alpha1.ConditionUpToDate)

		switch {
		case c == nil || c.Status == metav1.ConditionUnknown:
			unknown = append(unknown, machines[i].Name)

			continue
		case c.Status == metav1.ConditionTrue:
			if machines[i].Status.ComparedTo != ComparedTo(cp, w, &machines[i]) {
				before = append(before, machines[i].Name)
			}

			continue
		}

		if reason == "" {
			reason = c.Reason
		}

		if reason != c.Reason {
			reason = v1alpha1.ReasonConfigDiffers
		}

		differ = append(differ, machines[i].Name+": "+c.Message)
	}

	slices.Sort(unknown)
	slices.Sort(before)

	switch {
	case len(differ) > 0:
		return metav1.ConditionFalse, reason, strings.Join(differ, "; ")
	case len(unknown) > 0:
		return metav1.ConditionUnknown, v1alpha1.ReasonWaitingForMachines,
			"not yet observed: " + kube.Shorten(strings.Join(unknown, ", "), longestList)
	case len(before) > 0:
		return metav1.ConditionUnknown, v1alpha1.ReasonWaitingForMachines,
			"not yet compared to the current spec: " + kube.Shorten(strings.Join(before, ", "), longestList)
	case len(machines) < size:
		return metav1.ConditionUnknown, v1alpha1.ReasonWaitingForMachines, "machines are being created"
	}

	return metav1.ConditionTrue, v1alpha1.ReasonUpToDate, "all machines run the desired configuration"
}

// longestList is the maximum length of a list of machines in a message.
const longestList = 200

// progress counts the machines of a plan by their state, in the order in which the states follow each other.
func progress(p *v1alpha1.PlanStatus) string {
	var parts []string

	for _, state := range []v1alpha1.PlannedState{
		v1alpha1.PlannedDone, v1alpha1.PlannedRunning, v1alpha1.PlannedAwaitingReboot, v1alpha1.PlannedPending,
		v1alpha1.PlannedFailed,
	} {
		var names []string

		for _, m := range p.Machines {
			if m.State == state {
				names = append(names, m.Name)
			}
		}

		switch {
		case len(names) == 0:
		case len(names) == 1:
			parts = append(parts, fmt.Sprintf("%s %s", names[0], state))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", len(names), state))
		}
	}

	return strings.Join(parts, ", ")
}

// Pending reports whether any machine has a change, so that a plan has to be created or kept.
func Pending(machines []v1alpha1.TalosMachine) bool {
	return slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Status.Change != nil })
}
