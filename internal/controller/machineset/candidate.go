package machineset

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// worst is one more than the maximum Broken value of a machine with an object.
const worst = 5

// Candidate describes a machine for the choice of the next one to remove. A nil machine does not have an object yet,
// and removing it costs nothing.
func Candidate(name string, m *v1alpha1.TalosMachine) safety.Candidate {
	if m == nil {
		return safety.Candidate{Name: name, Broken: worst}
	}

	c := safety.Candidate{
		Name: name, Outdated: meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionUpToDate),
	}

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured} {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, kind) {
			c.Broken++
		}
	}

	// The node may exist without its member: then no other member can be removed, but this machine can.
	if m.Spec.Role == v1alpha1.RoleControlPlane && m.Status.EtcdMemberID == "" {
		c.Broken++
	}

	return c
}
