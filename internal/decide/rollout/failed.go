package rollout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// failed returns the machines that have failed or are rolled back, and says why the first one has.
func failed(machines []v1alpha1.TalosMachine) (names []string, why string) {
	for i := range machines {
		text := failure(&machines[i])
		if text == "" {
			text = unwanted(&machines[i], machines)
		}

		if text != "" {
			if len(names) == 0 {
				why = text
			}

			names = append(names, machines[i].Name)
		}
	}

	return names, why
}

// failure says why a machine stops a rollout; empty if it does not.
func failure(m *v1alpha1.TalosMachine) string {
	switch c := m.Status.Change; {
	case c != nil && c.Phase == v1alpha1.ChangeFailed && strings.HasPrefix(c.Message, m.Name+" "):
		return c.Message
	case c != nil && c.Phase == v1alpha1.ChangeFailed:
		return m.Name + ": " + c.Message
	case c != nil && c.Cause == v1alpha1.CauseRevert && c.Kind == v1alpha1.ChangeTalos:
		return m.Name + " is rolled back to the Talos that it ran before"
	case c != nil && c.Cause == v1alpha1.CauseRevert:
		return m.Name + " is rolled back to the last working config"
	case Reverted(m):
		return m.Name + " was rolled back: " +
			meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionUpToDate).Message
	}

	return ""
}

// unwanted says that a machine was rolled back from the Talos that another one of its group would get; empty if it was
// not. Its condition says so as well, but not any more while it is unreachable or has a change of another kind.
func unwanted(m *v1alpha1.TalosMachine, group []v1alpha1.TalosMachine) string {
	hash := m.Annotations[v1alpha1.RevertAnnotation]
	if hash == "" {
		return ""
	}

	for i := range group {
		c := group[i].Status.Change
		if c != nil && c.Kind == v1alpha1.ChangeTalos && c.Target == hash && !reverts(c) {
			return fmt.Sprintf("%s was rolled back from the Talos that %s would get", m.Name, group[i].Name)
		}
	}

	return ""
}

// mayFail returns how many machines may have failed before the rollout stops: none of a control plane.
func (in Input) mayFail() int {
	if in.Worker == nil {
		return 0
	}

	return in.Options.MayFail(len(in.Machines))
}

// MayFail returns how many of the machines of a worker group may have failed before its rollout stops.
func (o Options) MayFail(machines int) int {
	if o.MaxFailed == nil {
		return 0
	}

	n, err := intstr.GetScaledValueFromIntOrPercent(o.MaxFailed, machines, false)
	if err != nil {
		return 0 // the schema rejects it
	}

	return n
}

func reverts(c *v1alpha1.MachineChange) bool { return c.Cause == v1alpha1.CauseRevert }

// tolerate goes on although some machines have failed. What a user has asked to roll back is rolled back all the same,
// without approval and window; once nothing else is left that may begin, the plan is as stopped as without a tolerance.
func (out *Output) tolerate(in Input, why string) {
	for _, c := range candidates(in, reverts) {
		if !slices.ContainsFunc(out.Ready, func(r Candidate) bool { return r.Name == c.Name }) {
			out.Ready = append(out.Ready, c)
		}
	}

	left := in.unselectedUpgrades()
	others := slices.ContainsFunc(out.Plan.Machines, func(p v1alpha1.PlannedMachine) bool {
		return p.State != v1alpha1.PlannedDone && !slices.Contains(out.Tolerated, p.Name) &&
			(p.State != v1alpha1.PlannedPending || !slices.Contains(left, p.Name))
	})

	if !others {
		out.say(v1alpha1.PlanStopped, why)

		return
	}

	text := fmt.Sprintf("%d of at most %d machines have failed: %s", len(out.Tolerated), in.mayFail(), why)
	if out.Plan.Message != "" {
		text = out.Plan.Message + "; " + text
	}

	out.say(out.Plan.Phase, text)
}
