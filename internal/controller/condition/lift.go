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

// Lift shows on an object that objects below it are stalled: a person who looks at the top would be told that it
// waits, and would wait for ever. What the object itself is stalled for comes first. It is called after Transient.
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

// since gives conditions that are what the pass found them to be the time that they had: set one way and then the
// other, they would begin anew with every pass, and each pass would write.
func (s Set) since(kinds ...string) {
	for _, kind := range kinds {
		was, is := meta.FindStatusCondition(s.before, kind), meta.FindStatusCondition(*s.Conditions, kind)
		if was != nil && is != nil && was.Status == is.Status {
			is.LastTransitionTime = was.LastTransitionTime
		}
	}
}

// MachinesOf are machines as children.
func MachinesOf(machines []v1alpha1.TalosMachine) []Child {
	var out []Child

	for i := range machines {
		if m := &machines[i]; m.DeletionTimestamp.IsZero() {
			out = append(out, Child{Name: m.Name, Conditions: m.Status.Conditions})
		}
	}

	return out
}
