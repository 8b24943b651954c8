package kubernetescluster

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
)

// cause returns what explains that the cluster is not ready. What a person wants to know comes first.
func (s *scope) cause(now time.Time) condition.Cause {
	cause := condition.CauseOf(s.nodes, now)

	switch missing := int(s.cluster.Spec.ControlPlane.Replicas+s.wantedWorkers()) > len(s.nodes); {
	case cause == condition.Notable, missing, len(s.extra) > 0, s.isBroken():
		return condition.Notable
	case s.isAhead():
		return condition.Intended
	}

	return cause
}

// isBroken reports whether an object below reports a fault that no disruption of the operator explains.
func (s *scope) isBroken() bool {
	faults := condition.Events(true)

	return slices.ContainsFunc(s.below(), func(c condition.Child) bool {
		ready := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady)

		return ready != nil && slices.Contains(faults.Bad, ready.Reason) && !slices.Contains(faults.Expected, ready.Reason)
	})
}

// isAhead reports whether an object below is ready, and has not observed the spec yet that the cluster has written.
func (s *scope) isAhead() bool {
	ahead := func(o client.Object, conditions []metav1.Condition) bool {
		return meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) && !s.current(o, conditions)
	}

	return s.cp != nil && ahead(s.cp, s.cp.Status.Conditions) ||
		slices.ContainsFunc(s.groups, func(g v1alpha1.TalosWorker) bool { return ahead(&g, g.Status.Conditions) })
}
