package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// Transitions decides which changes of conditions become events: those that a person wants to know. Each event is a
// write, and what is on its way shows in the conditions themselves.
type Transitions struct {
	// Bad are the reasons that are told as warnings, whatever the condition was before.
	Bad []string
	// Expected are reasons that are no news: those of an outage that the operator has caused, or that is a phase of a
	// creation, and those of acts that have events of their own.
	Expected []string
	// Were are reasons that were no news when they began, so their end is none for a routine condition.
	Were []string
	// Silent are conditions that are not told, Late those that are told although they have not changed: an outage that
	// was expected, and turned out to be more.
	Silent, Late []string
}

// Record emits the events of what has changed, with the conditions' reasons. What several conditions say with
// the same words is told once.
func (t Transitions) Record(
	r events.EventRecorder, obj runtime.Object, before, after []metav1.Condition,
) {
	told := map[string]bool{}

	for _, c := range after {
		text := c.Reason + c.Message
		if told[text] || !slices.Contains(t.Late, c.Type) && !t.isNews(meta.FindStatusCondition(before, c.Type), c) {
			continue
		}

		told[text] = true

		kind := corev1.EventTypeNormal
		if slices.Contains(t.Bad, c.Reason) {
			kind = corev1.EventTypeWarning
		}

		r.Eventf(obj, nil, kind, c.Reason, c.Type, "%s is %s: %s", c.Type, c.Status, c.Message)
	}
}

// isNews tells of what went wrong, what became true, and what is true no more. From one phase of a wait to the next
// nothing has happened that a person could do something about.
func (t Transitions) isNews(old *metav1.Condition, c metav1.Condition) bool {
	was := metav1.ConditionUnknown
	if old != nil {
		was = old.Status
	}

	switch {
	case slices.Contains(t.Silent, c.Type),
		old != nil && was == c.Status && old.Reason == c.Reason,
		c.Type == v1alpha1.ConditionReconciling, // Ready says the same
		slices.Contains(t.Expected, c.Reason):
		return false
	case slices.Contains(t.Bad, c.Reason):
		return true
	case old != nil && t.wasExpected(old.Reason, c.Type),
		c.Reason == v1alpha1.ReasonRollingOut, // the plan has an event of its own
		c.Status == metav1.ConditionUnknown && slices.Contains(beginnings, c.Reason):
		return false
	case c.Status == metav1.ConditionTrue:
		return !slices.Contains(routine, c.Type) || was == metav1.ConditionFalse && !slices.Contains(beginnings, old.Reason)
	}

	return was == metav1.ConditionTrue
}

func (t Transitions) wasExpected(reason, kind string) bool {
	return slices.Contains(t.Expected, reason) || slices.Contains(t.Were, reason) && slices.Contains(routine, kind)
}

// routine are the conditions that become true on the way to Ready, which tells of it: of them only the recovery is
// news.
var routine = []string{
	v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured, v1alpha1.ConditionUpToDate,
	v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionBootstrapped, vitistackv1alpha1.ConditionMachinesCreated,
	vitistackv1alpha1.ConditionFilesGenerated, vitistackv1alpha1.ConditionTopologyValid,
}

// beginnings are the reasons that such a condition has before it is true for the first time.
var beginnings = []string{
	v1alpha1.ReasonMaintenance, v1alpha1.ReasonBooting, v1alpha1.ReasonWaitingForMachines,
	v1alpha1.ReasonWaitingForAddress, v1alpha1.ReasonWaitingForControlPlane, v1alpha1.ReasonBootstrapping,
}
