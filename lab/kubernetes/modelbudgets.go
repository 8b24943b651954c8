package kubernetes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// showBudget is a PodDisruptionBudget with what its controller would say of it now; the caller holds the lock.
func (m *ModelNodes) showBudget(b *policyv1.PodDisruptionBudget, now time.Time) *policyv1.PodDisruptionBudget {
	out := b.DeepCopy()
	expected, healthy := 0, 0

	for _, p := range m.work.pods {
		if !covers(b, p.pod) || !p.ends.IsZero() {
			continue
		}

		expected++

		if m.isReady(p, now) {
			healthy++
		}
	}

	desired := 0

	// A value that is no number or percentage allows nothing.
	if least := b.Spec.MinAvailable; least != nil {
		desired = scaled(least, expected, expected)
	} else if most := b.Spec.MaxUnavailable; most != nil {
		desired = max(0, expected-scaled(most, expected, 0))
	}

	out.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: out.Generation, ExpectedPods: int32(expected), CurrentHealthy: int32(healthy),
		DesiredHealthy: int32(desired), DisruptionsAllowed: int32(max(0, healthy-desired)),
	}

	return out
}

// scaled is a number of pods, or a percentage of them, rounded up as the controller of budgets does.
func scaled(value *intstr.IntOrString, of, otherwise int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, of, true)
	if err != nil {
		return otherwise
	}

	return n
}

func covers(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)

	return err == nil && b.Namespace == p.Namespace && selector.Matches(labels.Set(p.Labels))
}

// evict ends a pod, unless a budget forbids it.
func (m *ModelNodes) evict(key types.NamespacedName, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(now)

	p := m.work.pods[key]
	if p == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}

	for _, b := range m.work.budgets {
		if !covers(b, p.pod) || !p.ends.IsZero() || p.ready.IsZero() {
			continue // what does not run yet may always be evicted
		}

		s := m.showBudget(b, now).Status
		if m.isReady(p, now) && s.DisruptionsAllowed == 0 || s.CurrentHealthy < s.DesiredHealthy {
			return forbidden(b.Name)
		}
	}

	m.end(p, now)

	return nil
}

func forbidden(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + budget + " allows no disruption now",
	})

	return err
}

// deletePod ends a pod, whatever budgets say.
func (m *ModelNodes) deletePod(key types.NamespacedName, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(now)

	p := m.work.pods[key]
	if p == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}

	m.end(p, now)

	return nil
}

func (m *ModelNodes) end(p *modelPod, now time.Time) {
	if p.ends.IsZero() {
		p.ends = now.Add(podEnd)
	}

	m.settle(now)
}

// podList are the pods of Deployments in a namespace, or everywhere, and on a node, or on any.
func (m *ModelNodes) podList(namespace, node string, now time.Time) *corev1.PodList {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(now)

	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}

	for key, p := range m.work.pods {
		if (namespace == "" || key.Namespace == namespace) && (node == "" || p.pod.Spec.NodeName == node) {
			list.Items = append(list.Items, m.showPod(p, now))
		}
	}

	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return compareNames(types.NamespacedName{Namespace: a.Namespace, Name: a.Name},
			types.NamespacedName{Namespace: b.Namespace, Name: b.Name})
	})

	return list
}

// budgetList are the PodDisruptionBudgets in a namespace, or everywhere.
func (m *ModelNodes) budgetList(namespace string, now time.Time) *policyv1.PodDisruptionBudgetList {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(now)

	list := &policyv1.PodDisruptionBudgetList{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"},
	}

	for key, b := range m.work.budgets {
		if namespace == "" || key.Namespace == namespace {
			list.Items = append(list.Items, *m.showBudget(b, now))
		}
	}

	slices.SortFunc(list.Items, func(a, b policyv1.PodDisruptionBudget) int {
		return compareNames(types.NamespacedName{Namespace: a.Namespace, Name: a.Name},
			types.NamespacedName{Namespace: b.Namespace, Name: b.Name})
	})

	return list
}
