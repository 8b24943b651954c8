package machineset

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// worst is one more than what a machine with an object can be broken.
const worst = 5

// Candidate describes a machine for the choice of who goes first. A nil machine is one that has not come as far as to
// have an object, and costs nothing.
func Candidate(name string, m *v1alpha1.TalosMachine) safety.Candidate {
	if m == nil {
		return safety.Candidate{Name: name, Broken: worst}
	}

	c := safety.Candidate{Name: name, Outdated: meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionUpToDate)}

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured} {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, kind) {
			c.Broken++
		}
	}

	// A node may well be there and its member not: then no other member can go, and this one can.
	if m.Spec.Role == v1alpha1.RoleControlPlane && m.Status.EtcdMemberID == "" {
		c.Broken++
	}

	return c
}
