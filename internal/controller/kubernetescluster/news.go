package kubernetescluster

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// cause is what explains that a cluster is not ready.
type cause int

const (
	// unexplained: nothing that this reconciliation has seen.
	unexplained cause = iota
	// intended: the operator disrupts machines for a change whose plan has events of its own, or an object below has not
	// seen its new spec yet. A rollout that reboots ten machines would otherwise report twenty transitions.
	intended
	// notable: a machine is lost, a change has failed or takes too long, or machines are installed or taken out.
	notable
)

// cause returns what explains that the cluster is not ready. What a person wants to know comes first.
func (s *scope) cause(now time.Time) cause {
	out, serving := unexplained, int32(0)

	for i := range s.nodes {
		m := &s.nodes[i]
		if isNotable(m, now) {
			return notable
		}

		serving++

		if condition.ExpectsOutage(m) {
			out = intended
		}
	}

	switch {
	case serving < s.cluster.Spec.ControlPlane.Replicas+s.wantedWorkers(), len(s.extra) > 0, s.isBroken():
		return notable
	case s.isAhead():
		return intended
	}

	return out
}

// isNotable reports whether a machine explains a cluster that is not ready by more than a change under way.
func isNotable(m *v1alpha1.TalosMachine, now time.Time) bool {
	c := m.Status.Change

	switch {
	case m.Status.WorkingHash == "", m.Spec.OnDelete != "", !m.DeletionTimestamp.IsZero():
		return true
	case c != nil && c.Phase == v1alpha1.ChangeFailed:
		return true
	case condition.ExpectsOutage(m):
		return !condition.OutageIsFresh(m, now)
	}

	return meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable)
}

// isBroken reports whether an object below reports a fault that no disruption of the operator explains.
func (s *scope) isBroken() bool {
	faults := condition.Events(true)

	return slices.ContainsFunc(s.below(), func(c condition.Child) bool {
		ready := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady)

		return ready != nil && slices.Contains(faults.Bad, ready.Reason) && !slices.Contains(faults.Expected, ready.Reason)
	})
}

// isAhead reports whether an object below is ready, and has not seen the spec yet that the cluster has written.
func (s *scope) isAhead() bool {
	ahead := func(o client.Object, conditions []metav1.Condition) bool {
		return meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) && !s.current(o, conditions)
	}

	return s.cp != nil && ahead(s.cp, s.cp.Status.Conditions) ||
		slices.ContainsFunc(s.groups, func(g v1alpha1.TalosWorker) bool { return ahead(&g, g.Status.Conditions) })
}

// untold records the clusters that are not ready although no event says so. A restart loses it, which costs an event.
// The zero value is ready to use and safe for concurrent use.
type untold struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]struct{}
}

func (u *untold) has(key types.NamespacedName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()

	_, ok := u.clusters[key]

	return ok
}

func (u *untold) add(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()

	if u.clusters == nil {
		u.clusters = map[types.NamespacedName]struct{}{}
	}

	u.clusters[key] = struct{}{}
}

func (u *untold) forget(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()

	delete(u.clusters, key)
}

// news returns which transitions of this reconciliation become events, and what to do once the status is written. A
// cluster that is not ready for an intended reason is not reported, and neither is its return; if the reason turns out
// to be another one, that is reported then.
func (r *Reconciler) news(s *scope, now time.Time) (kube.Transitions, func()) {
	const kind = vitistackv1alpha1.ConditionReady

	events, key := kube.Transitions{Bad: badReasons}, client.ObjectKeyFromObject(s.cluster)
	is := meta.FindStatusCondition(s.cluster.Status.Conditions, kind)
	was := meta.IsStatusConditionTrue(s.base.Status.Conditions, kind)
	waits := is.Status == metav1.ConditionFalse && is.Reason == vitistackv1alpha1.ReasonProvisioning

	switch hushed := r.untold.has(key); {
	case waits && was && s.cause(now) == intended:
		events.Expected = []string{vitistackv1alpha1.ReasonProvisioning}

		return events, func() { r.untold.add(key) }
	case hushed && is.Status == metav1.ConditionTrue:
		events.Expected = []string{vitistackv1alpha1.ReasonReady}

		return events, func() { r.untold.forget(key) }
	case hushed && waits && s.cause(now) == notable:
		return events, func() {
			r.untold.forget(key)
			r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeNormal, is.Reason, kind,
				"%s is %s: %s", kind, is.Status, is.Message)
		}
	case hushed && is.Status == metav1.ConditionFalse && !waits:
		return events, func() { r.untold.forget(key) }
	}

	return events, func() {}
}
