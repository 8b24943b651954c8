package taloscontrolplane

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// schematicsOf returns the status of the step that brings machines the schematics that they want, in the version that
// they run; nil if none wants another one, or a version comes first. now is what comes next of versions, and out the
// status that it goes into. A step of Kubernetes that has begun is finished before. It is pure.
func schematicsOf(
	cp *v1alpha1.TalosControlPlane, out *v1alpha1.UpgradeStatus, now upgrade.Now, runs upgrade.Cluster,
	machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	target := targetOf(cp).Talos
	if target == "" || now.Talos != "" || now.Back || out.KubernetesBegun != "" {
		return nil
	}

	wanting := wantSchematic(cp, machines)
	older := func(n upgrade.Node) bool { return upgrade.Newer(target, n.Talos) }

	// A machine follows the version of a step, so none may be older: what it wants was found with another spec.
	if len(wanting) == 0 || slices.ContainsFunc(runs.Nodes, older) || installingVersion(machines) {
		return nil
	}

	step := out.DeepCopy()
	step.TalosVersion, step.SchematicsOnly, step.StepsLeft = target, true, int32(now.Left)+1
	step.Machines = wanting[:min(len(wanting), maxUpgraded)]
	step.ControlPlaneDone, step.Message = schematicsDone(cp, controlPlaneOf(machines))

	return step
}

// wantSchematic returns the names of the machines that get another schematic. Those that are not selected are not among
// them.
func wantSchematic(cp *v1alpha1.TalosControlPlane, machines []v1alpha1.TalosMachine) []string {
	var out []string

	unselected := rollout.Unselected(cp, machines)

	for i := range machines {
		m := &machines[i]
		if upgrade.OnlySchematic(m.Status.Change) && !deleting(m) && !slices.Contains(unselected, m.Name) {
			out = append(out, m.Name)
		}
	}

	return out
}

// installingVersion reports whether a machine is given another version of Talos, or has not proved it. A rollback that
// waits or has failed holds no other machine.
func installingVersion(machines []v1alpha1.TalosMachine) bool {
	return installing(slices.DeleteFunc(slices.Clone(machines), func(m v1alpha1.TalosMachine) bool {
		c := m.Status.Change

		return upgrade.OnlySchematic(c) || c != nil && c.Cause == v1alpha1.CauseRevert &&
			(c.Phase == v1alpha1.ChangeFailed || !change.Begun(c))
	})) != ""
}

// schematicsDone reports whether each machine of the control plane has the schematic that it wants, or says which one
// keeps workers waiting. One that has not been compared with the spec may want another one.
func schematicsDone(cp *v1alpha1.TalosControlPlane, machines []v1alpha1.TalosMachine) (bool, string) {
	var wanting, other, unknown, back []string

	unselected := rollout.Unselected(cp, machines)

	for i := range machines {
		m := &machines[i]
		configured := meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured)

		switch {
		case deleting(m) || !configured || slices.Contains(unselected, m.Name):
		case m.Status.Change != nil && !upgrade.OnlySchematic(m.Status.Change): // a configuration comes before a schematic
			other = append(other, m.Name)
		case m.Status.Change != nil:
			wanting = append(wanting, m.Name)
		case rollout.Reverted(m):
			back = append(back, m.Name)
		case !rollout.ComparedToSpec(cp, m):
			unknown = append(unknown, m.Name)
		}
	}

	switch {
	case len(back) > 0:
		return false, kube.Shorten(fmt.Sprintf("workers get another schematic after the control plane, and %s was rolled "+
			"back: remove the annotation %s to try it again, or change the spec", strings.Join(back, ", "),
			v1alpha1.RevertAnnotation), longestMessage)
	case len(wanting) == 0 && len(other) > 0:
		return false, kube.Shorten("workers get another schematic after the control plane, and "+strings.Join(other, ", ")+
			" has another change before it", longestMessage)
	case len(wanting) == 0 && len(unknown) > 0:
		return false, kube.Shorten("waiting until what "+strings.Join(unknown, ", ")+" runs is compared with the spec",
			longestMessage)
	}

	return len(wanting) == 0, ""
}
