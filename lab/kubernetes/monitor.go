package kubernetes

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	defaultGrace  = 40 * time.Second
	defaultPeriod = 5 * time.Second
	// writeTimeout bounds one write to an API server that may be frozen.
	writeTimeout = 10 * time.Second

	serviceAccount = "default"
	// silentReason and silentMessage are what the real controller writes.
	silentReason  = "NodeStatusUnknown"
	silentMessage = "Kubelet stopped posting node status."
)

// MonitorOptions tune the node monitor.
type MonitorOptions struct {
	// Grace is how long a node may be silent before it is NotReady; 40 s when zero.
	Grace time.Duration
	// Period is the pause between two checks of silent nodes; 5 s when zero, or a quarter of Grace if that is shorter.
	// Changes are observed at once.
	Period time.Duration
	// Clock is the time; the real one when nil.
	Clock clock.WithTicker
}

func (o MonitorOptions) withDefaults() MonitorOptions {
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}

	if o.Period <= 0 {
		o.Period = min(defaultPeriod, o.Grace/4)
	}

	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}

	return o
}

// heard is when a node was last heard of. The time is the monitor's own: a node with a wrong clock is not dead.
type heard struct {
	renewed metav1.MicroTime
	at      time.Time
}

type monitor struct {
	opts   MonitorOptions
	client clientset.Interface
	heard  map[string]heard

	nodes      corelisters.NodeLister
	leases     coordinationlisters.LeaseLister
	namespaces corelisters.NamespaceLister
	accounts   corelisters.ServiceAccountLister
}

// RunNodeMonitor is the part of the controller manager that the lab needs: nodes whose lease runs out become
// NotReady, healthy nodes lose the taints of those that are not, and every namespace gets its default service
// account. It runs until ctx ends. Several may run for one cluster: whatever one has done the others leave alone.
func RunNodeMonitor(ctx context.Context, client clientset.Interface, o MonitorOptions) {
	o = o.withDefaults()
	factory := informers.NewSharedInformerFactory(client, 0)
	m := &monitor{
		opts: o, client: client, heard: map[string]heard{},
		nodes:      factory.Core().V1().Nodes().Lister(),
		leases:     factory.Coordination().V1().Leases().Lister(),
		namespaces: factory.Core().V1().Namespaces().Lister(),
		accounts:   factory.Core().V1().ServiceAccounts().Lister(),
	}

	changed := make(chan struct{}, 1)
	wake := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify(changed) },
		UpdateFunc: func(any, any) { notify(changed) },
		DeleteFunc: func(any) { notify(changed) },
	}

	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Nodes().Informer(), factory.Core().V1().Namespaces().Informer(),
		factory.Core().V1().ServiceAccounts().Informer(),
	} {
		// It fails only on an informer that was stopped, and this one is new.
		_, _ = informer.AddEventHandler(wake)
	}

	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	m.run(ctx, changed)
	factory.Shutdown()
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run looks whenever something has changed, and from time to time for what has not.
func (m *monitor) run(ctx context.Context, changed <-chan struct{}) {
	ticker := m.opts.Clock.NewTicker(m.opts.Period)
	defer ticker.Stop()

	for ctx.Err() == nil {
		m.checkNodes(ctx)
		m.checkAccounts(ctx)

		select {
		case <-ctx.Done():
		case <-changed:
		case <-ticker.C():
		}
	}
}

// checkNodes compares every Node with what is known of its heartbeat.
func (m *monitor) checkNodes(ctx context.Context) {
	// A lister reads memory and cannot fail.
	nodes, _ := m.nodes.List(labels.Everything())
	now := m.opts.Clock.Now()
	present := map[string]bool{}

	for _, node := range nodes {
		present[node.Name] = true

		lease, _ := m.leases.Leases(corev1.NamespaceNodeLease).Get(node.Name)
		silent := m.listen(node, lease, now) > m.opts.Grace

		m.judge(ctx, node, silent, metav1.NewTime(now))
	}

	for name := range m.heard {
		if !present[name] {
			delete(m.heard, name)
		}
	}
}

