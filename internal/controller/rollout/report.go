package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// reasons are those of the condition UpToDate by the phase of the plan.
var reasons = map[v1alpha1.PlanPhase]string{
	v1alpha1.PlanAwaitingApproval: v1alpha1.ReasonAwaitingApproval, v1alpha1.PlanWaiting: v1alpha1.ReasonRolloutWaiting,
	v1alpha1.PlanRollingOut: v1alpha1.ReasonRollingOut, v1alpha1.PlanStopped: v1alpha1.ReasonRolloutStopped,
}

// Names lists changed fields for a sentence: a document that comes or goes as a whole counts once.
func Names(fields []v1alpha1.FieldChange) []string {
	out := make([]string, 0, len(fields))

	for _, f := range fields {
		if document, _, inside := strings.Cut(f.Field, ": "); !inside || !slices.Contains(out, document) {
			out = append(out, f.Field)
		}
	}

	return out
}

// Report says why a group is not up to date: reason and message of the condition UpToDate, both empty when it is.
func Report(plan *v1alpha1.PlanStatus, machines []v1alpha1.TalosMachine) (reason, message string) {
	if plan != nil {
		return reasons[plan.Phase], fmt.Sprintf("plan %s (%s)", plan.ID, progress(plan)) + after(": ", plan.Message)
	}

	var out []string

	for i := range machines {
		c := meta.FindStatusCondition(machines[i].Status.Conditions, v1alpha1.ConditionUpToDate)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}

		if reason == "" {
			reason = c.Reason
		}

		if reason != c.Reason {
			reason = v1alpha1.ReasonConfigDiffers
		}

		out = append(out, machines[i].Name+": "+c.Message)
	}

	return reason, strings.Join(out, "; ")
}

func after(separator, text string) string {
	if text == "" {
		return ""
	}

	return separator + text
}

// progress counts the machines of a plan by their state, in the order in which states follow each other.
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

// Pending tells whether any machine has a change, so that a plan has to be made or kept.
func Pending(machines []v1alpha1.TalosMachine) bool {
	return slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Status.Change != nil })
}

// Grant lets a machine begin its change.
func Grant(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine, by Candidate) error {
	base := m.DeepCopy()
	m.Spec.Change = &v1alpha1.ChangeGrant{ID: by.Change.ID, Reboot: by.Reboot}

	if err := c.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("letting %s begin its change: %w", m.Name, err)
	}

	return nil
}
