package upgrade

import (
	"cmp"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Joins returns the version of Kubernetes that a machine joins its cluster with. Only an upgrade changes versions, and
// nothing may be newer than an API server: not that of an upgrade before kubelets are upgraded, and not what one
// API server of several tells, as observed, while another one is older. The latter happens where the spec named another
// version while the cluster was created. Reachable are the other control-plane machines that respond.
func Joins(cp *v1alpha1.TalosControlPlane, reachable []Node, observed string) string {
	from := ""
	if u := cp.Status.Upgrade; u != nil && !slices.Contains(u.Components, v1alpha1.ComponentKubelet) {
		from = u.KubernetesFrom
	}

	version := cmp.Or(from, observed, cp.Spec.KubernetesVersion)

	for _, n := range reachable {
		if v, ok := n.component(v1alpha1.ComponentAPIServer); ok && Newer(version, "v"+v.String()) {
			version = "v" + v.String()
		}
	}

	return version
}