// listen returns how long the node has been silent.
func (m *monitor) listen(node *corev1.Node, lease *coordinationv1.Lease, now time.Time) time.Duration {
	var renewed metav1.MicroTime
	if lease != nil && lease.Spec.RenewTime != nil {
		renewed = *lease.Spec.RenewTime
	}

	last, known := m.heard[node.Name]
	if !known || !last.renewed.Equal(&renewed) {
		last = heard{renewed: renewed, at: now}
		m.heard[node.Name] = last
	}

	return now.Sub(last.at)
}

// judge writes what follows from a node's silence, or from its voice, if that is not what stands there. Failures are
// left to the next check.
func (m *monitor) judge(ctx context.Context, node *corev1.Node, silent bool, now metav1.Time) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	wanted := node.DeepCopy()

	if silent {
		for _, kind := range []corev1.NodeConditionType{
			corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		} {
			markUnknown(&wanted.Status, kind, now)
		}
	}

	if !equality.Semantic.DeepEqual(node.Status, wanted.Status) {
		updated, err := m.client.CoreV1().Nodes().UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
		if err != nil {
			return
		}

		wanted = updated
	}

	taints := taintsFor(wanted, now)
	if equality.Semantic.DeepEqual(wanted.Spec.Taints, taints) {
		return
	}

	wanted.Spec.Taints = taints
	// Another monitor or the kubelet may have been faster; the next check finds what they did.
	_, _ = m.client.CoreV1().Nodes().Update(ctx, wanted, metav1.UpdateOptions{})
}

// markUnknown sets a condition to what a silent node deserves.
func markUnknown(s *corev1.NodeStatus, kind corev1.NodeConditionType, now metav1.Time) {
	i := slices.IndexFunc(s.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: kind})
		i = len(s.Conditions) - 1
	}

	if s.Conditions[i].Status == corev1.ConditionUnknown {
		return
	}

	s.Conditions[i].Status = corev1.ConditionUnknown
	s.Conditions[i].Reason, s.Conditions[i].Message = silentReason, silentMessage
	s.Conditions[i].LastTransitionTime = now
}

// taintsFor derives the taints that follow from the Ready condition. All others stay.
func taintsFor(node *corev1.Node, now metav1.Time) []corev1.Taint {
	var want []corev1.Taint

	switch readiness(node) {
	case corev1.ConditionTrue:
	case corev1.ConditionFalse:
		want = both(corev1.TaintNodeNotReady)
	default:
		want = both(corev1.TaintNodeUnreachable)
	}

	have := node.Spec.Taints
	taints := slices.DeleteFunc(slices.Clone(have), func(t corev1.Taint) bool {
		ours := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable

		return ours && !slices.ContainsFunc(want, func(w corev1.Taint) bool { return w.MatchTaint(&t) })
	})

	for _, w := range want {
		if !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return w.MatchTaint(&t) }) {
			w.TimeAdded = &now
			taints = append(taints, w)
		}
	}

	return taints
}

func both(key string) []corev1.Taint {
	return []corev1.Taint{
		{Key: key, Effect: corev1.TaintEffectNoSchedule}, {Key: key, Effect: corev1.TaintEffectNoExecute},
	}
}

// readiness is the status of the Ready condition; a node that never posted one is not ready.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}

	return corev1.ConditionFalse
}

// checkAccounts gives every namespace its default service account: no Pod can be created without one.
func (m *monitor) checkAccounts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	namespaces, _ := m.namespaces.List(labels.Everything())

	for _, ns := range namespaces {
		if _, err := m.accounts.ServiceAccounts(ns.Name).Get(serviceAccount); !apierrors.IsNotFound(err) ||
			ns.Status.Phase == corev1.NamespaceTerminating {
			continue
		}

		// It may exist by now, or the namespace may be on its way out: the next check knows.
		_, _ = m.client.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: serviceAccount, Namespace: ns.Name},
		}, metav1.CreateOptions{})
	}
}
