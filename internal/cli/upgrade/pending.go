package upgrade

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	clichange "github.com/talos-operator/talos-operator/internal/cli/change"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// unplanned says why it is not known that no upgrade is left although none is planned: a spec has not been observed, is
// refused, or was not planned for. It is empty otherwise.
func unplanned(c *session.Cluster) string {
	if err := clichange.NotPlanned(c); err != nil {
		return err.Error()
	}

	cp := c.ControlPlane

	switch {
	case cp.Status.Upgrade != nil:
		return ""
	case c.Top != nil && asksOther(c):
		return fmt.Sprintf("the versions and upgrade policies of KubernetesCluster %s are not those of TalosControlPlane %s",
			c.Top.Name, cp.Name) + change.After(": ", notReady(c.Top.Status.Conditions))
	case behind(c):
		return fmt.Sprintf("TalosControlPlane %s has not planned the upgrade", cp.Name) +
			change.After(": ", notReady(cp.Status.Conditions))
	}

	return ""
}

// asksOther reports whether the object at the top asks for an upgrade that its control plane does not know of: what is
// refused there is not handed on.
func asksOther(c *session.Cluster) bool {
	is, asked := &c.ControlPlane.Spec, &c.Top.Spec

	return is.TalosVersion != asked.TalosVersion || is.KubernetesVersion != asked.KubernetesVersion ||
		policiesOf(is.Upgrade) != policiesOf(asked.Upgrade)
}

// policiesOf returns what upgrade options bring about: Talos, and Kubernetes.
func policiesOf(o *v1alpha1.UpgradeOptions) (out [2]bool) {
	if o != nil {
		out = [2]bool{o.Talos == v1alpha1.UpgradeAutomatic, o.Kubernetes == v1alpha1.UpgradeAutomatic}
	}

	return out
}

// behind reports whether a machine has yet to get what the spec has brought about. Talos is never taken back.
func behind(c *session.Cluster) bool {
	spec, automatic := &c.ControlPlane.Spec, policiesOf(c.ControlPlane.Spec.Upgrade)

	for i := range c.Nodes {
		m := &c.Nodes[i]
		if !m.DeletionTimestamp.IsZero() || !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured) {
			continue // it gets the versions with its first configuration
		}

		kubelet := upgrade.VersionOf(m.Status.KubeletVersion)
		if automatic[0] && m.Status.TalosVersion != "" && upgrade.Newer(spec.TalosVersion, m.Status.TalosVersion) ||
			automatic[1] && kubelet != "" && kubelet != spec.KubernetesVersion {
			return true
		}
	}

	return false
}

// paused names the object whose annotations keep the cluster from going on; empty if none does.
func paused(c *session.Cluster) string {
	held := ""

	switch {
	case c.Top != nil && pause.Of(c.Top).Any():
		held = "KubernetesCluster " + c.Top.Name
	case pause.Of(c.ControlPlane).Any():
		held = "TalosControlPlane " + c.ControlPlane.Name
	default:
		return ""
	}

	return held + " is paused, or its reconcile mode is not Reconcile: nothing is upgraded meanwhile"
}

// notReady says why an object is not ready; empty if it is, or if that is unknown.
func notReady(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}

	return ""
}
