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

// JoinsTalos returns the version of Talos that a machine is installed with when it joins its cluster: that of the step
// which the path of an upgrade has reached, not the one at its end. No machine goes ahead of a path that others have
// not gone.
func JoinsTalos(cp *v1alpha1.TalosControlPlane) string {
	o, u := cp.Spec.Upgrade, cp.Status.Upgrade
	if o == nil || o.Talos != v1alpha1.UpgradeAutomatic || u == nil || !Newer(cp.Spec.TalosVersion, u.TalosVersion) {
		return cp.Spec.TalosVersion
	}

	return u.TalosVersion
}
