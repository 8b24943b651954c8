package condition

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Child is an object below another one.
type Child struct {
	// Name of the object.
	Name string
	// Conditions of the object.
	Conditions []metav1.Condition
}

// Lift reports on an object that objects below it are stalled: otherwise the top-level object would report only that it
// is waiting, and its user would wait forever. The object's own reason to be stalled comes first. Lift must be called
// after Transient.
func (s Set) Lift(children ...Child) {
	if meta.IsStatusConditionTrue(*s.Conditions, v1alpha1.ConditionStalled) {
		return
	}

	var (
		reason   string
		messages []string
	)

	for _, child := range children {
		c := meta.FindStatusCondition(child.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}

		reason = or(reason, c.Reason)

		messages = append(messages, child.Name+": "+c.Message)
	}

	if len(messages) == 0 {
		return
	}

	message := strings.Join(messages, "; ")

	s.False(v1alpha1.ConditionReady, reason, message)
	s.True(v1alpha1.ConditionStalled, reason, message)
	kube.RemoveCondition(s.Conditions, v1alpha1.ConditionReconciling)
	s.since(v1alpha1.ConditionReady, v1alpha1.ConditionStalled)
}

// since restores the transition time of conditions that have the same value as at the start of the reconciliation. A
// condition that is set one way and then back would otherwise get a new time, and each reconciliation would write.
func (s Set) since(kinds ...string) {
	for _, kind := range kinds {
		was, is := meta.FindStatusCondition(s.before, kind), meta.FindStatusCondition(*s.Conditions, kind)
		if was != nil && is != nil && was.Status == is.Status {
			is.LastTransitionTime = was.LastTransitionTime
		}
	}
}

// MachinesOf returns machines as children.
func MachinesOf(machines []v1alpha1.TalosMachine) []Child {
	var out []Child

	for i := range machines {
		if m := &machines[i]; m.DeletionTimestamp.IsZero() {
			out = append(out, Child{Name: m.Name, Conditions: m.Status.Conditions})
		}
	}

	return out
}
