package taloscontrolplane

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// maxUpgraded is how many machines the status of an upgrade names.
const maxUpgraded = 16

// targetOf returns the versions that the spec asks for, as far as upgrades to them are automatic.
func targetOf(cp *v1alpha1.TalosControlPlane) upgrade.Target {
	out := upgrade.Target{}

	if o := cp.Spec.Upgrade; o != nil {
		if o.Talos == v1alpha1.UpgradeAutomatic {
			out.Talos = cp.Spec.TalosVersion
		}

		if o.Kubernetes == v1alpha1.UpgradeAutomatic {
			out.Kubernetes = cp.Spec.KubernetesVersion
		}
	}

	return out
}

// upgradeOf returns the state of an upgrade; nil if each machine runs what the spec asks for. entries are the machines
// that the control plane should have now. It is pure.
func upgradeOf(
	cp *v1alpha1.TalosControlPlane, entries []v1alpha1.MachineEntry, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	target, was := targetOf(cp), cp.Status.Upgrade
	out := &v1alpha1.UpgradeStatus{
		ObservedGeneration: cp.Generation, Target: target.Talos, TargetKubernetes: target.Kubernetes,
	}

	if was != nil {
		out.KubernetesBegun, out.KubernetesFrom, out.Approved = was.KubernetesBegun, was.KubernetesFrom, was.Approved
	}

	runs, missing := versionsOf(cp, entries, machines)

	if same := awaitProof(cp, target.Kubernetes, machines, runs, len(missing) == 0); same != nil {
		return same
	}

	if len(missing) > 0 {
		return awaitVersions(cp, out, target, missing)
	}

	runs.Upgraded = out.KubernetesBegun

	now, err := upgrade.Next(runs, target, cp.Spec.Upgrade.Via...)
	unproved := installing(machines)

	var refusal *upgrade.Refusal
	if errors.As(err, &refusal) {
		out.Reason, out.Message = v1alpha1.ReasonNoUpgradePath, kube.Shorten(refusal.Error(), longestMessage)
		out.PointOfNoReturn = pointOfNoReturn(out.KubernetesBegun, runs)

		return out
	}

	if step := schematicsOf(cp, out, now, runs, machines); step != nil {
		return step
	}

	switch {
	case leaves(was, now, target) && unproved != "":
		out = was.DeepCopy()
		out.ObservedGeneration = cp.Generation
		out.Message = fmt.Sprintf("waiting until %s has proved Talos %s", unproved, was.TalosVersion)
	case now.Left == 0:
		return nil
	case now.Kubernetes != "" && unproved != "":
		out.StepsLeft, out.Message = int32(now.Left), fmt.Sprintf("Kubernetes %s waits for the upgrade of Talos on %s",
			now.Kubernetes, unproved)
	default:
		goesOn(out, now, runs)
		out.ControlPlaneDone = out.ControlPlaneDone && installing(controlPlaneOf(machines)) == ""
		out.Message = kube.Shorten(cmp.Or(stuck(cp, machines, out, now), out.Message), longestMessage)
	}

	if !now.Back {
		out.PointOfNoReturn = pointOfNoReturn(out.KubernetesBegun, runs)
	}

	return out
}

// awaitProof returns the status while a component of Kubernetes proves itself on a machine; nil if none does. asked is
// the version that the spec asks for. known: the versions of all machines are.
func awaitProof(
	cp *v1alpha1.TalosControlPlane, asked string, machines []v1alpha1.TalosMachine, runs upgrade.Cluster, known bool,
) *v1alpha1.UpgradeStatus {
	was := cp.Status.Upgrade
	if was == nil || was.KubernetesVersion == "" || !proving(machines, was.TargetKubernetes == asked) {
		return nil
	}

	out := was.DeepCopy()
	out.ObservedGeneration = cp.Generation

	// What is being replaced may be the last one that has the version of before.
	switch {
	case !known:
		out.PointOfNoReturn = unobserved(was)
	case upgrade.Newer(was.KubernetesVersion, was.KubernetesFrom) || was.PointOfNoReturn != "":
		out.PointOfNoReturn = pointOfNoReturn(was.KubernetesBegun, runs)
	}

	return out
}

// unobserved returns what is known of the point of no return while the version of a machine is not: that it is passed
// stays true, and that it is ahead may not be.
func unobserved(was *v1alpha1.UpgradeStatus) v1alpha1.PointOfNoReturn {
	if was == nil || was.PointOfNoReturn != v1alpha1.PointOfNoReturnPassed {
		return ""
	}

	return was.PointOfNoReturn
}

// pointOfNoReturn tells whether a version of Kubernetes that an upgrade has begun with can be taken back; empty if it
// has begun with none.
func pointOfNoReturn(begun string, runs upgrade.Cluster) v1alpha1.PointOfNoReturn {
	switch {
	case begun == "":
		return ""
	case runs.IsFinal(begun):
		return v1alpha1.PointOfNoReturnPassed
	}

	return v1alpha1.PointOfNoReturnAhead
}

