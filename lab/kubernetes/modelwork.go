package kubernetes

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// podStart is how long a pod takes to become ready, and podEnd how long one takes to end: a hundredth of ten and of
	// five seconds.
	podStart = 100 * time.Millisecond
	podEnd   = 50 * time.Millisecond
)

// modelWork are the Deployments of a modelled cluster, their pods, and the PodDisruptionBudgets. Nothing runs in the
// background: what controllers, scheduler and kubelets would have done by now is worked out when it is asked for.
type modelWork struct {
	deployments map[types.NamespacedName]*appsv1.Deployment
	budgets     map[types.NamespacedName]*policyv1.PodDisruptionBudget
	pods        map[types.NamespacedName]*modelPod
	made        int // pods that there ever were
}

// modelPod is a pod of a Deployment.
type modelPod struct {
	pod   *corev1.Pod
	owner types.NamespacedName
	// boot of its node in which it was started last, and when it was, or will be, ready.
	boot  string
	ready time.Time
	// ends is when it is gone; zero while it is not asked to.
	ends time.Time
}

// settle does what controllers and scheduler would have done; the caller holds the lock.
func (m *ModelNodes) settle(now time.Time) {
	for key, p := range m.work.pods {
		_, placed := m.nodes[p.pod.Spec.NodeName]

		if !p.ends.IsZero() && !now.Before(p.ends) || p.pod.Spec.NodeName != "" && !placed {
			delete(m.work.pods, key) // ended, or its Node object was deleted
		}
	}

	for _, key := range slices.SortedFunc(maps.Keys(m.work.deployments), compareNames) {
		m.replicate(key, now)
	}

	for _, key := range slices.SortedFunc(maps.Keys(m.work.pods), compareNames) {
		m.start(m.work.pods[key], now)
	}
}

func compareNames(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }

// replicate makes the pods that a Deployment has too few of. Those that end do not count.
func (m *ModelNodes) replicate(key types.NamespacedName, now time.Time) {
	d, have := m.work.deployments[key], 0

	for _, p := range m.work.pods {
		if p.owner == key && p.ends.IsZero() {
			have++
		}
	}

	for ; have < int(ptr.Deref(d.Spec.Replicas, 1)); have++ {
		m.work.made++

		p := &modelPod{owner: key, pod: &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name + "-" + strconv.Itoa(m.work.made), UID: types.UID(uuid.NewString()),
				Labels: maps.Clone(d.Spec.Template.Labels), CreationTimestamp: metav1.NewTime(now.Truncate(time.Second)),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: key.Name, UID: d.UID, Controller: ptr.To(true),
				}},
			},
			Spec: *d.Spec.Template.Spec.DeepCopy(),
		}}
		m.work.pods[types.NamespacedName{Namespace: key.Namespace, Name: p.pod.Name}] = p
	}
}

// start puts a pod that waits on the node with the fewest of its kind, and starts one anew whose node has booted.
func (m *ModelNodes) start(p *modelPod, now time.Time) {
	if p.pod.Spec.NodeName == "" {
		p.pod.Spec.NodeName = m.place(p)
	}

	n := m.nodes[p.pod.Spec.NodeName]
	if n == nil {
		return
	}

	if boot := n.kubelet.opts.BootID; p.ready.IsZero() || p.boot != boot {
		p.boot, p.ready = boot, now.Add(podStart)
	}
}

// place returns the node for a pod, empty where none takes one.
func (m *ModelNodes) place(p *modelPod) string {
	best, fewest := "", 0

	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		if n := m.nodes[name]; n.node.Spec.Unschedulable || !n.alive() || slices.ContainsFunc(n.node.Spec.Taints, repels) {
			continue
		}

		count := 0

		for _, other := range m.work.pods {
			if other.owner == p.owner && other.pod.Spec.NodeName == name {
				count++
			}
		}

		if best == "" || count < fewest {
			best, fewest = name, count
		}
	}

	return best
}

func repels(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }

// isReady tells whether a pod works; the caller holds the lock.
func (m *ModelNodes) isReady(p *modelPod, now time.Time) bool {
	n := m.nodes[p.pod.Spec.NodeName]

	return n != nil && n.alive() && n.kubelet.opts.BootID == p.boot && p.ends.IsZero() && !now.Before(p.ready)
}

// show is the pod as the cluster sees it.
func (m *ModelNodes) showPod(p *modelPod, now time.Time) corev1.Pod {
	out := p.pod.DeepCopy()

	if out.Status.Phase = corev1.PodPending; out.Spec.NodeName != "" && !p.ready.IsZero() && !now.Before(p.ready) {
		out.Status.Phase = corev1.PodRunning
	}

	status := corev1.ConditionFalse
	if m.isReady(p, now) {
		status = corev1.ConditionTrue
	}

	out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}

	if !p.ends.IsZero() {
		out.DeletionTimestamp = ptr.To(metav1.NewTime(p.ends.Truncate(time.Second)))
	}

	return *out
}
