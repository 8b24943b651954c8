package condition

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// outages are the reasons that report unreachable nodes, and the effect on their cluster. A lost quorum is not one of
// them: it is never expected.
var outages = []string{
	v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonEtcdUnhealthy, v1alpha1.ReasonAPIServerUnavailable,
	v1alpha1.ReasonBooting, v1alpha1.ReasonNodeNotReady,
}

// told are the reasons of a machine that repeat an event: the change of its configuration is in the plan of its group,
// and in the events of the change, its group tells which machines run other versions, and its wipe has events of its
// own.
var told = []string{
	v1alpha1.ReasonConfigDiffers, v1alpha1.ReasonUpgradePending, v1alpha1.ReasonRollingOut, v1alpha1.ReasonResetting,
	v1alpha1.ReasonDeleting,
}

// Events determines which transitions of a group of machines become events, depending on whether an outage is expected.
func Events(expected bool) kube.Transitions {
	t := kube.Transitions{Bad: BadReasons}
	if expected {
		t.Expected = outages
	}

	return t
}

// MachineEvents determines which transitions of a machine become events, depending on whether an outage is expected,
// and was before the transitions: an outage that was not reported has no end to report.
func MachineEvents(expected, was bool) kube.Transitions {
	t := kube.Transitions{Bad: BadReasons, Expected: told}
	if expected {
		t.Expected = slices.Concat(told, outages)
	}

	if was {
		t.Were = outages
	}

	return t
}

// ExpectsOutage reports whether a machine is expected to be unreachable because of a request of the operator: it was
// never healthy with any configuration, so it is installing itself and rebooting, or a change is in progress.
func ExpectsOutage(m *v1alpha1.TalosMachine) bool {
	if m.Status.WorkingHash == "" || m.Status.Intent != nil || m.Spec.OnDelete != "" {
		return true
	}

	c := m.Status.Change
	if c == nil {
		return false
	}

	switch c.Phase {
	case v1alpha1.ChangeDraining, v1alpha1.ChangeApplying, v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling:
		return true
	case v1alpha1.ChangePending, v1alpha1.ChangeAwaitingReboot, v1alpha1.ChangeFailed:
	}

	return false
}

// OutageIsFresh reports whether such a machine has made progress recently. The outage of a machine that has been in
// transition for longer does not explain the current state of its cluster.
func OutageIsFresh(m *v1alpha1.TalosMachine, now time.Time) bool {
	if c := m.Status.Change; c != nil && now.Sub(c.Since.Time) < OutagePatience {
		return true
	}

	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return (c.Type == v1alpha1.ConditionReachable || c.Type == v1alpha1.ConditionConfigured) &&
			now.Sub(c.LastTransitionTime.Time) < OutagePatience
	})
}

// OutagePatience is how long an expected outage is not reported: writing an image to a slow disk and starting a server
// takes minutes.
const OutagePatience = 10 * time.Minute

// Outages records which outages that took longer than expected were already reported. The zero value is ready to use
// and safe for concurrent use.
type Outages struct {
	mu   sync.Mutex
	told map[types.NamespacedName]time.Time
}

// Forget drops the record of a deleted object.
func (o *Outages) Forget(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()

	delete(o.told, key)
}

// Overdue returns the condition Reachable of an object whose outage was expected and takes too long. It returns nil for
// any other object, and for an object that it has already returned.
func (o *Outages) Overdue(key types.NamespacedName, conditions []metav1.Condition, now time.Time) *metav1.Condition {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReachable)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonNodeUnreachable ||
		now.Sub(c.LastTransitionTime.Time) < OutagePatience {
		return nil
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.told[key].Equal(c.LastTransitionTime.Time) {
		return nil
	}

	if o.told == nil {
		o.told = map[types.NamespacedName]time.Time{}
	}

	o.told[key] = c.LastTransitionTime.Time

	return c
}
