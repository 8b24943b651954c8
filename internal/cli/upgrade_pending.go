package cli

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// unplanned says why it is not known that no upgrade is left although none is planned: a spec has not been observed, is
// refused, or was not planned for. It is empty otherwise.
func (c *cluster) unplanned() string {
	if err := c.notPlanned(); err != nil {
		return err.Error()
	}

	cp := c.controlPlane

	switch {
	case cp.Status.Upgrade != nil:
		return ""
	case c.top != nil && c.asksOther():
		return fmt.Sprintf("the versions and upgrade policies of KubernetesCluster %s are not those of TalosControlPlane %s",
			c.top.Name, cp.Name) + change.After(": ", notReady(c.top.Status.Conditions))
	case c.behind():
		return fmt.Sprintf("TalosControlPlane %s has not planned the upgrade", cp.Name) +
			change.After(": ", notReady(cp.Status.Conditions))
	}

	return ""
}

// asksOther reports whether the object at the top asks for an upgrade that its control plane does not know of: what is
// refused there is not handed on.
func (c *cluster) asksOther() bool {
	is, asked := &c.controlPlane.Spec, &c.top.Spec

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
func (c *cluster) behind() bool {
	spec, automatic := &c.controlPlane.Spec, policiesOf(c.controlPlane.Spec.Upgrade)

	for i := range c.nodes {
		m := &c.nodes[i]
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
func (c *cluster) paused() string {
	held := ""

	switch {
	case c.top != nil && pause.Of(c.top).Any():
		held = "KubernetesCluster " + c.top.Name
	case pause.Of(c.controlPlane).Any():
		held = "TalosControlPlane " + c.controlPlane.Name
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
