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

	return fmt.Sprintf("%d/%d/%d", cp.Generation, group, m.Generation) + stepOf(cp)
}

// ComparedToUpgrade reports whether a machine was compared to the spec of its control plane and to the step of its
// upgrade, whatever its group asks for.
func ComparedToUpgrade(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine) bool {
	return strings.HasPrefix(m.Status.ComparedTo, fmt.Sprintf("%d/", cp.Generation)) &&
		strings.HasSuffix(m.Status.ComparedTo, fmt.Sprintf("/%d%s", m.Generation, stepOf(cp)))
}

// stepOf describes the step of an upgrade; empty if there is none.
func stepOf(cp *v1alpha1.TalosControlPlane) string {
	u := cp.Status.Upgrade
	if u == nil {
		return ""
	}

	out := fmt.Sprintf("/%s/%t/%d", u.TalosVersion, u.ControlPlaneDone, u.ObservedGeneration)
	if len(u.Components) > 0 {
		out += fmt.Sprintf("/%s/%s", u.KubernetesVersion, u.Components[len(u.Components)-1])
	}

	return out
}
