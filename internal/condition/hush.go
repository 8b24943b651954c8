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

// Cause is what explains that an object above machines is not ready.
type Cause int

const (
	// Unexplained is nothing that this reconciliation has observed.
	Unexplained Cause = iota
	// Intended means that the operator disrupts machines for a change whose plan has events of its own, or an object
	// below has not observed its new spec yet. A rollout that reboots ten machines would otherwise report twenty
	// transitions.
	Intended
	// Notable means that a machine is lost, a change has failed or takes too long, or machines are installed or taken out.
	Notable
)

// Waits are the reasons of a control plane or a group of workers while machines of it are disrupted.
var Waits = append([]string{v1alpha1.ReasonWaitingForMachines, v1alpha1.ReasonWaitingForEvidence}, outages...)

// CauseOf returns what explains that machines are not ready. What a person wants to know comes first.
func CauseOf(machines []v1alpha1.TalosMachine, now time.Time) Cause {
	out := Unexplained

	for i := range machines {
		m := &machines[i]
		if isNotable(m, now) {
			return Notable
		}

		if ExpectsOutage(m) {
			out = Intended
		}
	}

	return out
}

// isNotable reports whether a machine explains an object that is not ready by more than a change under way.
func isNotable(m *v1alpha1.TalosMachine, now time.Time) bool {
	c := m.Status.Change

	switch {
	case m.Status.WorkingHash == "", m.Spec.OnDelete != "", !m.DeletionTimestamp.IsZero():
		return true
	case c != nil && c.Phase == v1alpha1.ChangeFailed:
		return true
	case ExpectsOutage(m):
		return !OutageIsFresh(m, now)
	}

	return meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable)
}

// Hush records the conditions that are not True although no event says so, because the reason is intended. A restart
// loses it, which costs an event. The zero value is ready to use and safe for concurrent use.
type Hush struct {
	mu     sync.Mutex
	untold map[types.NamespacedName][]string
}

// Forget drops the record of an object that is gone.
func (h *Hush) Forget(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()

	delete(h.untold, key)
}

// Over returns the rules with which the transitions from before to after are told. A condition that is not True for
// one of the reasons waits is not reported if the cause is Intended, and neither is its return; if the cause turns out
// to be notable, the condition is reported then.
func (h *Hush) Over(
	rules kube.Transitions, key types.NamespacedName, cause Cause, waits []string, before, after []metav1.Condition,
) kube.Transitions {
	h.mu.Lock()
	defer h.mu.Unlock()

	var untold []string

	for _, c := range after {
		hushed := slices.Contains(h.untold[key], c.Type)
		is := c.Status == metav1.ConditionTrue
		isWait := !is && slices.Contains(waits, c.Reason)

		switch {
		case hushed && is:
			rules.Silent = append(rules.Silent, c.Type)
		case hushed && isWait && cause == Notable:
			rules.Late = append(rules.Late, c.Type)
		case hushed && (isWait || c.Status == metav1.ConditionUnknown),
			isWait && cause == Intended && meta.IsStatusConditionTrue(before, c.Type):
			rules.Silent = append(rules.Silent, c.Type)
			untold = append(untold, c.Type)
		}
	}

	if len(untold) == 0 {
		delete(h.untold, key)

		return rules
	}

	if h.untold == nil {
		h.untold = map[types.NamespacedName][]string{}
	}

	h.untold[key] = untold

	return rules
}
