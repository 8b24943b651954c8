package rollout

import (
	"fmt"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// ComparedTo returns the version of the spec that a machine is compared to: the generations of its control plane, of
// its worker group (nil for a control-plane machine), and of the machine itself, with the step of an upgrade.
func ComparedTo(cp *v1alpha1.TalosControlPlane, w *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine) string {
	var group int64
	if w != nil {
		group = w.Generation
	}

	return fmt.Sprintf("%d/%d/%d", cp.Generation, group, m.Generation) + Step(cp, m.Spec.WorkerRef != nil)
}

// ComparedToUpgrade reports whether a machine was compared to the spec of its control plane and to the step of its
// upgrade, whatever its group asks for.
func ComparedToUpgrade(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine) bool {
	return strings.HasPrefix(m.Status.ComparedTo, fmt.Sprintf("%d/", cp.Generation)) &&
		strings.HasSuffix(m.Status.ComparedTo, fmt.Sprintf("/%d%s", m.Generation, Step(cp, m.Spec.WorkerRef != nil)))
}

// ComparedToSpec reports whether a control-plane machine was compared to the spec of its control plane, at any step of
// an upgrade.
func ComparedToSpec(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine) bool {
	spec := fmt.Sprintf("%d/0/%d", cp.Generation, m.Generation)

	return m.Status.ComparedTo == spec || strings.HasPrefix(m.Status.ComparedTo, spec+"/")
}

// notCompared returns the names of reachable machines that have not been compared to the current spec, with the current
// versions of what they take from other objects.
func notCompared(in Input) string {
	var names []string

	for i := range in.Machines {
		m := &in.Machines[i]
		patches, known := in.Patches[m.Name]

		if answers(m) && (m.Status.ComparedTo != ComparedTo(in.ControlPlane, in.Worker, m) ||
			known && m.Status.PatchesVersion != patches) {
			names = append(names, m.Name)
		}
	}

	return strings.Join(names, ", ")
}

// Step describes the step of an upgrade, as far as it concerns control-plane machines or workers; empty if there is
// none. Workers have no component of Kubernetes but the kubelet, so that they need not compare their configuration at
// each step before it is next.
func Step(cp *v1alpha1.TalosControlPlane, workers bool) string {
	u := cp.Status.Upgrade
	if u == nil {
		return ""
	}

	out := fmt.Sprintf("/%s/%t/%d", u.TalosVersion, u.ControlPlaneDone, u.ObservedGeneration)
	if u.SchematicsOnly {
		out += "/schematics"
	}

	if len(u.Components) == 0 {
		return out
	}

	last := u.Components[len(u.Components)-1]
	if workers && last != v1alpha1.ComponentKubelet {
		return out
	}

	return out + fmt.Sprintf("/%s/%s", u.KubernetesVersion, last)
}

// ImagesFor names the images that a machine pulls before its cluster is upgraded: the version, the generations of the
// control plane and of the worker group (nil for a control-plane machine), which determine them, whether they are of
// another schematic, and how often the machines were asked again, if they were. It is empty if none are pulled.
func ImagesFor(cp *v1alpha1.TalosControlPlane, w *v1alpha1.TalosWorker) string {
	u := cp.Status.Upgrade
	if u == nil || u.Pulling == nil {
		return ""
	}

	var group int64
	if w != nil {
		group = w.Generation
	}

	out := fmt.Sprintf("%d/%d/%s/%s", cp.Generation, group, u.Pulling.TalosVersion, u.Pulling.KubernetesVersion)
	if u.SchematicsOnly {
		out += "/schematics"
	}

	if u.Pulling.Requests > 0 {
		out += fmt.Sprintf("/%d", u.Pulling.Requests)
	}

	return out
}