// awaitVersions returns the status while the versions of some machines are not known. What machines do meanwhile goes
// on: a node that boots reports its versions later than it responds.
func awaitVersions(
	cp *v1alpha1.TalosControlPlane, out *v1alpha1.UpgradeStatus, target upgrade.Target, missing []string,
) *v1alpha1.UpgradeStatus {
	was := cp.Status.Upgrade
	if was != nil && (was.ObservedGeneration == cp.Generation || keepsStep(was, target)) {
		out = was.DeepCopy()
	}

	out.PointOfNoReturn = unobserved(was)
	out.Reason = ""
	out.Message = kube.Shorten("waiting for the versions of "+strings.Join(missing, ", "), longestMessage)

	return out
}

// leaves reports whether the path goes on from one version of Talos to the next one: each machine runs the one of
// before, and has to have proved it, unless the spec has changed.
func leaves(was *v1alpha1.UpgradeStatus, now upgrade.Now, target upgrade.Target) bool {
	return was != nil && was.TalosVersion != "" && !was.SchematicsOnly && was.TalosVersion != now.Talos &&
		was.Target == target.Talos
}

// keepsStep reports whether the step of an upgrade of Talos stays until another spec is planned, because that asks for
// the same versions. The generation of the status is the old one, so that machines neither begin nor end an upgrade
// meanwhile: one that has failed would be forgotten, and tried again.
func keepsStep(was *v1alpha1.UpgradeStatus, target upgrade.Target) bool {
	return was.TalosVersion != "" && was.Target == target.Talos && was.TargetKubernetes == target.Kubernetes
}

// goesOn puts what comes next into a status.
func goesOn(out *v1alpha1.UpgradeStatus, now upgrade.Now, runs upgrade.Cluster) {
	out.TalosVersion, out.KubernetesVersion, out.Components = now.Talos, now.Kubernetes, now.Components
	out.StepsLeft, out.Message = int32(now.Left), now.Waits
	out.Machines = now.Machines[:min(len(now.Machines), maxUpgraded)]

	switch {
	case now.Kubernetes != "":
		out.Approved = out.Approved && out.KubernetesBegun == now.Kubernetes
		out.KubernetesBegun, out.KubernetesFrom = now.Kubernetes, upgrade.Oldest(runs).Kubernetes

		if slices.Contains(now.Components, v1alpha1.ComponentKubelet) {
			out.KubernetesFrom = now.Kubernetes // each API server has it
		}
	case now.Talos != "":
		out.KubernetesBegun, out.KubernetesFrom, out.Approved = "", "", false
		out.ControlPlaneDone = !slices.ContainsFunc(runs.Nodes, func(n upgrade.Node) bool {
			return n.ControlPlane && slices.Contains(now.Machines, n.Name)
		})
	}
}

// rolledBack says which of the machines that are next are not given the Talos from which they were rolled back.
func rolledBack(machines []v1alpha1.TalosMachine, now upgrade.Now) string {
	var names []string

	for i := range machines {
		if m := &machines[i]; slices.Contains(now.Machines, m.Name) && rollout.Reverted(m) {
			names = append(names, m.Name)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return fmt.Sprintf("%s: rolled back from Talos %s; remove the annotation %s to try it again, or have the path go "+
		"through another release (talosVersion, upgrade.via)", strings.Join(names, ", "), now.Talos,
		v1alpha1.RevertAnnotation)
}

// refusals are the reasons for which a machine is not given the Talos of its path.
var refusals = []string{
	v1alpha1.ReasonUpgradeUnsupported, v1alpha1.ReasonExtensionsLost, v1alpha1.ReasonPlatformMismatch,
	v1alpha1.ReasonSecureBootMismatch, v1alpha1.ReasonSecureBootOff, v1alpha1.ReasonImageUnknown,
}

// refusing says which of the machines that are next must not be given their Talos, and why: the path does not go on
// without them.
func refusing(machines []v1alpha1.TalosMachine, now upgrade.Now, unselected []string) string {
	var out []string

	for i := range machines {
		m := &machines[i]
		if m.Status.Change != nil || !slices.Contains(now.Machines, m.Name) || slices.Contains(unselected, m.Name) {
			continue
		}

		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionUpToDate)
		if c != nil && c.Status == metav1.ConditionFalse && slices.Contains(refusals, c.Reason) {
			out = append(out, m.Name+": "+strings.TrimPrefix(c.Message, "machine "+m.Name+" "))
		}
	}

	return strings.Join(out, "; ")
}

// stuck says which of the machines that are next will not take it, and why. out is the status of now, which names
// some of them only. What is taken back is taken back on machines that are not selected, too.
func stuck(
	cp *v1alpha1.TalosControlPlane, machines []v1alpha1.TalosMachine, out *v1alpha1.UpgradeStatus, now upgrade.Now,
) string {
	unselected := rollout.Unselected(cp, machines)
	selected := func(name string) bool { return !slices.Contains(unselected, name) }

	switch {
	case len(now.Machines) > 0 && !now.Back && !slices.ContainsFunc(now.Machines, selected):
		return rollout.NotSelected(now.Machines)
	case now.Kubernetes == "":
		return cmp.Or(rolledBack(machines, now), refusing(machines, now, unselected))
	}

	var edited, pinned []string

	next := cp.DeepCopy()
	next.Status.Upgrade = out

	for i := range machines {
		m := &machines[i]

		switch {
		case !slices.Contains(now.Machines, m.Name) || m.Status.Change != nil:
		case len(m.Status.Drift) > 0:
			edited = append(edited, m.Name)
		case rollout.ComparedToUpgrade(next, m):
			pinned = append(pinned, m.Name)
		}
	}

	switch {
	case len(edited) > 0:
		return strings.Join(edited, ", ") + ": the configuration was changed outside of the operator; undo that, add it to " +
			"the spec, or set drift to Adopt or Enforce"
	case len(pinned) > 0:
		return fmt.Sprintf("%s: the image of %s has a tag of its own, which does not begin with the kubernetesVersion of "+
			"the spec", strings.Join(pinned, ", "), now.Components[len(now.Components)-1])
	}

	return ""
}

// proving reports whether a component of Kubernetes was replaced on a machine and has not proved itself there: what its
// configuration names may not run yet. One that has failed holds the upgrade until the spec asks for another version.
func proving(machines []v1alpha1.TalosMachine, sameTarget bool) bool {
	return slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
		c := m.Status.Change
		if c == nil || c.Kind != v1alpha1.ChangeKubernetes || !m.DeletionTimestamp.IsZero() {
			return false
		}

		return c.Phase == v1alpha1.ChangeApplying || c.Phase == v1alpha1.ChangeSettling ||
			c.Phase == v1alpha1.ChangeFailed && sameTarget
	})
}

