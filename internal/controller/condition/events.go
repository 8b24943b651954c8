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

// outages are the reasons of nodes that are away, and of what that does to their cluster. A lost quorum is not among
// them: it is never expected.
var outages = []string{
	v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonEtcdUnhealthy, v1alpha1.ReasonAPIServerUnavailable,
	v1alpha1.ReasonBooting, v1alpha1.ReasonNodeNotReady,
}

// Events tells which transitions become events, while an outage is expected and otherwise.
func Events(expected bool) kube.Transitions {
	t := kube.Transitions{Bad: BadReasons}
	if expected {
		t.Expected = outages
	}

	return t
}

// ExpectsOutage tells of a machine that goes away for what the operator asked of it: it was not healthy yet with any
// config, so that it installs itself and reboots, or it changes.
func ExpectsOutage(m *v1alpha1.TalosMachine) bool {
	if m.Status.WorkingHash == "" || m.Status.Intent != nil || m.Spec.Decommission != nil {
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

// OutageIsFresh tells whether such a machine has got so far lately. What one does that has been on its way for longer
// explains nothing that happens to its cluster now.
func OutageIsFresh(m *v1alpha1.TalosMachine, now time.Time) bool {
	if c := m.Status.Change; c != nil && now.Sub(c.Since.Time) < OutagePatience {
		return true
	}

	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return (c.Type == v1alpha1.ConditionReachable || c.Type == v1alpha1.ConditionConfigured) &&
			now.Sub(c.LastTransitionTime.Time) < OutagePatience
	})
}

// OutagePatience is how long an expected outage is no news: to write an image to a slow disk and to start a server
// takes minutes.
const OutagePatience = 10 * time.Minute

// Outages remembers which outages were told that took longer than expected. The zero value may be used by several
// goroutines.
type Outages struct {
	mu   sync.Mutex
	told map[types.NamespacedName]time.Time
}

// Forget tells that an object is gone.
func (o *Outages) Forget(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()

	delete(o.told, key)
}

// Overdue returns the condition Reachable of an object whose outage was expected and takes too long; nil for any other
// one, and for one that it has returned before.
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