func controlPlaneOf(machines []v1alpha1.TalosMachine) []v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(machines), func(m v1alpha1.TalosMachine) bool { return m.Spec.WorkerRef != nil })
}

// installing returns a machine that is given another Talos or schematic, or has not proved the one that it was given;
// empty if none is.
func installing(machines []v1alpha1.TalosMachine) string {
	for i := range machines {
		c := machines[i].Status.Change
		if c == nil || c.Kind != v1alpha1.ChangeTalos || deleting(&machines[i]) {
			continue
		}

		if failed := c.Phase == v1alpha1.ChangeFailed; !failed && change.Begun(c) || failed && c.Booted ||
			c.Cause == v1alpha1.CauseRevert {
			return machines[i].Name
		}
	}

	return ""
}

// versionsOf returns what the machines of a cluster run, and the names of those of which that is not known. A worker
// that is not configured gets its versions with its first config; a control-plane machine that is not may be an old
// one, whose object was made anew.
func versionsOf(
	cp *v1alpha1.TalosControlPlane, entries []v1alpha1.MachineEntry, machines []v1alpha1.TalosMachine,
) (upgrade.Cluster, []string) {
	runs, missing := upgrade.Cluster{Kubernetes: cp.Status.ObservedKubeVersion}, []string{}

	for _, e := range entries {
		if !slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
			return m.Name == e.Name && m.DeletionTimestamp.IsZero()
		}) {
			missing = append(missing, e.Name)
		}
	}

	kubernetes := targetOf(cp).Kubernetes != ""

	for i := range machines {
		m := &machines[i]
		worker := m.Spec.WorkerRef != nil

		switch configured := meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured); {
		case !m.DeletionTimestamp.IsZero(), worker && !configured:
		case !configured, m.Status.TalosVersion == "", m.Status.KubeletVersion == "",
			kubernetes && !worker && m.Status.ComponentVersions == nil:
			missing = append(missing, m.Name)
		default:
			runs.Nodes = append(runs.Nodes, upgrade.NodeOf(m))
		}
	}

	return runs, missing
}

// noteApproval records that a user has approved the plan of an upgrade of Kubernetes, which has one plan for each
// component.
func (s *scope) noteApproval(machines []v1alpha1.TalosMachine) {
	u, plan := s.cp.Status.Upgrade, s.cp.Status.Plan
	if u == nil || u.KubernetesVersion == "" || plan == nil || !rollout.UpgradesKubernetes(machines) {
		return
	}

	u.Approved = u.Approved || s.cp.Annotations[v1alpha1.ApprovedAnnotation] == plan.ID
}

// longestMessage is the maximum length of a message in a status.
const longestMessage = 1000

// waitingSince returns since when an upgrade has waited for what its message says; nil if it says nothing. It is pure.
func waitingSince(was, is *v1alpha1.UpgradeStatus, now time.Time) *metav1.Time {
	switch {
	case is.Message == "":
		return nil
	case was != nil && was.WaitingSince != nil && was.Message == is.Message:
		return was.WaitingSince
	}

	return new(metav1.NewTime(now))
}
